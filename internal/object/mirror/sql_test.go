package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

func TestValues(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, `CREATE TABLE v(x, d DATE, dt DATETIME, ts TIMESTAMP, b BOOLEAN, i INTEGER, r REAL, s TEXT)`)
	type name string
	at := time.Date(2026, 3, 1, 12, 30, 0, 5000, time.FixedZone("", 3600))
	for _, c := range []struct {
		column   string
		in, want any
	}{
		{"x", nil, nil},
		{"x", int64(math.MaxInt64), int64(math.MaxInt64)},
		{"x", int64(math.MinInt64), int64(math.MinInt64)},
		{"x", int64(1<<53 + 1), int64(1<<53 + 1)},
		{"x", uint8(200), int64(200)},
		{"x", uint64(math.MaxInt64), int64(math.MaxInt64)},
		{"x", 1.5, 1.5},
		{"x", float32(0.5), 0.5},
		{"x", math.Inf(1), math.Inf(1)},
		{"x", true, int64(1)},
		{"b", false, int64(0)},
		{"x", "", ""},
		{"x", "a\x00b", "a\x00b"},
		{"x", "\xff\xfe", "\xff\xfe"},
		{"x", name("n"), "n"},
		{"x", []byte(nil), nil},
		{"x", []byte{}, []byte{}},
		{"x", []byte{0, 1}, []byte{0, 1}},
		{"x", at, "2026-03-01T11:30:00.000005Z"},
		{"dt", at, "2026-03-01T11:30:00.000005Z"},
		{"d", "2026-03-01", "2026-03-01"},
		{"dt", "2026-03-01 10:00:00", "2026-03-01 10:00:00"},
		{"ts", "2026-03-01 10:00:00+02:00", "2026-03-01 10:00:00+02:00"},
		{"ts", int64(1700000000), int64(1700000000)},
		{"b", int64(1), int64(1)},
		{"b", "true", "true"},
		{"i", int64(1<<62 + 1), int64(1<<62 + 1)},
		{"r", int64(3), float64(3)},
		{"s", int64(3), "3"},
		{"x", sql.NullString{}, nil},
		{"x", sql.NullInt64{Int64: 5, Valid: true}, int64(5)},
		{"x", sql.Named("any", "named"), "named"},
	} {
		exec(t, m, "DELETE FROM v")
		query := "INSERT INTO v(" + c.column + ") VALUES(?)"
		if _, ok := c.in.(sql.NamedArg); ok {
			query = "INSERT INTO v(" + c.column + ") VALUES(:any)"
		}
		exec(t, m, query, c.in)
		if got := value(t, m, "SELECT "+c.column+" FROM v"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T %v in %s: got %T %v, want %T %v", c.in, c.in, c.column, got, got, c.want, c.want)
		}
	}
	for _, bad := range []any{uint64(math.MaxInt64) + 1, math.NaN(), struct{}{}, make(chan int), map[string]int{}} {
		if _, err := m.Exec(t.Context(), "INSERT INTO v(x) VALUES(?)", bad); err == nil {
			t.Errorf("%T %v was bound", bad, bad)
		}
	}
	if got := value(t, m, "SELECT count(*) FROM v"); got != int64(1) {
		t.Errorf("%v rows, want 1", got)
	}
}

func TestExec(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE)")
	for _, c := range []struct {
		query string
		args  []any
		want  durable.Result
		fails bool
	}{
		{query: "", want: durable.Result{}},
		{query: " ; -- nothing\n ;", want: durable.Result{}},
		{query: "INSERT INTO t VALUES(1, 'x'), (2, 'y')", want: durable.Result{Changes: 2, LastRowID: 2}},
		{query: "INSERT INTO t VALUES(?, ?); INSERT INTO t VALUES(?, ?); ", args: []any{7, "p", 8, "q"}, want: durable.Result{Changes: 1, LastRowID: 8}},
		{query: "UPDATE t SET b = b || ?", args: []any{"!"}, want: durable.Result{Changes: 4, LastRowID: 8}},
		{query: "UPDATE t SET b = '' WHERE a = 99", want: durable.Result{LastRowID: 8}},
		{query: "SELECT * FROM t", want: durable.Result{LastRowID: 8}},
		{query: "DELETE FROM t WHERE a > 2 RETURNING a", want: durable.Result{Changes: 2, LastRowID: 8}},
		{query: "CREATE TABLE u(a)", want: durable.Result{LastRowID: 8}},
		{query: "INSERT INTO t VALUES(?, ?)", args: []any{9}, fails: true},
		{query: "INSERT INTO t VALUES(?, 1)", args: []any{9, 10}, fails: true},
		{query: "INSERT INTO t VALUES(1, 1)", fails: true},
		{query: "nonsense", fails: true},
		{query: "SELECT 1\x00", fails: true},
	} {
		got, err := m.Exec(t.Context(), c.query, c.args...)
		if (err != nil) != c.fails || err == nil && got != c.want {
			t.Errorf("%q: %+v, %v; want %+v, fails %v", c.query, got, err, c.want, c.fails)
		}
	}
	if e, ok := errors.AsType[*SQLError](errOf(m.Exec(t.Context(), "INSERT INTO t VALUES(1, 1)"))); !ok || e.Code != 1555 {
		t.Errorf("error of a duplicate key is %v", e)
	}
}

