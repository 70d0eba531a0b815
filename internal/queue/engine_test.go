package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/kvtest"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A replica polls for its consumers as a host does.
type replica struct {
	*Consumers
	f    *fixture
	wake chan struct{}
	// fault, when not nil, says what happens to the next poll.
	fault kvtest.Fault

	stop context.CancelFunc
	done chan struct{}
}

var quick = QueueConfig{Batch: 10, Concurrency: 2, Visibility: time.Minute, MaxAttempts: 3, Backoff: time.Millisecond, DeadRetention: time.Hour}

func (f *fixture) replica(commits Committer) *replica {
	r := &replica{f: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	wake := func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	if commits == nil {
		g := kv.NewGroup(f.s)
		f.t.Cleanup(g.Wait)
		commits = g
	}
	r.Consumers = NewConsumers(Config{Replica: uuid.NewString(), Store: f.s, Commits: commits, Wake: wake,
		WakeAt: func(at time.Time) { time.AfterFunc(at.Sub(f.s.Clock()), wake) }}, slog.New(slog.NewTextHandler(f.t.Output(), nil)))
	return r
}

func (r *replica) consume(queue string, cfg QueueConfig, fn func(context.Context, durable.Batch) error) {
	r.f.t.Helper()
	if err := r.Consume(queue, cfg, nil, func(ctx context.Context, _ durable.Env, b durable.Batch) error { return fn(ctx, b) }); err != nil {
		r.f.t.Fatal(err)
	}
}

func (r *replica) poll() (again bool) {
	_, again, _ = r.f.Poll(r, &r.fault)
	return again
}

// start polls until the test ends or end is called.
func (r *replica) start() *replica {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			if r.poll() {
				continue
			}
			select {
			case <-r.wake:
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	r.f.t.Cleanup(func() { r.end(context.Background()) })
	return r
}

func (r *replica) end(ctx context.Context) error {
	r.stop()
	<-r.done
	return r.Stop(ctx)
}

// binding sends as an application does.
func (r *replica) binding(queue string) *Binding {
	return &Binding{Name: queue, Commits: r.cfg.Commits, Sent: r.Sent}
}

func (f *fixture) info(queue string) Info {
	f.t.Helper()
	i, err := Inspect(f.t.Context(), f.s, queue)
	if err != nil {
		f.t.Fatal(err)
	}
	return i
}

func (f *fixture) isEmpty(queue string) func() bool {
	return func() bool { i := f.info(queue); return i.Due+i.Delayed+i.Claimed == 0 }
}

// A record of deliveries.
type record struct {
	mu   sync.Mutex
	seen map[string][]int // attempts by body
}

func (r *record) add(m durable.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string][]int{}
	}
	r.seen[string(m.Body())] = append(r.seen[string(m.Body())], m.Attempts())
}

func (r *record) of(body string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen[body])
}

func TestDelivery(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		n := 500
		var rec record
		for range 2 {
			r := f.replica(nil)
			r.consume("q", quick, func(_ context.Context, b durable.Batch) error {
				if len(b.Messages()) > 10 || b.Queue() != "q" {
					t.Errorf("%d messages of %s", len(b.Messages()), b.Queue())
				}
				for _, m := range b.Messages() {
					if age := f.s.Clock().Sub(m.Timestamp()); age < -time.Minute || age > time.Minute {
						t.Errorf("sent %s ago", age)
					}
					rec.add(m)
					m.Ack()
				}
				return nil
			})
			r.start()
			var bodies []any
			for i := range n {
				bodies = append(bodies, fmt.Sprint(r.cfg.Replica, i))
			}
			if err := r.binding("q").SendBatch(t.Context(), bodies, durable.SendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		f.Eventually("the end", f.isEmpty("q"))
		if len(rec.seen) != 2*n {
			t.Errorf("%d messages", len(rec.seen))
		}
		for body, attempts := range rec.seen {
			if !slices.Equal(attempts, []int{1}) {
				t.Errorf("%s: %v", body, attempts)
			}
		}
	})
}

