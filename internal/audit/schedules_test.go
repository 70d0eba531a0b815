package audit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// scheduled is what the fixture's replicas are configured with.
var scheduled = cron.Options{Schedule: "@every 10m", Zone: "UTC", CatchUp: time.Hour, Timeout: time.Minute}

// runner runs the schedule "s" as a replica does. It polls only when a test has
// it poll.
func (f *fixture) runner() (poll func()) {
	r := cron.NewRunner(cron.Config{Replica: "r1", Store: f.store, Commits: f.store, TTL: 10 * time.Second, Wake: func() {}, WakeAt: func(time.Time) {}}, slog.New(slog.DiscardHandler))
	f.must(r.Add("s", scheduled, nil, func(context.Context, durable.Env, durable.Occurrence) error { return nil }))
	f.Cleanup(func() { f.must(r.Stop(context.Background())) })
	return func() {
		f.Helper()
		for range 3 {
			sent := clock.Now()
			res, err := f.db.Batch(f.Context(), libsql.Write, r.Poll(1<<20)...)
			f.must(err)
			r.Polled(res, nil, sent)
			for deadline := clock.Now().Add(time.Minute); r.Statuses()[0].Running > 0; time.Sleep(time.Millisecond) {
				if clock.Now().After(deadline) {
					f.Fatal("the run does not end")
				}
			}
		}
	}
}

// ago lets so much time pass for the schedule: what it was settled at is moved
// into the past.
func (f *fixture) ago(d time.Duration) {
	f.sql(`UPDATE kv SET v = json_set(v, '$.bucket', json_extract(v, '$.bucket') - ?1, '$.from', json_extract(v, '$.from') - ?1, '$.since', json_extract(v, '$.since') - ?1) WHERE k = ?2`,
		d.Milliseconds(), tuple.MustEncode(cron.PrefixLast, "s"))
	for _, p := range []string{cron.PrefixOccurrence, cron.PrefixRun} {
		lo, hi := bounds(p)
		f.sql(`DELETE FROM kv WHERE k >= ? AND k < ?`, lo, hi)
	}
}

func TestSchedules(t *testing.T) {
	each(t, func(f *fixture) {
		poll := f.runner()
		poll()
		f.finds()
		f.ago(time.Hour)
		f.says(f.finds(ScheduleOverdue), ScheduleOverdue, "were not begun|no replica is registered")
		f.set(tuple.Key{"dwk_replica", "r1"}, `{}`, time.Minute)
		f.says(f.finds(ScheduleOverdue), ScheduleOverdue, "registered: 1")
		f.must(cron.Pause(f.Context(), f.store, "s", "me"))
		f.finds()
		if _, err := cron.Resume(f.Context(), f.store, "s"); err != nil {
			f.Fatal(err)
		}
		f.finds()
		f.ago(time.Hour)
		poll()
		f.finds()

		// A run that was cut off.
		newest := fmt.Sprintf(`k = (SELECT max(k) FROM kv WHERE k >= x'%x' AND k < x'%x')`, tuple.MustEncode(cron.PrefixOccurrence), tuple.RangeEnd(tuple.MustEncode(cron.PrefixOccurrence)))
		at := f.sql(`SELECT json_extract(v, '$.bucket') FROM kv WHERE k = ?`, tuple.MustEncode(cron.PrefixLast, "s")).Rows[0][0]
		f.sql(`UPDATE kv SET v = json_set(v, '$.state', 'running', '$.until', ` + kv.Now + ` - 30000) WHERE ` + newest)
		f.says(f.finds(ScheduleClaim), ScheduleClaim, "no replica can find it|replica r1")
		f.sql(`UPDATE kv SET v = json_set(v, '$.open', json_array(?)) WHERE k = ?`, at, tuple.MustEncode(cron.PrefixLast, "s"))
		f.finds() // it has just been cut off
		f.sql(`UPDATE kv SET v = json_set(v, '$.until', ` + kv.Now + ` - 120000) WHERE ` + newest)
		f.says(f.finds(ScheduleClaim), ScheduleClaim, "cut off 2m|nobody repeated")
		f.sql(`UPDATE kv SET v = json_set(v, '$.until', ` + kv.Now + ` + 120000) WHERE ` + newest)
		f.finds()
		other := fmt.Sprintf(`{"holder":"h","state":"running","until":%d,"attempt":1}`, f.sql(`SELECT ` + kv.Now).Rows[0][0].(int64)+60_000)
		f.set(tuple.Key{cron.PrefixOccurrence, "s", tuple.Millis(at.(int64) - 600_000)}, other, time.Minute)
		f.says(f.finds(ScheduleOverlap), ScheduleOverlap, "2 runs")
		f.ago(0)
		f.set(tuple.Key{cron.PrefixRun, "s", tuple.Millis(at.(int64)), 1}, `{"outcome":"ok"}`, time.Hour)
		f.finds()

		// The history has a hole.
		f.ago(30 * time.Minute)
		f.set(tuple.Key{cron.PrefixRun, "s", tuple.Millis(at.(int64) - 1800_000), 1}, `{"outcome":"ok"}`, time.Hour)
		poll()
		f.finds()
		f.sql(`DELETE FROM kv WHERE k = ?`, tuple.MustEncode(cron.PrefixRun, "s", tuple.Millis(at.(int64)-600_000), 0))
		f.says(f.finds(ScheduleHistory), ScheduleHistory, "1 occurrences")
	})
}

