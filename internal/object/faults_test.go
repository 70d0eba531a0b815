package object

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// times returns a hook that acts on the first n batches that match.
func times(n int32, match func([]libsql.Statement) bool, act func(stmts []libsql.Statement) error) func([]libsql.Statement) error {
	var left atomic.Int32
	left.Store(n)
	return func(stmts []libsql.Statement) error {
		if match(stmts) && left.Add(-1) >= 0 {
			return act(stmts)
		}
		return nil
	}
}

func cut([]libsql.Statement) error { return lost() }

// TestCutAnswers loses single requests and single answers of each kind of
// batch: no acknowledged write is lost, none is applied twice, and a 503 was
// never applied.
func TestCutAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool
		match  func([]libsql.Statement) bool
		status int
		value  int
	}{
		{"acquire before it was executed", true, isAcquire, 200, 2},
		{"acquire after it was executed", false, isAcquire, 200, 2},
		{"commit before it was executed", true, isCommit, 503, 1},
		{"commit after it was executed", false, isCommit, 200, 2},
		{"release before it was executed", true, isRelease, 200, 2},
		{"release after it was executed", false, isRelease, 200, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachFleet(t, func(t *testing.T, f *fleet) {
				a, b := f.join("a"), f.join("b")
				if w := a.do(t, "x", "/add", nil); w.Code != 200 {
					t.Fatalf("first add: %d", w.Code)
				}
				a.settled(t, f)
				hook := times(1, c.match, cut)
				if c.before {
					a.faults.setBefore(hook)
				} else {
					a.faults.setAfter(hook)
				}
				if w := a.do(t, "x", "/add", nil); w.Code != c.status {
					t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
				}
				a.do(t, "x", "/get", nil) // has a release behind it
				if n := b.value(t, "x"); n != c.value {
					t.Errorf("value %d, want %d", n, c.value)
				}
				a.settled(t, f)
				b.settled(t, f)
			})
		})
	}
}

// TestStoreStaysAway: only when no statement is answered any more can the
// outcome remain unknown.
func TestStoreStaysAway(t *testing.T) {
	f := newFleet(t)
	a, patient := f.join("a", func(c *Config) { c.EventTimeout, c.AcquireTimeout = time.Second, 500*time.Millisecond }), f.join("patient")
	patient.do(t, "x", "/add", nil)
	patient.settled(t, f)
	var away atomic.Bool
	a.faults.setBefore(func(stmts []libsql.Statement) error {
		if isCommit(stmts) {
			away.Store(true)
		}
		if away.Load() {
			return lost()
		}
		return nil
	})
	// On a slow machine its turn may be over before it comes.
	eventually(t, "a commit is sent", func() bool {
		w := a.do(t, "x", "/add", nil)
		if sent := away.Load(); sent != (w.Code == 504 && w.Header().Get("Dwk-Outcome") == "unknown") {
			t.Fatalf("a commit was sent: %v, the answer %d %v", sent, w.Code, w.Header())
		}
		return away.Load()
	})
	if w := a.do(t, "x", "/add", nil); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Fatalf("acquire: %d %v", w.Code, w.Header())
	}
	a.faults.setBefore(nil)
	var w *httptest.ResponseRecorder
	eventually(t, "the object is served again", func() bool { w = a.do(t, "x", "/get", nil); return w.Code == 200 })
	if w.Body.String() != "1" {
		t.Fatalf("value %s, want 1", w.Body)
	}
}

// TestLateCommitIsFenced: a commit that was given up as not applied arrives
// after all, behind the reading of the head that decided so.
func TestLateCommitIsFenced(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	var late []libsql.Statement
	a.faults.setBefore(times(1, isCommit, func(stmts []libsql.Statement) error { late = stmts; return lost() }))
	if w := a.do(t, "x", "/add", nil); w.Code != 503 {
		t.Fatalf("commit that was not executed: %d", w.Code)
	}
	if _, err := f.db.Batch(t.Context(), libsql.Write, late...); err != nil {
		t.Fatal(err)
	}
	if n := a.value(t, "x"); n != 1 {
		t.Fatalf("value %d: a refused commit was applied later", n)
	}
}

