package probe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func tables(t *testing.T, db *libsql.DB) []libsql.Row {
	t.Helper()
	res, err := db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT name FROM sqlite_master`))
	if err != nil {
		t.Fatal(err)
	}
	return res[0].Rows
}

func TestDatabases(t *testing.T) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			target, _ := newTarget(t, true)
			db := place(t).Open(t)
			target.Databases = []Database{{"A", db}}
			for _, only := range [][]string{nil, {SQL}, {"sql:A"}} {
				results, err := Run(t.Context(), target, Options{Only: only, Repeat: 2})
				if err != nil || Summarize(results) != nil {
					t.Fatal(err, Summarize(results))
				}
				var checks []string
				for _, r := range results {
					if r.Store == "sql:A" {
						checks = append(checks, r.Check)
						if !r.OK || r.Address != db.String() || r.Trips < 1 || r.Trips > 2 {
							t.Errorf("%+v", r)
						}
					} else if only != nil {
						t.Errorf("%v checked %s", only, r.Store)
					}
				}
				if !slices.Equal(checks, []string{"write", "read", "atomicity", "delete"}) {
					t.Errorf("%v: %v", only, checks)
				}
			}
			if left := tables(t, db); len(left) > 0 {
				t.Errorf("left %v", left)
			}
			if _, err := Run(t.Context(), target, Options{Only: []string{"sql:B"}}); err == nil {
				t.Error("probed a binding that is not there")
			}
		})
	}
}

// apart commits each statement alone, as a database without transactions.
type apart struct{ *libsql.DB }

func (d apart) Batch(ctx context.Context, m libsql.Mode, stmts ...libsql.Statement) (all []libsql.Result, err error) {
	for _, s := range stmts {
		res, err := d.DB.Batch(ctx, m, s)
		if err != nil {
			return nil, err
		}
		all = append(all, res...)
	}
	return all, nil
}

// stale answers reads from before all writes.
type stale struct{ *libsql.DB }

func (d stale) Batch(ctx context.Context, m libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if m == libsql.Read {
		return []libsql.Result{{Columns: []string{"id", "n"}}, {}}, nil
	}
	return d.DB.Batch(ctx, m, stmts...)
}

func TestWrongDatabases(t *testing.T) {
	db := libsqltest.File(t).Open(t)
	for check, d := range map[string]BatchDB{"atomicity": apart{db}, "read": stale{db}} {
		target, _ := newTarget(t, true)
		target.Databases = []Database{{"A", d}}
		results, err := Run(t.Context(), target, Options{Only: []string{SQL}})
		if err != nil {
			t.Fatal(err)
		}
		if r := find(t, results, "sql:A", check); !errors.Is(r.Err, errWrong) {
			t.Errorf("%s: %+v", check, r)
		}
		if r := find(t, results, "sql:A", "delete"); !strings.Contains(r.Skipped, check) {
			t.Errorf("%+v", r)
		}
		if left := tables(t, db); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}

// A probe that is interrupted anywhere leaves no table behind.
func TestInterruptedDatabase(t *testing.T) {
	db := libsqltest.File(t).Open(t)
	for at := 1; ; at++ {
		target, _ := newTarget(t, true)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		l := &liar{DB: db, before: func(stmts []libsql.Statement) ([]libsql.Statement, error) {
			if n++; n == at {
				cancel()
			}
			return stmts, nil
		}}
		target.Databases = []Database{{"A", l}}
		_, err := Run(ctx, target, Options{Only: []string{SQL}})
		cancel()
		if left := tables(t, db); len(left) > 0 {
			t.Fatalf("interrupted at %d it left %v", at, left)
		}
		if n < at {
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %d: %v", at, err)
		}
	}
}
