package audit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestAlarms(t *testing.T) {
	const slot, due = `k >= x'0264776b5f616c61726d5f62795f6964' AND k < x'0264776b5f616c61726d5f62795f6965'`, `k >= x'0264776b5f616c61726d5f647565' AND k < x'0264776b5f616c61726d5f647566'`
	each(t, func(f *fixture) {
		f.object("0a").small(1)
		clean := func() {
			f.Helper()
			f.plan(func(p *kv.Plan) { alarm.AddClear(p, "C", "0a") })
			f.sql(`DELETE FROM kv WHERE ` + due)
			f.finds()
		}
		f.alarm("0a", time.Hour)
		f.finds()
		f.sql(`DELETE FROM kv WHERE ` + due)
		f.says(f.finds("alarm.due.missing"), AlarmDueMissing, "never fires|C/0a")
		clean()

		f.alarm("0a", time.Hour)
		f.sql(`DELETE FROM kv WHERE ` + slot)
		f.says(f.finds("alarm.due.stray"), AlarmDueStray, "there is no alarm|C/0a")
		clean()

		f.alarm("0a", time.Hour)
		f.sql(`UPDATE kv SET v = json_set(v, '$.epochMs', json_extract(v, '$.epochMs') + 1000) WHERE ` + slot)
		f.finds("alarm.due.missing", "alarm.due.stray")
		clean()

		f.alarm("0a", time.Hour)
		f.sql(`UPDATE kv SET v = json_set(v, '$.retryCount', 3) WHERE ` + slot)
		f.finds("alarm.due.differs")
		clean()

		f.alarm("0a", -30*time.Second)
		f.finds()
		f.alarm("0a", -2*time.Minute)
		f.says(f.finds("alarm.overdue"), AlarmOverdue, "due 2m|no replica is registered")
		f.set(tuple.Key{"dwk_replica", "r1"}, `{}`, time.Minute)
		f.says(f.finds("alarm.overdue"), AlarmOverdue, "registered: 1|class C")
		h := f.hold("0a", 40*time.Second)
		f.says(f.finds("alarm.overdue"), AlarmOverdue, "leased by replica r1 (request)")
		f.plan(func(p *kv.Plan) { h.Require(p); alarm.AddClaim(p, h, nil) })
		f.finds()
		f.plan(func(p *kv.Plan) { h.AddExtend(p, 50*time.Second) })
		f.says(f.finds("alarm.claim"), AlarmClaim, "claimed until")
		f.plan(func(p *kv.Plan) { alarm.AddFollow(p, h) })
		f.finds()
		if _, err := h.Release(t.Context(), f.store); err != nil {
			t.Fatal(err)
		}
		f.finds() // it is taken up when its time has come
		move := func(ms int) {
			k := f.sql(`SELECT json_extract(v, '$.epochMs') FROM kv WHERE ` + slot).Rows[0][0].(int64)
			f.sql(fmt.Sprintf(`UPDATE kv SET v = json_set(v, '$.epochMs', json_extract(v, '$.epochMs') + %d) WHERE (%s) OR (%s)`, ms, slot, due))
			f.sql(`UPDATE kv SET k = ? WHERE k = ?`, alarm.DueKey("C", k+int64(ms), "0a"), alarm.DueKey("C", k, "0a"))
		}
		move(3600_000)
		f.says(f.finds("alarm.claim"), AlarmClaim, "longer than a lease lasts")
		move(-4000_000)
		f.says(f.finds("alarm.claim"), AlarmClaim, "nobody took it up again")
		clean()

		f.alarm("0b", time.Hour)
		f.says(f.finds("alarm.no-object"), AlarmNoObject, "C/0b|older host")
		f.sql(`INSERT INTO obj_head SELECT class, '0b', 1, '0000000000000000', 'c', 4096, 0, 1, name, created_at, updated_at, updated_at FROM obj_head`)
		f.sql(`INSERT INTO obj_log SELECT class, '0b', 0, 1, 1, '0000000000000000', '0000000000000000', 'c', at, 0, NULL, NULL FROM obj_log`)
		f.says(f.finds("alarm.no-object"), AlarmNoObject, "was deleted")
	})
}

