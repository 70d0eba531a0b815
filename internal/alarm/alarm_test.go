package alarm

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const class = "Timer"

// A rig is a store with the tables of objects.
type rig struct {
	t     testing.TB
	db    *libsql.DB
	store *kv.Store
}

func newRig(t testing.TB, p libsqltest.Place) *rig {
	db := p.Open(t)
	t.Cleanup(func() { db.Close() })
	r := &rig{t, db, kv.New(db)}
	if err := r.store.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	return r
}

func each(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, place(t))) })
	}
}

// id returns the id of an object by number.
func id(n int) string { return fmt.Sprintf("%04x", n) }

// object makes an object exist.
func (r *rig) object(id string) {
	r.exec(`INSERT INTO obj_head VALUES (?, ?, 1, '0000000000000000', 'c', 4096, 0, 1, 'name', 1, 1, NULL)`, class, id)
}

func (r *rig) exec(sql string, args ...any) libsql.Result {
	r.t.Helper()
	return libsqltest.MustBatch(r.t, r.db, libsql.Write, libsql.S(sql, args...))[0]
}

// plan commits a plan that must hold.
func (r *rig) plan(add func(p *kv.Plan)) {
	r.t.Helper()
	p := kv.NewPlan()
	add(p)
	if v, err := r.store.Commit(context.Background(), p); err != nil || !v.OK {
		r.t.Fatalf("plan: %v, %v", v.OK, err)
	}
}

