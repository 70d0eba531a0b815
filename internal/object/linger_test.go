package object

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// lingering has leases linger until something ends that, and nothing else end
// them.
func lingering(c *Config) {
	c.Linger, c.LeaseTTL, c.AcquireTimeout, c.EventTimeout = time.Hour, time.Hour, time.Minute, 2*time.Minute
}

// briefly has leases linger as long as by default.
func briefly(c *Config) { lingering(c); c.Linger = 200 * time.Millisecond }

// renewed has leases renewed soon, but not lost on a machine that stands still.
func renewed(c *Config) { c.LeaseTTL = 5 * time.Second }

// warm has an object's lease linger: two events one after the other show that it
// pays.
func (m *member) warm(t *testing.T, name string) {
	t.Helper()
	for range 2 {
		if w := m.do(t, name, "/add", nil); w.Code != 200 {
			t.Fatalf("add: %d %s", w.Code, w.Body)
		}
	}
	m.lingers(t, 1)
}

// lingers waits until nothing runs and n leases linger.
func (m *member) lingers(t *testing.T, n int) {
	t.Helper()
	eventually(t, "lingering leases", func() bool {
		s := m.Stats()
		return s.Running == 0 && s.Lingering == n
	})
}

// A tally counts transactions by what is in them.
type tally struct{ acquires, commits, releases atomic.Int64 }

func (m *member) tally() *tally {
	n := &tally{}
	m.faults.setBefore(func(stmts []libsql.Statement) error {
		for _, c := range []struct {
			is    func([]libsql.Statement) bool
			count *atomic.Int64
		}{{isAcquire, &n.acquires}, {isCommit, &n.commits}, {isRelease, &n.releases}} {
			if c.is(stmts) {
				c.count.Add(1)
			}
		}
		return nil
	})
	return n
}

// actor returns an object's actor, which must be idle to be looked at.
func (m *member) actor(name string) *actor {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actors[key{"Counter", durable.IDFromName(name).String()}]
}

// resting reports whether an idle object's leases do not linger for a while.
func (m *member) resting(name string) bool {
	a := m.actor(name)
	<-a.idle()
	return time.Now().Before(a.linger.notBefore)
}

// TestSteadyTraffic: of events one after the other a write costs one
// transaction and a read one that writes nothing, and a stop leaves no lease.
func TestSteadyTraffic(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		a := f.join("a", lingering)
		a.warm(t, "x")
		n := a.tally()
		for _, path := range []string{"/add", "/get"} {
			before := a.faults.trips.Load()
			for i := range 20 {
				if w := a.do(t, "x", path, nil); w.Code != 200 || path == "/add" && w.Body.String() != itoa(i+3) {
					t.Fatalf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			a.lingers(t, 1)
			if got := a.faults.trips.Load() - before; got != 20 {
				t.Errorf("20 times %s: %d round trips", path, got)
			}
		}
		if n.acquires.Load() != 0 || n.commits.Load() != 20 || n.releases.Load() != 0 {
			t.Errorf("%d acquires, %d commits, %d releases", n.acquires.Load(), n.commits.Load(), n.releases.Load())
		}
		a.stop(t)
		if n := f.leases(); n != 0 {
			t.Errorf("%d leases behind the stop", n)
		}
	})
}

// TestSparseTraffic: events that are further apart than a lease lingers have it
// end with their commit, or behind it.
func TestSparseTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a := f.join("a", briefly)
		n := a.tally()
		for range 5 {
			a.do(t, "x", "/add", nil)
			a.settled(t, f)
			time.Sleep(250 * time.Millisecond)
		}
		if n.releases.Load() != 0 {
			t.Errorf("%d releases behind commits", n.releases.Load())
		}
		// One that comes soon has the lease linger, which ends by itself.
		a.warm(t, "x")
		time.Sleep(250 * time.Millisecond)
		a.settled(t, f)
		if n.releases.Load() != 1 {
			t.Errorf("%d releases, want that of the lease that lingered", n.releases.Load())
		}
		if a.resting("x") {
			t.Error("resting, though nobody wanted the lease")
		}
	})
}

