package object

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// fastAlarms has failing alarms run again soon.
func fastAlarms(c *Config) { c.AlarmRetries, c.AlarmBackoff, c.AlarmBatch = 2, 10*time.Millisecond, 10 }

// A timer is a funcObject with an alarm, which its runtime's test has chosen.
type timer struct {
	funcObject
	alarm *func(o *timer, ctx context.Context, info durable.AlarmInfo) error
}

func (o *timer) Alarm(ctx context.Context, info durable.AlarmInfo) error {
	return (*o.alarm)(o, ctx, info)
}

// count adds one to the object's number, which is committed with the firing.
func (o *timer) count(ctx context.Context) error {
	_, err := o.state.SQL().Exec(ctx, `UPDATE n SET v = v + 1`)
	return err
}

// An alarmist is a member whose class Timer runs onAlarm, with its part of the
// poll.
type alarmist struct {
	*member
	alarms  *Alarms
	onAlarm func(o *timer, ctx context.Context, info durable.AlarmInfo) error
	// fired counts the runs that were begun.
	fired atomic.Int64
}

func (f *fleet) alarmist(replica string, change ...func(*Config)) *alarmist {
	f.t.Helper()
	a := &alarmist{onAlarm: func(o *timer, ctx context.Context, _ durable.AlarmInfo) error { return o.count(ctx) }}
	a.member = f.join(replica, append([]func(*Config){fastAlarms}, change...)...)
	run := func(o *timer, ctx context.Context, info durable.AlarmInfo) error {
		a.fired.Add(1)
		return a.onAlarm(o, ctx, info)
	}
	err := a.Register("Timer", Class{Env: testEnv{rt: a.Runtime}, New: func(s durable.State, e durable.Env) (durable.Object, error) {
		o, err := testClasses["Counter"](s, e)
		if err != nil {
			return nil, err
		}
		return &timer{*o.(*funcObject), &run}, nil
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	a.alarms = a.Alarms()
	return a
}

// poll runs one poll.
func (a *alarmist) poll(t *testing.T) {
	t.Helper()
	sent := time.Now()
	res, err := a.faults.Batch(t.Context(), libsql.Write, a.alarms.Poll(1<<20)...)
	a.alarms.Polled(res, err, sent)
}

// polling polls until the test ends.
func (a *alarmist) polling(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for pause(ctx, 10*time.Millisecond) {
			a.poll(t)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// ask sends a request to a Timer.
func (a *alarmist) ask(t *testing.T, name, path string, h handlers) string {
	t.Helper()
	w := a.doClass(t.Context(), "Timer", name, path, h)
	if w.Code != http.StatusOK {
		t.Errorf("%s of %s: %d %s", path, name, w.Code, w.Body) // not Fatal: it is used on other goroutines too
	}
	return w.Body.String()
}

// set has an object set its alarm.
func (a *alarmist) set(t *testing.T, name string, d time.Duration) {
	t.Helper()
	a.ask(t, name, "/set", handlers{"/set": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		if err := o.state.SetAlarmIn(d); err != nil {
			t.Error(err)
		}
	}})
}

// due makes an object that exists and whose alarm has been due for a moment,
// without any replica knowing of it.
func (a *alarmist) due(t *testing.T, name string) {
	t.Helper()
	a.ask(t, name, "/add", nil)
	eventually(t, "its lease is free", func() bool { return len(entries[any](t, a.store, "dwk_lease")) == 0 })
	p := kv.NewPlan()
	alarm.AddSet(p, "Timer", durable.IDFromName(name).String(), time.Now().Add(-time.Second))
	if v, err := a.store.Commit(t.Context(), p); err != nil || !v.OK {
		t.Fatal(err)
	}
}

// slot returns the object's alarm.
func (a *alarmist) slot(t *testing.T, name string) alarm.Shown {
	t.Helper()
	id := durable.IDFromName(name).String()
	res, err := a.store.Decide(context.Background(), alarm.ShowStatement("Timer", id))
	if err != nil {
		t.Fatal(err)
	}
	s, err := alarm.Read("Timer", id, res[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entries returns the values below a key.
func entries[T any](t *testing.T, s *kv.Store, prefix ...any) []T {
	t.Helper()
	var out []T
	for e, err := range s.List(context.Background(), kv.ListOptions{Prefix: tuple.Key(prefix)}) {
		var v T
		if err == nil {
			err = json.Unmarshal(e.Value, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func runs(t *testing.T, a *alarmist, name string) []alarm.Run {
	return entries[alarm.Run](t, a.store, alarm.RunPrefix, "Timer", durable.IDFromName(name).String())
}

// settled waits until the object has no alarm and nobody works on it.
func (a *alarmist) settled(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the alarm is done with", func() bool { return !a.slot(t, name).Set })
}

func TestAlarmFires(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		a, b := f.alarmist("a"), f.alarmist("b")
		a.polling(t)
		b.polling(t)
		var asked atomic.Int64
		for _, m := range []*alarmist{a, b} {
			m.onAlarm = func(o *timer, ctx context.Context, info durable.AlarmInfo) error {
				if _, ok := o.state.Alarm(); ok || info.RetryCount != 0 {
					t.Errorf("the slot is not empty, or the run is a retry: %+v", info)
				}
				asked.Store(info.Due.UnixMilli())
				return o.count(ctx)
			}
		}
		a.ask(t, "x", "/set", handlers{"/set": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			if _, ok := o.state.Alarm(); ok {
				t.Error("an alarm before it is set")
			}
			if err := o.state.SetAlarmIn(20 * time.Millisecond); err != nil {
				t.Error(err)
			}
			if at, ok := o.state.Alarm(); !ok || at.IsZero() {
				t.Error("no alarm after it was set")
			}
		}})
		due := a.slot(t, "x")
		a.settled(t, "x")
		if got := b.ask(t, "x", "/get", nil); got != "1" {
			t.Errorf("%s committed firings, want 1", got)
		}
		if due.Set && asked.Load() != due.Asked() {
			t.Errorf("Due was %d, want %d", asked.Load(), due.Asked())
		}
		if n := a.fired.Load() + b.fired.Load(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		h := runs(t, a, "x")
		if len(h) != 1 || h[0].Outcome != alarm.OutcomeOK || h[0].Replica == "" || h[0].FinishedAt == 0 {
			t.Errorf("history: %+v", h)
		}
		if left := entries[any](t, a.store, alarm.DuePrefix); len(left) != 0 {
			t.Errorf("left in the index: %v", left)
		}
	})
}

// TestAlarmTrips: an alarm costs the poll and one commit.
func TestAlarmTrips(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.set(t, "x", 0)
	a.settled(t, "x") // the event that set it runs it too
	a.due(t, "x")
	before := a.faults.trips.Load()
	a.poll(t)
	eventually(t, "the alarm has run", func() bool { return a.fired.Load() == 2 })
	eventually(t, "its object is idle", func() bool { return a.Stats().Running == 0 })
	if n := a.faults.trips.Load() - before; n != 2 {
		t.Errorf("%d round trips, want 2", n)
	}
	if n := len(entries[any](t, a.store, "dwk_lease")); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	before = a.faults.trips.Load()
	a.poll(t)
	if n := a.faults.trips.Load() - before; n != 1 {
		t.Errorf("an idle poll: %d round trips, want 1", n)
	}
}

// TestAlarmIsPartOfTheCommit: it is set by events that commit only, and an event
// that does nothing else commits.
func TestAlarmIsPartOfTheCommit(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	w := a.doClass(t.Context(), "Timer", "x", "/fail", handlers{"/fail": func(o *funcObject, _ http.ResponseWriter, _ *http.Request) {
		_ = o.state.SetAlarmIn(0)
		panic("no")
	}})
	if w.Code != http.StatusInternalServerError || a.slot(t, "x").Set {
		t.Errorf("%d, and the alarm is %+v", w.Code, a.slot(t, "x"))
	}
	a.set(t, "x", time.Hour)
	if s := a.slot(t, "x"); !s.Set || s.Due() {
		t.Errorf("set: %+v", s)
	}
	if got := a.ask(t, "x", "/get", nil); got != "0" {
		t.Errorf("the object that an alarm made holds %s", got)
	}
	a.ask(t, "x", "/delete", handlers{"/delete": func(o *funcObject, _ http.ResponseWriter, _ *http.Request) {
		if _, ok := o.state.Alarm(); !ok {
			t.Error("the event does not see the alarm")
		}
		_ = o.state.DeleteAlarm()
		if _, ok := o.state.Alarm(); ok {
			t.Error("the event still sees the alarm that it deleted")
		}
	}})
	if s := a.slot(t, "x"); s.Set {
		t.Errorf("deleted: %+v", s)
	}
	w = a.doClass(t.Context(), "Counter", "x", "/set", handlers{"/set": func(o *funcObject, _ http.ResponseWriter, _ *http.Request) {
		if err := o.state.SetAlarmIn(0); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("an object without an alarm: %v", err)
		}
	}})
	if w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}

// TestAlarmReplaced: what is set last holds, whoever set it and when.
func TestAlarmReplaced(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	hour := func(s alarm.Shown) bool { return s.Set && s.Claim == "" && s.EpochMs-s.NowMs > 1000*60*30 }

	t.Run("by a request while it is due", func(t *testing.T) {
		a.set(t, "due", 10*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		a.set(t, "due", time.Hour)
		a.poll(t)
		eventually(t, "idle", func() bool { return a.Stats().Running == 0 })
		// It was due: it may have run before the request, but not after it.
		if s := a.slot(t, "due"); !hour(s) {
			t.Errorf("%+v", s)
		}
	})
	t.Run("by its handler", func(t *testing.T) {
		a.onAlarm = func(o *timer, _ context.Context, _ durable.AlarmInfo) error { return o.state.SetAlarmIn(time.Hour) }
		a.set(t, "self", 0)
		eventually(t, "it has run", func() bool { return hour(a.slot(t, "self")) })
	})
	t.Run("by a request that waits for the run", func(t *testing.T) {
		begun, goOn := make(chan bool), make(chan bool)
		a.onAlarm = func(*timer, context.Context, durable.AlarmInfo) error { close(begun); <-goOn; return nil }
		a.set(t, "waits", 0)
		<-begun
		var wg sync.WaitGroup
		wg.Go(func() { a.set(t, "waits", time.Hour) })
		eventually(t, "the request waits", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.actors[key{"Timer", durable.IDFromName("waits").String()}].queue) == 1
		})
		close(goOn)
		wg.Wait()
		if s := a.slot(t, "waits"); !hour(s) {
			t.Errorf("%+v", s)
		}
	})
	t.Run("and kept when the handler fails", func(t *testing.T) {
		a.onAlarm = func(o *timer, _ context.Context, _ durable.AlarmInfo) error {
			_ = o.state.SetAlarmIn(time.Hour)
			return errors.New("no")
		}
		a.set(t, "fails", 0)
		eventually(t, "it is to be run again", func() bool { return a.slot(t, "fails").RetryCount > 0 })
		if hour(a.slot(t, "fails")) {
			t.Error("a failed run has set the alarm")
		}
	})
}

// TestFailingAlarm is run again with a growing wait, then given up.
func TestFailingAlarm(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		a := f.alarmist("a")
		a.polling(t)
		var mu sync.Mutex
		var seen []durable.AlarmInfo
		a.onAlarm = func(o *timer, ctx context.Context, info durable.AlarmInfo) error {
			mu.Lock()
			seen = append(seen, info)
			mu.Unlock()
			_ = o.count(ctx)
			if info.RetryCount == 1 {
				panic("no")
			}
			return errors.New("no")
		}
		a.set(t, "x", 0)
		a.settled(t, "x")
		mu.Lock()
		defer mu.Unlock()
		for i, info := range seen {
			if info.RetryCount != i || !info.Due.Equal(seen[0].Due) {
				t.Errorf("run %d: %+v", i, info)
			}
		}
		if len(seen) != 3 {
			t.Errorf("%d runs, want 3", len(seen))
		}
		dead := entries[alarm.Dead](t, a.store, alarm.DeadPrefix)
		if len(dead) != 1 || dead[0].RetryCount != 2 || dead[0].Error == "" || dead[0].Due != seen[0].Due.UnixMilli() {
			t.Errorf("dead letters: %+v", dead)
		}
		if got := a.ask(t, "x", "/get", nil); got != "0" {
			t.Errorf("a failed run has left %s", got)
		}
		if h := runs(t, a, "x"); len(h) != 3 || h[0].Outcome != alarm.OutcomeFailed {
			t.Errorf("history: %+v", h)
		}
	})
}

// takeAs takes the due alarm of x like a replica that then dies.
func (f *fleet) takeAs(holder string) {
	f.t.Helper()
	take := alarm.Take{Class: "Timer", Replica: "dead", Holders: []string{holder}, TTL: 50 * time.Millisecond, DeadlineMs: 1 << 50}
	eventually(f.t, "it is taken", func() bool {
		res, err := f.db.Batch(f.t.Context(), libsql.Write, take.Statements()...)
		if err != nil {
			f.t.Fatal(err)
		}
		taken, _, err := take.Read(res)
		if err != nil {
			f.t.Fatal(err)
		}
		return len(taken) == 1
	})
}

// TestAlarmOfADeadReplica is run by another one, and the crash is counted.
func TestAlarmOfADeadReplica(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.due(t, "x")
	f.takeAs("dead")
	infos := make(chan durable.AlarmInfo, 9)
	a.onAlarm = func(_ *timer, _ context.Context, i durable.AlarmInfo) error { infos <- i; return nil }
	a.polling(t)
	a.settled(t, "x")
	if info := <-infos; info.RetryCount != 1 {
		t.Errorf("the run after a crash has the count %d", info.RetryCount)
	}
	if h := runs(t, a, "x"); len(h) != 2 || h[0].Outcome != alarm.OutcomeCrashed || h[1].Outcome != alarm.OutcomeOK {
		t.Errorf("history: %+v", h)
	}
}

// TestDeadlyAlarm: one that kills every replica that runs it is given up.
func TestDeadlyAlarm(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.due(t, "x")
	for n := range 3 {
		f.takeAs(fmt.Sprint("dead", n))
	}
	a.polling(t)
	a.settled(t, "x")
	dead := entries[alarm.Dead](t, a.store, alarm.DeadPrefix)
	if len(dead) != 1 || dead[0].RetryCount != 3 || a.fired.Load() != 0 {
		t.Errorf("dead letters %+v, %d runs", dead, a.fired.Load())
	}
	eventually(t, "the lease is free", func() bool { return f.leases() == len(dead)+len(runs(t, a, "x")) })
}

// TestAlarmUnderAKeptLease: steady traffic keeps the lease, and the alarm runs
// between the events.
func TestAlarmUnderAKeptLease(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				a.ask(t, "x", "/add", nil)
			}
		})
	}
	a.set(t, "x", 30*time.Millisecond)
	eventually(t, "it has run", func() bool { return a.fired.Load() == 1 }) // no poll is needed
	cancel()
	wg.Wait()
	a.settled(t, "x")
}

// TestAlarmAndEventsTakeTurns: an alarm that is due again at once does not
// starve requests.
func TestAlarmAndEventsTakeTurns(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	var stop atomic.Bool
	a.onAlarm = func(o *timer, ctx context.Context, _ durable.AlarmInfo) error {
		if stop.Load() {
			return nil
		}
		return o.state.SetAlarmIn(0)
	}
	a.set(t, "x", 0)
	for range 20 {
		a.ask(t, "x", "/add", nil)
	}
	if a.fired.Load() == 0 {
		t.Error("the alarm does not run between requests")
	}
	stop.Store(true)
	a.settled(t, "x")
}

// TestFlushInAnAlarm commits what was done and not the end of the alarm.
func TestFlushInAnAlarm(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	var between alarm.Shown
	a.onAlarm = func(o *timer, ctx context.Context, info durable.AlarmInfo) error {
		if err := o.count(ctx); err != nil {
			return err
		}
		if err := o.state.SetAlarmIn(time.Hour); err != nil {
			return err
		}
		// A call to another object flushes.
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/get", nil)
		resp, err := o.env.Namespace("Counter").Get(durable.IDFromName("other")).Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		between = a.slot(t, "x")
		if info.RetryCount == 0 {
			return errors.New("no")
		}
		return nil
	}
	a.set(t, "x", 0)
	a.polling(t)
	eventually(t, "it has run twice", func() bool { return a.fired.Load() == 2 && a.slot(t, "x").Claim == "" })
	if between.Claim == "" {
		t.Errorf("between the commits of the alarm: %+v", between)
	}
	if s := a.slot(t, "x"); !s.Set || s.RetryCount != 0 || s.EpochMs-s.NowMs < 1000*60*30 {
		t.Errorf("after the run: %+v", s)
	}
	if got := a.ask(t, "x", "/get", nil); got != "2" {
		t.Errorf("the flushed writes of two runs: %s", got)
	}
}

// TestAlarmsUnderFaults: answers and statements are lost at random while two
// replicas poll. Each alarm has one committed firing, and none is counted as a
// crash, because none was.
func TestAlarmsUnderFaults(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		members := []*alarmist{f.alarmist("a", shortTTL), f.alarmist("b", shortTTL)}
		var retried atomic.Int64
		const objects = 12
		names := make([]string, objects)
		for i := range names {
			names[i] = fmt.Sprint("o", i)
			members[i%2].set(t, names[i], time.Duration(i)*20*time.Millisecond+300*time.Millisecond)
		}
		for i, m := range members {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			var mu sync.Mutex
			flip := func([]libsql.Statement) error {
				mu.Lock()
				defer mu.Unlock()
				if rng.IntN(4) == 0 {
					return lost()
				}
				return nil
			}
			m.onAlarm = func(o *timer, ctx context.Context, info durable.AlarmInfo) error {
				if info.RetryCount > 0 {
					retried.Add(1)
				}
				return o.count(ctx)
			}
			m.faults.setBefore(flip)
			m.faults.setAfter(flip)
			m.polling(t)
		}
		// What is claimed under a lost answer may have to wait for the lease's end.
		calm := f.alarmist("calm")
		for _, name := range names {
			calm.settled(t, name)
		}
		for _, m := range members {
			m.faults.setBefore(nil)
			m.faults.setAfter(nil)
		}
		for _, name := range names {
			if got := calm.ask(t, name, "/get", nil); got != "1" {
				t.Errorf("%s has %s committed firings, want 1", name, got)
			}
		}
		if dead := entries[alarm.Dead](t, calm.store, alarm.DeadPrefix); len(dead) > 0 {
			t.Errorf("dead letters: %+v", dead)
		}
		t.Logf("%d runs for %d alarms, %d counted as retries", members[0].fired.Load()+members[1].fired.Load(), objects, retried.Load())
	})
}

// TestStopHandsBack: what a poll has taken and nobody has begun with is due
// again at once, and no lease is left.
func TestStopHandsBack(t *testing.T) {
	f := newFleet(t)
	a, b := f.alarmist("a"), f.alarmist("b")
	a.due(t, "x")
	a.mu.Lock()
	a.closed = true // as Stop does, before the poll's answer arrives
	a.mu.Unlock()
	a.poll(t)
	eventually(t, "it is handed back", func() bool { s := a.slot(t, "x"); return s.Set && s.Claim == "" })
	a.stop(t)
	if n := len(entries[any](t, b.store, "dwk_lease")); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	b.poll(t)
	b.settled(t, "x")
	if a.fired.Load() != 0 || b.fired.Load() != 1 {
		t.Errorf("%d and %d runs", a.fired.Load(), b.fired.Load())
	}
}
