package durabletest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// in runs a check within an event.
func (s *suite) in(t *testing.T, check func(ctx context.Context, p *probe)) {
	t.Helper()
	if a := s.run("sql", func(p *probe, _ http.ResponseWriter, r *http.Request) { check(r.Context(), p) }); a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// values are those of the first row.
func values(ctx context.Context, db durable.SQL, query string, args ...any) (out []any, err error) {
	for row, err := range db.Query(ctx, query, args...) {
		return row.Values, err
	}
	return nil, nil
}

func testSQL(t *testing.T, s *suite) {
	t.Run("rows have the values as they are stored", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
			got, err := values(ctx, p.state.SQL(), `SELECT ?, ?, ?, ?, ?, ?, ?, ?, typeof(?)`,
				nil, int64(math.MaxInt64), 0.5, "text", []byte{0, 1}, true, false, at, true)
			want := []any{nil, int64(math.MaxInt64), 0.5, "text", []byte{0, 1}, int64(1), int64(0), "2026-01-02T02:04:05Z", "integer"}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v %v, want %v", got, err, want)
			}
		})
	})
	t.Run("a large integer does not pass through a float", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			for row, err := range p.state.SQL().Query(ctx, `SELECT 9007199254740993`) {
				var n int64
				var f float64
				if err != nil || row.Scan(&n) != nil || n != 1<<53+1 || row.Scan(&f) == nil {
					t.Errorf("%d %v %v", n, f, err)
				}
			}
		})
	})
	t.Run("a float takes no integer that it cannot hold", func(t *testing.T) {
		for n, fits := range map[int64]bool{1 << 53: true, -1 << 53: true, 1<<53 + 1: false, -1<<53 - 1: false, math.MinInt64: false} {
			var f float64
			if err := (durable.Row{Columns: []string{"n"}, Values: []any{n}}).Scan(&f); (err == nil) != fits {
				t.Errorf("%d: %v", n, err)
			}
		}
	})
	t.Run("a Tx is all or nothing", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			failed := errors.New("canary")
			is(t, "Tx", p.state.SQL().Tx(ctx, func(tx durable.SQL) error {
				_, err := tx.Exec(ctx, `INSERT INTO t(v) VALUES ('lost')`)
				must(err)
				return failed
			}), failed)
			is(t, "a Tx within a Tx", p.state.SQL().Tx(ctx, func(tx durable.SQL) error {
				return tx.Tx(ctx, func(durable.SQL) error { return nil })
			}), durable.ErrNested)
			is(t, "a good Tx", p.state.SQL().Tx(ctx, func(tx durable.SQL) error {
				res, err := tx.Exec(ctx, `INSERT INTO t(v) VALUES ('a'), ('b')`)
				if res.Changes != 2 || res.LastRowID == 0 {
					t.Errorf("%+v", res)
				}
				return err
			}), nil)
			for _, q := range []string{`BEGIN`, `COMMIT`, `ROLLBACK`} {
				if err := p.state.SQL().Tx(ctx, func(tx durable.SQL) error { _, err := tx.Exec(ctx, q); return err }); err == nil {
					t.Errorf("%s within a Tx", q)
				}
			}
		})
		s.has(t, "sql", "a b")
	})
	t.Run("several statements in one Exec, and one that fails", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			_, err := p.state.SQL().Exec(ctx, `INSERT INTO t(v) VALUES ('c'); INSERT INTO none VALUES (1); INSERT INTO t(v) VALUES ('d')`)
			if err == nil {
				t.Error("no error")
			}
		})
		s.has(t, "sql", "a b c")
	})
	t.Run("foreign keys are enforced", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			_, err := p.state.SQL().Exec(ctx, `CREATE TABLE parent(id INTEGER PRIMARY KEY); CREATE TABLE child(p REFERENCES parent)`)
			must(err)
			if _, err := p.state.SQL().Exec(ctx, `INSERT INTO child VALUES (1)`); err == nil {
				t.Error("no error")
			}
		})
	})
	t.Run("what would change how the database is kept is refused", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			for _, q := range []string{`ATTACH ':memory:' AS m`, `VACUUM INTO 'x'`, `PRAGMA journal_mode = DELETE`, `PRAGMA synchronous = OFF`, `PRAGMA wal_checkpoint`, `PRAGMA writable_schema = ON`} {
				if _, err := p.state.SQL().Exec(ctx, q); err == nil {
					t.Errorf("%s was run", q)
				}
			}
		})
	})
	t.Run("JSON, full-text search, generated columns and user_version", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			_, err := p.state.SQL().Exec(ctx, `CREATE VIRTUAL TABLE f USING fts5(text); INSERT INTO f VALUES ('a quick fox'), ('a slow hare');
				CREATE TABLE g(a, b AS (a * 2)); INSERT INTO g VALUES (21); PRAGMA user_version = 5`)
			must(err)
		})
		s.Restart()
		s.in(t, func(ctx context.Context, p *probe) {
			got, err := values(ctx, p.state.SQL(), `SELECT (SELECT text FROM f WHERE f MATCH 'fox'), (SELECT b FROM g), json_extract('{"a":[1,2]}', '$.a[1]'), (SELECT user_version FROM pragma_user_version)`)
			if want := []any{"a quick fox", int64(42), int64(2), int64(5)}; err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v %v", got, err)
			}
		})
	})
	t.Run("a TEMP table is gone in the next event", func(t *testing.T) {
		s.in(t, func(ctx context.Context, p *probe) {
			_, err := p.state.SQL().Exec(ctx, `CREATE TEMP TABLE tmp(a)`)
			must(err)
		})
		s.in(t, func(ctx context.Context, p *probe) {
			if _, err := p.state.SQL().Exec(ctx, `INSERT INTO tmp VALUES (1)`); err == nil {
				t.Error("it is there")
			}
		})
	})
	t.Run("the fleet's time", func(t *testing.T) {
		s.in(t, func(_ context.Context, p *probe) {
			if d := p.state.Now().Sub(p.env.Now()).Abs(); d > patience {
				t.Errorf("State.Now and Env.Now differ by %v", d)
			}
		})
	})
}

