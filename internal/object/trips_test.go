package object

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// settle waits until nothing of the member is under way.
func (m *member) settled(t *testing.T, f *fleet) {
	t.Helper()
	eventually(t, "idle", func() bool { return m.Stats().Running == 0 && f.leases() == 0 })
}

func TestRoundTrips(t *testing.T) { eachFleet(t, countTrips) }

func countTrips(t *testing.T, f *fleet) {
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)

	for _, c := range []struct {
		name   string
		m      *member
		path   string
		before func()
		trips  int64
		behind int64
	}{
		{name: "write event, no lease held", m: a, path: "/add", trips: 2},
		{name: "read event, no lease held", m: a, path: "/get", trips: 1, behind: 1},
		{name: "read event, mirror behind by a few commits", m: b, path: "/get", trips: 1, behind: 1},
		{name: "write event, mirror behind", m: a, path: "/add", before: func() { b.do(t, "x", "/add", nil); b.settled(t, f) }, trips: 2},
		{name: "read of an object that does not exist", m: a, path: "/nothing", trips: 1, behind: 1},
	} {
		if c.before != nil {
			c.before()
		}
		start := c.m.faults.trips.Load()
		var before int64
		w := c.m.do(t, "x", c.path, nil)
		before = c.m.faults.trips.Load() - start
		c.m.settled(t, f)
		total := c.m.faults.trips.Load() - start
		if w.Code >= 500 || before > c.trips+c.behind || total != c.trips+c.behind {
			t.Errorf("%s: status %d, %d round trips in all, want %d + %d behind", c.name, w.Code, total, c.trips, c.behind)
		}
	}
}

// TestRoundTripsUnderAKeptLease queues events behind one that waits, so that
// they are served under its lease.
func TestRoundTripsUnderAKeptLease(t *testing.T) {
	for _, c := range []struct {
		path string
		n    int
		// want is what n events that wait together cost beyond the first.
		want func(n int) (least, most int64)
	}{
		{"/get", 10, func(int) (int64, int64) { return 0, 1 }},
		{"/add", 10, func(n int) (int64, int64) { return 1, int64(n) }},
	} {
		t.Run(strings.TrimPrefix(c.path, "/"), func(t *testing.T) {
			f := newFleet(t)
			a := f.join("a")
			a.do(t, "x", "/add", nil)
			a.settled(t, f)
			running, release := make(chan struct{}), make(chan struct{})
			hold := handlers{"/hold": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
				close(running)
				<-release
			}}
			start := a.faults.trips.Load()
			var wg sync.WaitGroup
			wg.Go(func() { a.do(t, "x", "/hold", hold) })
			<-running
			for range c.n {
				wg.Go(func() {
					if w := a.do(t, "x", c.path, nil); w.Code != 200 {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				})
			}
			a.waitQueued(t, c.n)
			close(release)
			wg.Wait()
			a.settled(t, f)
			// The holding event costs an acquire; a read's release follows behind.
			got := a.faults.trips.Load() - start - 1
			if c.path == "/get" {
				got--
			}
			if least, most := c.want(c.n); got < least || got > most {
				t.Errorf("%d events cost %d round trips, want %d to %d", c.n, got, least, most)
			}
		})
	}
}

// recorder keeps every statement that passes, once.
type recorder struct {
	mu   sync.Mutex
	seen map[string]libsql.Statement
}

func (r *recorder) note(stmts []libsql.Statement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range stmts {
		r.seen[s.SQL] = s
	}
	return nil
}

// TestNoStatementScansATable asks SQLite for the plan of every statement that
// events make.
func TestNoStatementScansATable(t *testing.T) {
	f := newFleet(t)
	rec := &recorder{seen: map[string]libsql.Statement{}}
	a, b := f.join("a", shortTTL), f.join("b")
	a.faults.setBefore(rec.note)
	b.faults.setBefore(rec.note)
	exerciseEverything(t, f, a, b)
	if len(rec.seen) < 10 {
		t.Fatalf("only %d statements seen", len(rec.seen))
	}
	for text, s := range rec.seen {
		res, err := f.db.Batch(t.Context(), libsql.Read, libsql.S("EXPLAIN QUERY PLAN "+text, s.Args...))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, row := range res[0].Rows {
			detail := fmt.Sprint(row[3])
			for _, table := range []string{"kv", "l", "obj_head", "obj_log", "obj_garbage", "kv_meta", "m"} {
				if detail == "SCAN "+table || strings.HasPrefix(detail, "SCAN "+table+" ") {
					t.Errorf("%q in\n%s", detail, text)
				}
			}
		}
	}
}

// exerciseEverything makes two members send every kind of statement.
func exerciseEverything(t *testing.T, f *fleet, a, b *member) {
	t.Helper()
	a.do(t, "x", "/add", nil)
	b.do(t, "x", "/get", nil)
	b.do(t, "x", "/add", nil)
	// A commit whose answer is lost is resolved.
	var once sync.Once
	a.faults.setAfter(func(stmts []libsql.Statement) (err error) {
		if isCommit(stmts) {
			once.Do(func() { err = lost() })
		}
		return err
	})
	if w := a.do(t, "x", "/add", nil); w.Code != 200 {
		t.Fatalf("resolved commit: %d %s", w.Code, w.Body)
	}
	a.faults.setAfter(nil)
	// A kept lease is confirmed and extended.
	a.do(t, "x", "/slow", handlers{"/slow": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		wg.Go(func() { a.doContext(context.WithoutCancel(t.Context()), "x", "/get", nil) })
		pause(r.Context(), testTTL)
		go wg.Wait()
	}})
	a.settled(t, f)
	b.settled(t, f)
}
