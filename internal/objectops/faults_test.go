package objectops

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// TestRestoreFencesTheFormerHolder: an event that began before it cannot
// commit.
func TestRestoreFencesTheFormerHolder(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(3)
		held := f.hold("0a", 300*time.Millisecond) // and then it is gone
		d := f.open("0a", Target{TXID: 1})
		r, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Minute}, d)
		if err != nil || r.After.Epoch <= held.Stamp {
			f.Fatal(r, err)
		}
		if _, ok, err := held.Confirm(f.Context(), f.plain); ok || err != nil {
			f.Error("the former holder still holds it", err)
		}
	})
}

func TestContended(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(2)
		f.hold("0a", time.Minute)
		d := f.open("0a", Target{TXID: 1})
		for _, change := range map[string]func(Change) error{
			"restore": func(c Change) error { _, err := f.Ops.Restore(f.Context(), c, d); return err },
			"delete":  func(c Change) error { _, err := f.Ops.Delete(f.Context(), c); return err },
		} {
			var err error
			for wait := 20 * time.Millisecond; wait < time.Minute; wait *= 2 { // until it is long enough to ask, on a slow machine
				if err = change(Change{Class: "C", ID: "0a", Wait: wait}); !errors.Is(err, context.DeadlineExceeded) {
					break
				}
			}
			if e, ok := errors.AsType[*durable.ContendedError](err); !ok || e.Holder != "other" || e.Replica != "r1" {
				f.Errorf("%v", err)
			}
		}
		i, _, err := lease.Inspect(f.Context(), f.plain, "C", "0a")
		if err != nil || i.Wanted == 0 || i.Holder != "other" {
			f.Errorf("not marked as wanted: %+v %v", i, err)
		}
		if f.headOf("0a").TXID != 2 {
			f.Error("the object was changed")
		}
		// A holder that lets go when it sees the mark.
		done := make(chan error, 1)
		go func() {
			_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Minute}, d)
			done <- err
		}()
		f.must(f.release("0a"))
		f.must(<-done)
	})
}

func (f *fixture) release(id string) error {
	i, _, err := lease.Inspect(f.Context(), f.plain, "C", id)
	if err == nil {
		_, err = lease.Held{Class: "C", ID: id, Holder: i.Holder, Stamp: i.Stamp}.Release(f.Context(), f.plain)
	}
	return err
}

// TestTakenOverMeanwhile: an operator who lost the lease changes nothing.
func TestTakenOverMeanwhile(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(3)
		d := f.open("0a", Target{TXID: 1})
		f.faults.set(func(stmts []libsql.Statement) error {
			if isCommit(stmts) {
				f.hold("0a", time.Minute)
			}
			return nil
		}, nil)
		_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a"}, d)
		wantError(f.T, err, durable.ErrFenced)
		if f.stored("0a", 0) != o.was[3] || f.headOf("0a").TXID != 3 {
			f.Error("the object was changed")
		}
		if h := f.holders("0a"); len(h) != 1 || h[0] != "other" {
			f.Errorf("held by %v", h)
		}
	})
}

// TestLeaseIsRenewed while the work takes longer than the lease lasts, and the
// work ends when that fails.
func TestLeaseIsRenewed(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.grow(3)
	d := f.open("0a", Target{TXID: 3})
	f.LeaseTTL = time.Second
	f.InlineLimit = 0
	extended := make(chan struct{}, 100)
	f.faults.set(nil, func(stmts []libsql.Statement) error {
		if isExtend(stmts) {
			extended <- struct{}{}
		}
		return nil
	})
	f.files.put = func() error { // a long upload: more than the lease lasts
		for range 4 {
			<-extended
		}
		return nil
	}
	f.restore("0a", d)

	f.faults.set(func(stmts []libsql.Statement) error {
		if isExtend(stmts) {
			f.hold("0a", time.Minute)
			close(extended)
		}
		return nil
	}, nil)
	f.files.put = func() error { <-extended; return nil }
	_, err := f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, d)
	wantError(t, err, durable.ErrFenced)
	if h := f.headOf("0a"); h.TXID != 4 {
		t.Errorf("at commit %d", h.TXID)
	}
}

