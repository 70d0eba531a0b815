package sqlcopy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A narrow target returns no rows over a size, as a server does.
type narrow struct {
	Target
	most int64
	over *int // refusals
}

func (n narrow) Stream(ctx context.Context, stmt libsql.Statement) iter.Seq2[libsql.Row, error] {
	return func(yield func(libsql.Row, error) bool) {
		for row, err := range n.Target.Stream(ctx, stmt) {
			size := int64(0)
			for _, v := range row {
				s, _ := sizeOf(v)
				size += s
			}
			if size > n.most {
				*n.over++
				yield(nil, &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindTooLarge, Err: errors.New("a row is too large")})
				return
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// TestLarge copies values that are larger than what is read or sent at once, in
// tables of all kinds.
func TestLarge(t *testing.T) {
	defer func(n int) { valueLimit = n }(valueLimit)
	most, factor := int64(1_000_000), 1
	if valueLimit = 100_000; os.Getenv("DWK_TEST_LONG") != "" {
		valueLimit, most, factor = 4<<20, 1<<30, 40
	}
	blob, text := fmt.Sprintf(`randomblob(%d)`, 350_000*factor), fmt.Sprintf(`CAST(randomblob(%d) AS TEXT)`, 320_000*factor)
	file := create(t,
		`CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c, g AS (a) VIRTUAL)`,
		fmt.Sprintf(`INSERT INTO t(a, b, c) VALUES ('x', 1, 1), (%[1]s, %[2]s, %[1]s), (%[2]s, %[1]s, %[1]s), (9e999, CAST(x'ff' AS TEXT), 1), ('y', 2, 2)`, blob, text),
		`CREATE TABLE w(k PRIMARY KEY, v, u) WITHOUT ROWID`, fmt.Sprintf(`INSERT INTO w VALUES (1, 1, 1), (2, %[1]s, %[1]s || %[1]s || %[1]s), (3, 3, 3)`, blob),
		`CREATE TABLE hidden(rowid, oid, _rowid_)`, fmt.Sprintf(`INSERT INTO hidden VALUES (1, 2, 3), (%[1]s, %[1]s, %[1]s), (1, 2, 3)`, blob),
		`CREATE VIRTUAL TABLE f USING fts5(a UNINDEXED, b UNINDEXED, c UNINDEXED)`, fmt.Sprintf(`INSERT INTO f VALUES ('a', 1, 1), (%[1]s, %[1]s, %[1]s), ('c', 1, 1)`, blob),
	)
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			over := 0
			roundTrip(t, file, narrow{place(t).Open(t), most, &over}, Options{Journal: "j", BatchBytes: valueLimit / 2})
			if factor == 1 && over == 0 {
				t.Error("no row was too large: the test proves little")
			}
		})
	}
}

// TestCarefulRows: rows that the wire has no form for lie between others, more
// of them than are read one by one.
func TestCarefulRows(t *testing.T) {
	file := create(t, `CREATE TABLE t(a, b)`, `CREATE TABLE one(a)`, `INSERT INTO one VALUES (CAST(x'ff' AS TEXT))`,
		numbers+`INSERT INTO t SELECT i, CASE WHEN i % 100 = 0 THEN CAST(x'c328' AS TEXT) WHEN i % 90 = 5 THEN -9e999 WHEN i > 300 AND i < 600 THEN 9e999 ELSE 'ok' END FROM n`)
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { roundTrip(t, file, place(t).Open(t), Options{Journal: "j"}) })
	}
}
