package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// liar stands before a database and may change what is asked and answered.
type liar struct {
	kv.DB
	before func(stmts []libsql.Statement) ([]libsql.Statement, error)
	after  func(stmts []libsql.Statement, res []libsql.Result) ([]libsql.Result, error)
}

func (l *liar) Batch(ctx context.Context, m libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if l.before != nil {
		var err error
		if stmts, err = l.before(stmts); err != nil {
			return nil, err
		}
	}
	res, err := l.DB.Batch(ctx, m, stmts...)
	if err == nil && l.after != nil {
		res, err = l.after(stmts, res)
	}
	return res, err
}

func (l *liar) Stream(ctx context.Context, s libsql.Statement) iter.Seq2[libsql.Row, error] {
	return l.DB.Stream(ctx, s)
}

// newTarget is a store set that a replica has claimed, unless it is to be new.
func newTarget(t *testing.T, claimed bool) (Target, *liar) {
	t.Helper()
	db, err := libsql.Open(libsql.Config{URL: "file:" + filepath.Join(t.TempDir(), "db.sqlite")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if claimed {
		s := kv.New(db)
		if err := s.Init(t.Context(), objlog.Schema...); err != nil {
			t.Fatal(err)
		}
		if _, err := mode.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	l := &liar{DB: db}
	return Target{DB: l, KV: kv.New(l), TempDir: t.TempDir()}, l
}

// contents are all rows of a store set but the counters.
func contents(t *testing.T, target Target) []string {
	t.Helper()
	var out []string
	db := target.DB.(*liar).DB
	for _, q := range []string{`SELECT 'kv', hex(k), v, ver FROM kv`, `SELECT 'head', class, id, txid FROM obj_head`, `SELECT 'log', class, id, max_txid FROM obj_log`} {
		res, err := db.Batch(t.Context(), libsql.Read, libsql.S(q))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range res[0].Rows {
			out = append(out, fmt.Sprint(row...))
		}
	}
	if left, err := os.ReadDir(target.TempDir); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
	return out
}

func find(t *testing.T, results []Result, store, check string) Result {
	t.Helper()
	for _, r := range results {
		if r.Store == store && r.Check == check {
			return r
		}
	}
	t.Fatalf("no result of %s/%s", store, check)
	return Result{}
}

func TestGoodStores(t *testing.T) {
	target, _ := newTarget(t, true)
	before := contents(t, target)
	results, err := Run(t.Context(), target, Options{Repeat: 3, Budget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	trips := map[string]int{}
	for _, r := range results {
		name := r.Store + "/" + r.Check
		names = append(names, name)
		trips[name] = r.Trips
		if !r.OK || r.Err != nil || r.Skipped != "" || r.P50 <= 0 || r.P95 < r.P50 || !strings.HasPrefix(r.Address, "file:") {
			t.Errorf("%+v", r)
		}
	}
	want := []string{"coordination/open", "coordination/write", "coordination/read", "coordination/compare-and-set", "coordination/delete",
		"object-log/acquire", "object-log/commit", "object-log/sync", "object-log/delete", "mode/marker", "clock/skew"}
	if !slices.Equal(names, want) {
		t.Errorf("checks are %v", names)
	}
	for name, n := range map[string]int{"coordination/write": 1, "coordination/read": 1, "coordination/compare-and-set": 2, "coordination/delete": 2,
		"object-log/acquire": 1, "object-log/commit": 1, "object-log/sync": 1, "object-log/delete": 1, "mode/marker": 1, "clock/skew": 1} {
		if trips[name] != n {
			t.Errorf("%s took %d round trips, want %d", name, trips[name], n)
		}
	}
	if err := Summarize(results); err != nil {
		t.Error(err)
	}
	if after := contents(t, target); !slices.Equal(after, before) {
		t.Errorf("left behind: %v", after)
	}
}

func TestNewStoreSet(t *testing.T) {
	target, _ := newTarget(t, false)
	results, err := Run(t.Context(), target, Options{})
	if err != nil || Summarize(results) != nil {
		t.Fatal(err, Summarize(results))
	}
	for _, r := range []Result{find(t, results, Coordination, "open"), find(t, results, Mode, "marker")} {
		if !strings.Contains(r.Note, "new store set") {
			t.Errorf("%s/%s notes %q", r.Store, r.Check, r.Note)
		}
	}
	if left := contents(t, target); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOnlyAndOptions(t *testing.T) {
	target, _ := newTarget(t, true)
	results, err := Run(t.Context(), target, Options{Only: []string{Clock}})
	if err != nil || len(results) != 1 || results[0].Store != Clock || results[0].Note == "" {
		t.Fatal(results, err)
	}
	for _, o := range []Options{{Only: []string{"nonsense"}}, {Repeat: -1}, {Repeat: MaxRepeat + 1}, {Budget: -1}} {
		if _, err := Run(t.Context(), target, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestBudget(t *testing.T) {
	target, _ := newTarget(t, true)
	results, err := Run(t.Context(), target, Options{Budget: 1})
	if err != nil {
		t.Fatal(err)
	}
	if open := find(t, results, Coordination, "open"); !open.OK {
		t.Errorf("the connection is part of the budget: %v", open.Err)
	}
	if r := find(t, results, Coordination, "write"); r.OK || r.Skipped != "" || r.Unreachable() {
		t.Errorf("%+v", r)
	}
	e, ok := errors.AsType[*Error](Summarize(results))
	if !ok || len(e.Failed) != 10 || e.Unreachable() {
		t.Error(e)
	}
}

// cut is the error of a database that went away.
func cut(o libsql.Outcome) error {
	return &libsql.Error{Outcome: o, Kind: libsql.KindUnreachable, Statement: -1, Addr: "http://db", Err: io.ErrUnexpectedEOF}
}

func TestUnreachable(t *testing.T) {
	target, l := newTarget(t, true)
	l.before = func([]libsql.Statement) ([]libsql.Statement, error) { return nil, cut(libsql.Refused) }
	results, err := Run(t.Context(), target, Options{Only: []string{ObjectLog, Mode}})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 6 {
		t.Fatal(results)
	}
	for _, r := range results[1:] {
		if r.OK || r.Skipped == "" || r.Err != nil {
			t.Errorf("%+v", r)
		}
	}
	e, ok := errors.AsType[*Error](Summarize(results))
	if !ok || !e.Unreachable() || !errors.Is(e, io.ErrUnexpectedEOF) || strings.Count(e.Error(), "coordination (") != 1 {
		t.Error(e)
	}
}

// Wherever a probe ends, by its caller or by a store that goes away for a
// moment, it leaves nothing behind.
func TestEndsAnywhere(t *testing.T) {
	for _, lostAnswer := range []bool{false, true} {
		for _, cancels := range []bool{false, true} {
			for at := 1; ; at++ {
				target, l := newTarget(t, true)
				before := contents(t, target)
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				stop := func() error {
					if n++; n != at {
						return nil
					}
					if cancels {
						cancel()
						return nil
					}
					return cut(libsql.Unknown)
				}
				if lostAnswer {
					l.after = func(_ []libsql.Statement, r []libsql.Result) ([]libsql.Result, error) { return r, stop() }
				} else {
					l.before = func(s []libsql.Statement) ([]libsql.Statement, error) { return s, stop() }
				}
				results, err := Run(ctx, target, Options{})
				cancel()
				if after := contents(t, target); !slices.Equal(after, before) {
					t.Errorf("after round trip %d (lost answer %t, cancelled %t): left behind %v", at, lostAnswer, cancels, after)
				}
				if n < at {
					if at < 12 {
						t.Errorf("only %d round trips", n)
					}
					break
				}
				if cancels && !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled at round trip %d: %v", at, err)
				}
				if !cancels && (err != nil || Summarize(results) == nil) {
					t.Errorf("cut at round trip %d: %v, %v", at, err, results)
				}
			}
		}
	}
}

// A store that does the wrong thing is found out.
func TestWrongStores(t *testing.T) {
	mentions := func(stmts []libsql.Statement, text string) bool {
		return slices.ContainsFunc(stmts, func(s libsql.Statement) bool { return strings.Contains(s.SQL, text) })
	}
	for name, tt := range map[string]struct {
		store, check string
		lie          func(*liar)
	}{
		"writes nothing": {Coordination, "read", func(l *liar) {
			l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
				for i := range s {
					if strings.HasPrefix(s[i].SQL, "INSERT INTO kv(") {
						s[i] = libsql.S(`SELECT 1`)
					}
				}
				return s, nil
			}
		}},
		"checks nothing": {Coordination, "compare-and-set", func(l *liar) {
			l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
				if mentions(s[:1], "json_each(?) c") {
					s[0] = libsql.S(`UPDATE kv_meta SET ok = 1`)
				}
				return s, nil
			}
		}},
		"repeats stamps": {Coordination, "compare-and-set", func(l *liar) {
			l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
				for i := range s {
					if strings.HasPrefix(s[i].SQL, "UPDATE kv_meta SET seq") {
						s[i] = libsql.S(`SELECT 1`)
					}
				}
				return s, nil
			}
		}},
		"deletes nothing": {Coordination, "delete", func(l *liar) {
			l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
				for i := range s {
					if strings.HasPrefix(s[i].SQL, "DELETE FROM kv") {
						s[i] = libsql.S(`SELECT 1`)
					}
				}
				return s, nil
			}
		}},
		"damages entries": {ObjectLog, "sync", func(l *liar) {
			l.after = func(s []libsql.Statement, r []libsql.Result) ([]libsql.Result, error) {
				for i := range s {
					if strings.HasPrefix(s[i].SQL, "SELECT l.level") {
						for _, row := range r[i].Rows {
							data := row[8].([]byte)
							data[len(data)/2] ^= 1
						}
					}
				}
				return r, nil
			}
		}},
		"loses the head": {ObjectLog, "sync", func(l *liar) {
			l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
				for i := range s {
					if strings.HasPrefix(s[i].SQL, "INSERT INTO obj_head") {
						s[i] = libsql.S(`SELECT 1`)
					}
				}
				return s, nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			target, l := newTarget(t, true)
			tt.lie(l)
			results, err := Run(t.Context(), target, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r := find(t, results, tt.store, tt.check); !errors.Is(r.Err, errWrong) || r.Unreachable() {
				t.Errorf("%s/%s: %v", tt.store, tt.check, r.Err)
			}
		})
	}
}

func TestRemovesWhatAKilledProbeLeft(t *testing.T) {
	target, _ := newTarget(t, true)
	now, err := target.KV.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, age := range map[string]time.Duration{"aa": 2 * sentinelAge, "bb": 0} {
		at := now.Add(-age).UnixMilli()
		if _, err := target.DB.Batch(t.Context(), libsql.Write,
			libsql.S(`INSERT INTO obj_head VALUES (?, ?, 1, '', '', 0, 0, 1, NULL, ?, ?, NULL)`, Class, id, at, at),
			libsql.S(`INSERT INTO obj_log VALUES (?, ?, 0, 1, 1, '', '', '', ?, 0, NULL, NULL)`, Class, id, at)); err != nil {
			t.Fatal(err)
		}
	}
	results, err := Run(t.Context(), target, Options{})
	if err != nil || Summarize(results) != nil {
		t.Fatal(err, Summarize(results))
	}
	if note := find(t, results, ObjectLog, "delete").Note; !strings.Contains(note, "removed 1 ") {
		t.Error(note)
	}
	left := strings.Join(contents(t, target), "\n")
	if strings.Contains(left, "dwk_probeaa") || strings.Count(left, "dwk_probe") != 2 {
		t.Errorf("left: %s", left)
	}
}

func TestModes(t *testing.T) {
	for marker, wantNote := range map[string]string{"central": "no object logs", "migrating:x": "no object logs", "other": "no object logs"} {
		target, _ := newTarget(t, false)
		if err := target.KV.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := target.KV.Set(t.Context(), mode.ModeKey, marker, 0); err != nil {
			t.Fatal(err)
		}
		results, err := Run(t.Context(), target, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r := find(t, results, Mode, "marker"); !errors.Is(r.Err, mode.ErrRefused) || r.Unreachable() {
			t.Errorf("%s: %+v", marker, r)
		}
		if r := find(t, results, ObjectLog, "commit"); !strings.Contains(r.Skipped, wantNote) {
			t.Errorf("%s: %+v", marker, r)
		}
		if r := find(t, results, Coordination, "delete"); !r.OK {
			t.Errorf("%s: %+v", marker, r)
		}
		if res, err := target.DB.Batch(t.Context(), libsql.Read, libsql.S(`SELECT count(*) FROM sqlite_master WHERE name LIKE 'obj%'`)); err != nil || res[0].Rows[0][0] != int64(0) {
			t.Errorf("%s: tables were added to a store set of another mode: %v", marker, err)
		}
	}
}

func TestSkewIsOnlyNoted(t *testing.T) {
	for shift, want := range map[int64]string{5000: "ahead", -5000: "behind", 0: "agrees"} {
		target, l := newTarget(t, true)
		l.after = func(s []libsql.Statement, r []libsql.Result) ([]libsql.Result, error) {
			if s[0].SQL == `SELECT `+kv.Now {
				r[0].Rows[0][0] = r[0].Rows[0][0].(int64) + shift
			}
			return r, nil
		}
		results, err := Run(t.Context(), target, Options{Only: []string{Clock}, Repeat: 3})
		if err != nil {
			t.Fatal(err)
		}
		r := find(t, results, Clock, "skew")
		if !r.OK || r.Warn != (shift != 0) || !strings.Contains(r.Note, want) {
			t.Errorf("%+v", r)
		}
	}
}

// The sentinel's lease is live while it is used, as any other.
func TestSentinelHoldsALease(t *testing.T) {
	target, l := newTarget(t, true)
	seen := false
	l.before = func(s []libsql.Statement) ([]libsql.Statement, error) {
		if slices.ContainsFunc(s, func(s libsql.Statement) bool { return strings.HasPrefix(s.SQL, "INSERT INTO obj_log") }) {
			for info, err := range lease.List(t.Context(), kv.New(l.DB), Class) {
				seen = err == nil && info.Event == lease.EventOperator
			}
		}
		return s, nil
	}
	if _, err := Run(t.Context(), target, Options{Only: []string{ObjectLog}}); err != nil || !seen {
		t.Error(seen, err)
	}
}

func TestResultJSON(t *testing.T) {
	for _, tt := range []struct {
		r    Result
		want map[string]any
	}{
		{Result{Store: "coordination", Address: "file:x", Check: "write", OK: true, Trips: 1, P50: 1500 * time.Microsecond, P95: 2 * time.Millisecond},
			map[string]any{"store": "coordination", "address": "file:x", "check": "write", "ok": true, "round_trips": 1., "p50_ms": 1.5, "p95_ms": 2.}},
		{Result{Store: "coordination", Address: "file:x", Check: "read", Skipped: "write failed"},
			map[string]any{"store": "coordination", "address": "file:x", "check": "read", "ok": false, "skipped": "write failed", "round_trips": 0., "p50_ms": nil, "p95_ms": nil}},
		{Result{Store: "coordination", Address: "http://db", Check: "read", Err: cut(libsql.Refused)},
			map[string]any{"store": "coordination", "address": "http://db", "check": "read", "ok": false, "error": "database http://db: unexpected EOF", "unreachable": true,
				"round_trips": 0., "p50_ms": nil, "p95_ms": nil}},
	} {
		b, err := json.Marshal(tt.r)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s, %v", b, err)
		}
	}
}

func TestPercentile(t *testing.T) {
	var s []time.Duration
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	if percentile(s, 50) != 50 || percentile(s, 95) != 95 || percentile(s[:1], 50) != 100 || percentile(nil, 50) != 0 {
		t.Error(percentile(s, 50), percentile(s, 95))
	}
}