func (r *rig) slot(id string) Shown {
	r.t.Helper()
	s, err := Read(class, id, libsqltest.MustBatch(r.t, r.db, libsql.Read, ShowStatement(class, id))[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// acquire takes the lease of an object.
func (r *rig) acquire(id string, ttl time.Duration) lease.Held {
	r.t.Helper()
	return r.acquireAs(id, "here", ttl)
}

func (r *rig) acquireAs(id, replica string, ttl time.Duration) lease.Held {
	r.t.Helper()
	a := lease.Attempt{Class: class, ID: id, Holder: uuid.NewString(), Replica: replica, TTL: ttl, DeadlineMs: 1 << 50}
	p := kv.NewPlan()
	shown, err := a.Add(p)
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := r.store.Commit(context.Background(), p)
	if err != nil || !v.OK {
		r.t.Fatalf("acquire: %v, %v", v.OK, err)
	}
	info, _, err := lease.Read(class, id, v.Results[shown])
	if err != nil {
		r.t.Fatal(err)
	}
	return lease.Held{Class: class, ID: id, Holder: info.Holder, Stamp: info.Stamp}
}

// expire ends the lease of an object, as time would, and the time of a claimed
// alarm with it.
func (r *rig) expire(id string) {
	r.exec(`DELETE FROM kv WHERE k = ?`, lease.Key(class, id))
	s := r.slot(id)
	s.EpochMs = s.NowMs - 1
	text, _ := json.Marshal(s.Slot)
	r.exec(`DELETE FROM kv WHERE k >= ? AND k < ? AND substr(k, -length(?)) = ?`, tuple.MustEncode(DuePrefix, class), tuple.RangeEnd(tuple.MustEncode(DuePrefix, class)), tuple.MustEncode(id), tuple.MustEncode(id))
	r.exec(`UPDATE kv SET v = ? WHERE k = ?`, string(text), SlotKey(class, id))
	r.exec(`INSERT INTO kv VALUES (?, ?, 1, NULL)`, DueKey(class, s.EpochMs, id), string(text))
}

// entries returns the values below a prefix by key.
func (r *rig) entries(prefix ...any) map[string]string {
	r.t.Helper()
	lo := tuple.MustEncode(prefix...)
	out := map[string]string{}
	for _, row := range libsqltest.MustBatch(r.t, r.db, libsql.Read, libsql.S(`SELECT k, v FROM kv WHERE k >= ? AND k < ?`, lo, tuple.RangeEnd(lo)))[0].Rows {
		key, err := tuple.Decode(row[0].([]byte))
		if err != nil {
			r.t.Fatal(err)
		}
		out[key.String()] = row[1].(string)
	}
	return out
}

// check demands that slots and due index agree.
func (r *rig) check() {
	r.t.Helper()
	slots, index := r.entries(SlotPrefix), r.entries(DuePrefix)
	want := map[string]string{}
	for key, v := range slots {
		var s Slot
		k, _ := tuple.Parse(key)
		if err := json.Unmarshal([]byte(v), &s); err != nil || strings.Contains(v, "was") {
			r.t.Fatalf("slot %s: %s, %v", key, v, err)
		}
		want[tuple.Key{DuePrefix, k[1], tuple.Millis(s.EpochMs), k[2]}.String()] = v
	}
	if fmt.Sprint(want) != fmt.Sprint(index) {
		r.t.Fatalf("slots want the index\n%v\nand it is\n%v", want, index)
	}
}

// take runs a take for n alarms.
func (r *rig) take(n int, t Take) ([]Taken, Looked) {
	r.t.Helper()
	t.Class, t.Replica = class, "here"
	if t.TTL == 0 {
		t.TTL = time.Minute
	}
	if t.DeadlineMs == 0 {
		t.DeadlineMs = 1 << 50
	}
	for range n {
		t.Holders = append(t.Holders, uuid.NewString())
	}
	taken, looked, err := t.Read(libsqltest.MustBatch(r.t, r.db, libsql.Write, t.Statements()...))
	if err != nil {
		r.t.Fatal(err)
	}
	return taken, looked
}

func (r *rig) seq() int64 {
	return r.exec(`SELECT seq FROM kv_meta`).Rows[0][0].(int64)
}

func TestSet(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, at := range []int64{-5, 0, 1, minMs - 1, minMs, 1700000000000, 2199023255551, 2199023255552, 3000000000123, maxMs} {
			at := time.UnixMilli(at)
			if err := Check(at); err != nil {
				t.Fatal(err)
			}
			r.plan(func(p *kv.Plan) { AddSet(p, class, id(1), at) })
			r.check()
			if s := r.slot(id(1)); !s.Set || s.Asked() != at.UnixMilli() || s.RetryCount != 0 {
				t.Fatalf("set to %v: %+v", at, s)
			}
		}
		if Check(time.UnixMilli(maxMs+1)) == nil {
			t.Error("a time that has no key is accepted")
		}
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), time.Minute) })
		r.check()
		if s := r.slot(id(1)); s.Due() || s.EpochMs-s.NowMs > 60000 || s.EpochMs-s.NowMs < 30000 {
			t.Errorf("a minute from now: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), 0) })
		r.check()
		if s := r.slot(id(1)); !s.Due() {
			t.Errorf("now: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddAgain(p, class, id(1), 5) })
		r.check()
		if s := r.slot(id(1)); !s.Due() || s.Asked() != 5 || s.EpochMs < s.NowMs-60000 || s.RetryCount != 0 || s.Claim != "" {
			t.Errorf("again: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddClear(p, class, id(1)) })
		r.check()
		if s := r.slot(id(1)); s.Set {
			t.Errorf("cleared: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddClear(p, class, id(1)) })
		r.check()
	})
}

func TestRefusedPlanChangesNothing(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	h := r.acquire(id(1), time.Minute)
	r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), 0) })
	before := fmt.Sprint(r.entries())
	p := kv.NewPlan()
	p.Require(`0`)
	AddClaim(p, h, nil)
	AddSet(p, class, id(1), time.UnixMilli(1700000000000))
	AddSetIn(p, class, id(1), time.Hour)
	AddAgain(p, class, id(1), 5)
	AddFollow(p, h)
	AddRetry(p, h, time.Second)
	AddHandBack(p, h, 0)
	AddDead(p, h, "no")
	AddRun(p, class, id(1), 1700000000000, Run{})
	AddClear(p, class, id(1))
	if v, err := r.store.Commit(t.Context(), p); err != nil || v.OK {
		t.Fatal(v.OK, err)
	}
	if after := fmt.Sprint(r.entries()); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestClaim(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		h := r.acquire(id(1), time.Minute)
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), time.Hour); AddClaim(p, h, nil) })
		if s := r.slot(id(1)); s.Claim != "" {
			t.Fatalf("claimed before it is due: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddSet(p, class, id(1), time.UnixMilli(5)); AddClaim(p, h, nil); AddClaim(p, h, nil) })
		r.check()
		s := r.slot(id(1))
		if s.Claim != h.Holder || s.Asked() != 5 || s.RetryCount != 0 || s.EpochMs-s.NowMs > 60000 || s.EpochMs < s.NowMs {
			t.Fatalf("claimed: %+v", s)
		}
		r.plan(func(p *kv.Plan) { h.AddExtend(p, time.Hour); AddFollow(p, h) })
		r.check()
		if s := r.slot(id(1)); s.EpochMs-s.NowMs < 3000000 || s.Claim != h.Holder || s.Asked() != 5 {
			t.Fatalf("followed: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddRetry(p, h, time.Second); AddRetry(p, h, time.Second) })
		r.check()
		if s := r.slot(id(1)); s.RetryCount != 1 || s.Claim != "" || s.Asked() != 5 || s.EpochMs-s.NowMs > 1000 {
			t.Fatalf("retried: %+v", s)
		}
		r.expire(id(1)) // the wait is over
		h = r.acquire(id(1), time.Minute)
		r.plan(func(p *kv.Plan) { AddClaim(p, h, nil); AddHandBack(p, h, 0) })
		r.check()
		if s := r.slot(id(1)); s.RetryCount != 1 || s.Claim != "" || s.Asked() != 5 || !s.Due() {
			t.Fatalf("handed back: %+v", s)
		}
		r.plan(func(p *kv.Plan) { AddClaim(p, h, nil); AddDead(p, h, "too bad") })
		r.check()
		if s := r.slot(id(1)); s.Set {
			t.Fatalf("dead: %+v", s)
		}
		var d Dead
		for _, v := range r.entries(DeadPrefix) {
			if err := json.Unmarshal([]byte(v), &d); err != nil {
				t.Fatal(err)
			}
		}
		if d.Due != 5 || d.RetryCount != 1 || d.Error != "too bad" || d.DiedAt == 0 {
			t.Fatalf("dead letter: %+v", d)
		}
	})
}

// TestCrash: what another holder left claimed counts, what this replica gave up
// does not.
func TestCrash(t *testing.T) {
	for _, how := range []string{"holder", "take"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, libsqltest.File(t))
			r.object(id(1))
			r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), 0) })
			var givenUp []string
			claim := func() Slot {
				if how == "take" {
					taken, _ := r.take(1, Take{GivenUp: givenUp})
					if len(taken) != 1 {
						t.Fatalf("taken: %+v", taken)
					}
					return taken[0].Slot
				}
				h := r.acquire(id(1), time.Minute)
				r.plan(func(p *kv.Plan) { AddClaim(p, h, givenUp) })
				return r.slot(id(1)).Slot
			}
			first := claim()
			r.expire(id(1))
			second := claim()
			givenUp = []string{second.Claim}
			r.expire(id(1))
			third := claim()
			if first.RetryCount != 0 || second.RetryCount != 1 || third.RetryCount != 1 {
				t.Errorf("counts %d, %d, %d, want 0, 1, 1", first.RetryCount, second.RetryCount, third.RetryCount)
			}
			r.check()
		})
	}
}