func TestDecisions(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		r := f.replica(nil)
		var rec record
		var kept durable.Message
		cfg := quick
		cfg.Concurrency = 1
		r.consume("q", cfg, func(_ context.Context, b durable.Batch) error {
			for _, m := range b.Messages() {
				rec.add(m)
				switch string(m.Body()) {
				case `"ack"`, `"ack and fail"`:
					m.Ack()
				case `"retry"`:
					if m.Retry(0); m.Attempts() > 1 {
						m.Ack()
					}
				case `"later"`:
					m.Retry(time.Hour)
				case `"kept"`:
					kept = m
				}
			}
			for _, m := range b.Messages() {
				switch string(m.Body()) {
				case `"ack and fail"`:
					return errors.New("it failed " + strings.Repeat("é", maxError))
				case `"panic"`:
					panic("no")
				}
			}
			return nil
		})
		r.start()
		bodies := []any{"ack", "retry", "later", "poison", "kept", "panic"}
		if err := r.binding("q").SendBatch(t.Context(), bodies[:5], durable.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		f.Eventually("the dead letters", func() bool { return f.info("q").Dead == 2 })
		kept.Ack() // too late
		if i := f.info("q"); i.Due != 0 || i.Claimed != 0 || i.Delayed != 1 {
			t.Errorf("%+v", i)
		}
		if err := r.binding("q").SendBatch(t.Context(), []any{"ack and fail", "panic"}, durable.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		f.Eventually("the third", func() bool { return f.info("q").Dead == 3 })
		for body, want := range map[string][]int{"ack": {1}, "retry": {1, 2}, "later": {1}, "poison": {1, 2, 3}, "kept": {1, 2, 3}, "ack and fail": {1}, "panic": {1, 2, 3}} {
			if got := rec.of(`"` + body + `"`); !slices.Equal(got, want) {
				t.Errorf("%s: attempts %v, want %v", body, got, want)
			}
		}
		texts := map[string]string{}
		for m, err := range Peek(t.Context(), f.s, "q", true, 0) {
			if err != nil {
				t.Fatal(err)
			}
			texts[string(m.Body)] = m.Error
		}
		if texts[`"poison"`] != "the consumer did not acknowledge it" || texts[`"panic"`] != "panic: no" {
			t.Errorf("%q", texts)
		}
		f.Eventually("the figures", func() bool { s := r.Stats()[0]; return s.Running == 0 && s.Dead == 3 })
		if s := r.Stats()[0]; s.Acked != 3 || s.Retried != 8 || s.Claimed != 0 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A lost answer to a claim is no delivery, whether the claim was made or not.
func TestLostPolls(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		unknown := &libsql.Error{Outcome: libsql.Unknown, Err: errors.New("cut")}
		for name, fault := range map[string]func(run func() ([]libsql.Result, error)) ([]libsql.Result, error){
			"applied":     func(run func() ([]libsql.Result, error)) ([]libsql.Result, error) { run(); return nil, unknown },
			"not applied": func(func() ([]libsql.Result, error)) ([]libsql.Result, error) { return nil, unknown },
			"refused": func(func() ([]libsql.Result, error)) ([]libsql.Result, error) {
				return nil, &libsql.Error{Outcome: libsql.Refused, Err: errors.New("no")}
			},
		} {
			r := f.replica(nil)
			r.fault = fault
			var rec record
			r.consume(name, quick, func(_ context.Context, b durable.Batch) error {
				for _, m := range b.Messages() {
					rec.add(m)
					m.Ack()
				}
				return nil
			})
			f.put(name, 0, 1, 2, 3)
			r.start()
			f.Eventually(name, f.isEmpty(name))
			for _, body := range []string{"1", "2", "3"} {
				if got := rec.of(body); !slices.Equal(got, []int{1}) {
					t.Errorf("%s: %s: %v", name, body, got)
				}
			}
			if err := r.end(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// flaky loses the answers of commits, applied or not.
type flaky struct {
	Committer
	n atomic.Int64
}

func (c *flaky) Commit(ctx context.Context, p *kv.Plan) (kv.Verdict, error) {
	err := &libsql.Error{Outcome: libsql.Unknown, Err: errors.New("cut")}
	switch c.n.Add(1) % 3 {
	case 1:
		c.Committer.Commit(ctx, p)
		return kv.Verdict{}, err
	case 2:
		return kv.Verdict{}, err
	}
	return c.Committer.Commit(ctx, p)
}

func TestLostSettlesAndRenewals(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		r := f.replica(&flaky{Committer: f.s})
		cfg := quick
		cfg.Visibility = 6 * time.Second // renewed every other second; its answers are lost
		var rec record
		r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
			for _, m := range b.Messages() {
				rec.add(m)
				if m.Attempts() == 1 && string(m.Body()) == "2" {
					m.Retry(0)
				} else {
					m.Ack()
				}
			}
			if b.Messages()[0].Attempts() == 1 {
				select {
				case <-time.After(cfg.Visibility * 3 / 2):
				case <-ctx.Done():
					t.Error(context.Cause(ctx))
				}
			}
			return nil
		})
		f.put("q", 0, 1, 2)
		r.start()
		f.Eventually("the end", f.isEmpty("q"))
		if one, two := rec.of("1"), rec.of("2"); !slices.Equal(one, []int{1}) || !slices.Equal(two, []int{1, 2}) {
			t.Errorf("%v %v", one, two)
		}
	})
}

// A consumer whose claim somebody else has got is told, and settles nothing.
func TestClaimLost(t *testing.T) {
	f := newFixture(t, fileOf)
	r := f.replica(nil)
	cfg := quick
	cfg.Visibility = time.Second
	begun, cause := make(chan struct{}), make(chan error, 1)
	r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		for _, m := range b.Messages() {
			m.Ack()
		}
		return nil
	})
	f.put("q", 0, 1)
	r.poll()
	<-begun
	f.expire("q")
	other := newClaim("q")
	if taken, _ := f.claim(other); len(taken) != 1 || taken[0].Attempts != 1 {
		t.Fatalf("%+v", taken)
	}
	if err := <-cause; !errors.Is(err, errClaimLost) {
		t.Errorf("%v", err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if i := f.info("q"); i.Claimed != 1 || r.Stats()[0].Lost != 1 {
		t.Errorf("%+v %+v", i, r.Stats())
	}
}

func TestStop(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		r := f.replica(nil)
		begun, end := make(chan struct{}, 10), make(chan struct{})
		cfg := quick
		cfg.Batch = 1
		r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
			begun <- struct{}{}
			m := b.Messages()[0]
			if string(m.Body()) == `"patient"` {
				<-end
				m.Ack()
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		f.put("q", 0, "patient", "stuck", "waiting")
		r.start()
		<-begun
		<-begun
		ctx, cancel := context.WithCancel(t.Context())
		r.stop()
		<-r.done // else a poll might take the third one in the place of the patient one
		stopped := make(chan error)
		go func() { stopped <- r.Stop(ctx) }()
		f.Eventually("the stop", func() bool {
			r.Consumers.mu.Lock()
			defer r.Consumers.mu.Unlock()
			return r.stopping
		})
		close(end)
		f.Eventually("the patient one", func() bool { return f.info("q").Claimed == 1 })
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		// Nothing is claimed any more, and nothing counts as a delivery.
		taken, _ := f.claim(newClaim("q"))
		if len(taken) != 2 || taken[0].Attempts+taken[1].Attempts != 0 {
			t.Errorf("%+v", taken)
		}
	})
}

// What the last poll took after the stop began, and what an unanswered poll
// took, is handed back.
func TestStopHandsBack(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		for _, answered := range []bool{true, false} {
			queue := fmt.Sprint(answered)
			f.put(queue, 0, 1, 2)
			r := f.replica(nil)
			r.consume(queue, quick, func(context.Context, durable.Batch) error { t.Error("it ran"); return nil })
			stmts := r.Poll(1 << 20)
			res, err := f.db.Batch(t.Context(), libsql.Write, stmts...)
			if err != nil {
				t.Fatal(err)
			}
			if f.info(queue).Claimed != 2 {
				t.Fatal("nothing was claimed")
			}
			if answered {
				r.stopping = true
				r.Polled(res, nil, clock.Now())
			}
			if err := r.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if taken, _ := f.claim(newClaim(queue)); len(taken) != 2 || taken[0].Attempts != 0 {
				t.Errorf("%+v", taken)
			}
			if len(r.Poll(1<<20)) != 0 {
				t.Error("it polls after the stop")
			}
		}
	})
}

