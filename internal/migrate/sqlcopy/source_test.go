package sqlcopy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// TestSourceUnchanged: in whatever state a file is, its latest rows are read and
// nothing in its folder changes.
func TestSourceUnchanged(t *testing.T) {
	t.Parallel()
	const rows = numbers + `INSERT INTO t SELECT i FROM n`
	for name, make := range map[string]func(t *testing.T, path string){
		"journal mode": func(t *testing.T, path string) { change(t, path, `CREATE TABLE t(a)`, rows) },
		"no WAL file":  func(t *testing.T, path string) { change(t, path, `PRAGMA journal_mode=WAL`, `CREATE TABLE t(a)`, rows) },
		"WAL":          func(t *testing.T, path string) { halfWAL(t, path, rows, "-wal") },
		"WAL and shm":  func(t *testing.T, path string) { halfWAL(t, path, rows, "-wal", "-shm") },
		"read-only WAL": func(t *testing.T, path string) {
			halfWAL(t, path, rows, "-wal")
			if err := os.Chmod(path, 0o400); err != nil {
				t.Fatal(err)
			}
		},
		"hot journal": func(t *testing.T, path string) {
			killed(t, path, `PRAGMA cache_size=1; CREATE TABLE t(a);`+rows+`; BEGIN; UPDATE t SET a = zeroblob(2000)`, "", "-journal")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a b.sqlite")
			make(t, path)
			before := folder(t, filepath.Dir(path))
			dst := libsqltest.File(t).Open(t)
			sum, err := Up(t.Context(), path, dst, Options{})
			if err != nil || sum.Rows != 700 {
				t.Fatalf("%+v, %v", sum, err)
			}
			equal(t, File(path), Database(dst), Options{})
			if after := folder(t, filepath.Dir(path)); !reflect.DeepEqual(after, before) {
				t.Errorf("the folder changed:\n%v\n%v", before, after)
			}
		})
	}
}

// halfWAL makes a database whose rows are in the WAL only, and leaves the files
// of these suffixes, as a kill does.
func halfWAL(t *testing.T, path, rows string, suffixes ...string) {
	t.Helper()
	killed(t, path, `PRAGMA journal_mode=WAL; CREATE TABLE t(a); PRAGMA wal_checkpoint; `+rows, append(suffixes, "")...)
}

// killed runs statements, and leaves the files of these suffixes as they are
// before the connection is closed.
func killed(t *testing.T, path, sql string, suffixes ...string) {
	t.Helper()
	alive := filepath.Join(t.TempDir(), "alive.sqlite")
	c, err := sqlite.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(sql); err != nil {
		t.Fatal(err)
	}
	for _, s := range suffixes {
		if err := copyFile(alive+s, path+s); err != nil {
			t.Fatal(err)
		}
	}
}

// folder returns the files of a folder with times and hashes.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = fmt.Sprintf("%v %x", info.ModTime(), sha256.Sum256(data))
	}
	return files
}

// TestSourceFaults: what is wrong with a source is an error that names it.
func TestSourceFaults(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(create(t, `CREATE TABLE t(a)`, numbers+`INSERT INTO t SELECT zeroblob(200) FROM n`))
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"missing":  filepath.Join(dir, "missing.sqlite"),
		"a text":   write("text.sqlite", []byte(strings.Repeat("no database ", 1000))),
		"cut":      write("cut.sqlite", whole[:len(whole)-20*4096]),
		"damaged":  write("damaged.sqlite", append(append([]byte{}, whole[:8192]...), make([]byte, len(whole)-8192)...)),
		"a folder": dir,
		"no module": create(t, `CREATE TABLE t(a)`, `PRAGMA writable_schema=1`,
			`INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING vec0(a float[3])')`),
	} {
		t.Run(name, func(t *testing.T) {
			if sum, err := Up(t.Context(), path, libsqltest.File(t).Open(t), Options{}); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("%+v, %v", sum, err)
			}
		})
	}
	empty := write("empty.sqlite", nil)
	if sum, err := Up(t.Context(), empty, libsqltest.File(t).Open(t), Options{}); err != nil || sum.Rows != 0 {
		t.Errorf("an empty file: %+v, %v", sum, err)
	}
}

