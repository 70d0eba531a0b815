package cron

import (
	"fmt"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func paused(o *Options) { o.Paused = true }

// a run on request that was cut off is repeated, and blocks nothing.
func TestRequestedRunIsRepeatedInAPause(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	fn, release := blocked()
	a := f.replica().add("s", options(paused), fn)
	defer release()
	b := f.replica().add("s", options(paused), nil)
	a.polls()
	b.polls()
	at := func() time.Time { return time.UnixMilli(f.hour(-1)) }
	if _, err := Request(t.Context(), f.s, "s", "me", at()); err != nil {
		t.Fatal(err)
	}
	a.polls()
	f.expire("s") // a has died
	for range 3 {
		b.polls()
	}
	b.rest()
	if b.count() != 1 {
		t.Errorf("cut off and repeated %d times; %v", b.count(), f.outcomes("s"))
	}
	if _, err := Request(t.Context(), f.s, "s", "me", time.Time{}); err != nil {
		t.Fatal(err)
	}
	n := b.count()
	for range 3 {
		b.polls()
	}
	b.rest()
	if b.count() != n+1 {
		t.Errorf("a further request is blocked: %d runs", b.count()-n)
	}
}

// A request for an instant whose key the statements cannot make.
func TestRequestTimesAreBounded(t *testing.T) {
	for _, at := range []time.Time{time.Date(2003, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Run(fmt.Sprint(at.Year()), func(t *testing.T) {
			f := newFixture(t, libsqltest.File)
			a := f.replica().add("s", options(), nil)
			a.polls()
			if _, err := Request(t.Context(), f.s, "s", "me", at); err != nil {
				return // refused: fine
			}
			for range 3 {
				a.polls()
			}
			a.rest()
			lo := tuple.MustEncode(PrefixRequest, "s")
			left := f.SQL(`SELECT count(*) FROM kv WHERE k > ? AND k < ?`, lo, tuple.RangeEnd(lo))
			if a.count() != 1 {
				t.Errorf("%d runs, requests left %v, history %v", a.count(), left, f.history("s"))
			}
		})
	}
}

// Stored nonsense does not bring down the replica.
func TestDamagedAttempts(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	for i, attempt := range []string{"99999999999999999", "-99999999999999999"} {
		name := fmt.Sprint("s", i)
		a := f.replica().add(name, options(), nil)
		a.polls()
		at := f.hour(-1)
		f.SQL(`INSERT INTO kv VALUES (?, ?, 1, NULL)`, tuple.MustEncode(PrefixOccurrence, name, tuple.Millis(at)), `{"state":"running","holder":"x","until":1,"attempt":`+attempt+`}`)
		f.SQL(`UPDATE kv SET v = json_set(v, '$.open', json(?)) WHERE k = ?`, fmt.Sprintf("[%d]", at), tuple.MustEncode(PrefixLast, name))
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("attempt %s: %v", attempt, v)
				}
			}()
			a.polls()
			a.polls()
		}()
	}
}