// A queue whose consumers are stuck, or whose messages fail, does not stop
// another one; and many queues share a poll's bytes.
func TestManyQueues(t *testing.T) {
	f := newFixture(t, wireOf)
	r := f.replica(nil)
	large := strings.Repeat("x", MaxBody-2)
	var got atomic.Int64
	for i := range 40 {
		queue := fmt.Sprint("q", i)
		if i < 10 {
			f.put(queue, 0, large, large, large, large)
		} else {
			f.put(queue, 0, i)
		}
		r.consume(queue, quick, func(_ context.Context, b durable.Batch) error {
			for _, m := range b.Messages() {
				m.Ack()
				got.Add(1)
			}
			return nil
		})
	}
	// A poll's answer has its bound, and no queue is left out for long.
	seen := map[string]bool{}
	for range 3 {
		stmts := r.Poll(4 << 20)
		for _, a := range r.asked {
			seen[a.q.name] = true
		}
		res, err := f.db.Batch(t.Context(), libsql.Write, stmts...)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, r := range res {
			for _, row := range r.Rows {
				if s, ok := row[1].(string); ok && len(row) == 3 {
					bytes += len(s)
				}
			}
		}
		if bytes > 4<<20+10*300 {
			t.Errorf("%d bytes", bytes)
		}
		r.Polled(res, nil, clock.Now())
	}
	if len(seen) != 40 {
		t.Errorf("%d queues had a turn", len(seen))
	}
	r.start()
	f.Eventually("all", func() bool { return got.Load() == 70 })
}