// TestGivenUpClaimIsDue: the claim of a given-up holder is claimed anew before
// the time to which it had been moved.
func TestGivenUpClaimIsDue(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	h := r.acquire(id(1), time.Hour)
	r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), 0); AddClaim(p, h, nil); h.AddRelease(p) })
	h2 := r.acquire(id(1), time.Minute)
	r.plan(func(p *kv.Plan) { AddClaim(p, h2, nil) })
	if s := r.slot(id(1)); s.Claim != h.Holder {
		t.Fatalf("claimed before its time: %+v", s)
	}
	r.plan(func(p *kv.Plan) { AddClaim(p, h2, []string{h.Holder}) })
	r.check()
	if s := r.slot(id(1)); s.Claim != h2.Holder || s.RetryCount != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestTake(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for n := range 10 {
			if n != 3 {
				r.object(id(n)) // 3 has no log
			}
			r.plan(func(p *kv.Plan) { AddSet(p, class, id(n), time.UnixMilli(1700000000000+int64(n))) })
		}
		r.object(id(99))
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(99), time.Hour) })
		held := r.acquire(id(1), time.Hour)
		r.exec(`UPDATE obj_head SET deleted_at = 1 WHERE id = ?`, id(2))

		late, _ := r.take(5, Take{DeadlineMs: 1})
		if len(late) != 0 {
			t.Fatalf("taken after the deadline: %+v", late)
		}
		taken, looked := r.take(5, Take{})
		r.check()
		if looked.Due != 10 || looked.OldestMs != 1700000000000 || looked.NowMs < looked.OldestMs {
			t.Errorf("looked: %+v", looked)
		}
		var ids []string
		for _, o := range taken {
			ids = append(ids, o.ID)
			if o.Head.TXID != 1 || o.Head.Name != "name" || o.Slot.Claim != o.Lease.Holder || o.Slot.EpochMs != o.Lease.ExpiresAt || o.Lease.Event != lease.EventAlarm || o.Lease.Replica != "here" {
				t.Errorf("taken: %+v", o)
			}
			h := lease.Held{Class: class, ID: o.ID, Holder: o.Lease.Holder, Stamp: o.Lease.Stamp}
			r.plan(func(p *kv.Plan) { h.Require(p); AddClear(p, class, o.ID) })
		}
		slices.Sort(ids)
		if want := []string{id(0), id(4), id(5), id(6), id(7)}; !slices.Equal(ids, want) {
			t.Errorf("taken %v, want %v", ids, want)
		}
		if _, ok, err := held.Confirm(t.Context(), r.store); err != nil || !ok {
			t.Errorf("the held lease: %v, %v", ok, err)
		}
		if ok := r.exec(`SELECT ok FROM kv_meta`).Rows[0][0]; ok != int64(1) {
			t.Errorf("ok is left at %v", ok)
		}
		taken, _ = r.take(5, Take{})
		if len(taken) != 2 {
			t.Errorf("the rest: %+v", taken)
		}
		r.check()
		// Nothing is left that can be taken.
		before := r.seq()
		if taken, looked = r.take(5, Take{}); len(taken) != 0 || looked.Due != 3 {
			t.Errorf("taken %+v, looked %+v", taken, looked)
		}
		if after := r.seq(); after != before {
			t.Errorf("a take of nothing raised the stamp from %d to %d", before, after)
		}
	})
}

