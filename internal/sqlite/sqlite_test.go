package sqlite

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func open(t *testing.T) *Conn {
	t.Helper()
	c, err := Open(filepath.Join(t.TempDir(), "a?b#c%20.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestValues(t *testing.T) {
	c := open(t)
	if err := c.Exec("CREATE TABLE t (v DATETIME, b BOOLEAN);; -- comment\n INSERT INTO t VALUES ('2024-01-02 03:04:05', 1);"); err != nil {
		t.Fatal(err)
	}
	if v, err := c.QueryText("SELECT v FROM t"); v != "2024-01-02 03:04:05" || err != nil {
		t.Fatalf("a DATETIME column came out as %q, %v", v, err)
	}
	s, tail, err := c.Prepare("SELECT ?1; SELECT 2")
	if err != nil || tail != " SELECT 2" {
		t.Fatalf("tail %q, %v", tail, err)
	}
	defer s.Close()
	for _, v := range []any{nil, int64(math.MinInt64), int64(math.MaxInt64), 0.1, math.Inf(1), "", "a\x00b", "ü", "\xff", []byte{}, []byte{0, 1}} {
		if err := s.Bind(1, v); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Step(); !ok {
			t.Fatal(err)
		}
		if got := s.Value(0); !reflect.DeepEqual(got, v) {
			t.Errorf("bound %#v, got %#v", v, got)
		}
		s.Reset()
	}
	if err := s.Bind(1, uint8(1)); err == nil {
		t.Error("bound a uint8")
	}
	if err := s.Bind(2, nil); err == nil {
		t.Error("bound a parameter that does not exist")
	}
}

func TestErrors(t *testing.T) {
	c := open(t)
	if err := c.Exec("CREATE TABLE t (k PRIMARY KEY); INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES (1)": "SQLITE_CONSTRAINT: UNIQUE constraint failed: t.k",
		"SELEC 1":                  `SQLITE_ERROR: near "SELEC": syntax error`,
		"SELECT '\x00'":            "SQLITE_ERROR: the SQL text holds a zero byte",
	} {
		err := c.Exec(sql)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Name()+": "+e.Message != want {
			t.Errorf("%q: %v, want %s", sql, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no", "folder")); err == nil || !strings.Contains(err.Error(), "unable to open") {
		t.Errorf("opening in a folder that does not exist: %v", err)
	}
	if s, tail, err := c.Prepare(" ; /* nothing */ "); s != nil || tail != "" || err != nil {
		t.Errorf("an empty text gave %v %q %v", s, tail, err)
	}
}

func TestWatch(t *testing.T) {
	c := open(t)
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
	ctx, cancel := context.WithCancel(t.Context())
	stop := c.Watch(ctx)
	go cancel()
	_, err := c.QueryText(endless)
	stop()
	if e, ok := errors.AsType[*Error](err); !ok || e.Primary() != Interrupt {
		t.Fatalf("got %v, want an interrupt", err)
	}
	if v, err := c.QueryText("SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 100000) SELECT * FROM n)"); v != "100000" {
		t.Fatalf("the interrupt lasted: %v", err)
	}
}

func TestVerb(t *testing.T) {
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES (1)":                                                    "INSERT",
		"-- select\n/* ; */ replace into t select 1":                                  "REPLACE",
		"WITH a AS (SELECT 1), b(x) AS (VALUES (')')) INSERT INTO t SELECT 1":         "INSERT",
		"WITH RECURSIVE [insert] AS (SELECT 1) SELECT * FROM \"insert\"":              "SELECT",
		"UPDATE t SET a = 'insert'":                                                   "UPDATE",
		"SELECT replace('a','b','c')":                                                 "SELECT",
		"EXPLAIN INSERT INTO t VALUES (1)":                                            "EXPLAIN",
		"CREATE TRIGGER x AFTER DELETE ON t BEGIN INSERT INTO u VALUES (1); END":      "CREATE",
		"WITH a AS MATERIALIZED (SELECT 'x''(' ) DELETE FROM t WHERE a IN (SELECT 1)": "DELETE",
		"": "", "'": "", "((": "", "/*": "", ")": "",
	} {
		if got := verb(sql); got != want {
			t.Errorf("verb(%q) = %q, want %q", sql, got, want)
		}
	}
}

func TestCache(t *testing.T) {
	c := open(t)
	c.LimitCache(4)
	if err := c.Exec("CREATE TABLE t (a, b)"); err != nil {
		t.Fatal(err)
	}
	first, err := c.Statement("SELECT * FROM t")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := c.Statement("SELECT * FROM t"); err != nil || second == first {
		t.Errorf("a statement in use was given out again: %v", err)
	} else if err := second.Done(); err != nil {
		t.Error(err)
	}
	if got := first.ColumnNames(); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("columns %q", got)
	}
	first.Done()
	if err := c.Exec("ALTER TABLE t RENAME b TO c"); err != nil {
		t.Fatal(err)
	}
	again, err := c.Statement("SELECT * FROM t")
	if err != nil || again != first {
		t.Errorf("not cached: %v", err)
	}
	if _, err := again.Step(); err != nil {
		t.Fatal(err)
	}
	if got := again.ColumnNames(); !reflect.DeepEqual(got, []string{"a", "c"}) {
		t.Errorf("columns %q after a new schema", got)
	}
	again.Done()
	for i := range 20 {
		s, err := c.Statement("SELECT " + strings.Repeat(" ", i) + "?1")
		if err != nil {
			t.Fatal(err)
		}
		if i == 7 {
			defer s.Close()
			continue // one stays in use
		}
		if err := s.Done(); err != nil {
			t.Fatal(err)
		}
		if c.Statements() > 5 {
			t.Fatalf("%d cached statements", c.Statements())
		}
	}
	for sql, want := range map[string]error{"": ErrNoStatement, "SELECT 1; SELECT 2": ErrManyStatements} {
		if _, err := c.Statement(sql); !errors.Is(err, want) {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

// TestBoundMemory: values of all sizes, in any order, in one statement.
func TestBoundMemory(t *testing.T) {
	c := open(t)
	s, err := c.Statement("SELECT ?1, ?2, length(?1) + length(?2)")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Done()
	for _, n := range []int{0, 1, 31, 32, 33, 255, 256, 70_000, 3, 255, 0} {
		text, blob := strings.Repeat("x", n), make([]byte, 2*n)
		if err := errors.Join(s.Bind(2, blob), s.Bind(1, text)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
		if got := s.Row(nil); !reflect.DeepEqual(got, []any{text, blob, int64(3 * n)}) {
			t.Errorf("%d bytes came out wrong", n)
		}
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoneReturnsTheError(t *testing.T) {
	c := open(t)
	if err := c.Exec("CREATE TABLE t (k PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		s, err := c.Statement("INSERT INTO t VALUES (1)")
		if err != nil {
			t.Fatal(err)
		}
		run := s.Run()
		if done := s.Done(); (run != nil) != want || (done != nil) != want {
			t.Errorf("run %v, done %v", run, done)
		}
	}
}
