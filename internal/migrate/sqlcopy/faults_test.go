package sqlcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A faulty target fails at chosen calls.
type faulty struct {
	Target
	calls int
	// fault is asked before each call, counted from 1, and says how it ends.
	fault func(call int) fault
	row   int // of a stream that is cut
}

type fault uint8

const (
	healthy   fault = iota
	refuses         // not executed, and says so
	lost            // executed, and the answer is lost
	swallowed       // not executed, and nobody knows
	full            // rolled back as the disk is full
)

func (f *faulty) next() (fault, error) {
	f.calls++
	e := &libsql.Error{Statement: -1, Err: fmt.Errorf("fault at call %d: %w", f.calls, io.ErrUnexpectedEOF)}
	how := f.fault(f.calls)
	switch how {
	case healthy:
		return how, nil
	case refuses:
		e.Outcome, e.Kind = libsql.Refused, libsql.KindUnreachable
	case lost, swallowed:
		e.Outcome, e.Kind = libsql.Unknown, libsql.KindUnreachable
	case full:
		e.Outcome, e.Kind, e.Code = libsql.Failed, libsql.KindFull, "SQLITE_FULL"
	}
	return how, e
}

func (f *faulty) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	how, err := f.next()
	if how == healthy || how == lost {
		res, berr := f.Target.Batch(ctx, mode, stmts...)
		if berr != nil {
			return nil, berr
		}
		if err == nil {
			return res, nil
		}
	}
	return nil, err
}

func (f *faulty) Stream(ctx context.Context, stmt libsql.Statement) iter.Seq2[libsql.Row, error] {
	return func(yield func(libsql.Row, error) bool) {
		_, err := f.next()
		n := 0
		for row, serr := range f.Target.Stream(ctx, stmt) {
			if n++; err != nil && n > f.row {
				break
			}
			if !yield(row, serr) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// small is a schema with one of each kind of thing that is copied, and values
// that need pieces in small batches.
var small = []string{
	`PRAGMA user_version = 3`, `PRAGMA application_id = 4`,
	`CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b)`,
	`INSERT INTO t VALUES (1, 'a', CAST(x'ff' AS TEXT)), (2, zeroblob(7000), CAST(zeroblob(5000) AS TEXT)), (3, 9e999, x'00'), (9, NULL, NULL)`,
	`CREATE TABLE plain(x)`, `INSERT INTO plain(rowid, x) VALUES (5, 'x'), (6, zeroblob(6000)), (8, 'x')`,
	`CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID`, `INSERT INTO w VALUES ('x', 1), ('y', zeroblob(4500)), ('z', 3)`,
	`CREATE VIRTUAL TABLE notes USING fts5(body)`, `INSERT INTO notes VALUES ('one'), ('two')`, `INSERT INTO notes(notes, rank) VALUES ('automerge', 7)`,
	`CREATE VIRTUAL TABLE index_only USING fts5(body, content='')`, `INSERT INTO index_only VALUES ('one'), ('two')`,
	`CREATE INDEX i ON t(a)`, `CREATE VIEW view_t AS SELECT 1`, `CREATE TRIGGER fires AFTER INSERT ON t BEGIN INSERT INTO plain VALUES ('fired'); END`,
}

// TestEveryCall ends a copy at each of its calls in each way, as a kill would,
// and goes on: the end is the same.
func TestEveryCall(t *testing.T) {
	file := create(t, small...)
	opts := Options{Journal: "j", BatchBytes: 2000}
	count := &faulty{Target: libsqltest.File(t).Open(t), fault: func(int) fault { return healthy }}
	want, err := Up(t.Context(), file, count, opts)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, File(file), Database(count.Target), Options{})
	if count.calls < 20 {
		t.Fatalf("only %d calls: the test proves little", count.calls)
	}
	for _, how := range []fault{refuses, lost, swallowed, full} {
		if testing.Short() && how != lost {
			continue
		}
		for call := 1; call <= count.calls; call++ {
			t.Run(fmt.Sprintf("%d/%d", how, call), func(t *testing.T) {
				t.Parallel()
				dst := libsqltest.File(t).Open(t)
				first := true
				f := &faulty{Target: dst, fault: func(n int) fault {
					switch {
					case n < call:
						return healthy
					case first:
						first = false
						return how
					}
					return refuses // the copy comes to nothing more
				}}
				if _, err := Up(t.Context(), file, f, opts); err == nil && !first {
					t.Fatal("a copy with faults ended well")
				}
				sum, err := Up(t.Context(), file, dst, opts)
				if err != nil {
					t.Fatal(err)
				}
				if sum.Rows != want.Rows || sum.Bytes != want.Bytes {
					t.Errorf("%+v, want %+v", sum, want)
				}
				equal(t, File(file), Database(dst), Options{})
			})
		}
	}
}

// TestFaultsOnTheWay has a fault now and then that the copy gets over by
// itself, on the way there and back.
func TestFaultsOnTheWay(t *testing.T) {
	t.Parallel()
	file := create(t, small...)
	opts := Options{Journal: "j", BatchBytes: 2000}
	for _, how := range []fault{refuses, lost, swallowed} {
		for seed := range uint64(3) {
			p, random := libsqltest.File(t), rand.New(rand.NewPCG(seed, 0))
			f := &faulty{Target: p.Open(t), row: 1, fault: func(int) fault {
				if random.IntN(8) == 0 {
					return how
				}
				return healthy
			}}
			if _, err := Up(t.Context(), file, f, opts); err != nil {
				t.Fatalf("fault %d, seed %d: %v", how, seed, err)
			}
			equal(t, File(file), Database(f.Target), Options{})
			if err := Finish(t.Context(), f, opts); err != nil {
				t.Fatal(err)
			}
			back := filepath.Join(t.TempDir(), "back.sqlite")
			if _, err := Down(t.Context(), f, back, opts); err != nil {
				t.Fatalf("fault %d, seed %d: %v", how, seed, err)
			}
			equal(t, File(file), File(back), Options{})
		}
	}
}

// TestEveryStream ends the way back at each call, in the middle of the rows.
func TestEveryStream(t *testing.T) {
	t.Parallel()
	file := create(t, small...)
	opts := Options{Journal: "j", BatchBytes: 2000}
	p := libsqltest.Wire(t)
	if _, err := Up(t.Context(), file, p.Open(t), opts); err != nil {
		t.Fatal(err)
	}
	if err := Finish(t.Context(), p.Open(t), opts); err != nil {
		t.Fatal(err)
	}
	dir, opts := t.TempDir(), Options{Journal: "j"}
	for call := 1; ; call++ {
		back := filepath.Join(dir, fmt.Sprint(call))
		f := &faulty{Target: p.Open(t), row: 1, fault: func(n int) fault {
			if n >= call {
				return refuses
			}
			return healthy
		}}
		_, err := Down(t.Context(), f, back, opts)
		if err == nil {
			if call < 20 {
				t.Errorf("only %d calls: the test proves little", call)
			}
			return
		}
		if !strings.Contains(err.Error(), "fault") {
			t.Fatal(err)
		}
		if _, err := Down(t.Context(), f.Target, back, opts); err != nil {
			t.Fatal(err)
		}
		equal(t, File(file), File(back), Options{})
		if _, err := Down(t.Context(), f.Target, back, opts); !errors.Is(err, ErrConflict) {
			t.Errorf("a file that exists: %v", err)
		}
	}
}