// TestTakeStamps: leases have a stamp that no other commit has.
func TestTakeStamps(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	r.object(id(1))
	r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(1), 0) })
	before := r.seq()
	taken, _ := r.take(1, Take{})
	h := r.acquire(id(2), time.Minute)
	if len(taken) != 1 || int64(taken[0].Lease.Stamp) <= before || h.Stamp <= taken[0].Lease.Stamp {
		t.Errorf("%d before, then %+v, then %d", before, taken, h.Stamp)
	}
}

// TestLostAnswer: what a take claimed whose answer was lost is returned by the
// next one.
func TestLostAnswer(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	for n := range 3 {
		r.object(id(n))
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(n), 0) })
	}
	lost, _ := r.take(2, Take{})
	var ids []string
	for _, o := range lost {
		ids = append(ids, o.Lease.Holder)
	}
	again, _ := r.take(0, Take{Lost: ids})
	if len(again) != 2 || again[0].Lease.Stamp != lost[0].Lease.Stamp {
		t.Fatalf("lost %+v, read back %+v", lost, again)
	}
	both, _ := r.take(2, Take{Lost: ids})
	if len(both) != 3 {
		t.Fatalf("read back and taken: %+v", both)
	}
	r.check()
}

// TestTakeGoesOnBehind: held alarms do not hide those behind them.
func TestTakeGoesOnBehind(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	r.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
	INSERT INTO kv(k, v, ver) SELECT CAST(? || `+keyOf(`(1700000000000 + i)`)+` || ? AS BLOB), '{"epochMs":1,"retryCount":0}', 1 FROM n`, tuple.MustEncode(DuePrefix, class), tuple.MustEncode("ff"))
	r.object(id(1))
	r.plan(func(p *kv.Plan) { AddSet(p, class, id(1), time.UnixMilli(1750000000000)) })
	taken, looked := r.take(1, Take{})
	if len(taken) != 0 || looked.Due != LookAt {
		t.Fatalf("taken %+v, looked %+v", taken, looked)
	}
	taken, looked = r.take(1, Take{Behind: looked.Last})
	if len(taken) != 1 || looked.Due != 202 {
		t.Fatalf("taken %+v, looked %+v", taken, looked)
	}
}

func TestRuns(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	for n := range 25 {
		r.plan(func(p *kv.Plan) {
			AddRun(p, class, id(1), 1700000000000+int64(n), Run{Due: int64(n), Replica: "here", Outcome: OutcomeOK})
		})
	}
	r.plan(func(p *kv.Plan) {
		AddRun(p, class, id(2), 1, Run{Outcome: OutcomeFailed, Error: strings.Repeat("ä", maxError)})
	})
	runs := r.entries(RunPrefix, class, id(1))
	if len(runs) != maxRuns {
		t.Errorf("%d runs are kept, want %d", len(runs), maxRuns)
	}
	for key, v := range runs {
		var run Run
		if err := json.Unmarshal([]byte(v), &run); err != nil || run.FinishedAt == 0 || run.Due < 5 {
			t.Errorf("%s: %s, %v", key, v, err)
		}
	}
}

// TestQueryPlan: a take reads by key only, however much there is.
func TestQueryPlan(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	for _, s := range (Take{Class: class}).Statements() {
		for _, row := range r.exec(`EXPLAIN QUERY PLAN `+s.SQL, s.Args...).Rows {
			text := row[3].(string)
			// The alias d may also be that of the bounded subquery.
			scans := strings.Contains(text, "SCAN d") && strings.Contains(s.SQL, "JOIN kv d")
			for _, table := range []string{"kv", "l", "s", "h"} {
				scans = scans || text == "SCAN "+table || strings.HasPrefix(text, "SCAN "+table+" USING")
			}
			if scans {
				t.Errorf("%s\n%s", text, s.SQL)
			}
		}
	}
}

func TestReleaseAll(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	for n := range 3 {
		r.object(id(n))
		r.plan(func(p *kv.Plan) { AddSetIn(p, class, id(n), 0) })
	}
	r.take(2, Take{})
	other := r.acquireAs(id(9), "there", time.Minute)
	n, err := ReleaseAll(t.Context(), r.store, "here")
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	r.check()
	for n := range 3 {
		if s := r.slot(id(n)); !s.Due() || s.Claim != "" || s.RetryCount != 0 {
			t.Errorf("%d: %+v", n, s)
		}
	}
	if _, ok, err := other.Confirm(t.Context(), r.store); err != nil || !ok {
		t.Errorf("another replica's lease: %v %v", ok, err)
	}
}
