package backlog

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/metrics"
	"github.com/davidwkeith/dwk/internal/queue"
)

func store(t *testing.T, place libsqltest.Place) (*libsql.DB, *kv.Store) {
	t.Helper()
	db := place.Open(t)
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, s
}

// look polls once, as the poller does.
func look(t *testing.T, db *libsql.DB, w *Watch) []metrics.Backlog {
	t.Helper()
	stmts := append([]libsql.Statement{}, w.Poll(1<<20)...)
	res := libsqltest.MustBatch(t, db, libsql.Write, stmts...)
	if res[0].Changes != 0 {
		t.Error("the poll writes")
	}
	if w.Polled(res, nil, time.Time{}) {
		t.Error("a further poll is asked for")
	}
	return w.Backlogs()
}

func TestCounts(t *testing.T) {
	for name, open := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			db, s := store(t, open(t))
			now, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ms := func(ago time.Duration) float64 { return tuple.Millis(now.Add(-ago).UnixMilli()) }
			for _, e := range []struct {
				key tuple.Key
				ttl time.Duration
			}{
				{tuple.Key{queue.PrefixDue, "mail", ms(time.Hour), "a"}, 0},
				{tuple.Key{queue.PrefixDue, "mail", ms(time.Minute), "b"}, 0},
				{tuple.Key{queue.PrefixDue, "mail", ms(-time.Hour), "not due"}, 0},
				{tuple.Key{queue.PrefixDue, "mail", "no number"}, 0},
				{tuple.Key{queue.PrefixDue, "mail", ms(time.Hour * 24), "expired"}, time.Nanosecond},
				{tuple.Key{queue.PrefixDue, "mailx", ms(time.Hour * 48), "another queue"}, 0},
				{tuple.Key{queue.PrefixDead, "mail", "c"}, 0},
				{tuple.Key{queue.PrefixDead, "mail\x00", "another queue"}, 0},
				{tuple.Key{alarm.DuePrefix, "Cart", ms(-time.Hour), "later"}, 0},
				{tuple.Key{alarm.DeadPrefix, "Cart", "x"}, 0},
				{tuple.Key{alarm.DeadPrefix, "Cart", "y"}, time.Hour},
			} {
				if _, err := s.Set(t.Context(), e.key, 1, e.ttl); err != nil {
					t.Fatal(err)
				}
			}
			w := New(
				Source{Kind: "alarms", Name: "Cart", Due: alarm.DuePrefix, Dead: alarm.DeadPrefix},
				Source{Kind: "queue", Name: "mail", Due: queue.PrefixDue, Dead: queue.PrefixDead},
				Source{Kind: "queue", Name: "unused", Due: queue.PrefixDue, Dead: queue.PrefixDead},
			)
			got := look(t, db, w)
			if len(got) == 3 {
				if d := got[1].Overdue; d < time.Hour || d > 2*time.Hour {
					t.Errorf("overdue %v, want about an hour", d)
				}
				got[1].Overdue = 0
			}
			want := []metrics.Backlog{{Kind: "alarms", Name: "Cart", Dead: 2}, {Kind: "queue", Name: "mail", Due: 2, Dead: 1}, {Kind: "queue", Name: "unused"}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

// A long backlog is not counted to its end, and every range is looked up in the
// index.
func TestBounds(t *testing.T) {
	db, _ := store(t, libsqltest.File(t))
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 12000)
	INSERT INTO kv(k, v, ver) SELECT CAST(? || `+kv.KeyNum(kv.Now+" - i")+` || unhex('02'||hex(i)||'00') AS BLOB), '1', 1 FROM n`, tuple.MustEncode(queue.PrefixDue, "q")))
	w := New(Source{Kind: "queue", Name: "q", Due: queue.PrefixDue, Dead: queue.PrefixDead})
	got := look(t, db, w)
	if len(got) != 1 || got[0].Due != Limit || got[0].Overdue < 11*time.Second {
		t.Errorf("%+v", got)
	}
	plan := libsqltest.MustBatch(t, db, libsql.Read, libsql.S("EXPLAIN QUERY PLAN "+w.query.SQL, w.query.Args...))
	searches := 0
	for _, row := range plan[0].Rows {
		step := row[3].(string)
		if strings.HasPrefix(step, "SEARCH kv USING") && strings.Contains(step, "(k>? AND k<?)") {
			searches++
		} else if strings.Contains(step, "SCAN kv") || strings.Contains(step, "TEMP B-TREE") {
			t.Error(step)
		}
	}
	if searches != 3 {
		t.Errorf("%d searches: %v", searches, plan[0].Rows)
	}
}

func TestLooksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Source{Kind: "queue", Name: "q", Due: queue.PrefixDue, Dead: queue.PrefixDead})
		looks := 0
		for range 60 { // a poll a second
			if stmts := w.Poll(1 << 20); len(stmts) > 0 {
				looks++
				w.Polled([]libsql.Result{{Rows: []libsql.Row{{int64(0), int64(looks), nil, int64(0), int64(0)}}}}, nil, time.Now())
			}
			time.Sleep(time.Second)
		}
		if looks != 6 {
			t.Errorf("looked %d times in a minute", looks)
		}
		w.Polled(nil, errors.New("down"), time.Now())
		if got := w.Backlogs(); len(got) != 1 || got[0].Due != 6 {
			t.Errorf("after an error: %+v", got)
		}
	})
	if New().Poll(1<<20) != nil {
		t.Error("without sources it polls")
	}
}
