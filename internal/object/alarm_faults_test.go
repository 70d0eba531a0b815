package object

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// TestAlarmOfNoObjectIsNotRun: the alarm of an object without a log, an older
// host's, is kept, also when a request reads the object.
func TestAlarmOfNoObjectIsNotRun(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	id := durable.IDFromName("x").String()
	p := kv.NewPlan()
	alarm.AddSet(p, "Timer", id, time.Now().Add(-time.Minute))
	if v, err := a.store.Commit(t.Context(), p); err != nil || !v.OK {
		t.Fatal(err)
	}
	before := a.slot(t, "x")
	a.ask(t, "x", "/get", nil)
	eventually(t, "idle", func() bool { return a.Stats().Running == 0 })
	if n := a.fired.Load(); n != 0 {
		t.Errorf("the alarm of an object that does not exist has run %d times", n)
	}
	if s := a.slot(t, "x"); !s.Set || s.EpochMs != before.EpochMs || s.Claim != "" {
		t.Errorf("it was %+v, and is %+v", before.Slot, s)
	}
}

// TestLostTakeIsNoCrash: what a poll took whose answer was lost was never run,
// also when not a poll but a request's lease finds it.
func TestLostTakeIsNoCrash(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a", shortTTL)
	infos := make(chan durable.AlarmInfo, 9)
	a.onAlarm = func(_ *timer, _ context.Context, i durable.AlarmInfo) error { infos <- i; return nil }
	a.due(t, "x")
	a.faults.setAfter(func([]libsql.Statement) error { return lost() })
	a.poll(t)
	a.faults.setAfter(nil)
	if s := a.slot(t, "x"); s.Claim == "" {
		t.Fatalf("it was not taken: %+v", s)
	}
	a.ask(t, "x", "/get", nil) // waits for the lease's end
	a.settled(t, "x")
	if i := <-infos; i.RetryCount != 0 {
		t.Errorf("the first run has the count %d", i.RetryCount)
	}
}

