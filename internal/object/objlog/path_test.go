package objlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const insertRow = `INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size, data)
	SELECT 'C', '0a', %d, %s, %s, '8000000000000000', '8000000000000000', 'c' || %[3]s, 1, 10, zeroblob(10) `

// synthesise writes a log of n commits, merged as far as it goes.
func synthesise(t *testing.T, db *libsql.DB, n uint64) {
	t.Helper()
	stmts := []libsql.Statement{libsql.S(`WITH RECURSIVE b(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM b WHERE i < ?) `+
		fmt.Sprintf(insertRow, 0, "i", "i")+`FROM b`, int64(n))}
	for level := 1; level <= objlog.MaxLevel; level++ {
		span := int64(objlog.Span(level))
		stmts = append(stmts, libsql.S(`WITH RECURSIVE b(i) AS (SELECT ?1 UNION ALL SELECT i + ?1 FROM b WHERE i + ?1 <= ?2) `+
			fmt.Sprintf(insertRow, level, "max(i - ?1 + 1, 2)", "i")+`FROM b`, span, int64(n)))
	}
	if _, err := db.Batch(t.Context(), libsql.Write, stmts...); err != nil {
		t.Fatal(err)
	}
}

// walk reads a whole path and returns its rows and the round trips.
func walk(t *testing.T, s *kv.Store, have, target uint64) (rows []objlog.Entry, trips int) {
	t.Helper()
	for at := have; at < target; trips++ {
		path, err := objlog.Path(t.Context(), s, "C", "0a", at, target)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range path {
			if !e.Complete() && e.MinTXID > at+1 || e.MaxTXID <= at || e.MaxTXID > target {
				t.Fatalf("row [%d..%d] behind %d", e.MinTXID, e.MaxTXID, at)
			}
			at = e.MaxTXID
		}
		rows = append(rows, path...)
	}
	return rows, trips
}

// TestPathAfterAMillionCommits: under 200 rows, in one round trip.
func TestPathAfterAMillionCommits(t *testing.T) {
	n := uint64(1_000_000)
	if testing.Short() {
		n = 100_000
	}
	db := libsqltest.File(t).Open(t)
	s := kv.New(db)
	if err := s.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	synthesise(t, db, n)
	for _, test := range []struct{ have, target uint64 }{
		{0, n}, {0, n - 1}, {1, n}, {n / 2, n}, {n - 1, n}, {n - 5000, n - 63}, {262143, n}, {0, 1}, {0, 262143},
	} {
		if test.have >= test.target || test.target > n {
			continue // a short run
		}
		rows, trips := walk(t, s, test.have, test.target)
		limit := 200
		if test.have > 0 {
			limit = 400 // up to a boundary, and down from it
		}
		if len(rows) >= limit || trips > 1+len(rows)/objlog.PathRows {
			t.Errorf("from %d to %d: %d rows in %d trips", test.have, test.target, len(rows), trips)
		}
		if test.have == 0 && test.target == n {
			t.Logf("%d rows after %d commits", len(rows), n)
		}
	}
	// With a snapshot in between.
	if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(fmt.Sprintf(insertRow, 9, "1", "?1"), int64(n-70))); err != nil {
		t.Fatal(err)
	}
	if rows, _ := walk(t, s, 0, n); rows[0].MaxTXID != n-70 || len(rows) > 130 {
		t.Errorf("%d rows, the first one at level %d", len(rows), rows[0].Level)
	}
	if rows, _ := walk(t, s, 0, n-71); rows[0].Complete() && rows[0].Level == 9 {
		t.Error("a snapshot behind the target")
	}
	if rows, _ := walk(t, s, n-100, n); rows[0].Complete() {
		t.Error("a mirror that has a way of its own reads a snapshot")
	}
}

