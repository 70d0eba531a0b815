package cron

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv/kvtest"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// request asks for a run of the hour that began n hours ago, and polls.
func (f *fixture) request(r *replica, n int64) {
	f.t.Helper()
	if _, err := Request(f.t.Context(), f.s, "s", "me", time.UnixMilli(f.hour(-n))); err != nil {
		f.t.Fatal(err)
	}
	r.polls()
}

func (f *fixture) pause() {
	f.t.Helper()
	if err := Pause(f.t.Context(), f.s, "s", "me"); err != nil {
		f.t.Fatal(err)
	}
}

// A run on request goes on through a pause: it is repeated when it was cut off,
// and blocks no other.
func TestRequestCutOffInAPause(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		fn, release := blocked()
		a, b := f.replica().add("s", options(), fn), f.replica().add("s", options(), nil)
		defer release()
		a.polls()
		b.polls()
		f.pause()
		f.request(a, 2)
		f.expire("s") // a has died
		b.polls()
		b.rest()
		if b.count() != 1 || b.runs[0].Attempt != 2 || !slices.Equal(f.outcomes("s"), []string{Interrupted, OK}) {
			t.Errorf("%d repeats, %v", b.count(), f.history("s"))
		}
		f.request(b, 1)
		if b.rest(); b.count() != 2 {
			t.Errorf("%d runs, %v", b.count(), f.history("s"))
		}
	})
}

// A run that a pause keeps from being repeated waits for its end, unless one on
// request waits behind it.
func TestCutOffBeforeAPause(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		for _, requested := range []bool{false, true} {
			fn, release := blocked()
			a, b := f.replica().add("s", options(), fn), f.replica().add("s", options(), nil)
			a.polls()
			b.polls()
			f.hours("s", 1)
			a.polls()
			f.pause()
			f.expire("s")
			b.polls()
			if b.rest(); b.count() != 0 {
				t.Errorf("%d runs in a pause", b.count())
			}
			want := []string{Interrupted, OK}
			if requested {
				want = []string{OK, Interrupted}
				f.request(b, 1)
			} else if _, err := Resume(t.Context(), f.s, "s"); err != nil {
				t.Fatal(err)
			}
			b.polls()
			b.rest()
			if b.count() != 1 || !slices.Equal(f.outcomes("s"), want) {
				t.Errorf("on request %v: %d runs, %v", requested, b.count(), f.history("s"))
			}
			release()
			a.rest()
			for _, p := range []string{PrefixOccurrence, PrefixRun, PrefixLast, PrefixPause} {
				f.clear(p)
			}
		}
	})
}

// Any run of an occurrence may be won on request and handed back, or cut off:
// only those that have begun since the request count.
func TestFurtherRunHandedBack(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a, b := f.replica().add("s", options(), nil), f.replica().add("s", options(), nil)
		b.polls()
		for range 2 {
			f.request(b, 1)
			b.rest()
		}
		a.polls()
		if _, err := Request(t.Context(), f.s, "s", "me", time.UnixMilli(f.hour(-1))); err != nil {
			t.Fatal(err)
		}
		a.poll()
		a.fault = kvtest.Unanswered
		a.poll()
		if !slices.Equal(f.outcomes("s"), []string{OK, OK, ""}) {
			t.Fatalf("%v", f.history("s"))
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.polls()
		b.rest()
		if a.count() != 0 || b.count() != 3 || !slices.Equal(f.outcomes("s"), []string{OK, OK, OK}) {
			t.Fatalf("%d and %d runs, %v", a.count(), b.count(), f.history("s"))
		}
		fn, release := blocked()
		defer release()
		c := f.replica().add("s", options(), fn)
		c.polls()
		f.request(c, 1)
		for _, want := range [][]string{{OK, OK, OK, Interrupted, ""}, {OK, OK, OK, Interrupted, Interrupted}} {
			f.expire("s")
			d := f.replica().add("s", options(), func(ctx context.Context, o durable.Occurrence) error { return fn(ctx, o) })
			d.polls()
			if got := f.outcomes("s"); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// Runs that were cut off while they were allowed to overlap do not wait for each
// other when they are no more, and are repeated one after the other.
func TestCutOffBeforeOverlapEnded(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		fn, release := blocked()
		a, b := f.replica().add("s", options(), fn), f.replica().add("s", options(), nil)
		a.polls()
		f.hours("s", 2)
		for n := range int64(2) {
			at := f.hour(n - 1)
			f.win(take{kind: takeDue, name: "s", at: at, end: at + 7200_000, attempt: 1, tries: 1, holder: fmt.Sprint("h", n), replica: "r", ttl: ttl, life: time.Hour, allow: true})
		}
		f.expire("s")
		a.polls()
		b.polls()
		if got := f.outcomes("s"); b.count() != 0 || slices.Index(got, Interrupted) != slices.Index(got, "")-1 {
			t.Errorf("%d runs beside the first repeat, %v", b.count(), got)
		}
		release()
		a.rest()
		b.polls()
		b.rest()
		if got := f.outcomes("s"); a.count() != 1 || b.count() != 1 || !slices.Equal(got, []string{Interrupted, OK, Interrupted, OK}) {
			t.Errorf("%d runs, %v", a.count(), got)
		}
	})
}

// Of replicas that have seen a request at different moments one runs it.
func TestRequestIsRunOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		a := f.replica().add("s", options(), nil)
		a.polls()
		id, err := Request(t.Context(), f.s, "s", "me", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(2) {
			k := take{kind: takeRequest, name: "s", at: f.hour(-1) + n, attempt: 1, tries: 1, asked: true, holder: fmt.Sprint("h", n), replica: "r", ttl: ttl, life: time.Hour, allow: true,
				request: tuple.MustEncode(PrefixRequest, "s", id)}
			stmts, _ := k.statements()
			if won := libsqltest.MustBatch(t, f.db, libsql.Write, stmts...)[0].Changes > 0; won != (n == 0) {
				t.Errorf("%d: won is %v", n, won)
			}
		}
	})
}

// A run whose entry has expired, as the whole fleet was down for so long, is
// shown as interrupted when the next occurrence is won.
func TestRunOfAnExpiredEntry(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		fn, release := blocked()
		a, b := f.replica().add("s", options(), fn), f.replica().add("s", options(), nil)
		a.polls()
		f.hours("s", 1)
		a.polls()
		f.clear(PrefixOccurrence)
		f.SQL(`UPDATE kv SET v = json_set(v, '$.bucket', json_extract(v, '$.bucket') - 1) WHERE k = ?`, tuple.MustEncode(PrefixLast, "s"))
		f.SQL(`DELETE FROM kv WHERE k = ?`, runKey("s", f.hour(0), 1))
		at := f.hour(-1)
		f.set(map[string]any{"replica": "r", "started_at": at}, PrefixRun, "s", at, 1)
		f.SQL(`UPDATE kv SET v = json_set(v, '$.open', json_array(?)) WHERE k = ?`, at, tuple.MustEncode(PrefixLast, "s"))
		b.polls()
		b.rest()
		if got := f.outcomes("s"); b.count() != 1 || !slices.Equal(got, []string{Interrupted, OK}) {
			t.Errorf("%d runs, %v", b.count(), f.history("s"))
		}
		release()
		a.rest()
	})
}
