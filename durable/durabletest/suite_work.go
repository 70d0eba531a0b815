package durabletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

func testAlarms(t *testing.T, s *suite) {
	set := func(d time.Duration) func(*probe, http.ResponseWriter, *http.Request) {
		return func(p *probe, _ http.ResponseWriter, _ *http.Request) { must(p.state.SetAlarmIn(d)) }
	}
	ring := func(f func(context.Context, *probe, durable.AlarmInfo) error) { s.set(func() { s.alarm = f }) }
	t.Run("one that is due runs by itself, once", func(t *testing.T) {
		ring(func(ctx context.Context, p *probe, info durable.AlarmInfo) error {
			_, pending := p.state.Alarm()
			p.insert(ctx, fmt.Sprintf("%d%v%v", info.RetryCount, pending, info.Due.IsZero()))
			return nil
		})
		s.run("rings", set(0))
		s.eventually("the alarm", func() bool { return s.do("rings", "/all").Body != "" })
		s.has(t, "rings", "0falsefalse")
		if _, ok := s.Alarm(class, "rings"); ok {
			t.Error("it is pending still")
		}
	})
	t.Run("what is set last holds", func(t *testing.T) {
		ring(func(ctx context.Context, p *probe, info durable.AlarmInfo) error {
			p.insert(ctx, info.Due.UnixMilli())
			return nil
		})
		due := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
		s.run("last", set(time.Hour))
		s.run("last", func(p *probe, w http.ResponseWriter, _ *http.Request) {
			must(p.state.SetAlarm(due))
			at, ok := p.state.Alarm()
			fmt.Fprint(w, at.Equal(due), ok)
		})
		if at, ok := s.Alarm(class, "last"); !ok || !at.Equal(due) {
			t.Errorf("%v %v", at, ok)
		}
		is(t, "run", s.RunAlarm(class, "last"), nil)
		s.has(t, "last", fmt.Sprint(due.UnixMilli()))
		is(t, "run again", s.RunAlarm(class, "last"), durable.ErrNotFound)
	})
	t.Run("deleting it", func(t *testing.T) {
		s.run("deleted", set(time.Hour))
		s.run("deleted", func(p *probe, _ http.ResponseWriter, _ *http.Request) { must(p.state.DeleteAlarm()) })
		if _, ok := s.Alarm(class, "deleted"); ok {
			t.Error("it is pending")
		}
	})
	t.Run("a handler that sets a new one has the new one", func(t *testing.T) {
		ring(func(ctx context.Context, p *probe, _ durable.AlarmInfo) error {
			p.insert(ctx, "tick")
			return p.state.SetAlarmIn(time.Hour)
		})
		s.run("again", set(time.Hour))
		for range 2 {
			is(t, "run", s.RunAlarm(class, "again"), nil)
		}
		s.has(t, "again", "tick tick")
		if _, ok := s.Alarm(class, "again"); !ok {
			t.Error("there is none")
		}
	})
	t.Run("one that fails is undone, logged and run again", func(t *testing.T) {
		var mu sync.Mutex
		var counts []int
		ring(func(ctx context.Context, p *probe, info durable.AlarmInfo) error {
			mu.Lock()
			counts = append(counts, info.RetryCount)
			n := len(counts)
			mu.Unlock()
			p.insert(ctx, n)
			must(p.state.SetAlarmIn(time.Hour))
			switch n {
			case 1:
				return errors.New("canary3")
			case 2:
				panic("canary4")
			}
			return p.state.DeleteAlarm()
		})
		s.run("fails", set(0))
		s.eventually("the third run", func() bool { return s.do("fails", "/all").Body != "" })
		s.has(t, "fails", "3")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(counts, []int{0, 1, 2}) {
			t.Error(counts)
		}
		for _, text := range []string{"canary3", "canary4"} {
			s.logged(t, "app=suite", durable.IDFromName("fails").String(), text)
		}
	})
	t.Run("one that always fails is given up", func(t *testing.T) {
		ring(func(context.Context, *probe, durable.AlarmInfo) error { return errors.New("canary5") })
		s.run("dead", set(0))
		s.eventually("its end", func() bool { return s.alarmState(class, "dead").Dead != nil })
		if _, ok := s.Alarm(class, "dead"); ok {
			t.Error("it is pending")
		}
	})
	t.Run("a restart loses none", func(t *testing.T) {
		ring(func(ctx context.Context, p *probe, _ durable.AlarmInfo) error { p.insert(ctx, "rang"); return nil })
		s.run("restart", set(time.Hour))
		s.Restart()
		is(t, "run", s.RunAlarm(class, "restart"), nil)
		s.has(t, "restart", "rang")
	})
}

