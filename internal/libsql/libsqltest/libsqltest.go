// Package libsqltest is the suite of behaviour that a libsql.DB has on a file
// and over the wire alike.
package libsqltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// Run runs the suite; open returns a new, empty database, which the test
// closes, with a timeout of at least several seconds.
func Run(t *testing.T, open func(t *testing.T) *libsql.DB) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *libsql.DB)
	}{
		{"Atomicity", testAtomicity},
		{"Load", testLoad},
		{"Results", testResults},
		{"Values", testValues},
		{"DeclaredTypes", testDeclaredTypes},
		{"SchemaChange", testSchemaChange},
		{"Errors", testErrors},
		{"RefusedArguments", testRefusedArguments},
		{"ReadOnlyReads", testReadOnlyReads},
		{"TooLarge", testTooLarge},
		{"Canceled", testCanceled},
		{"Deadline", testDeadline},
		{"Stream", testStream},
		{"StreamSnapshot", testStreamSnapshot},
		{"StreamErrors", testStreamErrors},
		{"Concurrent", testConcurrent},
		{"WriteBlocks", testWriteBlocks},
		{"Trips", testTrips},
		{"Close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := open(t)
			test.run(t, db)
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// MustBatch runs a batch that must succeed.
func MustBatch(t testing.TB, db *libsql.DB, mode libsql.Mode, stmts ...libsql.Statement) []libsql.Result {
	t.Helper()
	r, err := db.Batch(t.Context(), mode, stmts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// WantError checks outcome and kind of an error.
func WantError(t testing.TB, err error, outcome libsql.Outcome, kind libsql.Kind) {
	t.Helper()
	e, ok := errors.AsType[*libsql.Error](err)
	if !ok {
		t.Fatalf("got error %v, want %v, %v", err, outcome, kind)
	}
	if e.Outcome != outcome || e.Kind != kind {
		t.Fatalf("got %v, %v (%v), want %v, %v", e.Outcome, e.Kind, err, outcome, kind)
	}
}

// one returns the only value of a query.
func one(t testing.TB, db *libsql.DB, sql string, args ...any) any {
	t.Helper()
	r := MustBatch(t, db, libsql.Read, libsql.S(sql, args...))
	if len(r) != 1 || len(r[0].Rows) != 1 || len(r[0].Rows[0]) != 1 {
		t.Fatalf("%s: got %v, want one value", sql, r)
	}
	return r[0].Rows[0][0]
}

func testAtomicity(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (k PRIMARY KEY)"), libsql.S("INSERT INTO t VALUES (1)"))
	_, err := db.Batch(t.Context(), libsql.Write,
		libsql.S("INSERT INTO t VALUES (2)"),
		libsql.S("CREATE TABLE u (k)"),
		libsql.S("INSERT INTO t VALUES (1)"),
		libsql.S("INSERT INTO t VALUES (3)"))
	WantError(t, err, libsql.Failed, libsql.KindConstraint)
	if e, _ := errors.AsType[*libsql.Error](err); e.Statement != 2 || e.Addr != db.String() || e.Code != "SQLITE_CONSTRAINT" {
		t.Errorf("got statement %d, address %q, code %q", e.Statement, e.Addr, e.Code)
	}
	if n := one(t, db, "SELECT count(*) FROM t"); n != int64(1) {
		t.Errorf("%v rows after a rollback", n)
	}
	if n := one(t, db, "SELECT count(*) FROM sqlite_schema WHERE name = 'u'"); n != int64(0) {
		t.Error("a table was left by a rollback")
	}
	// An error of the COMMIT itself.
	_, err = db.Batch(t.Context(), libsql.Write,
		libsql.S("CREATE TABLE parent (id INTEGER PRIMARY KEY)"),
		libsql.S("INSERT INTO parent VALUES (1)"),
		libsql.S("SELECT nonsense FROM parent"))
	WantError(t, err, libsql.Failed, libsql.KindSQL)
	MustBatch(t, db, libsql.Write, libsql.S("INSERT INTO t VALUES (4)"))
}

func testLoad(t *testing.T, db *libsql.DB) {
	child := libsql.S("INSERT INTO child VALUES (9)")
	MustBatch(t, db, libsql.Write,
		libsql.S("CREATE TABLE parent (id INTEGER PRIMARY KEY)"), libsql.S("CREATE TABLE child (p REFERENCES parent)"))
	for range 2 { // a batch of one mode leaves nothing to those after it
		if r := MustBatch(t, db, libsql.Load, child, libsql.S("SELECT p FROM child")); r[0].Changes != 1 || r[1].Rows[0][0] != int64(9) {
			t.Errorf("results %+v", r)
		}
		_, err := db.Batch(t.Context(), libsql.Write, child)
		WantError(t, err, libsql.Failed, libsql.KindConstraint)
	}
	_, err := db.Batch(t.Context(), libsql.Load, child, libsql.S("INSERT INTO parent VALUES (1), (1)"))
	WantError(t, err, libsql.Failed, libsql.KindConstraint)
	if e, _ := errors.AsType[*libsql.Error](err); e.Statement != 1 {
		t.Errorf("statement %d failed", e.Statement)
	}
	if n := one(t, db, "SELECT count(*) FROM child"); n != int64(2) {
		t.Errorf("%v rows", n)
	}
}

func testResults(t *testing.T, db *libsql.DB) {
	r := MustBatch(t, db, libsql.Write,
		libsql.S("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"),
		libsql.S("INSERT INTO t VALUES (7, 'x'), (9, 'y')"),
		libsql.S("UPDATE t SET a = a || '!'"),
		libsql.S("UPDATE t SET a = '' WHERE id = 1"),
		libsql.S("SELECT id, a AS \"the name\" FROM t ORDER BY id"),
		libsql.S("INSERT INTO t (a) VALUES ('z') RETURNING id, a;"),
		libsql.S("INSERT INTO t VALUES (7, '') ON CONFLICT DO NOTHING"),
		libsql.S("WITH w AS (SELECT 20 AS i) INSERT INTO t SELECT i, 'w' FROM w -- the end"),
		libsql.S("DELETE FROM t WHERE id < 10"),
		libsql.S("SELECT * FROM t WHERE 0"),
	)
	want := []libsql.Result{
		{},
		{Changes: 2, LastRowID: 9},
		{Changes: 2},
		{},
		{Columns: []string{"id", "the name"}, Rows: []libsql.Row{{int64(7), "x!"}, {int64(9), "y!"}}},
		{Columns: []string{"id", "a"}, Rows: []libsql.Row{{int64(10), "z"}}, Changes: 1, LastRowID: 10},
		{},
		{Changes: 1, LastRowID: 20},
		{Changes: 2},
		{Columns: []string{"id", "a"}},
	}
	for i := range want {
		if !reflect.DeepEqual(r[i], want[i]) {
			t.Errorf("statement %d: got %+v, want %+v", i, r[i], want[i])
		}
	}
	if len(r) != len(want) {
		t.Errorf("%d results", len(r))
	}
}

func testValues(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE v (i INTEGER PRIMARY KEY, v, type)"))
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * 7 >> 3)
	}
	for i, test := range []struct {
		in, out any
		kind    string
	}{
		{nil, nil, "null"},
		{[]byte(nil), nil, "null"},
		{true, int64(1), "integer"},
		{false, int64(0), "integer"},
		{int(-5), int64(-5), "integer"},
		{int64(math.MinInt64), int64(math.MinInt64), "integer"},
		{int64(math.MaxInt64), int64(math.MaxInt64), "integer"},
		{int64(1<<53 + 1), int64(1<<53 + 1), "integer"},
		{0.1, 0.1, "real"},
		{3.0, 3.0, "real"},
		{math.MaxFloat64, math.MaxFloat64, "real"},
		{math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64, "real"},
		{"", "", "text"},
		{"a\x00b", "a\x00b", "text"},
		{"ünï😀\"\\\u2028<&>\x7f\r\n\t\x01", "ünï😀\"\\\u2028<&>\x7f\r\n\t\x01", "text"},
		{"2024-01-02 03:04:05", "2024-01-02 03:04:05", "text"},
		{[]byte{}, []byte{}, "blob"},
		{[]byte{0}, []byte{0}, "blob"},
		{[]byte{0xff, 0xfe}, []byte{0xff, 0xfe}, "blob"},
		{[]byte("abc"), []byte("abc"), "blob"},
		{big, big, "blob"},
	} {
		r := MustBatch(t, db, libsql.Write,
			libsql.S("INSERT INTO v VALUES (?, ?2, typeof(?2))", i, test.in),
			libsql.S("SELECT v, type FROM v WHERE i = ?", i))
		if got, kind := r[1].Rows[0][0], r[1].Rows[0][1]; !reflect.DeepEqual(got, test.out) || kind != test.kind {
			t.Errorf("%.40q: got %T %.40q (%v)", fmt.Sprint(test.in), got, fmt.Sprint(got), kind)
		}
	}
}

func testDeclaredTypes(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE d (a DATE, b DATETIME, c TIMESTAMP, d BOOLEAN, e DATETIME, f TIME)"))
	row := libsql.Row{"2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05.000", int64(1), int64(1704164645), "03:04"}
	MustBatch(t, db, libsql.Write, libsql.S("INSERT INTO d VALUES (?, ?, ?, ?, ?, ?)", row...))
	if got := MustBatch(t, db, libsql.Read, libsql.S("SELECT * FROM d"))[0].Rows[0]; !reflect.DeepEqual(got, row) {
		t.Errorf("got %#v, want %#v", got, row)
	}
	for got, err := range db.Stream(t.Context(), libsql.S("SELECT * FROM d")) {
		if err != nil || !reflect.DeepEqual(got, row) {
			t.Errorf("streamed %#v, %v, want %#v", got, err, row)
		}
	}
}

// A text that was run before sees a schema that changed meanwhile.
func testSchemaChange(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"), libsql.S("INSERT INTO t VALUES (1)"))
	for range 2 {
		MustBatch(t, db, libsql.Read, libsql.S("SELECT * FROM t"))
	}
	MustBatch(t, db, libsql.Write, libsql.S("ALTER TABLE t ADD COLUMN b DEFAULT 2"), libsql.S("ALTER TABLE t RENAME COLUMN a TO c"))
	r := MustBatch(t, db, libsql.Read, libsql.S("SELECT * FROM t"))[0]
	if want := (libsql.Result{Columns: []string{"c", "b"}, Rows: []libsql.Row{{int64(1), int64(2)}}}); !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

func testErrors(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (k PRIMARY KEY, n NOT NULL CHECK (n > 0))"), libsql.S("INSERT INTO t VALUES (1, 1)"))
	for _, test := range []struct {
		stmt libsql.Statement
		kind libsql.Kind
	}{
		{libsql.S("SELEC 1"), libsql.KindSQL},
		{libsql.S("SELECT * FROM missing"), libsql.KindSQL},
		{libsql.S(""), libsql.KindSQL},
		{libsql.S(" -- nothing\n;"), libsql.KindSQL},
		{libsql.S("SELECT 1; SELECT 2"), libsql.KindSQL},
		{libsql.S("SELECT ?"), libsql.KindSQL},
		{libsql.S("SELECT ?", 1, 2), libsql.KindSQL},
		{libsql.S("SELECT ?2", 1), libsql.KindSQL},
		{libsql.S("SELECT abs(-9223372036854775808)"), libsql.KindSQL},
		{libsql.S("INSERT INTO t VALUES (1, 1)"), libsql.KindConstraint},
		{libsql.S("INSERT INTO t VALUES (2, NULL)"), libsql.KindConstraint},
		{libsql.S("INSERT INTO t VALUES (2, 0)"), libsql.KindConstraint},
		{libsql.S("SELECT zeroblob(2000000000)"), libsql.KindTooLarge},
	} {
		_, err := db.Batch(t.Context(), libsql.Write, libsql.S("SELECT 1"), test.stmt)
		e, ok := errors.AsType[*libsql.Error](err)
		if !ok || e.Outcome != libsql.Failed || e.Kind != test.kind || e.Statement != 1 || e.Code == "" {
			t.Errorf("%q: got %#v (%v), want %v", test.stmt.SQL, e, err, test.kind)
		}
	}
	if n := one(t, db, "SELECT count(*) FROM t"); n != int64(1) {
		t.Errorf("%v rows", n)
	}
}

func testRefusedArguments(t *testing.T, db *libsql.DB) {
	before := db.Trips()
	for _, v := range []any{math.NaN(), math.Inf(1), "\xff", uint64(1), time.Time{}, struct{}{}, new(int), int32(1), float32(1)} {
		_, err := db.Batch(t.Context(), libsql.Write, libsql.S("SELECT ?", v))
		WantError(t, err, libsql.Refused, libsql.KindSQL)
		for _, err := range db.Stream(t.Context(), libsql.S("SELECT ?", v)) {
			WantError(t, err, libsql.Refused, libsql.KindSQL)
		}
	}
	_, err := db.Batch(t.Context(), libsql.Write)
	WantError(t, err, libsql.Refused, libsql.KindSQL)
	_, err = db.Batch(t.Context(), libsql.Write, libsql.S("SELECT '\xff'"))
	WantError(t, err, libsql.Refused, libsql.KindSQL)
	if n := db.Trips() - before; n != 0 {
		t.Errorf("%d round trips for statements that were refused", n)
	}
}

func testReadOnlyReads(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	_, err := db.Batch(t.Context(), libsql.Read, libsql.S("SELECT 1"), libsql.S("INSERT INTO t VALUES (1)"))
	WantError(t, err, libsql.Failed, libsql.KindReadOnly)
	_, err = db.Batch(t.Context(), libsql.Read, libsql.S("INSERT INTO t VALUES (1)"))
	WantError(t, err, libsql.Failed, libsql.KindReadOnly)
	if n := one(t, db, "SELECT count(*) FROM t"); n != int64(0) {
		t.Errorf("a read batch left %v rows", n)
	}
}

func testTooLarge(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	_, err := db.Batch(t.Context(), libsql.Write,
		libsql.S("INSERT INTO t VALUES (1)"),
		libsql.S("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 12) SELECT zeroblob(1000000) FROM n"))
	WantError(t, err, libsql.Failed, libsql.KindTooLarge)
	if n := one(t, db, "SELECT count(*) FROM t"); n != int64(0) {
		t.Errorf("%v rows are left", n)
	}
	if b := one(t, db, "SELECT zeroblob(4000000)"); len(b.([]byte)) != 4000000 {
		t.Error("a blob of 4 MB did not come back")
	}
}

func testCanceled(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mode := range []libsql.Mode{libsql.Read, libsql.Write} {
		_, err := db.Batch(ctx, mode, libsql.S("INSERT INTO t VALUES (1)"))
		WantError(t, err, libsql.Refused, libsql.KindTimeout)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the context's error", err)
		}
	}
	for _, err := range db.Stream(ctx, libsql.S("SELECT 1")) {
		WantError(t, err, libsql.Refused, libsql.KindTimeout)
	}
	if n := one(t, db, "SELECT count(*) FROM t"); n != int64(0) {
		t.Errorf("%v rows were written", n)
	}
}

// endless runs until it is interrupted.
const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"

// A statement that runs too long is ended, and what was written before it is
// rolled back; over the wire the caller cannot know that.
func testDeadline(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := db.Batch(ctx, libsql.Write, libsql.S("INSERT INTO t VALUES (1)"), libsql.S(endless))
	want := libsql.Unknown
	if db.Local() {
		want = libsql.Failed
	}
	WantError(t, err, want, libsql.KindTimeout)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the context's error", err)
	}
	// The lock is free again, and the connection good for the next batch.
	MustBatch(t, db, libsql.Write, libsql.S("INSERT INTO t VALUES (2)"))
	if n := one(t, db, "SELECT sum(a) FROM t"); n != int64(2) {
		t.Errorf("the sum is %v", n)
	}
}

const rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT ?) SELECT i, 'row ' || i, CAST(i AS BLOB) FROM n"

