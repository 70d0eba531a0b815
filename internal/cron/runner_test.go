package cron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/kvtest"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// expire ends the claims of all runs of a schedule, as if their replicas had died.
func (f *fixture) expire(name string) {
	f.t.Helper()
	lo := tuple.MustEncode(PrefixOccurrence, name)
	f.SQL(`UPDATE kv SET v = json_set(v, '$.until', `+kv.Now+` - 1000) WHERE k > ? AND k < ?`, lo, tuple.RangeEnd(lo))
}

// A schedule that was never seen makes up for nothing; one that was missed runs
// once, for the newest occurrence, and the others are listed.
func TestMissed(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a, b := f.replica().add("s", options(), nil), f.replica().add("s", options(), nil)
		a.polls()
		b.polls()
		if a.count()+b.count() != 0 || f.get(PrefixLast, "s")["since"] == nil {
			t.Fatalf("%d runs at the first sight", a.count()+b.count())
		}
		f.hours("s", 4)
		for range 3 {
			a.polls()
			b.polls()
		}
		a.rest()
		if a.count() != 1 || b.count() != 0 || !a.runs[0].At.Equal(time.UnixMilli(f.hour(0))) || a.runs[0].Attempt != 1 || a.runs[0].Name != "s" {
			t.Errorf("%+v and %+v", a.runs, b.runs)
		}
		want := []line{{f.hour(-3), 0, Missed}, {f.hour(-2), 0, Missed}, {f.hour(-1), 0, Missed}, {f.hour(0), 1, OK}}
		if got := f.history("s"); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if l := f.get(PrefixLast, "s"); l["outcome"] != OK || l["replica"] != a.cfg.Replica || fmt.Sprint(l["open"]) != "[]" || l["schedule"] != "@every 1h" {
			t.Errorf("%v", l)
		}
		if e := f.get(PrefixOccurrence, "s", f.hour(0)); e["state"] != "done" {
			t.Errorf("%v", e)
		}
		if a.polls(); a.changed != 0 {
			t.Errorf("an idle poll changed %d rows", a.changed)
		}
		if !a.next.Equal(time.UnixMilli(f.hour(1))) {
			t.Errorf("wakes at %s", a.next)
		}
	})
}

func TestManyMissed(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a := f.replica().add("s", options(), nil)
		a.polls()
		f.hours("s", 5000)
		a.polls()
		a.rest()
		list := f.history("s")
		if len(list) != maxMissed+1 || f.get(PrefixRun, "s", list[0].at, 0)["error"] != "and others before it" {
			t.Errorf("%d lines, first %v", len(list), f.get(PrefixRun, "s", list[0].at, 0))
		}
	})
}

// Of replicas that poll at the same time one runs it.
func TestOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		var list []*replica
		for range 5 {
			list = append(list, f.replica().add("s", options(), nil).add("z", options(), nil))
			list[len(list)-1].polls()
		}
		f.hours("s", 1)
		f.hours("z", 1)
		done := make(chan struct{})
		for _, r := range list {
			go func() { r.polls(); r.polls(); done <- struct{}{} }()
		}
		for range list {
			<-done
		}
		total := 0
		for _, r := range list {
			r.rest()
			total += r.count()
		}
		if total != 2 {
			t.Errorf("%d runs", total)
		}
	})
}

func TestFailures(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		stuck := make(chan struct{})
		a := f.replica().
			add("fails", options(), func(context.Context, durable.Occurrence) error {
				return errors.New("no disk " + strings.Repeat("é", maxError))
			}).
			add("panics", options(), func(context.Context, durable.Occurrence) error { panic("oh") }).
			add("slow", options(func(o *Options) { o.Timeout = 50 * time.Millisecond }), func(ctx context.Context, _ durable.Occurrence) error {
				<-ctx.Done()
				return ctx.Err()
			})
		defer close(stuck)
		a.polls()
		for _, name := range []string{"fails", "panics", "slow"} {
			f.hours(name, 1)
		}
		a.polls()
		a.rest()
		for name, want := range map[string]string{"fails": "no disk é", "panics": "panic: oh", "slow": "took longer than its timeout (50ms)"} {
			run := f.get(PrefixRun, name, f.hour(0), 1)
			text, _ := run["error"].(string)
			if run["outcome"] != Failed || !strings.Contains(text, want) || len(text) > maxError || f.get(PrefixOccurrence, name, f.hour(0))["state"] != "failed" {
				t.Errorf("%s: %v", name, run)
			}
		}
		if s := a.Statuses(); len(s) != 3 || s[0].Running != 0 {
			t.Errorf("%+v", s)
		}
		a.polls() // a failed run is not repeated
		if s := a.Statuses(); a.count() != 3 || !s[0].Failed || s[0].Started.IsZero() {
			t.Errorf("%d runs, %+v", a.count(), s)
		}
	})
}