// TestSourceInUse: a process that has the WAL open is in the way, and one that
// writes meanwhile is noticed.
func TestSourceInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sqlite")
	c, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(`PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	_, err = Up(t.Context(), path, libsqltest.File(t).Open(t), Options{})
	if e, ok := errors.AsType[*sqlite.Error](err); !ok || e.Primary() != sqlite.Busy {
		t.Errorf("a file in use: %v", err)
	}
	other := create(t, `CREATE TABLE t(a)`, numbers+`INSERT INTO t SELECT zeroblob(2000) FROM n`)
	opts := Options{BatchBytes: 100_000}
	opts.Progress = func(rows, _ int64) {
		if rows > 0 && opts.Progress != nil {
			opts.Progress = nil
			change(t, other, `INSERT INTO t VALUES (1)`)
		}
	}
	dst := libsqltest.File(t).Open(t)
	progress := opts.Progress
	if _, err := Up(t.Context(), other, dst, Options{BatchBytes: 100_000, Progress: progress}); !errors.Is(err, ErrSourceChanged) {
		t.Errorf("a file that changes meanwhile: %v", err)
	}
}

// TestSourceOfAnotherTime: a copy does not go on from a source that is another
// one now.
func TestSourceOfAnotherTime(t *testing.T) {
	for name, sql := range map[string]string{
		"the last row":   `UPDATE t SET a = 'other' WHERE rowid = 5`,
		"a row before":   `DELETE FROM t WHERE rowid = 3`,
		"fewer rows":     `DELETE FROM t WHERE rowid > 2`,
		"another schema": `ALTER TABLE t ADD b`,
	} {
		t.Run(name, func(t *testing.T) {
			file := create(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1), (2), (3), (4), (5), (6), (7)`)
			dst := libsqltest.File(t).Open(t)
			if _, err := Up(t.Context(), file, dst, Options{}); err != nil {
				t.Fatal(err)
			}
			// As if it had been killed behind the fifth row.
			r, err := openLocal(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := collect(t.Context(), r, `SELECT rowid, a FROM t WHERE rowid = 5`)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			libsqltest.MustBatch(t, dst, libsql.Write, libsql.S(`DELETE FROM t WHERE rowid > 5`),
				libsql.S(`UPDATE dwk_copy SET item = 1, row = 5, last = ?`, digest(rows[0])))
			change(t, file, sql)
			if _, err := Up(t.Context(), file, dst, Options{}); !errors.Is(err, ErrSourceChanged) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestConflict: what a target has is not touched.
func TestConflict(t *testing.T) {
	t.Parallel()
	file := create(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1)`)
	other := create(t, `CREATE TABLE u(a)`)
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			dst := place(t).Open(t)
			libsqltest.MustBatch(t, dst, libsql.Write, libsql.S(`CREATE TABLE t(a)`))
			if _, err := Up(t.Context(), file, dst, Options{Journal: "j"}); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), `"t"`) {
				t.Errorf("a table: %v", err)
			}
			libsqltest.MustBatch(t, dst, libsql.Write, libsql.S(`DROP TABLE t`))
			if _, err := Up(t.Context(), file, dst, Options{Journal: "j"}); err != nil {
				t.Fatal(err)
			}
			if _, err := Up(t.Context(), file, dst, Options{Journal: "k"}); !errors.Is(err, ErrConflict) {
				t.Errorf("the journal of another: %v", err)
			}
			if _, err := Up(t.Context(), other, dst, Options{Journal: "j"}); !errors.Is(err, ErrSourceChanged) {
				t.Errorf("another source: %v", err)
			}
			if err := Finish(t.Context(), dst, Options{Journal: "k"}); !errors.Is(err, ErrConflict) {
				t.Errorf("finishing another's: %v", err)
			}
			for range 2 {
				if err := Finish(t.Context(), dst, Options{Journal: "j"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Up(t.Context(), file, dst, Options{Journal: "j"}); !errors.Is(err, ErrConflict) {
				t.Errorf("once more: %v", err)
			}
			equal(t, File(file), Database(dst), Options{})
		})
	}
}

// A late target delays batches: one of another copy comes between.
type late struct {
	Target
	before func()
}

func (l *late) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if before := l.before; mode != libsql.Read && before != nil {
		l.before = nil
		before()
	}
	return l.Target.Batch(ctx, mode, stmts...)
}

// TestTwoCopies: of two copies at a time one is ended by the other, before
// anything counts twice.
func TestTwoCopies(t *testing.T) {
	t.Parallel()
	file := create(t, small...)
	dst := libsqltest.File(t).Open(t)
	opts := Options{Journal: "j", BatchBytes: 2000}
	if _, err := Up(t.Context(), file, &faulty{Target: dst, fault: func(n int) fault {
		if n > 8 {
			return full
		}
		return healthy
	}}, opts); err == nil {
		t.Fatal("the copy was not ended")
	}
	_, err := Up(t.Context(), file, &late{dst, func() {
		if _, err := Up(t.Context(), file, dst, opts); err != nil {
			t.Error(err)
		}
	}}, opts)
	if !errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	equal(t, File(file), Database(dst), Options{})
}

// TestCanceled: the end of the context ends a copy and a comparison.
func TestCanceled(t *testing.T) {
	file := create(t, `CREATE TABLE t(a)`, numbers+`INSERT INTO t SELECT zeroblob(2000) FROM n`)
	dst := libsqltest.File(t).Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	opts := Options{BatchBytes: 50_000, Progress: func(rows, _ int64) {
		if rows > 0 {
			cancel()
		}
	}}
	if _, err := Up(ctx, file, dst, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := Up(t.Context(), file, dst, Options{}); err != nil {
		t.Fatal(err)
	}
	equal(t, File(file), Database(dst), Options{})
	ctx, cancel = context.WithCancel(t.Context())
	endless := &cut{Target: dst, end: cancel}
	if _, err := Compare(ctx, File(file), Database(endless), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A cut target ends the context in the middle of the rows of t.
type cut struct {
	Target
	end context.CancelFunc
}

func (c *cut) Stream(ctx context.Context, stmt libsql.Statement) iter.Seq2[libsql.Row, error] {
	return func(yield func(libsql.Row, error) bool) {
		n := 0
		for row, err := range c.Target.Stream(ctx, stmt) {
			if n++; n == 300 {
				c.end()
			}
			if err == nil && n > 300 && ctx.Err() == nil {
				err = io.ErrUnexpectedEOF
			}
			if !yield(row, err) {
				return
			}
		}
	}
}
