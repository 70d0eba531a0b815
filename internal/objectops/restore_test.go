package objectops

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func (f *fixture) restore(id string, d *Database) Restored {
	f.Helper()
	r, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: id, Wait: time.Minute}, d)
	f.must(err)
	return r
}

// TestRestoreToEveryPosition: each equals what was there, the positions before
// it stay what they were, and a replica that has any of them follows.
func TestRestoreToEveryPosition(t *testing.T) {
	each(t, func(f *fixture) {
		sizes := []int{512, 4096, 65536}
		if testing.Short() {
			sizes = sizes[:1]
		}
		for _, size := range sizes {
			id := fmt.Sprintf("%x", size)
			o := f.object(id, mirror.Config{PageSize: size})
			n := 8
			if testing.Short() {
				n = 6
			}
			o.grow(n)
			history, more, err := f.History(f.Context(), "C", id, 0)
			f.must(err)
			if len(history) != n || more || history[0].TXID != o.head.TXID {
				f.Fatalf("%d positions of %d commits", len(history), n)
			}
			for i, p := range history {
				d := f.open(id, Target{TXID: p.TXID})
				r := f.restore(id, d)
				if r.Before.TXID != uint64(n+i) || r.After.TXID != uint64(n+i+1) {
					f.Fatalf("%d to %d", r.Before.TXID, r.After.TXID)
				}
				if f.stored(id, 0) != o.was[p.TXID] {
					f.Errorf("restored to %d it is something else", p.TXID)
				}
				o.was[r.After.TXID] = o.was[p.TXID]
			}
			for txid, want := range o.was {
				if f.stored(id, txid) != want {
					f.Errorf("commit %d is not what it was", txid)
				}
			}
			// The mirror that made the first commits follows, and goes on.
			f.must(f.reader("").CatchUp(f.Context(), o.m, "C", id, uint64(2*n)))
			o.head = f.headOf(id)
			o.exec(`CREATE TABLE after(x)`)
			o.commit()
			if f.stored(id, 0) != o.was[o.head.TXID] {
				f.Error("what was committed after it is something else")
			}
			c, err := f.CheckLog(f.Context(), "C", id)
			if err != nil || c.Rows < 2*n || size == 512 && c.Files == 0 {
				f.Errorf("%+v %v", c, err)
			}
		}
		f.idle()
	})
}

// TestOffloadedRestore: a large entry is a file that its row names, and one
// whose commit was refused is removed.
func TestOffloadedRestore(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.grow(3)
	d := f.open("0a", Target{TXID: 3})
	r := f.restore("0a", d)
	if !r.Offloaded || f.stored("0a", 0) != o.was[3] {
		t.Errorf("%+v", r)
	}
	count := func() int {
		refs, _, err := f.files.List(t.Context(), objlog.RefPrefix(storeID), "")
		f.must(err)
		return len(refs)
	}
	n := count()
	f.faults.set(func(stmts []libsql.Statement) error {
		if isCommit(stmts) {
			return &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindFull, Err: errors.New("disk full")}
		}
		return nil
	}, nil)
	if _, err := f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, d); err == nil || count() != n {
		t.Errorf("%v, %d files of %d", err, count(), n)
	}
	f.faults.set(nil, nil)
	f.idle()
	d.Close()
	f.clean()
}

func TestRestoreExpectsTheHead(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(3)
		shown := f.headOf("0a")
		d := f.open("0a", Target{TXID: 1})
		o.exec(`INSERT INTO t(b) VALUES ('new')`)
		o.commit()
		_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Expect: &shown}, d)
		wantError(f.T, err, ErrChanged)
		_, err = f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a", Expect: &shown})
		wantError(f.T, err, ErrChanged)
		f.idle()
		now := f.headOf("0a")
		if _, err = f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Expect: &now}, d); err != nil {
			f.Error(err)
		}
	})
}

// TestRestoreHeals: a log that no longer leads to its head can be read again
// behind a restore.
func TestRestoreHeals(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(6)
		f.sql(`DELETE FROM obj_log WHERE max_txid = 4`)
		_, err := f.Ops.Open(f.Context(), "C", "0a", Target{})
		wantError(f.T, err, ErrDamaged)
		_, err = f.CheckLog(f.Context(), "C", "0a")
		wantError(f.T, err, ErrDamaged)
		f.restore("0a", f.open("0a", Target{TXID: 3}))
		if f.stored("0a", 0) != o.was[3] {
			f.Error("it is something else")
		}
		f.must(f.reader("").CatchUp(f.Context(), f.object("0b", mirror.Config{}).m, "C", "0a", 7))
		f.must(f.reader("").CatchUp(f.Context(), o.m, "C", "0a", 7))
	})
}

