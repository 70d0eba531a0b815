package holders_test

import (
	"context"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

type store struct {
	*kv.Store
	t *testing.T
}

func newStore(t *testing.T) store {
	t.Helper()
	s := kv.New(libsqltest.File(t).Open(t))
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store{s, t}
}

func (s store) plan(add func(*kv.Plan)) kv.Verdict {
	s.t.Helper()
	p := kv.NewPlan()
	add(p)
	v, err := s.Commit(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s store) write(stmts ...libsql.Statement) []libsql.Result {
	s.t.Helper()
	res, _, err := s.Write(context.Background(), stmts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

func (s store) look(replica string, ids ...string) map[string]holders.Looked {
	s.t.Helper()
	return holders.ReadLook(s.write(holders.LookStatement("Room", replica, ids))[0])
}

func TestMarksReachTheOthers(t *testing.T) {
	s := newStore(t)
	x, y := durable.IDFromName("x").String(), durable.IDFromName("y").String()
	s.plan(func(p *kv.Plan) {
		holders.AddHold(p, "Room", x, "r1", 1, time.Hour)
		holders.AddHold(p, "Room", x, "r2", 2, time.Hour)
		holders.AddHold(p, "Room", x, "r3", 3, time.Hour)
		holders.AddHold(p, "Room", y, "r2", 4, time.Hour)
		holders.AddHold(p, "Rooms", x, "r2", 5, time.Hour)
	})
	before := s.look("r2", x, y, "00")
	if len(before) != 2 || before[x].Marked || before[y].Marked || before[x].Stamp == 0 {
		t.Fatalf("before any mark: %+v", before)
	}
	s.plan(func(p *kv.Plan) { holders.AddMark(p, "Room", x, "r1") })
	for replica, marked := range map[string]bool{"r1": false, "r2": true, "r3": true} {
		got := s.look(replica, x, y)
		if got[x].Marked != marked || got[y].Marked {
			t.Errorf("%s: %+v", replica, got)
		}
		if replica == "r2" && got[x].Stamp <= before[x].Stamp {
			t.Errorf("a mark left the stamp at %d", got[x].Stamp)
		}
	}
	// A refused plan marks nothing, and a hold takes a mark away.
	first := s.look("r2", x)[x].Stamp
	if v := s.plan(func(p *kv.Plan) { p.Require(`0`); holders.AddMark(p, "Room", x, "r1") }); v.OK {
		t.Fatal("the plan was not refused")
	}
	if got := s.look("r2", x)[x].Stamp; got != first {
		t.Errorf("a refused plan moved the stamp from %d to %d", first, got)
	}
	s.plan(func(p *kv.Plan) { holders.AddHold(p, "Room", x, "r2", 1, time.Hour) })
	if got := s.look("r2", x)[x]; got.Marked || got.Stamp <= first {
		t.Errorf("after a new hold: %+v", got)
	}
}

func TestKeepExtendsAndBringsNothingBack(t *testing.T) {
	s := newStore(t)
	x, y := durable.IDFromName("x").String(), durable.IDFromName("y").String()
	s.plan(func(p *kv.Plan) {
		holders.AddHold(p, "Room", x, "r1", 1, time.Hour)
		holders.AddHold(p, "Room", y, "r1", 1, time.Millisecond)
		holders.AddMark(p, "Room", x, "r2")
	})
	time.Sleep(5 * time.Millisecond)
	was := s.look("r1", x)[x]
	s.write(holders.KeepStatement("Room", "r1", map[string]int{x: 7, y: 8}, 2*time.Hour))
	if got := s.look("r1", x, y); len(got) != 1 || got[x] != was {
		t.Errorf("%+v, want %+v alone", got, was)
	}
	e, found, err := s.Get(t.Context(), tuple.Key{holders.Prefix, "Room", x, "r1"})
	if err != nil || !found {
		t.Fatalf("%v %v", e, err)
	}
	if left := time.Until(time.UnixMilli(e.ExpiresAt)); left < 90*time.Minute {
		t.Errorf("%v left", left)
	}
	if err := holders.RemoveAll(t.Context(), s.Store, "r1"); err != nil {
		t.Fatal(err)
	}
	if got := s.look("r1", x, y); len(got) != 0 {
		t.Errorf("left behind: %+v", got)
	}
}

func TestRemoveAllLeavesTheOthers(t *testing.T) {
	s := newStore(t)
	x := durable.IDFromName("x").String()
	s.plan(func(p *kv.Plan) {
		holders.AddHold(p, "Room", x, "a1", 1, time.Hour)
		holders.AddHold(p, "Room", x, "1", 1, time.Hour)
	})
	if err := holders.RemoveAll(t.Context(), s.Store, "1"); err != nil {
		t.Fatal(err)
	}
	if len(s.look("a1", x)) != 1 || len(s.look("1", x)) != 0 {
		t.Error("the wrong entries were removed")
	}
}

// TestDamagedEntriesStopNobody: what is no JSON can be marked and kept.
func TestDamagedEntriesStopNobody(t *testing.T) {
	s := newStore(t)
	x := durable.IDFromName("x").String()
	s.plan(func(p *kv.Plan) { p.Set(tuple.MustEncode(holders.Prefix, "Room", x, "r1"), `{`, time.Hour) })
	s.look("r1", x)
	s.write(holders.KeepStatement("Room", "r1", map[string]int{x: 1}, time.Hour))
	s.plan(func(p *kv.Plan) { p.Set(tuple.MustEncode(holders.Prefix, "Room", x, "r1"), `{`, time.Hour) })
	s.plan(func(p *kv.Plan) { holders.AddMark(p, "Room", x, "r2") })
	if got := s.look("r1", x); !got[x].Marked {
		t.Errorf("%+v", got)
	}
}