// TestWantedLeaseDoesNotLinger: an answer shows that another replica wants the
// object. It gets it, and from then on no lease of the object lingers.
func TestWantedLeaseDoesNotLinger(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", lingering), f.join("b", lingering)
	for _, path := range []string{"/get", "/add"} {
		a.warm(t, path)
		var other sync.WaitGroup
		other.Go(func() {
			if w := b.do(t, path, "/add", nil); w.Code != 200 {
				t.Errorf("the other replica: %d %s", w.Code, w.Body)
			}
		})
		eventually(t, "the lease is wanted", func() bool {
			i, _, err := lease.Inspect(t.Context(), f.store(), "Counter", durable.IDFromName(path).String())
			return err == nil && i.Wanted != 0
		})
		if w := a.do(t, path, path, nil); w.Code != 200 {
			t.Errorf("%s of the holder: %d", path, w.Code)
		}
		other.Wait()
		a.settled(t, f)
		b.settled(t, f)
		for name, m := range map[string]*member{"holder": a, "other": b} {
			if !m.resting(path) {
				t.Errorf("behind %s: leases of the %s may linger again", path, name)
			}
			for range 3 {
				m.do(t, path, "/add", nil)
			}
			m.settled(t, f)
		}
	}
}

// TestReleaseSeesTheMark: a lease that lingers is wanted, and the replica learns
// it from the release.
func TestReleaseSeesTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.join("a", briefly), f.join("b", briefly)
		a.warm(t, "x")
		if w := b.do(t, "x", "/add", nil); w.Code != 200 {
			t.Fatalf("the other replica: %d %s", w.Code, w.Body)
		}
		for range 3 {
			a.do(t, "x", "/add", nil)
			a.settled(t, f)
		}
		if !a.resting("x") || !b.resting("x") {
			t.Errorf("resting: %v, the other %v", a.resting("x"), b.resting("x"))
		}
		// Later it may linger again.
		time.Sleep(firstRest)
		a.warm(t, "x")
	})
}

// TestRenewalSeesTheMark: so it does without any event.
func TestRenewalSeesTheMark(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", lingering, renewed), f.join("b", lingering)
	a.warm(t, "x")
	if w := b.do(t, "x", "/add", nil); w.Code != 200 {
		t.Fatalf("the other replica: %d %s", w.Code, w.Body)
	}
	a.settled(t, f)
}

// TestRestGrows: contention that comes again in time is waited for longer, and
// that which leases did not cause by lingering is not counted.
func TestRestGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l linger
		for _, c := range []struct{ after, rest time.Duration }{
			{0, firstRest},
			{firstRest / 2, firstRest},
			{firstRest - 1, firstRest},
			{firstRest, 2 * firstRest},
			{2*firstRest + longestRest - 1, 4 * firstRest},
			{4 * firstRest, 8 * firstRest},
			{8 * firstRest, 16 * firstRest},
			{16 * firstRest, longestRest},
			{longestRest, longestRest},
			{2 * longestRest, firstRest},
		} {
			time.Sleep(c.after)
			l.wanted()
			if l.rest != c.rest || !l.notBefore.Equal(time.Now().Add(c.rest)) {
				t.Errorf("after %s: %s, want %s", c.after, l.rest, c.rest)
			}
		}
	})
}

// TestOthersBetween: an object that another replica changes in between is not
// worth to linger.
func TestOthersBetween(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", lingering), f.join("b", lingering)
	for i := range 6 {
		m := []*member{a, b}[i%2]
		if w := m.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != itoa(i+1) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		m.settled(t, f)
	}
}

// TestAlarmOfALingeringLease fires in time, under that lease.
func TestAlarmOfALingeringLease(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a", lingering)
	for range 2 {
		a.ask(t, "x", "/add", nil)
	}
	a.lingers(t, 1)
	n := a.tally()
	a.set(t, "x", 50*time.Millisecond)
	eventually(t, "the alarm has run", func() bool { return a.fired.Load() == 1 })
	a.lingers(t, 1)
	if v := a.ask(t, "x", "/get", nil); v != "3" || n.acquires.Load() != 0 {
		t.Errorf("value %s, %d acquires", v, n.acquires.Load())
	}
}

// TestLeaseOfAPollDoesNotLinger: alarms are for whichever replica is free.
func TestLeaseOfAPollDoesNotLinger(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a", lingering)
	a.due(t, "x")
	a.poll(t)
	eventually(t, "the alarm has run", func() bool { return a.fired.Load() == 1 })
	eventually(t, "its lease is free", func() bool { return len(entries[any](t, a.store, "dwk_lease")) == 0 })
}