// TestChecksumsDoNotIdentifyACommit: while the commit of one replica is in
// doubt, another commits the very same change on the same base.
func TestChecksumsDoNotIdentifyACommit(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	a.faults.setBefore(times(1, isCommit, func([]libsql.Statement) error {
		f.endLease("x")
		if w := b.do(t, "x", "/add", nil); w.Code != 200 {
			t.Errorf("the other replica's add: %d %s", w.Code, w.Body)
		}
		return lost()
	}))
	if w := a.do(t, "x", "/add", nil); w.Code != 503 {
		t.Fatalf("the doubtful add: %d, want 503: it was the other's that was applied", w.Code)
	}
	if n := a.value(t, "x"); n != 2 {
		t.Fatalf("value %d, want 2", n)
	}
}

// endLease does what dwk lease release does.
func (f *fleet) endLease(name string) {
	f.t.Helper()
	s := f.store()
	i, ok, err := lease.Inspect(f.t.Context(), s, "Counter", durable.IDFromName(name).String())
	if err != nil || !ok {
		f.t.Errorf("no lease to end: %v %v", ok, err)
		return
	}
	if ok, err := (lease.Held{Class: i.Class, ID: i.ID, Holder: i.Holder, Stamp: i.Stamp}).Release(f.t.Context(), s); err != nil || !ok {
		f.t.Errorf("end the lease: %v %v", ok, err)
	}
}

// TestOperatorEndsALease: from then on the former holder neither commits nor
// answers what arrived later.
func TestOperatorEndsALease(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/work": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		close(running)
		<-goOn
		o.state.SQL().Exec(r.Context(), `UPDATE n SET v = 100`)
	}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if w := a.do(t, "x", "/work", h); w.Code != 503 {
			t.Errorf("write of the former holder: %d, want 503", w.Code)
		}
	})
	<-running
	// This read arrives while the lease is still held, and is answered later.
	wg.Go(func() {
		if w := a.do(t, "x", "/get", nil); w.Code != 503 && w.Body.String() != "2" {
			t.Errorf("read of the former holder: %d %s, a stale answer", w.Code, w.Body)
		}
	})
	f.endLease("x")
	if w := b.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "2" {
		t.Errorf("the new holder: %d %s", w.Code, w.Body)
	}
	close(goOn)
	wg.Wait()
	if n := a.value(t, "x"); n != 2 {
		t.Fatalf("value %d, want 2", n)
	}
}

// TestKeptLeaseDoesNotAnswerStale: reads that wait behind a reader, under a
// lease that was ended and used by another meanwhile.
func TestKeptLeaseDoesNotAnswerStale(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/wait": func(o *funcObject, w http.ResponseWriter, r *http.Request) { close(running); <-goOn }}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/wait", h) })
	<-running
	f.endLease("x")
	if w := b.do(t, "x", "/add", nil); w.Code != 200 {
		t.Fatalf("the new holder: %d", w.Code)
	}
	// These arrive after the other's write was acknowledged.
	codes := make(chan int, 4)
	for range cap(codes) {
		wg.Go(func() {
			w := a.do(t, "x", "/get", nil)
			if w.Code == 200 && w.Body.String() != "2" {
				t.Errorf("stale answer %s under an ended lease", w.Body)
			}
			codes <- w.Code
		})
	}
	a.waitQueued(t, cap(codes))
	close(goOn)
	wg.Wait()
}

// TestLongEventKeepsItsStamp: renewals extend the lease, and the commit still
// finds its own stamp.
func TestLongEventKeepsItsStamp(t *testing.T) {
	f := newFleet(t)
	ttl := 2 * testTTL // a third of it is what a renewal may be late
	a, b := f.join("a", func(c *Config) { c.LeaseTTL = ttl }), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	h := handlers{"/long": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		before, _, _ := lease.Inspect(r.Context(), f.store(), "Counter", o.state.ID().String())
		if !pause(r.Context(), ttl+ttl/8) {
			t.Error("cancelled")
		}
		after, ok, _ := lease.Inspect(context.WithoutCancel(r.Context()), f.store(), "Counter", o.state.ID().String())
		if !ok || after.Stamp != before.Stamp || after.ExpiresAt <= before.ExpiresAt {
			t.Errorf("renewal: %+v, then %+v", before, after)
		}
		o.state.SQL().Exec(r.Context(), `UPDATE n SET v = 7`)
	}}
	if w := a.do(t, "x", "/long", h); w.Code != 200 {
		t.Fatalf("event longer than the TTL: %d %s", w.Code, w.Body)
	}
	if n := b.value(t, "x"); n != 7 {
		t.Fatalf("value %d", n)
	}
}