// TestStopEndsAlarmsThatSetThemselves: a runtime that stops begins no alarm.
func TestStopEndsAlarmsThatSetThemselves(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.onAlarm = func(o *timer, ctx context.Context, _ durable.AlarmInfo) error { return o.state.SetAlarmIn(0) }
	a.set(t, "x", 0)
	eventually(t, "it runs", func() bool { return a.fired.Load() > 3 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	if s := a.slot(t, "x"); !s.Set || s.Claim != "" {
		t.Errorf("left: %+v", s)
	}
	if n := len(entries[any](t, f.store(), "dwk_lease")); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestHandBackIsRepeated: a lost statement leaves neither lease nor claim behind.
func TestHandBackIsRepeated(t *testing.T) {
	f := newFleet(t)
	a, b := f.alarmist("a"), f.alarmist("b")
	infos := make(chan durable.AlarmInfo, 9)
	b.onAlarm = func(_ *timer, _ context.Context, i durable.AlarmInfo) error { infos <- i; return nil }
	a.due(t, "x")
	a.mu.Lock()
	a.closed = true // as Stop does, before the poll's answer arrives
	a.mu.Unlock()
	var once sync.Once
	a.faults.setBefore(func(stmts []libsql.Statement) (err error) {
		if isRelease(stmts) || mentions(stmts, "DELETE FROM kv WHERE k = ? AND ver = ?") {
			once.Do(func() { err = lost() })
		}
		return err
	})
	a.poll(t)
	a.stop(t)
	if n := len(entries[any](t, b.store, "dwk_lease")); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if s := b.slot(t, "x"); !s.Set || s.Claim != "" {
		t.Errorf("left: %+v", s)
	}
}

// TestAlarmBesideContendedObject: an alarm waits for a running event at most,
// also while two replicas hand the object to and fro.
func TestAlarmBesideContendedObject(t *testing.T) {
	f := newFleet(t)
	a, b := f.alarmist("a"), f.alarmist("b")
	var events atomic.Int64
	slow := handlers{"/slow": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		events.Add(1)
		time.Sleep(250 * time.Millisecond)
		_, _ = o.state.SQL().Exec(r.Context(), `UPDATE n SET v = v + 1`)
		_, _ = w.Write([]byte("."))
		_ = http.NewResponseController(w).Flush() // shows that the lease is wanted
		time.Sleep(80 * time.Millisecond)
	}}
	a.ask(t, "x", "/add", nil)
	a.set(t, "x", 500*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, m := range []*alarmist{a, a, b, b} {
		wg.Go(func() {
			for ctx.Err() == nil {
				m.doClass(t.Context(), "Timer", "x", "/slow", slow)
			}
		})
	}
	defer func() { cancel(); wg.Wait() }()
	eventually(t, "it is due", func() bool { return a.slot(t, "x").Due() || a.fired.Load()+b.fired.Load() > 0 })
	before := events.Load()
	for a.fired.Load()+b.fired.Load() == 0 {
		// In this order: what begins behind the alarm does not count.
		if n := events.Load() - before; n > 6 && a.fired.Load()+b.fired.Load() == 0 {
			t.Errorf("%d events have begun since it was due", n)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReadBackLeaseIsRenewed: a lease that a poll has taken under a lost answer
// has less than its TTL left, and is renewed in time.
func TestReadBackLeaseIsRenewed(t *testing.T) {
	f := newFleet(t)
	ttl := 6 * time.Second
	a := f.alarmist("a", func(c *Config) { c.LeaseTTL = ttl })
	a.onAlarm = func(o *timer, ctx context.Context, _ durable.AlarmInfo) error {
		select {
		case <-time.After(ttl / 2):
			return o.count(ctx)
		case <-ctx.Done():
			return errors.New("cancelled")
		}
	}
	a.due(t, "x")
	a.faults.setAfter(func([]libsql.Statement) error { return lost() })
	a.poll(t)
	a.faults.setAfter(nil)
	time.Sleep(ttl / 2)
	a.polling(t)
	a.settled(t, "x")
	if n := a.fired.Load(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// TestDamagedAlarmBlocksNoOther: a slot that cannot be read is not taken, and the
// others are.
func TestDamagedAlarmBlocksNoOther(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.due(t, "bad")
	a.due(t, "good")
	if _, err := f.db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE kv SET v = '{"epochMs":' WHERE k = ?`, alarm.SlotKey("Timer", durable.IDFromName("bad").String()))); err != nil {
		t.Fatal(err)
	}
	a.polling(t)
	eventually(t, "the other alarm has run", func() bool { return a.fired.Load() > 0 })
}

// TestStopHandsBackWhatWaits: an alarm that was taken for an object that is still
// busy, under a lease that has ended, is not waited for.
func TestStopHandsBackWhatWaits(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.due(t, "x")
	begun, goOn := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		a.doClass(t.Context(), "Timer", "x", "/wait", handlers{"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(begun); <-goOn }})
	})
	<-begun
	// An operator ends the lease, and the poll takes the object.
	if _, err := f.db.Batch(t.Context(), libsql.Write, libsql.S(`DELETE FROM kv WHERE k = ?`, lease.Key("Timer", durable.IDFromName("x").String()))); err != nil {
		t.Fatal(err)
	}
	a.poll(t)
	if s := a.slot(t, "x"); s.Claim == "" {
		t.Fatalf("not taken: %+v", s)
	}
	wg.Go(func() { a.stop(t) })
	eventually(t, "it is handed back", func() bool { return a.slot(t, "x").Claim == "" })
	close(goOn)
	wg.Wait()
	if s := a.slot(t, "x"); !s.Set || s.RetryCount != 0 || a.fired.Load() != 0 {
		t.Errorf("left: %+v, %d runs", s, a.fired.Load())
	}
}