// What is won by a poll without an answer is begun by the next one.
func TestLostAnswers(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a, b := f.replica().add("s", options(), nil), f.replica().add("s", options(), nil)
		a.polls()
		b.polls()
		f.hours("s", 1)
		a.poll() // it sees that
		a.fault = kvtest.Unanswered
		a.poll()
		b.polls()
		if a.count()+b.count() != 0 || len(f.history("s")) != 1 {
			t.Fatalf("%d and %d runs, %v", a.count(), b.count(), f.history("s"))
		}
		a.polls()
		a.rest()
		if a.count() != 1 || a.runs[0].Attempt != 1 || !slices.Equal(f.outcomes("s"), []string{OK}) {
			t.Errorf("%+v, %v", a.runs, f.history("s"))
		}
		// One that was not executed, or is late.
		f.hours("s", 1)
		f.SQL(`DELETE FROM kv WHERE k > ? AND k < ?`, tuple.MustEncode(PrefixOccurrence, "s"), tuple.RangeEnd(tuple.MustEncode(PrefixOccurrence, "s")))
		a.poll()
		var late func() ([]libsql.Result, error)
		a.fault = func(run func() ([]libsql.Result, error)) ([]libsql.Result, error) {
			late = run
			return nil, &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindTimeout}
		}
		a.poll()
		b.polls()
		if b.rest(); b.count() != 1 {
			t.Errorf("%d runs elsewhere", b.count())
		}
		if _, err := late(); err != nil {
			t.Fatal(err)
		}
		a.polls()
		a.rest()
		if a.count() != 1 {
			t.Errorf("what came late has run: %+v", a.runs)
		}
	})
}

// A stop hands back what was won and has not begun; another replica runs it, as
// the first attempt.
func TestHandBack(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		once := func(o *Options) { o.AtMostOnce = true }
		a, b := f.replica().add("s", options(once), nil), f.replica().add("s", options(once), nil)
		a.polls()
		b.polls()
		f.hours("s", 1)
		a.poll() // it sees that
		a.fault = kvtest.Unanswered
		a.poll()
		if !slices.Equal(f.outcomes("s"), []string{""}) {
			t.Errorf("%v", f.history("s"))
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.outcomes("s"), []string{Missed}) { // unless somebody runs it
			t.Errorf("%v", f.history("s"))
		}
		for range 3 {
			b.polls()
		}
		b.rest()
		if a.count() != 0 || b.count() != 1 || b.runs[0].Attempt != 1 || !slices.Equal(f.outcomes("s"), []string{OK}) {
			t.Errorf("%d runs, %+v, %v", a.count(), b.runs, f.history("s"))
		}
		if a.Poll(1<<20) != nil {
			t.Error("polls after its stop")
		}
	})
}

// A run that a stop cuts off is repeated at once.
func TestStopped(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		var cause atomic.Value
		began := make(chan struct{})
		a := f.replica().add("s", options(), func(ctx context.Context, _ durable.Occurrence) error {
			close(began)
			<-ctx.Done()
			cause.Store(context.Cause(ctx))
			return ctx.Err()
		})
		b := f.replica().add("s", options(), nil)
		a.polls()
		f.hours("s", 1)
		a.polls()
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err, _ := cause.Load().(error); !errors.Is(err, durable.ErrDraining) {
			t.Errorf("cancelled for %v", err)
		}
		for range 3 {
			b.polls()
		}
		b.rest()
		if b.count() != 1 || b.runs[0].Attempt != 2 || !slices.Equal(f.outcomes("s"), []string{Interrupted, OK}) {
			t.Errorf("%+v, %v", b.runs, f.history("s"))
		}
	})
}

