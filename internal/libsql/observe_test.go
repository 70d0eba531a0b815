package libsql_test

import (
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// Every round trip is observed once, with its error; what never left is none.
func TestObserve(t *testing.T) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			var seen []error
			db := open(t, libsql.Config{URL: place(t).URL, Timeout: time.Minute, Observe: func(took time.Duration, err error) {
				if took <= 0 {
					t.Errorf("took %v", took)
				}
				seen = append(seen, err)
			}})
			want := func(errs ...bool) {
				t.Helper()
				if db.Trips() != int64(len(seen)) || len(seen) != len(errs) {
					t.Fatalf("%d round trips, %d observed, want %d", db.Trips(), len(seen), len(errs))
				}
				for i, failed := range errs {
					if (seen[i] != nil) != failed {
						t.Errorf("round trip %d: %v", i, seen[i])
					}
				}
			}
			libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT 1"))
			want(false)
			if _, err := db.Batch(t.Context(), libsql.Write, libsql.S("SELECT nothing")); err == nil {
				t.Fatal("no error")
			}
			want(false, true)
			for _, err := range db.Stream(t.Context(), libsql.S("SELECT 1 UNION SELECT 2")) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			want(false, true, false)
			for _, err := range db.Stream(t.Context(), libsql.S("SELECT nothing")) {
				if err == nil {
					t.Fatal("no error")
				}
			}
			want(false, true, false, true)
			db.Close() //nolint:errcheck
			if _, err := db.Batch(t.Context(), libsql.Read, libsql.S("SELECT 1")); err == nil {
				t.Fatal("no error of a closed database")
			}
			want(false, true, false, true)
		})
	}
}

// The time of a stream is that until its first row, not what the caller does
// with the rows.
func TestObserveStream(t *testing.T) {
	var took time.Duration
	db := open(t, libsql.Config{URL: libsqltest.File(t).URL, Timeout: time.Minute, Observe: func(d time.Duration, _ error) { took = d }})
	libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT 1"))
	began := time.Now()
	var consumed time.Duration
	for _, err := range db.Stream(t.Context(), libsql.S("SELECT 1 UNION SELECT 2")) {
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		time.Sleep(20 * time.Millisecond)
		consumed += time.Since(at)
	}
	if all := time.Since(began); took > all-consumed {
		t.Errorf("took %v of %v, of which the caller used %v", took, all, consumed)
	}
}