func TestLettersAndRuns(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a").small(1)
	h := f.hold("0a", 40*time.Second)
	f.alarm("0a", -time.Second)
	f.plan(func(p *kv.Plan) { alarm.AddClaim(p, h, nil); alarm.AddDead(p, h, "too bad") })
	f.says(f.finds("alarm.dead"), AlarmDead, "too bad|C/0a|after 0 retries")
	f.sql(`DELETE FROM kv WHERE k = ?`, alarm.DeadKey("C", "0a"))

	now, err := f.store.Now(t.Context())
	f.must(err)
	at := func(ms int64) int64 { return now.UnixMilli() + ms }
	for _, r := range []struct {
		due, started int64
		outcome      string
	}{
		{-7200_000, -7000_000, "ok"}, // before the time asked for
		{-50_000, -49_990, "ok"},
		{-40_000, -39_000, "failed"},
		{-40_000, -30_000, "ok"}, // the same alarm again
		{-25_000, -5000, "ok"},
		{-30_000, -1, "crashed"},
	} {
		f.plan(func(p *kv.Plan) {
			alarm.AddRun(p, "C", "0a", at(r.started), alarm.Run{Due: at(r.due), Replica: "r1", Outcome: r.outcome})
		})
	}
	f.finds()
	found, sum := f.audit(func(o *Options) { o.Ago, o.Overdue = time.Hour, 5*time.Second })
	if sum.Runs != 5 || sum.Findings != 1 || sum.Information != 1 {
		t.Errorf("%+v %+v", sum, found)
	}
	f.says(found, AlarmLate, "began 20s late|replica r1|C/0a")
	f.says(found, AlarmRuns, "5 runs since|1 late|1 failed|1 crashed|half began within 1s|the latest 20s")
	if _, sum := f.audit(func(o *Options) { o.Since, o.Overdue = now.Add(-6*time.Second), 30*time.Second }); sum.Runs != 2 || sum.Findings != 0 {
		t.Errorf("%+v", sum)
	}
}

func TestQueues(t *testing.T) {
	each(t, func(f *fixture) {
		now, err := f.store.Now(t.Context())
		f.must(err)
		send := func(queue string, in time.Duration, id, value string) {
			f.set(tuple.Key{"dwk_queue_due", queue, tuple.Millis(now.Add(in).UnixMilli()), id}, value, 0)
		}
		send("a", time.Hour, "1", `{"body":1,"attempts":0}`)
		send("a", -10*time.Second, "2", `{"body":1,"attempts":0}`)
		f.finds()
		send("a", -5*time.Minute, "3", `{"body":1,"attempts":0}`)
		send("a", -2*time.Minute, "4", `{"body":1,"attempts":0}`)
		send("b", -2*time.Minute, "5", `{"body":1,"attempts":0,"claim":"x"}`)
		found := f.finds("message.overdue", "message.overdue")
		f.says(found, MessageOverdue, "2 messages are overdue|oldest by 5m|no replica|a")
		f.says(found[1:], MessageOverdue, "1 message is|died|b")
		f.set(tuple.Key{"dwk_queue_pause", "a"}, `{"by":"me","at":1700000000000}`, 0)
		f.says(f.finds("message.overdue", "message.overdue"), MessageOverdue, "paused, by me at 2023-11-14")
		f.sql(`DELETE FROM kv WHERE k >= ? AND k < ?`, tuple.MustEncode("dwk_queue_due"), tuple.RangeEnd(tuple.MustEncode("dwk_queue_due")))
		f.set(tuple.Key{"dwk_queue_dead", "c", 1700000000000, "1"}, `{"body":1,"attempts":5,"error":"first"}`, time.Hour)
		f.set(tuple.Key{"dwk_queue_dead", "c", 1700000000001, "1"}, `{"body":1,"attempts":5,"error":"second"}`, time.Hour)
		f.says(f.finds("message.dead"), MessageDead, "given up: 2|second|c")
	})
}

