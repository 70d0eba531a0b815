package cron

import (
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func (f *fixture) survey() []Survey {
	f.t.Helper()
	return ReadSurvey(libsqltest.MustBatch(f.t, f.db, libsql.Write, SurveyStatements(100)...))
}

func (f *fixture) examine(name string) Examined {
	f.t.Helper()
	x, ok, err := Examine(f.t.Context(), f.s, name)
	if err != nil || !ok {
		f.t.Fatal(ok, err)
	}
	return x
}

func TestSurvey(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		if _, ok, err := Examine(t.Context(), f.s, "s"); ok || err != nil || len(f.survey()) != 0 {
			t.Error(ok, err)
		}
		fn, release := blocked()
		a := f.replica().add("s", options(), fn).add("s\x00t", options(), nil)
		a.polls()
		f.hours("s", 3)
		f.hours("s\x00t", 1)
		now := f.NowMs()
		first, last := f.hour(-2), f.hour(0)
		if s := f.survey(); len(s) != 2 || s[0].Name != "s" || s[0].Overdue(now, &Options{Schedule: "@every 1h", Zone: "UTC"}) != first || s[0].Overdue(now, nil) != first || s[0].Overdue(now, &Options{Paused: true}) != 0 {
			t.Errorf("%+v", s)
		}
		if s := a.Statuses(); s[0].Overdue != 0 {
			t.Errorf("%+v", s)
		}
		a.poll()
		if s := a.Statuses(); s[0].Overdue < 2*time.Hour {
			t.Errorf("overdue since the newest occurrence, not the first: %+v", s)
		}
		a.polls()
		s := f.survey()
		if len(s[0].Claims) != 1 || s[0].Claims[0].At != last || !s[0].Claims[0].Listed || s[0].Settled != last || s[0].Last.Attempt != 1 {
			t.Fatalf("%+v", s)
		}
		next, until := last+3600_000, s[0].Claims[0].Until
		// At the end of an hour the claim reaches into the next one.
		if s[0].Overdue(max(next, until+1), nil) != next || s[0].Overdue(next-1, nil) != 0 {
			t.Error("overdue when the claim is over, and not before")
		}
		if len(s[0].CutOff(until)) != 0 || len(s[0].CutOff(until+1)) != 1 {
			t.Error("cut off when the claim is over")
		}
		if s[0].Overdue(until-1, &Options{Schedule: "@every 1s", Zone: "UTC"}) != 0 || s[0].Overdue(until-1, &Options{Schedule: "@every 1s", Zone: "UTC", Allow: true}) != last+1000 {
			t.Error("what runs is waited for unless runs may overlap")
		}
		f.SQL(`UPDATE kv SET v = json_set(v, '$.open', json('[]')) WHERE k = ?`, tuple.MustEncode(PrefixLast, "s"))
		if x := f.examine("s"); len(x.Claims) != 1 || x.Claims[0].Listed || len(f.survey()[0].Claims) != 0 {
			t.Errorf("%+v", x)
		}
		f.pause()
		if s := f.survey(); !s[0].Paused || s[1].Paused || len(f.examine("s").CutOff(1<<60)) != 0 || s[0].Overdue(next, nil) != 0 {
			t.Errorf("%+v", s)
		}
		release()
		a.rest()
	})
}

// What the history should have.
func TestHoles(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		holes := func(want int, first int64) {
			t.Helper()
			at, n := f.examine("s").Holes()
			if n != want || want > 0 && at != first {
				t.Errorf("%d holes from %d, want %d from %d: %v", n, at, want, first, f.history("s"))
			}
		}
		a := f.replica().add("s", options(), nil)
		a.polls()
		holes(0, 0)
		f.hours("s", 2)
		a.polls()
		a.rest()
		holes(0, 0)
		last := f.hour(0)
		// Three hours later: the clock cannot be moved, so the past is.
		shift := func(n int64) {
			f.SQL(`UPDATE kv SET v = json_set(v, '$.bucket', json_extract(v, '$.bucket') - ?1, '$.from', json_extract(v, '$.from') - ?1, '$.since', json_extract(v, '$.since') - ?1) WHERE k = ?2`,
				n*3600_000, tuple.MustEncode(PrefixLast, "s"))
			for _, p := range []string{PrefixRun, PrefixOccurrence} {
				f.clear(p)
			}
			f.set(map[string]any{"outcome": OK}, PrefixRun, "s", last-n*3600_000, 1)
		}
		shift(3)
		holes(0, 0)
		a.polls()
		a.rest()
		holes(0, 0)
		f.SQL(`DELETE FROM kv WHERE k IN (?, ?)`, runKey("s", last-2*3600_000, 0), runKey("s", last-3600_000, 0))
		holes(2, last-2*3600_000)
		f.set(map[string]any{"outcome": Missed, "error": othersBefore}, PrefixRun, "s", last-3600_000, 0)
		holes(0, 0) // more than were listed
		f.SQL(`DELETE FROM kv WHERE k IN (?, ?)`, runKey("s", last-3600_000, 0), runKey("s", last, 1))
		holes(3, last-2*3600_000)
		// An expression that has changed says nothing about the time before.
		b := f.replica().add("s", options(func(o *Options) { o.Schedule = "@every 30m" }), nil)
		f.SQL(`UPDATE kv SET v = json_set(v, '$.bucket', json_extract(v, '$.bucket') - 3600000) WHERE k = ?`, tuple.MustEncode(PrefixLast, "s"))
		f.clear(PrefixOccurrence)
		b.polls()
		b.rest()
		if b.count() != 1 {
			t.Fatalf("%+v", b.runs)
		}
		holes(0, 0)
	})
}
