package lease_test

import (
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func each(t *testing.T, test func(t *testing.T, s *kv.Store, db *libsql.DB)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			db := place(t).Open(t)
			s := kv.New(db)
			if err := s.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, s, db)
		})
	}
}

// attempt tries to take the lease of C/0a and returns the live lease after it.
func attempt(t *testing.T, s *kv.Store, a lease.Attempt) (info lease.Info, live, ok bool) {
	t.Helper()
	a.Class, a.ID = "C", "0a"
	if a.TTL == 0 {
		a.TTL = time.Minute
	}
	if a.DeadlineMs == 0 {
		a.DeadlineMs = time.Now().Add(time.Hour).UnixMilli()
	}
	p := kv.NewPlan()
	n, err := a.Add(p)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Commit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if info, live, err = lease.Read("C", "0a", v.Results[n]); err != nil {
		t.Fatal(err)
	}
	return info, live, v.OK
}

func TestAcquire(t *testing.T) {
	each(t, func(t *testing.T, s *kv.Store, db *libsql.DB) {
		first, live, ok := attempt(t, s, lease.Attempt{Holder: "h1", Replica: "a", Event: lease.EventRequest})
		if !ok || !live || first.Holder != "h1" || first.Stamp == 0 || first.AcquiredAt == 0 || first.Remaining() <= 0 {
			t.Fatalf("first: %+v %v %v", first, live, ok)
		}
		other, _, ok := attempt(t, s, lease.Attempt{Holder: "h2", Replica: "b", Want: true})
		if ok || other.Holder != "h1" || other.Stamp != first.Stamp || other.Wanted == 0 {
			t.Fatalf("contended: %+v %v", other, ok)
		}
		again, _, ok := attempt(t, s, lease.Attempt{Holder: "h3", Replica: "b", Want: true})
		if ok || again.Wanted != other.Wanted {
			t.Fatalf("the mark moved: %+v %v", again, ok)
		}
		if _, _, ok := attempt(t, s, lease.Attempt{Holder: "h4", GivenUp: []string{"h2", "h3"}}); ok {
			t.Fatal("taken from a holder that was not given up")
		}
		taken, _, ok := attempt(t, s, lease.Attempt{Holder: "h5", GivenUp: []string{"h0", "h1"}})
		if !ok || taken.Holder != "h5" || taken.Stamp <= first.Stamp || taken.Wanted != 0 {
			t.Fatalf("taken over from a given-up holder: %+v %v", taken, ok)
		}
		if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE kv SET expires_at = 1`)); err != nil {
			t.Fatal(err)
		}
		expired, _, ok := attempt(t, s, lease.Attempt{Holder: "h6"})
		if !ok || expired.Stamp <= taken.Stamp {
			t.Fatalf("after expiry: %+v %v", expired, ok)
		}
	})
}

// TestLateAttemptTakesNothing: one that is executed behind its deadline, by
// the primary's clock, however free the object is.
func TestLateAttemptTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *kv.Store, _ *libsql.DB) {
		if _, live, ok := attempt(t, s, lease.Attempt{Holder: "late", DeadlineMs: time.Now().Add(-time.Second).UnixMilli()}); ok || live {
			t.Fatalf("taken behind its deadline: %v %v", live, ok)
		}
	})
}

// TestGuards compare stamp and holder, not either alone.
func TestGuards(t *testing.T) {
	each(t, func(t *testing.T, s *kv.Store, db *libsql.DB) {
		info, _, _ := attempt(t, s, lease.Attempt{Holder: "h1"})
		mine := lease.Held{Class: "C", ID: "0a", Holder: "h1", Stamp: info.Stamp}
		for name, h := range map[string]lease.Held{
			"other holder": {Class: "C", ID: "0a", Holder: "h2", Stamp: info.Stamp},
			"other stamp":  {Class: "C", ID: "0a", Holder: "h1", Stamp: info.Stamp + 1},
			"other object": {Class: "C", ID: "0b", Holder: "h1", Stamp: info.Stamp},
		} {
			p := kv.NewPlan()
			h.Require(p)
			if v, err := s.Commit(t.Context(), p); err != nil || v.OK {
				t.Errorf("%s: the guard passed (%v)", name, err)
			}
			if _, ok, err := h.Confirm(t.Context(), s); ok || err != nil {
				t.Errorf("%s: confirmed (%v)", name, err)
			}
			if _, ok, err := h.Extend(t.Context(), s, time.Hour); ok || err != nil {
				t.Errorf("%s: extended (%v)", name, err)
			}
			if ok, err := h.Release(t.Context(), s); ok || err != nil {
				t.Errorf("%s: released (%v)", name, err)
			}
		}
		before, ok, err := mine.Confirm(t.Context(), s)
		if !ok || err != nil || before.ExpiresAt != info.ExpiresAt {
			t.Fatalf("confirm: %+v %v %v", before, ok, err)
		}
		after, ok, err := mine.Extend(t.Context(), s, time.Hour)
		if !ok || err != nil || after.Stamp != info.Stamp || after.ExpiresAt <= before.ExpiresAt {
			t.Fatalf("extend: %+v %v %v", after, ok, err)
		}
		if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE kv SET expires_at = 1`)); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := mine.Extend(t.Context(), s, time.Hour); ok {
			t.Error("an expired lease was extended")
		}
		p := kv.NewPlan()
		mine.Require(p)
		if v, err := s.Commit(t.Context(), p); err != nil || v.OK {
			t.Errorf("the guard passed for an expired lease (%v)", err)
		}
	})
}