func TestEntries(t *testing.T) {
	each(t, func(f *fixture) {
		one := func(check, words string, key tuple.Key, value string, ttl time.Duration) {
			f.Helper()
			f.set(key, value, ttl)
			f.says(f.finds(check), check, words)
			k, err := key.Encode()
			f.must(err)
			f.sql(`DELETE FROM kv WHERE k = ?`, k)
			f.finds()
		}
		one(LeaseEndless, "blocked|C/0a", tuple.Key{"dwk_lease", "C", "0a"}, `{"holder":"x"}`, 0)
		one(LeaseLong, "longer than 1m|C/0a", tuple.Key{"dwk_lease", "C", "0a"}, `{"holder":"x"}`, time.Hour)
		one(EntryValue, "no holder", tuple.Key{"dwk_lease", "C", "0a"}, `{"hold":"x"}`, 40*time.Second)
		one(EntryKey, "form", tuple.Key{"dwk_lease", "C"}, `{"holder":"x"}`, 40*time.Second)
		one(EntryKey, "form", tuple.Key{"dwk_queue_due", "q", "1", "x"}, `{"body":1}`, 0)
		one(EntryEndless, "no expiry", tuple.Key{"dwk_replica", "r1"}, `{}`, 0)
		one(EntryMortal, "is lost", tuple.Key{"dwk_queue_due", "q", 4000000000000, "x"}, `{"body":1}`, time.Minute)
		one(EntryValue, "no JSON", tuple.Key{"mine"}, `{"a":`, 0)
		f.set(tuple.Key{"dwk_lease", "dwk_probe", "0a"}, `{"holder":"x"}`, 25*time.Second)
		f.set(tuple.Key{"dwk_newer", "x"}, `1`, 0)
		f.finds()
		f.sql(`INSERT INTO kv VALUES (x'0961', '1', 1, NULL)`)
		f.says(f.finds(EntryKey), EntryKey, "cannot be read")
		f.sql(`DELETE FROM kv WHERE k = x'0961'`)
		f.sql(`UPDATE kv SET ver = 99999 WHERE k = ?`, tuple.MustEncode("dwk_newer", "x"))
		f.finds(StoreSequence)
		f.sql(`DELETE FROM kv_meta`)
		f.finds(StoreMeta)
		f.sql(`INSERT INTO kv_meta VALUES (0, 99999, 0)`)
		f.set(tuple.Key{"dwk_meta", "mode"}, `"central"`, 0)
		f.says(f.finds(StoreMode), StoreMode, "older host")
		f.sql(`DELETE FROM kv`)
		f.finds() // nobody has claimed it
		f.object("0a").small(1)
		f.says(f.finds(StoreMode), StoreMode, "has the mode")
	})
}

// TestSecondLook: what is right again a moment later is not reported.
func TestSecondLook(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a").small(1)
	f.alarm("0a", -time.Hour)
	a := &auditor{Config: Config{Store: f.store, LeaseTTL: 10 * time.Second}, Options: Options{Overdue: time.Minute, Settle: time.Millisecond}, sum: &Summary{Counts: map[string]int64{}}}
	var found []Finding
	a.report = &reporter{emit: func(x Finding) error { found = append(found, x); return nil }, sum: a.sum}
	look := twice[alarmRef]{a: a, look: a.lookAlarms}
	now, err := f.store.Now(t.Context())
	f.must(err)
	ref := alarmRef{class: "C", id: "0a"}
	for _, row := range f.sql(`SELECT json_extract(v, '$.epochMs') FROM kv WHERE k = ?`, alarm.SlotKey("C", "0a")).Rows {
		ref.ms = row[0].(int64)
	}
	f.must(look.first(t.Context(), []alarmRef{ref}))
	if len(look.wrong) != 1 {
		t.Fatalf("%+v", look.found)
	}
	f.plan(func(p *kv.Plan) { alarm.AddSet(p, "C", "0a", now.Add(-2*time.Hour)) }) // overdue too, but another one
	f.must(look.flush(t.Context()))
	if len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// TestOtherFaultAtSecondLook: only the same fault of the same thing is reported.
func TestOtherFaultAtSecondLook(t *testing.T) {
	a := &auditor{Options: Options{Settle: time.Nanosecond}, sum: &Summary{Counts: map[string]int64{}}}
	var reported []string
	a.report = &reporter{emit: func(x Finding) error { reported = append(reported, x.Message); return nil }, sum: a.sum}
	first := true
	look := twice[int]{a: a, look: func(_ context.Context, things []int) ([][]Finding, error) {
		defer func() { first = false }()
		if first {
			return [][]Finding{nil, {{Check: "x", Message: "a", same: "1"}, {Check: "y", Message: "b"}, {Check: "z", Message: "c", ID: "0a"}}}, nil
		}
		return [][]Finding{{{Check: "x", Message: "a", same: "2"}, {Check: "y", Message: "b, later"}, {Check: "z", Message: "c", ID: "0b"}, {Check: "w"}}}, nil
	}}
	if err := errors.Join(look.first(t.Context(), []int{1, 2}), look.flush(t.Context())); err != nil || len(reported) != 1 || reported[0] != "b, later" {
		t.Errorf("%v %q", err, reported)
	}
}