func testDatabase(t *testing.T, s *suite) {
	ctx, db := t.Context(), s.Env().Database("DB")
	if _, err := db.Exec(ctx, `CREATE TABLE p(id INTEGER PRIMARY KEY, v TEXT NOT NULL UNIQUE CHECK (v <> ''))`); err != nil {
		t.Fatal(err)
	}
	t.Run("a batch is all or nothing", func(t *testing.T) {
		_, err := db.Batch(ctx, durable.Statement{SQL: `INSERT INTO p(v) VALUES ('a')`}, durable.Statement{SQL: `INSERT INTO p(v) VALUES (?)`, Args: []any{"a"}})
		e, ok := errors.AsType[*durable.ConstraintError](err)
		if !ok || e.Constraint != durable.Unique || e.Statement != 1 {
			t.Errorf("%v", err)
		}
		_, err = db.First(ctx, `SELECT 1 FROM p`)
		is(t, "First of no row", err, sql.ErrNoRows)
		res, err := db.Batch(ctx, durable.Statement{SQL: `INSERT INTO p(v) VALUES ('a'), ('b')`}, durable.Statement{SQL: `SELECT v FROM p ORDER BY id`})
		if err != nil || len(res) != 2 || res[0].Changes != 2 || len(res[1].Rows) != 2 || res[1].Rows[1].Get("v") != "b" {
			t.Errorf("%+v %v", res, err)
		}
		if res, err := db.Batch(ctx); err != nil || len(res) != 0 {
			t.Errorf("an empty batch: %v %v", res, err)
		}
	})
	t.Run("kinds of constraints", func(t *testing.T) {
		for q, want := range map[string]durable.Constraint{`INSERT INTO p(v) VALUES (NULL)`: durable.NotNull, `INSERT INTO p(v) VALUES ('')`: durable.Check} {
			_, err := db.Exec(ctx, q)
			if e, ok := errors.AsType[*durable.ConstraintError](err); !ok || e.Constraint != want {
				t.Errorf("%s: %v", q, err)
			}
		}
	})
	t.Run("statements that are not one by itself are refused", func(t *testing.T) {
		for _, q := range []string{`BEGIN`, `ATTACH 'x' AS x`, `VACUUM`, `CREATE TEMP TABLE x(a)`} {
			_, err := db.Exec(ctx, q)
			is(t, q, err, durable.ErrInvalid)
		}
	})
	t.Run("rows stream in their order", func(t *testing.T) {
		var got []string
		for row, err := range db.Query(ctx, `SELECT v FROM p ORDER BY v DESC`) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row.Values[0].(string))
		}
		if strings.Join(got, "") != "ba" {
			t.Error(got)
		}
	})
	t.Run("DB has transactions", func(t *testing.T) {
		tx, err := db.DB().BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM p`); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if row, err := db.First(ctx, `SELECT count(*) FROM p`); err != nil || row.Values[0] != int64(2) {
			t.Errorf("%v %v", row, err)
		}
	})
	t.Run("a call within an event commits first", func(t *testing.T) {
		s.run("first", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "kept")
			_, err := p.env.Database("DB").Exec(r.Context(), `INSERT INTO p(v) VALUES ('event')`)
			must(err)
			p.insert(r.Context(), "lost")
			panic("canary")
		})
		s.has(t, "first", "kept")
		if row, err := db.First(ctx, `SELECT count(*) FROM p WHERE v = 'event'`); err != nil || row.Values[0] != int64(1) {
			t.Errorf("%v %v", row, err)
		}
	})
}

func testBindings(t *testing.T, s *suite) {
	ctx, env := t.Context(), s.Env()
	t.Run("a bucket", func(t *testing.T) {
		b := env.Bucket("FILES")
		put := func(key, body string, o durable.PutOptions) error {
			_, err := b.Put(ctx, key, strings.NewReader(body), o)
			return err
		}
		facts := durable.PutOptions{ContentType: "text/x-test", Metadata: map[string]string{"Name": "Grüße"}, IfAbsent: true}
		is(t, "put", put("a/1", "one", facts), nil)
		is(t, "put again", put("a/1", "two", facts), durable.ErrPrecondition)
		is(t, "put another", errors.Join(put("a/2", "two", durable.PutOptions{}), put("b", "b", durable.PutOptions{})), nil)
		for _, key := range []string{"", "/a", "a//b", "a/../b", strings.Repeat("x", 1025)} {
			is(t, fmt.Sprintf("key %.10q", key), put(key, "", durable.PutOptions{}), durable.ErrInvalid)
		}
		info, err := b.Head(ctx, "a/1")
		if err != nil || info.Size != 3 || info.ContentType != "text/x-test" || info.Metadata["name"] != "Grüße" || info.ETag == "" {
			t.Errorf("%+v %v", info, err)
		}
		l, err := b.List(ctx, durable.ListOptions{Delimiter: "/"})
		if err != nil || len(l.Objects) != 1 || l.Objects[0].Key != "b" || !reflect.DeepEqual(l.Prefixes, []string{"a/"}) {
			t.Errorf("%+v %v", l, err)
		}
		var keys []string
		for o := (durable.ListOptions{Limit: 1}); ; {
			l, err := b.List(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range l.Objects {
				keys = append(keys, x.Key)
			}
			if o.Cursor = l.Cursor; o.Cursor == "" {
				break
			}
		}
		if !reflect.DeepEqual(keys, []string{"a/1", "a/2", "b"}) {
			t.Error(keys)
		}
		is(t, "delete", errors.Join(b.Delete(ctx, "b"), b.Delete(ctx, "b")), nil)
		_, _, err = b.Get(ctx, "b", durable.GetOptions{})
		is(t, "get", err, durable.ErrNotFound)
	})
	t.Run("a cache", func(t *testing.T) {
		c := env.Cache("CACHE")
		c.Set("k", 1, 0)
		c.Set("short", 1, time.Nanosecond)
		time.Sleep(time.Millisecond)
		_, short := c.Get("short")
		v, ok := c.Get("k")
		c.Delete("k")
		_, still := c.Get("k")
		if short || !ok || v != 1 || still {
			t.Errorf("%v %v %v %v", short, v, ok, still)
		}
	})
	t.Run("a secret", func(t *testing.T) {
		if env.Secret("KEY") != "KEY" {
			t.Error("another value")
		}
	})
	t.Run("settings have the defaults of the application", func(t *testing.T) {
		if got := env.Settings().(*settings); *got != (settings{"hello", 7}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the environment", func(t *testing.T) {
		u := env.BaseURL()
		u.Path = "changed"
		if got := env.BaseURL().String(); got != "http://localhost/suite" || !env.Loopback() || env.Replica() == "" || env.Version() == "" {
			t.Errorf("%s %v %q %q", got, env.Loopback(), env.Replica(), env.Version())
		}
	})
	t.Run("bindings that were not required", func(t *testing.T) {
		for what, use := range map[string]func(){
			"bucket": func() { env.Bucket("OTHER") }, "queue": func() { env.Queue("OTHER") }, "database": func() { env.Database("OTHER") },
			"cache": func() { env.Cache("OTHER") }, "secret": func() { env.Secret("OTHER") }, "class": func() { env.Namespace("Other") },
		} {
			if !panics(use) {
				t.Errorf("a %s that is not there", what)
			}
		}
	})
	t.Run("the HTTP client reaches no private network", func(t *testing.T) {
		for _, url := range []string{s.URL(), "http://127.0.0.1:80/", "http://[::1]/", "http://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd"} {
			resp, err := env.HTTPClient().Get(url)
			if err == nil {
				resp.Body.Close() //nolint:errcheck // it should not be there
				t.Errorf("%s was reached", url)
			}
		}
	})
	t.Run("ids", func(t *testing.T) {
		ns := env.Namespace(class)
		id, err := durable.ParseID(ns.ID("x").String())
		if err != nil || !id.Equal(ns.Get(ns.ID("x")).ID()) || ns.UniqueID().Equal(ns.UniqueID()) {
			t.Errorf("%v %v", id, err)
		}
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