// TestReleaseOfALingeringLease: an operator ends it, and another replica goes on.
// What is asked for then is not answered from before.
func TestReleaseOfALingeringLease(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", lingering), f.join("b", lingering)
	a.warm(t, "x")
	f.endLease("x")
	if w := b.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "3" {
		t.Fatalf("the other replica: %d %s", w.Code, w.Body)
	}
	b.settled(t, f)
	if w := a.do(t, "x", "/get", nil); w.Code != 200 && w.Code != 503 || w.Code == 200 && w.Body.String() != "3" {
		t.Errorf("read: %d %s", w.Code, w.Body)
	}
	if n := a.value(t, "x"); n != 3 {
		t.Errorf("value %d", n)
	}
}

// TestLostLeaseDoesNotLinger: when a renewal shows that it is gone, or cannot be
// made, the lease is not kept.
func TestLostLeaseDoesNotLinger(t *testing.T) {
	for name, end := range map[string]func(f *fleet, a *member){
		"gone": func(f *fleet, _ *member) { f.endLease("x") },
		"no answer": func(f *fleet, a *member) {
			a.faults.setBefore(func(stmts []libsql.Statement) error {
				if mentions(stmts, "UPDATE kv SET expires_at") {
					return lost()
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			a := f.join("a", lingering, renewed)
			a.warm(t, "x")
			end(f, a)
			a.lingers(t, 0)
			a.faults.setBefore(nil)
			if n := a.value(t, "x"); n != 2 {
				t.Errorf("value %d", n)
			}
		})
	}
}

// TestEvictedObjectReleasesItsLease: one that makes room, or is idle for long.
func TestEvictedObjectReleasesItsLease(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"room": func(c *Config) { c.Resident = 1 },
		"idle": func(c *Config) { c.Idle = 10 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			a := f.join("a", lingering, change)
			for range 3 {
				a.do(t, "x", "/add", nil)
			}
			if name == "room" {
				a.do(t, "y", "/add", nil)
			}
			a.settled(t, f)
			if n := a.value(t, "x"); n != 3 {
				t.Errorf("value %d", n)
			}
		})
	}
}

// TestReleasesShareATransaction: leases that end together do so in few
// transactions, when they have lingered long enough and at a stop.
func TestReleasesShareATransaction(t *testing.T) {
	const objects = 20
	for name, end := range map[string]func(t *testing.T, a *member){
		"in time": func(t *testing.T, a *member) { time.Sleep(200 * time.Millisecond) },
		"stop":    func(t *testing.T, a *member) { a.stop(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				a := f.join("a", briefly)
				for range 2 {
					for i := range objects {
						a.do(t, itoa(i), "/add", nil)
					}
				}
				a.lingers(t, objects)
				var transactions, ended atomic.Int64
				a.faults.setBefore(func(stmts []libsql.Statement) error {
					for _, s := range stmts {
						if isRelease([]libsql.Statement{s}) {
							ended.Add(1)
						}
					}
					if isRelease(stmts) && transactions.Add(1) == 1 {
						for range 10000 { // until the others have come
							if a.Stats().Plans+int(ended.Load()) == objects {
								break
							}
							time.Sleep(time.Millisecond)
						}
					}
					return nil
				})
				end(t, a)
				a.settled(t, f)
				if n := transactions.Load(); n > 2 || ended.Load() != objects {
					t.Errorf("%d transactions for %d of %d leases", n, ended.Load(), objects)
				}
			})
		})
	}
}

// TestStopWhileLeasesLinger: an event that ends under a stop has its lease end, too,
// and so have those that linger.
func TestStopWhileLeasesLinger(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", lingering)
	a.warm(t, "x")
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/hold": func(o *funcObject, w http.ResponseWriter, r *http.Request) { close(running); <-goOn }}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/hold", h) })
	<-running
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "stopping", a.stopping)
	close(goOn) // the lease would linger behind this event
	wg.Wait()
	if n := f.leases(); n != 0 {
		t.Errorf("%d leases behind the stop", n)
	}
}

// TestConcurrentAddsOverLingeringReplicas is [TestConcurrentAddsOverTwoReplicas]
// with leases that linger.
func TestConcurrentAddsOverLingeringReplicas(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) { addConcurrently(t, f, briefly) })
}

// TestHasten: while it is on every lease ends with its event, at once.
func TestHasten(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", lingering)
	a.warm(t, "x")
	a.Hasten(true)
	a.settled(t, f)
	n := a.tally()
	for range 3 {
		a.do(t, "x", "/add", nil)
		a.settled(t, f)
	}
	if n.releases.Load() != 0 {
		t.Errorf("%d releases behind commits", n.releases.Load())
	}
	a.Hasten(false)
	a.warm(t, "x")
}