// TestPathOverGaps: what retention removed is stepped over by a snapshot.
func TestPathOverGaps(t *testing.T) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			db := place(t).Open(t)
			s := kv.New(db)
			if err := s.Init(t.Context(), objlog.Schema...); err != nil {
				t.Fatal(err)
			}
			synthesise(t, db, 300)
			if _, err := db.Batch(t.Context(), libsql.Write,
				libsql.S(fmt.Sprintf(insertRow, 9, "1", "?1"), 200),
				libsql.S(`DELETE FROM obj_log WHERE level < 9 AND max_txid BETWEEN 100 AND 200`)); err != nil {
				t.Fatal(err)
			}
			for _, have := range []uint64{0, 1, 64, 98, 99, 150, 199, 200, 201, 299} {
				rows, _ := walk(t, s, have, 300)
				if complete := rows[0].Complete(); complete != (have < 192 && have != 0) && have != 0 && have < 200 {
					t.Errorf("from %d: %+v", have, rows[0])
				}
			}
			if _, err := objlog.Path(t.Context(), s, "C", "0a", 0, 150); err == nil {
				rows, err := objlog.Path(t.Context(), s, "C", "0a", 99, 150)
				if !errors.Is(err, objlog.ErrGap) {
					t.Errorf("a way into the gap: %v %v", rows, err)
				}
			}
			tail, err := readTail(t.Context(), s, "0a", 150)
			if err != nil || len(tail) != 0 {
				t.Errorf("tail over a gap: %d rows, %v", len(tail), err)
			}
			tail, err = readTail(t.Context(), s, "0a", 90)
			if err != nil || len(tail) != 9 || tail[0].MinTXID != 91 {
				t.Errorf("tail up to a gap: %d rows, %v", len(tail), err)
			}
			// A young row whose data is gone ends the tail too.
			if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE obj_log SET data = NULL WHERE level = 0 AND max_txid = 95`)); err != nil {
				t.Fatal(err)
			}
			if tail, err = readTail(t.Context(), s, "0a", 90); err != nil || len(tail) != 4 {
				t.Errorf("tail up to a row without data: %d rows, %v", len(tail), err)
			}
			if path, err := objlog.Path(t.Context(), s, "C", "0a", 94, 96); !errors.Is(err, objlog.ErrGap) {
				t.Errorf("path over a row without data: %v, %v", path, err)
			}
		})
	}
}

// TestPathIsBounded: by rows, and by the bytes that rows hold themselves.
func TestPathIsBounded(t *testing.T) {
	db := libsqltest.File(t).Open(t)
	s := kv.New(db)
	if err := s.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	synthesise(t, db, 30)
	if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE obj_log SET size = 1500000, data = zeroblob(1500000) WHERE max_txid > 10 AND max_txid <= 13`),
		libsql.S(`UPDATE obj_log SET size = 999999999, data = NULL, ref = 'r' WHERE max_txid = 20`),
		libsql.S(`UPDATE obj_log SET size = 5000000, data = zeroblob(5000000) WHERE max_txid = 25`)); err != nil {
		t.Fatal(err)
	}
	var ends []uint64
	for at := uint64(0); at < 30; {
		path, err := objlog.Path(t.Context(), s, "C", "0a", at, 30)
		if err != nil {
			t.Fatal(err)
		}
		at = path[len(path)-1].MaxTXID
		ends = append(ends, at)
	}
	if fmt.Sprint(ends) != "[12 24 25 30]" {
		t.Errorf("round trips end at %v", ends)
	}
}

func TestRef(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := objlog.RefInfo{
			StoreID: rapid.String().Draw(t, "store"), Class: rapid.String().Draw(t, "class"), ID: rapid.StringMatching("[0-9a-f]{1,64}").Draw(t, "id"),
			MaxTXID: rapid.Uint64().Draw(t, "txid"), Stamp: kv.Versionstamp(rapid.Int64Min(0).Draw(t, "stamp")),
		}
		ref := objlog.Ref(want.StoreID, want.Class, want.ID, want.MaxTXID, want.Stamp)
		got, ok := objlog.ParseRef(ref)
		if !ok || got != want {
			t.Fatalf("%s: %+v %v, want %+v", ref, got, ok, want)
		}
		if again := objlog.Ref(want.StoreID, want.Class, want.ID, want.MaxTXID, want.Stamp); again == ref {
			t.Fatal("a name was made twice")
		}
	})
	for _, ref := range []string{"", "objects/a/b/c", "objects/a/b/c/0000000000000001-0000000000000001.ltx", "objects/a/b/c/1-1-1.ltx",
		"objects/a/b/c/0000000000000001-0000000000000001-000000000000000G.ltx", "objects/%61/b/c/0000000000000001-0000000000000001-0000000000000000.ltx"} {
		if info, ok := objlog.ParseRef(ref); ok {
			t.Errorf("%q is %+v", ref, info)
		}
	}
}

// readTail reads the entries behind a position as an acquire does.
func readTail(ctx context.Context, s *kv.Store, id string, have uint64) ([]objlog.Entry, error) {
	p := kv.NewPlan()
	i := objlog.AddTail(p, "C", id, have)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return nil, err
	}
	return objlog.ReadEntries(v.Results[i])
}
