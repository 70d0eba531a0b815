package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, p libsqltest.Place) *sqldb.Database {
	t.Helper()
	d, err := sqldb.Open("TEST", p.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// everywhere runs a test on a file and over the wire.
func everywhere(t *testing.T, run func(t *testing.T, p libsqltest.Place)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { run(t, place(t)) })
	}
}

func exec(t *testing.T, d durable.Database, query string, args ...any) durable.Result {
	t.Helper()
	r, err := d.Exec(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestValues(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		exec(t, d, `CREATE TABLE t(id INTEGER PRIMARY KEY, v, at DATETIME)`)
		at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.FixedZone("", 7200))
		valid := sql.NullString{String: "x", Valid: true}
		for _, c := range []struct{ in, want any }{
			{nil, nil}, {int64(math.MaxInt64), int64(math.MaxInt64)}, {int64(math.MinInt64), int64(math.MinInt64)}, {int64(1)<<53 + 1, int64(1)<<53 + 1},
			{7, int64(7)}, {uint8(7), int64(7)}, {uint64(7), int64(7)}, {true, int64(1)}, {false, int64(0)}, {1.5, 1.5}, {float32(0.5), 0.5}, {math.MaxFloat64, math.MaxFloat64},
			{"", ""}, {"日本\x01", "日本\x01"}, {[]byte{}, []byte{}}, {[]byte{0, 255}, []byte{0, 255}}, {[]byte(nil), nil},
			{at, "2026-02-03T02:05:06.000007Z"}, {valid, "x"}, {sql.NullInt64{}, nil},
		} {
			exec(t, d, `INSERT OR REPLACE INTO t(id, v, at) VALUES(1, ?, ?)`, c.in, at)
			row, err := d.First(t.Context(), `SELECT v, at FROM t`)
			if err != nil || !reflect.DeepEqual(row.Values[0], c.want) || row.Values[1] != "2026-02-03T02:05:06.000007Z" {
				t.Errorf("%#v: got %#v, %v", c.in, row, err)
			}
			for row, err := range d.Query(t.Context(), `SELECT ? AS v`, c.in) {
				if err != nil || !reflect.DeepEqual(row.Get("v"), c.want) {
					t.Errorf("%#v: queried %#v, %v", c.in, row, err)
				}
			}
		}
		for _, bad := range []any{math.NaN(), math.Inf(1), uint64(math.MaxUint64), "\xff", struct{}{}, []int{1}, sql.Named("a", 1)} {
			if _, err := d.Exec(t.Context(), `SELECT ?`, bad); !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%#v: %v", bad, err)
			}
		}
	})
}

func TestResults(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d, other := open(t, p), open(t, p)
		exec(t, d, `CREATE TABLE t(id INTEGER PRIMARY KEY, n)`)
		if r := exec(t, d, `INSERT INTO t(n) VALUES(?), (?)`, 1, 2); r.Changes != 2 || r.LastRowID != 2 {
			t.Errorf("%+v", r)
		}
		if r := exec(t, d, `UPDATE t SET n = n + 1 -- all of them`); r.Changes != 2 {
			t.Errorf("%+v", r)
		}
		// What one wrote another one sees at once.
		if row, err := other.First(t.Context(), `SELECT sum(n) AS s FROM t`); err != nil || row.Get("s") != int64(5) {
			t.Errorf("%v, %v", row, err)
		}
		if _, err := d.First(t.Context(), `SELECT 1 WHERE 0`); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("%v", err)
		}
		res, err := d.Batch(t.Context(), durable.Statement{SQL: `INSERT INTO t(n) VALUES(?) RETURNING id AS new, n`, Args: []any{9}},
			durable.Statement{SQL: `DELETE FROM t WHERE n < 9`}, durable.Statement{SQL: `SELECT * FROM t`})
		want := []durable.BatchResult{
			{Result: durable.Result{Changes: 1, LastRowID: 3}, Rows: []durable.Row{{Columns: []string{"new", "n"}, Values: []any{int64(3), int64(9)}}}},
			{Result: durable.Result{Changes: 2}},
			{Rows: []durable.Row{{Columns: []string{"id", "n"}, Values: []any{int64(3), int64(9)}}}},
		}
		if err != nil || !reflect.DeepEqual(res, want) {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := d.Batch(t.Context()); err != nil || res != nil {
			t.Errorf("an empty batch: %v, %v", res, err)
		}
		// A query that writes is done even if its rows are not read.
		for range d.Query(t.Context(), `INSERT INTO t(n) VALUES(10), (11) RETURNING n`) {
			break
		}
		if row, err := d.First(t.Context(), `WITH a AS (SELECT n FROM t) SELECT count(*) FROM a`); err != nil || row.Values[0] != int64(3) {
			t.Errorf("%v, %v", row, err)
		}
		if row, err := d.First(t.Context(), `WITH a(n) AS (VALUES(12)) INSERT INTO t(n) SELECT n FROM a RETURNING n`); err != nil || row.Values[0] != int64(12) {
			t.Errorf("%v, %v", row, err)
		}
	})
}