// TestRestoreFromFile: what SQLite finds fault with does not come in.
func TestRestoreFromFile(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.grow(4)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	if _, err := f.Export(t.Context(), "C", "0a", Target{TXID: 4}, good); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	f.must(err)
	file := func(name string, change func(b []byte) []byte) string {
		path := filepath.Join(dir, name)
		f.must(os.WriteFile(path, change(append([]byte{}, text...)), 0o600))
		return path
	}
	reject := map[string]string{
		"empty":        file("empty", func([]byte) []byte { return nil }),
		"no database":  file("text", func(b []byte) []byte { return []byte(strings.Repeat("hello", 1000)) }),
		"cut":          file("cut", func(b []byte) []byte { return b[:len(b)-100] }),
		"pages gone":   file("gone", func(b []byte) []byte { return b[:len(b)-4096] }),
		"more pages":   file("more", func(b []byte) []byte { return append(b, make([]byte, 4096)...) }),
		"broken pages": file("broken", func(b []byte) []byte { copy(b[4096:], make([]byte, 200)); return b }),
		"missing":      filepath.Join(dir, "missing"),
		"a directory":  dir,
	}
	wal := file("wal", func(b []byte) []byte { return b })
	f.must(os.WriteFile(wal+"-wal", []byte("x"), 0o600))
	reject["with a WAL"] = wal
	for name, path := range reject {
		d, err := f.OpenFile(path)
		if err == nil {
			_, err = f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, d)
			f.must(d.Close())
		}
		if err == nil {
			t.Errorf("%s: restored", name)
		}
		t.Log(name, err)
	}
	if f.headOf("0a").TXID != 4 {
		t.Error("something was committed")
	}
	d, err := f.OpenFile(good)
	f.must(err)
	if r := f.restore("0b", d); r.After.TXID != 1 || f.stored("0b", 0) != o.was[4] {
		t.Errorf("%+v", r)
	}
	f.must(d.Close())
	f.idle()
	f.clean()
}

// TestRestoreAmongMergedEntries: logs that have been compacted, with a restore
// in the middle of what is merged, lead to what was there.
func TestRestoreAmongMergedEntries(t *testing.T) {
	each(t, func(f *fixture) {
		k := keeper.New(keeper.Config{StoreID: storeID, Dir: f.TempDir(), InlineLimit: f.InlineLimit, Full: time.Minute, Hourly: time.Hour}, f.plain, f.files, slog.New(slog.DiscardHandler))
		o := f.object("0a", mirror.Config{})
		o.exec(`CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)`)
		commit := func(n int) {
			for i := range n {
				o.exec(`INSERT OR REPLACE INTO t VALUES (?, ?)`, i%20, f.noise(600))
				o.commit()
			}
		}
		restore := func(txid uint64) {
			r := f.restore("0a", f.open("0a", Target{TXID: txid}))
			f.must(f.reader("").CatchUp(f.Context(), o.m, "C", "0a", r.After.TXID))
			o.head = f.headOf("0a")
			o.was[o.head.TXID] = o.was[txid]
		}
		every := 5
		if testing.Short() {
			every = 30
		}
		check := func() {
			f.Helper()
			f.must(k.Round(f.Context()))
			history, _, err := f.History(f.Context(), "C", "0a", 0)
			f.must(err)
			for i, p := range history {
				if i%every == 0 && f.stored("0a", p.TXID) != o.was[p.TXID] {
					f.Errorf("commit %d is not what it was", p.TXID)
				}
			}
			if c, err := f.CheckLog(f.Context(), "C", "0a"); err != nil {
				f.Errorf("%+v %v", c, err)
			}
			f.Logf("%d of %d positions", len(history), o.head.TXID)
		}
		commit(100)
		restore(30)
		commit(40)
		check()
		f.sql(`UPDATE obj_log SET at = at - ?`, (30 * time.Minute).Milliseconds())
		restore(f.middle("0a"))
		check()
		if f.stored("0a", 0) != o.was[o.head.TXID] {
			f.Error("it is something else")
		}
		commit(60)
		check()
	})
}

// middle is a position half-way through those that are kept.
func (f *fixture) middle(id string) uint64 {
	f.Helper()
	history, _, err := f.History(f.Context(), "C", id, 0)
	f.must(err)
	return history[len(history)/2].TXID
}

// TestRestoreIsBounded: a database that is larger than an object's may be does
// not become one, also not in a rehearsal.
func TestRestoreIsBounded(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.grow(3)
	d := f.open("0a", Target{TXID: 3})
	before := f.headOf("0a")
	f.Ops.MaxSize = d.Bytes() - 1
	_, err := f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, d)
	wantError(t, err, ErrTooLarge)
	_, err = f.Ops.Rehearse(t.Context(), d)
	wantError(t, err, ErrTooLarge)
	if f.headOf("0a") != before {
		t.Error("it was changed")
	}
	f.Ops.MaxSize = d.Bytes()
	f.restore("0a", d)
}