// A send on a replica that consumes the queue is delivered without waiting
// for the next regular poll.
func TestSentWakes(t *testing.T) {
	f := newFixture(t, fileOf)
	woken, at := 0, time.Time{}
	c := NewConsumers(Config{Store: f.s, Commits: f.s, Wake: func() { woken++ }, WakeAt: func(t time.Time) { at = t }}, slog.New(slog.DiscardHandler))
	if err := c.Consume("q", quick, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Consume("q", quick, nil, nil); err == nil {
		t.Error("two consumers of one queue")
	}
	if err := c.Consume("z", QueueConfig{}, nil, nil); !errors.Is(err, durable.ErrInvalid) {
		t.Error(err)
	}
	for queue, want := range map[string]int{"q": 1, "other": 0} {
		woken = 0
		b := &Binding{Name: queue, Commits: f.s, Sent: c.Sent}
		if err := b.Send(t.Context(), 1, durable.SendOptions{}); err != nil || woken != want {
			t.Errorf("%s: %d wakes, %v", queue, woken, err)
		}
	}
	b := &Binding{Name: "q", Commits: f.s, Sent: c.Sent}
	if err := b.Send(t.Context(), 1, durable.SendOptions{Delay: time.Hour}); err != nil || at.Sub(f.s.Clock()) < 59*time.Minute {
		t.Errorf("%s %v", at, err)
	}
}

func TestBindingErrors(t *testing.T) {
	f := newFixture(t, fileOf)
	var bodies []any
	for range 2500 {
		bodies = append(bodies, "x")
	}
	c := &flaky{Committer: f.s}
	c.n.Store(2)
	b := &Binding{Name: "q", Commits: c}
	err := b.SendBatch(t.Context(), bodies, durable.SendOptions{}) // the second of three commits is in doubt
	if !errors.Is(err, durable.ErrUnknownOutcome) || !strings.Contains(err.Error(), "1000 of 2500") || f.info("q").Due != 2000 {
		t.Errorf("%v, %+v", err, f.info("q"))
	}
	b.Commits = refuses{}
	if err := b.Send(t.Context(), 1, durable.SendOptions{}); !errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) {
		t.Error(err)
	}
	if err := b.Send(t.Context(), strings.Repeat("x", MaxBody), durable.SendOptions{}); !errors.Is(err, durable.ErrTooLarge) {
		t.Error(err)
	}
}

type refuses struct{}

func (refuses) Commit(context.Context, *kv.Plan) (kv.Verdict, error) {
	return kv.Verdict{}, &libsql.Error{Outcome: libsql.Refused, Err: errors.New("no")}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		first  time.Duration
		failed int
		want   time.Duration
	}{{time.Second, 0, time.Second}, {time.Second, 3, 8 * time.Second}, {time.Second, 1000, maxBackoff}, {0, 5, 0}, {2 * time.Hour, 0, maxBackoff}} {
		if got := backoff(c.first, c.failed); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}