func TestScheduleRuns(t *testing.T) {
	each(t, func(f *fixture) {
		f.runner()()
		f.ago(time.Hour)
		now := f.sql(`SELECT ` + kv.Now).Rows[0][0].(int64)
		line := func(minutesAgo int64, attempt int, late int64, more string) {
			at := now - minutesAgo*60_000
			f.set(tuple.Key{cron.PrefixRun, "s", tuple.Millis(at), attempt}, fmt.Sprintf(`{"replica":"r1","attempt":%d,"started_at":%d,"finished_at":%d%s}`, attempt, at+late, at+late+1, more), time.Hour)
		}
		line(50, 1, 40, `,"outcome":"ok"`)
		line(40, 1, 700, `,"outcome":"interrupted"`)
		line(40, 2, 90_000, `,"outcome":"failed"`)
		line(30, 0, 0, `,"outcome":"missed"`)
		line(20, 1, 80_000, `,"outcome":"ok"`)
		line(10, 1, 500_000, `,"outcome":"ok","request":true`)
		line(300, 1, 500_000, `,"outcome":"ok"`)
		found, sum := f.audit(func(o *Options) { o.Ago, o.Overdue = time.Hour, 75*time.Second })
		f.says(found, ScheduleLate, "1m20s late|replica r1 ran it")
		f.says(found, ScheduleRuns, "4 runs since|1 late|1 failed|1 interrupted|half began within 1s|the latest 1m20s|1 missed")
		if sum.Counts[ScheduleLate] != 1 || sum.Counts[ScheduleRuns] != 1 || sum.Runs != 4 || sum.Schedules != 1 {
			f.Errorf("%+v", sum)
		}
		if _, sum := f.audit(func(o *Options) { o.Class = "C" }); sum.Schedules != 0 {
			f.Errorf("%+v", sum)
		}
	})
}

// What this configuration does not have is no fault.
func TestUnknownSchedule(t *testing.T) {
	each(t, func(f *fixture) {
		f.set(tuple.Key{cron.PrefixLast, "old"}, `{"since":1700000000000,"schedule":"@daily","zone":"UTC"}`, 0)
		f.says(f.finds(ScheduleUnknown), ScheduleUnknown, "2023-11-15|no such schedule")
		f.set(tuple.Key{cron.PrefixLast, "odd"}, `[]`, 0)
		f.set(tuple.Key{cron.PrefixOccurrence, "old", 1}, `{}`, time.Minute)
		found := f.finds(ScheduleUnknown, EntryValue, EntryValue)
		for _, x := range found {
			if x.Check == EntryValue && !strings.Contains(x.Message, "not of its kind") {
				f.Error(x.Message)
			}
		}
	})
}