func isAcquire(stmts []libsql.Statement) bool { return mentions(stmts, "$.acquired_at") }
func isCommit(stmts []libsql.Statement) bool  { return mentions(stmts, "INSERT INTO obj_log") }
func isExtend(stmts []libsql.Statement) bool {
	return !isAcquire(stmts) && mentions(stmts, "SET expires_at")
}

func mentions(stmts []libsql.Statement, text string) bool {
	for _, s := range stmts {
		if strings.Contains(s.SQL, text) {
			return true
		}
	}
	return false
}

// TestLostAnswers: what became of a commit is found out by a new lease.
func TestLostAnswers(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		once := func(is func([]libsql.Statement) bool) func([]libsql.Statement) error {
			done := false
			return func(stmts []libsql.Statement) error {
				if is(stmts) && !done {
					done = true
					return lost()
				}
				return nil
			}
		}
		n := uint64(4)
		for name, test := range map[string]struct {
			before, after func([]libsql.Statement) error
			applied       bool
		}{
			"acquire not executed":   {before: once(isAcquire), applied: true},
			"acquire executed":       {after: once(isAcquire), applied: true},
			"commit not executed":    {before: once(isCommit)},
			"commit executed":        {after: once(isCommit), applied: true},
			"extension not executed": {before: once(isExtend), applied: true},
		} {
			target := uint64(1) + n%3
			d := f.open("0a", Target{TXID: target})
			f.faults.set(test.before, test.after)
			_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Minute}, d)
			f.faults.set(nil, nil)
			if (err == nil) != test.applied || errors.Is(err, durable.ErrUnknownOutcome) {
				f.Errorf("%s: %v", name, err)
			}
			if test.applied {
				n++
				o.was[n] = o.was[target]
			}
			if h := f.headOf("0a"); h.TXID != n || f.stored("0a", 0) != o.was[n] {
				f.Errorf("%s: at commit %d, want %d", name, h.TXID, n)
			}
			f.idle()
		}
	})
}

// TestKilledAnywhere: at whatever statement or upload the process dies, the
// object is what it was or what it should become, and nothing in between.
func TestKilledAnywhere(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		const target = 2
		want := o.was[4]
		old, changed := 0, 0
		for _, executed := range []bool{false, true} {
			for step := 1; ; step++ {
				d := f.open("0a", Target{TXID: target})
				ctx, kill := context.WithCancel(f.Context())
				batches := 0
				dies := func([]libsql.Statement) error {
					if batches++; batches >= step {
						kill() // nothing is heard of it again
						return lost()
					}
					return nil
				}
				dead := func([]libsql.Statement) error {
					if ctx.Err() != nil {
						return lost()
					}
					return nil
				}
				if executed {
					f.faults.set(dead, dies)
				} else {
					f.faults.set(dies, nil)
				}
				before := f.headOf("0a")
				_, err := f.Ops.Restore(ctx, Change{Class: "C", ID: "0a"}, d)
				f.faults.set(nil, nil)
				kill()
				after := f.headOf("0a")
				switch {
				case after.TXID == before.TXID && after == before:
					old++
				case after.TXID == before.TXID+1:
					changed++
					want = o.was[target]
				default:
					f.Fatalf("step %d: %+v after %+v", step, after, before)
				}
				if f.stored("0a", 0) != want {
					f.Fatalf("step %d: neither the old state nor the new one", step)
				}
				f.must(f.release("0a")) // or its time is over
				if err == nil {
					break // it lived
				}
			}
		}
		if old < 3 || changed < 3 {
			f.Errorf("%d times the old state, %d times the new one", old, changed)
		}

		f.files.put = func() error { return errors.New("killed") }
		f.InlineLimit = 0
		d := f.open("0a", Target{TXID: target})
		before := f.headOf("0a")
		if _, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a"}, d); err == nil {
			f.Error("a failed upload is no error")
		}
		if f.headOf("0a") != before || f.stored("0a", 0) != want {
			f.Error("an upload has changed the object")
		}
	})
}