func testStream(t *testing.T, db *libsql.DB) {
	total := int64(100_000)
	if testing.Short() {
		total = 20_000
	}
	var n int64
	var peak, start runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&start)
	for row, err := range db.Stream(t.Context(), libsql.S(rows, total)) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if want := (libsql.Row{n, fmt.Sprint("row ", n), []byte(fmt.Sprint(n))}); !reflect.DeepEqual(row, want) {
			t.Fatalf("row %d: got %#v, want %#v", n, row, want)
		}
		if n%(total/10) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&peak)
			if peak.HeapAlloc > start.HeapAlloc+8<<20 {
				t.Fatalf("%d bytes more are in use at row %d", peak.HeapAlloc-start.HeapAlloc, n)
			}
		}
	}
	if n != total {
		t.Errorf("%d rows", n)
	}
	// A consumer that breaks off leaves nothing behind, also many times.
	for range 40 {
		for _, err := range db.Stream(t.Context(), libsql.S(rows, total)) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	var columns []string
	for row, err := range db.StreamRows(t.Context(), libsql.S("SELECT 1 AS one, 'x' AS \"ö\" WHERE 0"), func(c []string) { columns = c }) {
		t.Errorf("an empty result gave %v, %v", row, err)
	}
	if !reflect.DeepEqual(columns, []string{"one", "ö"}) {
		t.Errorf("columns %q", columns)
	}
	// Rows larger than any buffer.
	for row, err := range db.Stream(t.Context(), libsql.S("SELECT zeroblob(3000000), 1")) {
		if err != nil || len(row[0].([]byte)) != 3000000 || row[1] != int64(1) {
			t.Errorf("got %d values, %v", len(row), err)
		}
	}
}