// blocked is a handler that waits for its test.
func blocked() (fn func(context.Context, durable.Occurrence) error, release func()) {
	gate := make(chan struct{})
	return func(ctx context.Context, _ durable.Occurrence) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func() { close(gate) }
}

// A run whose replica seems dead is repeated once; the first one, when it wakes,
// changes nothing.
func TestCrash(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			name  string
			opt   func(*Options)
			wants []string
		}{
			{"once more", func(*Options) {}, []string{Interrupted, Interrupted}},
			{"at most once", func(o *Options) { o.AtMostOnce = true }, []string{Interrupted}},
			{"overlapping", func(o *Options) { o.Allow = true }, []string{Interrupted, Interrupted}},
		} {
			fn, release := blocked()
			dead := []*replica{}
			next := f.replica().add(c.name, options(c.opt), nil)
			next.polls()
			f.hours(c.name, 1)
			for range 2 {
				r := f.replica().add(c.name, options(c.opt), fn)
				r.polls()
				r.polls()
				dead = append(dead, r)
				f.expire(c.name)
			}
			for range 3 {
				next.polls()
			}
			next.rest()
			if got := f.outcomes(c.name); !slices.Equal(got, c.wants) || next.count() != 0 {
				t.Errorf("%s: %v, %d more runs", c.name, got, next.count())
			}
			if l := f.get(PrefixLast, c.name); l["outcome"] != Interrupted || fmt.Sprint(l["open"]) != "[]" {
				t.Errorf("%s: %v", c.name, l)
			}
			f.hours(c.name, 1)
			f.SQL(`DELETE FROM kv WHERE k = ?`, tuple.MustEncode(PrefixOccurrence, c.name, tuple.Millis(f.hour(0))))
			next.polls()
			next.rest()
			if next.count() != 1 {
				t.Errorf("%s: the next occurrence has run %d times", c.name, next.count())
			}
			release()
			for _, r := range dead {
				r.rest()
			}
			if dead[0].count() != 1 {
				t.Errorf("%s: %d runs before the death", c.name, dead[0].count())
			}
		}
	})
}

// The context of a run ends when somebody else has its claim.
func TestClaimLost(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		fn, release := blocked()
		defer release()
		a := f.replica()
		a.cfg.TTL = 3 * time.Second
		a.add("s", options(), fn)
		a.polls()
		f.hours("s", 1)
		a.polls()
		f.expire("s")
		b := f.replica().add("s", options(), nil)
		b.polls()
		b.polls()
		b.rest()
		a.rest()
		if got := f.outcomes("s"); !slices.Equal(got, []string{Interrupted, OK}) || b.count() != 1 || a.count() != 1 {
			t.Errorf("%v, %d and %d runs", got, a.count(), b.count())
		}
	})
}

// A run that takes longer than the claim keeps it.
func TestRenewal(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		fn, release := blocked()
		a := f.replica().add("s", options(), fn)
		a.cfg.TTL = 9 * time.Second // a third of it is when it is renewed
		a.polls()
		f.hours("s", 1)
		a.polls()
		first, _ := f.get(PrefixOccurrence, "s", f.hour(0))["until"].(float64)
		f.Eventually("a renewal", func() bool {
			until, _ := f.get(PrefixOccurrence, "s", f.hour(0))["until"].(float64)
			last, _ := f.get(PrefixLast, "s")["until"].(float64)
			return until > first && last > first
		})
		release()
		a.rest()
		if got := f.outcomes("s"); !slices.Equal(got, []string{OK}) {
			t.Error(got)
		}
	})
}