// TestLostLeaseEndsTheEvent: renewals get no answer, so the event is cancelled
// before the lease ends, and nothing of it is committed.
func TestLostLeaseEndsTheEvent(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", shortTTL), f.join("b")
	b.do(t, "x", "/add", nil)
	b.settled(t, f)
	var away, live atomic.Bool
	a.faults.setBefore(func([]libsql.Statement) error {
		if away.Load() {
			return lost()
		}
		return nil
	})
	h := handlers{"/long": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		o.state.SQL().Exec(r.Context(), `UPDATE n SET v = 7`)
		away.Store(true)
		<-r.Context().Done()
		if err := context.Cause(r.Context()); !errors.Is(err, durable.ErrFenced) {
			t.Errorf("ended with %v, not with the lease", err)
		}
		if f.leases() > 0 {
			live.Store(true)
		}
		if _, err := o.state.SQL().Exec(context.Background(), `UPDATE n SET v = 8`); err == nil {
			t.Error("SQL ran after the lease was lost")
		}
	}}
	// A machine that stands still may see only the end of the lease.
	eventually(t, "an event ended while its lease was live", func() bool {
		away.Store(false)
		if w := a.do(t, "x", "/long", h); w.Code != 503 {
			t.Fatalf("status %d", w.Code)
		}
		return live.Load()
	})
	away.Store(false)
	if n := b.value(t, "x"); n != 1 {
		t.Fatalf("value %d, want 1", n)
	}
}

// TestDeadReplica: the lease of a replica that is gone ends with its TTL.
func TestDeadReplica(t *testing.T) {
	f := newFleet(t)
	b := f.join("b")
	start := time.Now()
	f.holdLease("x", "dead")
	if w := b.do(t, "x", "/add", nil); w.Code != 200 {
		t.Fatalf("after the TTL: %d %s", w.Code, w.Body)
	}
	if took := time.Since(start); took < testTTL/2 {
		t.Fatalf("took the lease of a living holder after %v", took)
	}
}

func TestContendedNamesTheHolder(t *testing.T) {
	f := newFleet(t)
	b := f.join("b", func(c *Config) { c.AcquireTimeout = 300 * time.Millisecond })
	f.holdClass("Counter", "x", "other", time.Hour)
	// On a slow machine its turn may be over before it has asked.
	eventually(t, "the lease is marked as wanted", func() bool {
		w := b.do(t, "x", "/add", nil)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		i, ok, err := lease.Inspect(t.Context(), f.store(), "Counter", durable.IDFromName("x").String())
		if err != nil || !ok {
			t.Fatalf("%v %v", ok, err)
		}
		return i.Wanted != 0
	})
}

// TestResolvedCommitIsNotTheHead: a commit whose answer was lost was applied,
// and before its replica found out, another one has committed more.
func TestResolvedCommitIsNotTheHead(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/late": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = v + 1`)
		close(running)
		<-goOn
		http.NewResponseController(w).Flush() // so that what waits is not in the same commit
	}}
	a.faults.setAfter(times(1, isCommit, func([]libsql.Statement) error {
		f.endLease("x")
		if w := b.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "3" {
			t.Errorf("the other replica's add: %d %s", w.Code, w.Body)
		}
		b.settled(t, f)
		return lost()
	}))
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/late", h) })
	<-running
	for range 3 { // they keep the lease that resolves the commit
		wg.Go(func() {
			if w := a.do(t, "x", "/get", nil); w.Code == 200 && w.Body.String() != "3" {
				t.Errorf("stale answer %s", w.Body)
			}
		})
	}
	a.waitQueued(t, 3)
	close(goOn)
	wg.Wait()
	if n := a.value(t, "x"); n != 3 {
		t.Errorf("value %d, want 3", n)
	}
}

// TestRowGone: a commit whose row has been merged away when its outcome is asked
// for may have been applied. It counts neither as refused nor as applied.
func TestRowGone(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	a.faults.setAfter(times(1, isCommit, func([]libsql.Statement) error {
		if _, err := f.db.Batch(t.Context(), libsql.Write, libsql.S(`DELETE FROM obj_log WHERE level = 0`)); err != nil {
			t.Error(err)
		}
		return lost()
	}))
	if w := a.do(t, "x", "/add", nil); w.Code != 504 || w.Header().Get("Dwk-Outcome") != "unknown" {
		t.Fatalf("a commit without a row: %d %v, want 504", w.Code, w.Header())
	}
}