// Results of any size stream, and are of one moment.
func TestLargeResults(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		const rows, size = 1500, 10_000 // 15 MB, above what one answer may hold
		exec(t, d, `CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)`)
		exec(t, d, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT ?) INSERT INTO t SELECT i, printf('%.*c', ?, 'x') FROM n`, rows, size)
		n := int64(0)
		for row, err := range d.Query(t.Context(), `SELECT id, v FROM t ORDER BY id`) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; row.Values[0] != n || len(row.Values[1].(string)) != size {
				t.Fatalf("row %d is %v", n, row.Values[0])
			}
			if n == 1 {
				exec(t, d, `DELETE FROM t WHERE id > 1400`)
			}
		}
		if n != rows {
			t.Errorf("%d rows", n)
		}
		exec(t, d, `INSERT INTO t SELECT id + 2000, v FROM t`)
		if row, err := d.First(t.Context(), `SELECT id, v FROM t ORDER BY id`); err != nil || row.Values[0] != int64(1) {
			t.Errorf("first of many: %v, %v", row.Get("id"), err)
		}
		if _, err := d.Batch(t.Context(), durable.Statement{SQL: `DELETE FROM t WHERE id = 1`}, durable.Statement{SQL: `SELECT * FROM t`}); !errors.Is(err, durable.ErrTooLarge) {
			t.Errorf("a batch of many: %v", err)
		}
		if row, err := d.First(t.Context(), `SELECT min(id) FROM t`); err != nil || row.Values[0] != int64(1) {
			t.Errorf("after a batch that was too large: %v, %v", row, err)
		}
	})
}

func TestErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		if _, err := d.Batch(t.Context(), durable.Statement{SQL: `CREATE TABLE a(id INTEGER PRIMARY KEY, u UNIQUE, n NOT NULL DEFAULT 1, c CHECK (c > 0))`},
			durable.Statement{SQL: `CREATE TABLE b(a REFERENCES a(id), later REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED)`},
			durable.Statement{SQL: `CREATE TRIGGER tr BEFORE DELETE ON a BEGIN SELECT RAISE(ABORT, 'never'); END`},
			durable.Statement{SQL: `INSERT INTO a(id, u) VALUES(1, 1)`}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			sql  string
			want durable.Constraint
			at   int
		}{
			{`INSERT INTO a(id) VALUES(1)`, durable.Unique, 1}, {`INSERT INTO a(u) VALUES(1)`, durable.Unique, 1}, {`INSERT INTO a(n) VALUES(NULL)`, durable.NotNull, 1},
			{`INSERT INTO a(c) VALUES(0)`, durable.Check, 1}, {`INSERT INTO b(a) VALUES(7)`, durable.ForeignKey, 1}, {`INSERT INTO b(later) VALUES(7)`, durable.ForeignKey, -1},
			{`DELETE FROM a`, durable.OtherConstraint, 1},
		} {
			_, err := d.Batch(t.Context(), durable.Statement{SQL: `UPDATE a SET n = 5`}, durable.Statement{SQL: c.sql})
			e, ok := errors.AsType[*durable.ConstraintError](err)
			if !ok || e.Constraint != c.want || e.Statement != c.at || errors.Is(err, durable.ErrUnknownOutcome) {
				t.Errorf("%s: %v (%#v)", c.sql, err, e)
			}
			_, err = d.Exec(t.Context(), c.sql)
			if e, ok := errors.AsType[*durable.ConstraintError](err); !ok || e.Constraint != c.want {
				t.Errorf("%s alone: %v", c.sql, err)
			}
			if row, err := d.First(t.Context(), `SELECT n FROM a`); err != nil || row.Values[0] != int64(1) {
				t.Fatalf("%s left %v, %v", c.sql, row, err)
			}
		}
		for _, text := range []string{"BEGIN", " ;begin immediate", "/* x */ COMMIT", "-- x\nEND", "ROLLBACK", "SAVEPOINT a", "RELEASE a", "ATTACH 'x' AS y", "DETACH y", "VACUUM",
			"CREATE TEMP TABLE x(a)", "create temporary view x as select 1", "PRAGMA journal_mode=DELETE", "PRAGMA synchronous", "PRAGMA main.query_only(1)", "PRAGMA foreign_keys=0",
			"PRAGMA foreign_keys(0)", "PRAGMA nonsense", "SELECT \xff", "SELECT 1\x00"} {
			if _, err := d.Exec(t.Context(), text); !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			for _, err := range d.Query(t.Context(), text) {
				if !errors.Is(err, durable.ErrInvalid) {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
		for _, c := range []struct {
			sql  string
			args []any
		}{{"SELECT nothing", nil}, {"", nil}, {"SELECT 1; SELECT 2", nil}, {"SELECT ?", nil}, {"SELECT 1", []any{1}}, {"SELEC", nil}} {
			for _, err := range []error{second(d.Exec(t.Context(), c.sql, c.args...)), second(d.First(t.Context(), c.sql, c.args...)), last(d, c.sql, c.args...)} {
				if err == nil || errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) || strings.Contains(err.Error(), p.URL) || !strings.Contains(err.Error(), "TEST") {
					t.Errorf("%q: %v", c.sql, err)
				}
			}
		}
		for _, c := range []durable.Statement{{SQL: "SELECT '" + strings.Repeat("x", sqldb.MaxText) + "'"}, {SQL: "SELECT ?", Args: []any{strings.Repeat("x", sqldb.MaxCall)}}, {SQL: "SELECT ?", Args: make([]any, sqldb.MaxArgs+1)}} {
			if _, err := d.Exec(t.Context(), c.SQL, c.Args...); !errors.Is(err, durable.ErrTooLarge) {
				t.Errorf("%.20s: %v", c.SQL, err)
			}
		}
		if _, err := d.Batch(t.Context(), make([]durable.Statement, sqldb.MaxStatements+1)...); !errors.Is(err, durable.ErrTooLarge) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.Exec(ctx, "SELECT 1"); !errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func last(d durable.Database, query string, args ...any) (err error) {
	for _, e := range d.Query(context.Background(), query, args...) {
		err = e
	}
	return err
}

func TestPragmas(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		exec(t, d, `CREATE TABLE t(a)`)
		exec(t, d, `PRAGMA user_version = 7`)
		for query, want := range map[string]any{"PRAGMA user_version": int64(7), "PRAGMA main.table_info(t)": int64(0), "PRAGMA integrity_check": "ok", "PRAGMA foreign_keys": int64(1), "EXPLAIN QUERY PLAN SELECT 1": nil} {
			row, err := d.First(t.Context(), query)
			if err != nil || want != nil && row.Values[0] != want {
				t.Errorf("%s: %v, %v", query, row, err)
			}
		}
	})
}

// A cut answer of a write is an unknown outcome, that of a read a failure that
// is safe to repeat.
func TestOutcomes(t *testing.T) {
	p := libsqltest.Wire(t)
	d := open(t, p)
	exec(t, d, `CREATE TABLE t(a)`)
	for _, c := range []struct {
		fault hrana.Fault
		write error
	}{{hrana.Fault{CutBefore: true}, durable.ErrUnknownOutcome}, {hrana.Fault{CutAfter: true}, durable.ErrUnknownOutcome}, {hrana.Fault{Status: 429}, durable.ErrUnavailable}} {
		p.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { return c.fault })
		_, writeErr := d.Exec(t.Context(), `INSERT INTO t VALUES(1)`)
		_, firstErr := d.First(t.Context(), `SELECT 1`)
		queryErr := last(d, `SELECT 1`)
		p.Server.SetHook(nil)
		if !errors.Is(writeErr, c.write) || !errors.Is(firstErr, durable.ErrUnavailable) || !errors.Is(queryErr, durable.ErrUnavailable) {
			t.Errorf("%+v: %v; %v; %v", c.fault, writeErr, firstErr, queryErr)
		}
	}
}

// Each call is one round trip.
func TestTrips(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		for _, call := range []func(){
			func() { exec(t, d, `CREATE TABLE t(a)`) },
			func() { d.First(t.Context(), `SELECT 1`) },
			func() { last(d, `SELECT 1`) },
			func() { last(d, `INSERT INTO t VALUES(1) RETURNING a`) },
			func() {
				d.Batch(t.Context(), durable.Statement{SQL: `INSERT INTO t VALUES(1)`}, durable.Statement{SQL: `SELECT a FROM t`})
			},
		} {
			before := d.LibSQL().Trips()
			if call(); d.LibSQL().Trips() != before+1 {
				t.Errorf("%d round trips", d.LibSQL().Trips()-before)
			}
		}
	})
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{"BEGIN", "WITH a AS (SELECT 1) DELETE FROM t", "PRAGMA a.b(1)", "/*", "'", "[", "`a", "WITH"} {
		f.Add(s)
	}
	d, err := sqldb.Open("FUZZ", libsql.Config{URL: "file:" + f.TempDir() + "/a.sqlite"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	f.Fuzz(func(t *testing.T, text string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d.Exec(ctx, text)
		// Whatever it was, no transaction is open and no setting was changed.
		row, err := d.First(t.Context(), `SELECT (SELECT foreign_keys FROM pragma_foreign_keys), (SELECT query_only FROM pragma_query_only)`)
		if err != nil || fmt.Sprint(row.Values) != "[1 1]" {
			t.Fatalf("%q left %v, %v", text, row, err)
		}
		if _, err := d.Exec(t.Context(), `PRAGMA user_version = 1`); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