func TestOverlap(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		for _, allow := range []bool{false, true} {
			name := fmt.Sprint("allow ", allow)
			a := f.replica().add(name, options(func(o *Options) { o.Allow = allow }), nil)
			a.polls()
			f.hours(name, 2)
			// The one before, on another replica.
			at := f.hour(-1)
			before := f.win(take{kind: takeDue, name: name, at: at, end: at + 7200_000, attempt: 1, holder: "h", replica: "r", ttl: ttl, life: time.Hour, allow: allow})
			a.polls()
			a.rest()
			want := 0
			if allow {
				want = 1
			}
			if a.count() != want {
				t.Errorf("%s: %d runs beside the first", name, a.count())
			}
			f.end(before, result{outcome: OK})
			a.polls()
			a.rest()
			if a.count() != 1 || !slices.Equal(f.outcomes(name), []string{OK, OK}) {
				t.Errorf("%s: %d runs, %v", name, a.count(), f.history(name))
			}
		}
	})
}

// win has a take win, as another replica.
func (f *fixture) win(t take) claim {
	f.t.Helper()
	stmts, _ := t.statements()
	libsqltest.MustBatch(f.t, f.db, libsql.Write, stmts...)
	if e := f.get(PrefixOccurrence, t.name, t.at); e["holder"] != t.holder {
		f.t.Fatalf("%+v has not won: %v", t, e)
	}
	return t.claim()
}

// end ends a run, as another replica, and reports whether it could.
func (f *fixture) end(c claim, r result) bool {
	f.t.Helper()
	v, err := f.s.Commit(f.t.Context(), c.ending(r))
	if err != nil {
		f.t.Fatal(err)
	}
	return v.OK
}

// Occurrences that an earlier run ran through are skipped, those behind it missed.
func TestSkipped(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a := f.replica().add("s", options(), nil)
		a.polls()
		f.hours("s", 6)
		at := f.hour(-4)
		f.end(f.win(take{kind: takeDue, name: "s", at: at, end: at + 100_000_000, attempt: 1, holder: "h", replica: "r", ttl: ttl, life: time.Hour}), result{outcome: OK})
		f.SQL(`UPDATE kv SET v = json_set(v, '$.finished_at', ?) WHERE k = ?`, f.hour(-2)+1, tuple.MustEncode(PrefixLast, "s"))
		a.polls()
		a.rest()
		want := []line{{at, 1, OK}, {f.hour(-3), 0, Skipped}, {f.hour(-2), 0, Skipped}, {f.hour(-1), 0, Missed}, {f.hour(0), 1, OK}}
		if got := f.history("s"); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestPauseAndRequest(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a := f.replica().add("s", options(), nil)
		a.polls()
		if err := Pause(t.Context(), f.s, "s", "me"); err != nil {
			t.Fatal(err)
		}
		f.hours("s", 2)
		a.polls()
		if a.polls(); a.count() != 0 {
			t.Fatal("a paused schedule has run")
		}
		if _, err := Request(t.Context(), f.s, "s", "me", time.Time{}); err != nil {
			t.Fatal(err)
		}
		a.polls()
		a.polls()
		a.rest()
		if a.count() != 1 || !slices.Equal(f.outcomes("s"), []string{OK}) {
			t.Fatalf("%d runs on request", a.count())
		}
		for want := range 2 { // the same one again
			if _, err := Request(t.Context(), f.s, "s", "me", time.UnixMilli(f.hour(-1))); err != nil {
				t.Fatal(err)
			}
			a.polls()
			a.polls()
			a.rest()
			if a.count() != want+2 || !a.runs[want+1].At.Equal(time.UnixMilli(f.hour(-1))) || a.runs[want+1].Attempt != want+1 {
				t.Fatalf("%+v", a.runs)
			}
		}
		if ok, err := Resume(t.Context(), f.s, "s"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		a.polls()
		a.polls()
		if a.rest(); a.count() != 3 {
			t.Error("what passed during a pause was made up for")
		}
		f.hours("s", 1)
		a.polls()
		if a.rest(); a.count() != 4 {
			t.Errorf("%d runs after the pause", a.count())
		}
	})
}