// A stream shows one snapshot, and keeps nobody from writing.
func testStreamSnapshot(t *testing.T, db *libsql.DB) {
	total := 30_000
	if testing.Short() {
		total = 5_000
	}
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (i INTEGER PRIMARY KEY, v)"),
		libsql.S("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT ?) INSERT INTO t SELECT i, 'old' FROM n", total))
	n := 0
	for row, err := range db.Stream(t.Context(), libsql.S("SELECT v FROM t")) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			MustBatch(t, db, libsql.Write, libsql.S("UPDATE t SET v = 'new'"))
		}
		if row[0] != "old" {
			t.Fatalf("row %d is %v", n, row[0])
		}
	}
	if n != total {
		t.Errorf("%d rows", n)
	}
}

func testStreamErrors(t *testing.T, db *libsql.DB) {
	for _, err := range db.Stream(t.Context(), libsql.S("SELECT * FROM missing")) {
		WantError(t, err, libsql.Failed, libsql.KindSQL)
	}
	n := 0
	var last error
	for _, err := range db.Stream(t.Context(), libsql.S("WITH RECURSIVE n(i) AS (SELECT -3 UNION ALL SELECT i+1 FROM n LIMIT 5) SELECT CASE i WHEN 0 THEN abs(-9223372036854775808) ELSE i END FROM n")) {
		if last = err; err == nil {
			n++
		}
	}
	WantError(t, last, libsql.Failed, libsql.KindSQL)
	if n != 3 {
		t.Errorf("%d rows before the error", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, last = 0, nil
	for _, err := range db.Stream(ctx, libsql.S(rows, 10_000_000)) {
		if last = err; err == nil {
			if n++; n == 10 {
				cancel()
			}
		}
	}
	if kind, _ := libsql.KindOf(last); kind != libsql.KindTimeout || !errors.Is(last, context.Canceled) {
		t.Errorf("a canceled stream ended with %v after %d rows", last, n)
	}
}

func testConcurrent(t *testing.T, db *libsql.DB) {
	writers, each := 8, 50
	if testing.Short() {
		each = 10
	}
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE n (id INTEGER PRIMARY KEY, n)"), libsql.S("INSERT INTO n VALUES (1, 0), (2, 0)"))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				r, err := db.Batch(t.Context(), libsql.Write,
					libsql.S("UPDATE n SET n = n + 1 WHERE id = 1"),
					libsql.S("UPDATE n SET n = n + 1 WHERE id = 2"),
					libsql.S("SELECT (SELECT n FROM n WHERE id = 1) - (SELECT n FROM n WHERE id = 2)"))
				if err != nil {
					t.Error(err)
					return
				}
				if r[2].Rows[0][0] != int64(0) {
					t.Error("a transaction saw half of another one")
				}
				if d, err := db.Batch(t.Context(), libsql.Read,
					libsql.S("SELECT n FROM n WHERE id = 1"), libsql.S("SELECT n FROM n WHERE id = 2")); err != nil || d[0].Rows[0][0] != d[1].Rows[0][0] {
					t.Errorf("two reads of one batch differ: %v, %v", d, err)
				}
			}
		})
	}
	wg.Wait()
	if n := one(t, db, "SELECT n FROM n WHERE id = 1"); n != int64(writers*each) {
		t.Errorf("%v increments, want %d", n, writers*each)
	}
}

