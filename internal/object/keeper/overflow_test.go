package keeper

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// row of level 0: its size, and whether it has lost what it held.
type row0 struct {
	size int64
	lost bool
}

// overflowOf is what overflowSQL finds, written down plainly.
func overflowOf(rows []row0, limit int64) (overflow int64) {
	var held int64
	for i := len(rows) - 1; i >= 0; i-- {
		r := rows[i]
		if !r.lost {
			held += r.size
		}
		if r.lost && r.size > 0 || held > limit {
			return int64(i + 1)
		}
	}
	return 0
}

func open(t *testing.T) *libsql.DB {
	db := libsqltest.File(t).Open(t)
	for _, sql := range objlog.Schema {
		if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(sql)); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func insert(t *testing.T, db *libsql.DB, rows []row0) {
	stmts := []libsql.Statement{libsql.S(`DELETE FROM obj_log`)}
	for i, r := range rows {
		stmts = append(stmts, libsql.S(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, at, size, data)
	VALUES('C', '0a', 0, ?1, ?1, '', '', 0, ?2, CASE WHEN ?3 THEN NULL ELSE zeroblob(?2) END)`, i+1, r.size, r.lost || r.size == 0))
	}
	if _, err := db.Batch(t.Context(), libsql.Write, stmts...); err != nil {
		t.Fatal(err)
	}
}

func TestOverflow(t *testing.T) {
	db := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) row0 {
			return row0{rapid.Int64Range(0, 50).Draw(rt, "size"), rapid.IntRange(0, 9).Draw(rt, "lost") == 0}
		}), 0, 30).Draw(rt, "rows")
		limit := rapid.Int64Range(0, 800).Draw(rt, "limit")
		insert(t, db, rows)
		res, err := db.Batch(t.Context(), libsql.Read, libsql.S(overflowSQL, "C", "0a", limit),
			libsql.S(surveySQL, "C", "0a", int64(len(rows)), time.Hour.Milliseconds(), limit))
		if err != nil {
			rt.Fatal(err)
		}
		want := overflowOf(rows, limit)
		if got := num(res[0].Rows[0][0]); got != want {
			rt.Fatalf("overflow %d, want %d", got, want)
		}
		if trim := num(res[1].Rows[0][objlog.MaxLevel]) != 0; trim != (want > 0) {
			rt.Fatalf("something to trim: %v, the overflow ends at %d", trim, want)
		}
	})
}

// A log that holds little is summed up, however long it is.
func BenchmarkOverflow(b *testing.B) {
	for name, limit := range map[string]int64{"within": 1 << 40, "beyond": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			db := libsqltest.File(b).Open(b)
			for _, sql := range append(objlog.Schema, `INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, at, size, data)
	WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT 'C', '0a', 0, i, i, '', '', 0, 100, zeroblob(100) FROM n`) {
				if _, err := db.Batch(b.Context(), libsql.Write, libsql.S(sql)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := db.Batch(b.Context(), libsql.Read, libsql.S(overflowSQL, "C", "0a", limit)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