// A schedule that is configured as paused runs on request only.
func TestConfiguredPause(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	a := f.replica().add("s", options(func(o *Options) { o.Paused = true }), nil)
	a.polls()
	f.hours("s", 2)
	a.polls()
	if s := a.Statuses(); a.count() != 0 || s[0].Overdue != 0 {
		t.Errorf("%d runs, %+v", a.count(), s)
	}
	if _, err := Request(t.Context(), f.s, "s", "me", time.Time{}); err != nil {
		t.Fatal(err)
	}
	a.polls()
	a.polls()
	if a.rest(); a.count() != 1 {
		t.Errorf("%d runs", a.count())
	}
}

// A statement that was held up until its window is over wins nothing, nor does
// one that comes before its time.
func TestTooLate(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		f.set(map[string]any{"since": 0}, PrefixLast, "s")
		at := f.NowMs() - 5000
		for _, c := range []struct {
			at, end int64
			want    string
		}{{at, at + 4000, "[]"}, {at + 3600_000, at + 7200_000, "[]"}, {at, at + 1000_000, fmt.Sprintf("[%d]", at)}} {
			stmts, _ := take{kind: takeDue, name: "s", at: c.at, end: c.end, attempt: 1, holder: "h", replica: "r", ttl: ttl, life: time.Hour}.statements()
			if _, err := f.db.Batch(t.Context(), libsql.Write, stmts...); err != nil {
				t.Fatal(err)
			}
			if l := f.get(PrefixLast, "s"); l["open"] == nil && c.want != "[]" || l["open"] != nil && fmt.Sprintf("[%d]", at) != c.want {
				t.Errorf("%v, want %s", l, c.want)
			}
		}
	})
}

// Entries that are none of ours stop nothing.
func TestNonsense(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		for i, text := range []string{`null`, `[]`, `"x"`, `{"open":7,"bucket":"x"}`, `{"open":["x",null,1.5,{}],"since":[]}`, `no JSON`, `{"bucket":1,"open":[1,-5,9999999999999999]}`} {
			name := fmt.Sprint("s", i)
			a := f.replica().add(name, options(), nil)
			f.SQL(`INSERT INTO kv VALUES (?, ?, 1, NULL), (?, ?, 1, NULL), (?, ?, 1, NULL), (?, ?, 1, NULL)`, tuple.MustEncode(PrefixLast, name), text,
				tuple.MustEncode(PrefixOccurrence, name, tuple.Millis(f.hour(-1))), text, tuple.MustEncode(PrefixRun, name, tuple.Millis(f.hour(-1)), 1), text,
				tuple.MustEncode(PrefixRequest, name, "x"), text)
			for range 4 {
				a.polls()
				a.rest()
			}
			for range 2 {
				f.hours(name, 1)
				a.polls()
				a.rest()
			}
			if a.count() < 1 {
				t.Errorf("%s: no run", text)
			}
			if _, err := Inspect(t.Context(), f.s, name); err != nil {
				t.Error(err)
			}
			for _, err := range Runs(t.Context(), f.s, name, 100) {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestHistoryIsTrimmed(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a := f.replica().add("s", options(), nil)
		a.polls()
		p := kv.NewPlan()
		for i := range int64(History + 5) {
			p.Set(runKey("s", f.hour(0)-10_000_000-i, 1), `{"outcome":"ok"}`, 0)
		}
		p.Set(runKey("t", 5, 1), `{"outcome":"ok"}`, 0)
		if _, err := f.s.Commit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		f.hours("s", 1)
		a.polls()
		a.rest()
		if n := len(f.history("s")); n != History || len(f.history("t")) != 1 {
			t.Errorf("%d runs are kept", n)
		}
	})
}

func TestAdd(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	r := f.replica().add("s", options(), nil)
	for name, o := range map[string]Options{
		"s": options(), "": options(), "expression": options(func(o *Options) { o.Schedule = "*/90 * * * *" }),
		"zone": options(func(o *Options) { o.Schedule, o.Zone = "@daily", "Mars" }), "timeout": options(func(o *Options) { o.Timeout = 0 }),
	} {
		if err := r.Add(name, o, nil, nil); err == nil || !strings.Contains(err.Error(), "schedule "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