func testQueues(t *testing.T, s *suite) {
	ctx := t.Context()
	type delivery struct {
		id, body string
		attempts int
	}
	var mu sync.Mutex
	var got []delivery
	consume := func(f func(durable.Message)) {
		mu.Lock()
		got = nil
		mu.Unlock()
		s.set(func() {
			s.consumer = func(_ context.Context, _ durable.Env, b durable.Batch) error {
				if b.Queue() != "work" {
					return fmt.Errorf("queue %s", b.Queue())
				}
				for _, m := range b.Messages() {
					mu.Lock()
					got = append(got, delivery{m.ID(), string(m.Body()), m.Attempts()})
					mu.Unlock()
					f(m)
				}
				return nil
			}
		})
	}
	delivered := func() []delivery { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
	q := func() durable.Queue { return s.Env().Queue("work") }
	t.Run("a message is JSON as it was sent, once when it is acknowledged", func(t *testing.T) {
		consume(durable.Message.Ack)
		is(t, "send", q().Send(ctx, json.RawMessage(`{"n": 12345678901234567890}`), durable.SendOptions{}), nil)
		s.Deliver("work")
		if d := delivered(); len(d) != 1 || d[0].body != `{"n":12345678901234567890}` || d[0].attempts != 1 || d[0].id == "" {
			t.Errorf("%+v", d)
		}
		if n := s.Waiting("work"); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
	t.Run("a delay", func(t *testing.T) {
		consume(durable.Message.Ack)
		is(t, "send", q().Send(ctx, 1, durable.SendOptions{Delay: time.Hour}), nil)
		if n := s.Waiting("work"); n != 1 || len(delivered()) != 0 {
			t.Errorf("%d wait, %v", n, delivered())
		}
		s.Deliver("work")
		if d := delivered(); len(d) != 1 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("not acknowledged means delivered again, until it is a dead letter", func(t *testing.T) {
		consume(func(m durable.Message) { m.Retry(time.Hour) })
		is(t, "send", q().Send(ctx, "again", durable.SendOptions{}), nil)
		s.eventually("the first delivery", func() bool { return len(delivered()) > 0 })
		for range 10 {
			s.Deliver("work")
		}
		for i, d := range delivered() {
			if d.attempts != i+1 || d.id != got[0].id {
				t.Errorf("delivery %d: %+v", i, d)
			}
		}
		dead := s.DeadLetters("work")
		if len(delivered()) != 5 || len(dead) != 1 || string(dead[0].Body) != `"again"` || s.Waiting("work") != 0 {
			t.Errorf("%d deliveries, %v, %d wait", len(delivered()), dead, s.Waiting("work"))
		}
	})
	t.Run("a consumer that fails or panics keeps what it acknowledged", func(t *testing.T) {
		consume(durable.Message.Ack)
		s.mu.Lock()
		inner := s.consumer
		s.mu.Unlock()
		s.set(func() {
			s.consumer = func(ctx context.Context, env durable.Env, b durable.Batch) error {
				must(inner(ctx, env, b))
				panic("canary6")
			}
		})
		is(t, "send", q().SendBatch(ctx, []any{1, 2, 3}, durable.SendOptions{}), nil)
		s.Deliver("work")
		if d := delivered(); len(d) != 3 || s.Waiting("work") != 0 {
			t.Errorf("%+v", d)
		}
		s.logged(t, "work", "canary6")
	})
	t.Run("a send within an event is part of its commit", func(t *testing.T) {
		consume(durable.Message.Ack)
		for _, fails := range []bool{true, false} {
			s.run("sender", func(p *probe, _ http.ResponseWriter, r *http.Request) {
				must(p.env.Queue("work").Send(r.Context(), fails, durable.SendOptions{}))
				if fails {
					panic("canary")
				}
			})
		}
		s.Deliver("work")
		if d := delivered(); len(d) != 1 || d[0].body != "false" {
			t.Errorf("%+v", d)
		}
	})
	t.Run("bodies over the limit", func(t *testing.T) {
		is(t, "send", q().Send(ctx, strings.Repeat("x", 129<<10), durable.SendOptions{}), durable.ErrTooLarge)
	})
}

func testCrons(t *testing.T, s *suite) {
	var got []durable.Occurrence
	run := func(f func() error) {
		s.set(func() {
			s.cron = func(ctx context.Context, env durable.Env, o durable.Occurrence) error {
				got = append(got, o)
				if _, err := env.Database("DB").Exec(ctx, `CREATE TABLE IF NOT EXISTS run(at)`); err != nil {
					return err
				}
				return f()
			}
		})
	}
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Hour)
	run(func() error { return nil })
	is(t, "run", s.RunCron("tick", at), nil)
	if len(got) != 1 || got[0].Name != "tick" || !got[0].At.Equal(at) || got[0].Attempt != 1 {
		t.Fatalf("%+v", got)
	}
	run(func() error { return errors.New("canary7") })
	if err := s.RunCron("tick", at); err == nil || !strings.Contains(err.Error(), "canary7") {
		t.Errorf("a run that fails: %v", err)
	}
	run(func() error { panic("canary8") })
	if err := s.RunCron("tick", time.Time{}); err == nil || !strings.Contains(err.Error(), "canary8") {
		t.Errorf("a run that panics: %v", err)
	}
	if len(got) != 3 {
		t.Errorf("%+v", got)
	}
}