func errOf(_ durable.Result, err error) error { return err }

// queryErr reads a query to its end and returns its error.
func queryErr(ctx context.Context, m *Mirror, query string, args ...any) error {
	for _, err := range m.Query(ctx, query, args...) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestQuery(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a INTEGER PRIMARY KEY, b REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
	for _, query := range []string{"", "SELECT 1; SELECT 2", "SELECT ?", "SELECT 1 FROM nowhere"} {
		if queryErr(t.Context(), m, query) == nil {
			t.Errorf("%q: no error", query)
		}
	}
	if err := queryErr(t.Context(), m, "SELECT 1", 2); err == nil {
		t.Error("an argument too many: no error")
	}
	if err := queryErr(t.Context(), m, "SELECT 1; -- that was it\n"); err != nil {
		t.Error(err)
	}
	// A caller who reads only the first row sees what the end of the statement
	// finds, and has written all of it.
	for _, err := range m.Query(t.Context(), "INSERT INTO t VALUES(1, 77), (2, NULL) RETURNING a") {
		if err == nil {
			t.Error("foreign key error was not seen")
		}
		break
	}
	for row, err := range m.Query(t.Context(), "INSERT INTO t VALUES(1, NULL), (2, 1), (3, 2) RETURNING a AS x") {
		if err != nil || row.Get("x") != int64(1) {
			t.Errorf("first row %v, %v", row, err)
		}
		break
	}
	if got := values(t, m, "SELECT a FROM t"); len(got) != 3 {
		t.Errorf("rows %v", got)
	}
}

func TestInterrupt(t *testing.T) {
	const endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
	commit(t, m)
	exec(t, m, "UPDATE t SET a = 2")

	timeout := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"exec":       errOf(m.Exec(timeout(), endless+"SELECT count(*) FROM c")),
		"write":      errOf(m.Exec(timeout(), endless+"INSERT INTO t SELECT x FROM c")),
		"query":      queryErr(timeout(), m, endless+"SELECT count(*) FROM c"),
		"second row": queryErr(timeout(), m, endless+"SELECT 0 UNION ALL SELECT count(*) FROM c"),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Exec(gone, "UPDATE t SET a = 3"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	// The connection is as good as before, on the same WAL.
	if got := value(t, m, "SELECT a FROM t"); got != int64(2) {
		t.Errorf("a is %v, want 2", got)
	}
	commit(t, m)
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestTx(t *testing.T) {
	m := newMirror(t, Config{})
	ctx := t.Context()
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)

	if err := m.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(ctx); !errors.Is(err, ErrNested) || !errors.Is(err, durable.ErrNested) {
		t.Errorf("nested: %v", err)
	}
	exec(t, m, "INSERT INTO t VALUES(1); SAVEPOINT s; INSERT INTO t VALUES(2); ROLLBACK TO s; RELEASE s")
	for _, query := range []string{"COMMIT", "END", "ROLLBACK", "BEGIN"} {
		if _, err := m.Exec(ctx, query); err == nil {
			t.Errorf("%s within a Tx: no error", query)
		}
	}
	if !m.InTx() {
		t.Error("not in a transaction")
	}
	if _, err := m.Capture(); !errors.Is(err, ErrOpenTx) {
		t.Errorf("capture within a transaction: %v", err)
	}
	if _, err := m.Mark(); !errors.Is(err, ErrOpenTx) {
		t.Errorf("mark within a transaction: %v", err)
	}
	if err := m.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Commit(ctx); err == nil {
		t.Error("second commit: no error")
	}
	commit(t, m)

	// An interrupted write ends the transaction: what follows must not be
	// committed by itself.
	if err := m.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(3)")
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // not over before the statement begins
	defer cancel()
	_, err := m.Exec(short, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := m.Exec(ctx, "INSERT INTO t VALUES(4)"); !errors.Is(err, ErrTxLost) {
		t.Errorf("in a lost transaction: %v", err)
	}
	if err := m.Commit(ctx); !errors.Is(err, ErrTxLost) {
		t.Errorf("commit of a lost transaction: %v", err)
	}
	if got := values(t, m, "SELECT a FROM t"); !reflect.DeepEqual(got, []any{int64(1)}) {
		t.Errorf("rows %v, want 1", got)
	}

	// A commit that fails rolls back.
	exec(t, m, "CREATE TABLE child(a REFERENCES parent DEFERRABLE INITIALLY DEFERRED); CREATE TABLE parent(a PRIMARY KEY)")
	commit(t, m)
	if err := m.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO child VALUES(1)")
	if err := m.Commit(ctx); err == nil || m.InTx() {
		t.Errorf("commit against a foreign key: %v, still open: %v", err, m.InTx())
	}
	if e, err := m.Capture(); e != nil || err != nil {
		t.Errorf("captured %v, %v", e, err)
	}

	// An event may leave a transaction open by a statement.
	exec(t, m, "BEGIN; INSERT INTO t VALUES(5)")
	if !m.InTx() {
		t.Error("not in a transaction")
	}
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	if got := values(t, m, "SELECT a FROM t"); len(got) != 1 || m.InTx() {
		t.Errorf("rows %v after undo, in a transaction: %v", got, m.InTx())
	}
}

func TestReset(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a INTEGER PRIMARY KEY); INSERT INTO t VALUES(5)")
	commit(t, m)
	if got := value(t, m, "PRAGMA foreign_keys"); got != int64(1) {
		t.Errorf("foreign_keys is %v", got)
	}
	exec(t, m, "INSERT INTO t VALUES(6)")
	mark, err := m.Mark()
	if err != nil {
		t.Fatal(err)
	}
	before := m.conn
	exec(t, m, "INSERT INTO t VALUES(7)")
	if err := m.Reset(); err != nil || m.conn != before {
		t.Errorf("reset of a clean connection: %v, or it was replaced", err)
	}
	if got := value(t, m, "SELECT last_insert_rowid()"); got != int64(0) {
		t.Errorf("last_insert_rowid is %v", got)
	}
	for _, query := range []string{
		"CREATE TEMP TABLE x(a)", "CREATE TEMP VIEW x AS SELECT 1", "CREATE VIRTUAL TABLE temp.x USING fts5(a)",
		"CREATE TEMP TRIGGER x AFTER INSERT ON main.t BEGIN SELECT 1; END", "CREATE TEMPORARY TABLE x AS SELECT 1",
		"PRAGMA foreign_keys = OFF", "PRAGMA recursive_triggers = ON", "PRAGMA case_sensitive_like = ON",
	} {
		exec(t, m, query)
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		for check, want := range map[string]int64{
			"PRAGMA foreign_keys": 1, "PRAGMA recursive_triggers": 0, "SELECT 'a' LIKE 'A'": 1,
			"SELECT count(*) FROM sqlite_temp_schema": 0,
		} {
			if got := value(t, m, check); got != want {
				t.Errorf("after %s and reset, %s is %v, want %d", query, check, got, want)
			}
		}
	}
	if got := value(t, m, "SELECT count(*) FROM t"); got != int64(3) {
		t.Errorf("%v rows after reset, want 3", got)
	}
	if err := m.UndoTo(mark); err != nil {
		t.Fatal(err)
	}
	if got := value(t, m, "SELECT count(*) FROM t"); got != int64(2) {
		t.Errorf("%v rows after undo, want 2", got)
	}

	// A capture is still confirmed after a reset.
	exec(t, m, "CREATE TEMP TABLE x(a)")
	e, err := m.Capture()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Reset(), m.Confirm(e.Post), m.Verify()); err != nil {
		t.Error(err)
	}
	next, stop := iter.Pull2(m.Query(t.Context(), "SELECT a FROM t"))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(100)")
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err, _ := next(); !errors.Is(err, ErrStopped) {
		t.Errorf("query after reset: %v", err)
	}
	exec(t, m, "BEGIN")
	if err := m.Reset(); !errors.Is(err, ErrOpenTx) {
		t.Errorf("reset within a transaction: %v", err)
	}
}

func TestManyGoroutines(t *testing.T) {
	var wg sync.WaitGroup
	for range 3 {
		m := newMirror(t, Config{})
		exec(t, m, "CREATE TABLE t(a)")
		commit(t, m)
		for g := range 4 {
			wg.Go(func() {
				for i := range 10 {
					if _, err := m.Exec(t.Context(), "INSERT INTO t VALUES(?)", fmt.Sprint(g, i)); err != nil {
						t.Error(err)
					}
					if err := queryErr(t.Context(), m, "SELECT * FROM t"); err != nil {
						t.Error(err)
					}
					if _, err := m.Capture(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		defer func() {
			commit(t, m)
			if got := value(t, m, "SELECT count(*) FROM t"); got != int64(40) {
				t.Errorf("%v rows, want 40", got)
			}
			if err := m.Verify(); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
}