// While a write is under way another one waits, and a read does not.
func testWriteBlocks(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"), libsql.S("INSERT INTO t VALUES (0)"))
	long, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := db.Batch(long, libsql.Write, libsql.S("UPDATE t SET a = 1"), libsql.S(endless))
		if kind, _ := libsql.KindOf(err); kind != libsql.KindTimeout {
			t.Errorf("the long write ended with %v", err)
		}
	}()
	// The long write has the lock when a short one cannot have it any more.
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := db.Batch(ctx, libsql.Write, libsql.S("UPDATE t SET a = a"))
		cancel()
		if err != nil {
			if kind, _ := libsql.KindOf(err); kind != libsql.KindBusy && kind != libsql.KindTimeout {
				t.Errorf("the blocked write ended with %v", err)
			}
			break
		}
	}
	if a := one(t, db, "SELECT a FROM t"); a != int64(0) {
		t.Errorf("a read saw %v", a)
	}
	end()
	<-done
	MustBatch(t, db, libsql.Write, libsql.S("UPDATE t SET a = 2 WHERE a = 0"))
	if a := one(t, db, "SELECT a FROM t"); a != int64(2) {
		t.Errorf("the end is %v", a)
	}
}

func testTrips(t *testing.T, db *libsql.DB) {
	var mine atomic.Int64
	ctx := libsql.CountTrips(t.Context(), &mine)
	before := db.Trips()
	for i, call := range []func() error{
		func() error { _, err := db.Batch(ctx, libsql.Write, libsql.S("CREATE TABLE t (a)")); return err },
		func() error {
			_, err := db.Batch(ctx, libsql.Write, libsql.S("INSERT INTO t VALUES (1)"), libsql.S("INSERT INTO t VALUES (2)"))
			return err
		},
		func() error {
			_, err := db.Batch(ctx, libsql.Read, libsql.S("SELECT 1"), libsql.S("SELECT 2"))
			return err
		},
		func() error {
			for _, err := range db.Stream(ctx, libsql.S("SELECT * FROM t")) {
				return err
			}
			return nil
		},
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if n := db.Trips() - before; n != int64(i+1) || mine.Load() != n {
			t.Errorf("after call %d: %d round trips, %d by the context", i, n, mine.Load())
		}
	}
}

func testClose(t *testing.T, db *libsql.DB) {
	MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := db.Batch(t.Context(), libsql.Write, libsql.S("SELECT 1"))
	WantError(t, err, libsql.Refused, libsql.KindUnreachable)
	if !strings.Contains(err.Error(), db.String()) {
		t.Errorf("%q does not name the database", err)
	}
	for _, err := range db.Stream(t.Context(), libsql.S("SELECT 1")) {
		WantError(t, err, libsql.Refused, libsql.KindUnreachable)
	}
}
