package objectops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func (f *fixture) restore(id string, d *Database) Restored {
	f.Helper()
	r, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: id, Wait: time.Second}, d)
	f.must(err)
	return r
}

// TestRestoreToEveryPosition: each equals what was there, the positions before
// it stay what they were, and a replica that has any of them follows.
func TestRestoreToEveryPosition(t *testing.T) {
	each(t, func(f *fixture) {
		for _, size := range []int{512, 4096, 65536} {
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

// TestRestoreFencesTheFormerHolder: an event that began before it cannot
// commit.
func TestRestoreFencesTheFormerHolder(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(3)
		held := f.hold("0a", 300*time.Millisecond) // and then it is gone
		d := f.open("0a", Target{TXID: 1})
		r, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: 30 * time.Second}, d)
		if err != nil || r.After.Epoch <= held.Stamp {
			f.Fatal(r, err)
		}
		if _, ok, err := held.Confirm(f.Context(), f.plain); ok || err != nil {
			f.Error("the former holder still holds it", err)
		}
	})
}

func TestContended(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(2)
		f.hold("0a", time.Minute)
		d := f.open("0a", Target{TXID: 1})
		for _, change := range map[string]func(Change) error{
			"restore": func(c Change) error { _, err := f.Ops.Restore(f.Context(), c, d); return err },
			"delete":  func(c Change) error { _, err := f.Ops.Delete(f.Context(), c); return err },
		} {
			err := change(Change{Class: "C", ID: "0a", Wait: 20 * time.Millisecond})
			if e, ok := errors.AsType[*durable.ContendedError](err); !ok || e.Holder != "other" || e.Replica != "r1" {
				f.Errorf("%v", err)
			}
		}
		i, _, err := lease.Inspect(f.Context(), f.plain, "C", "0a")
		if err != nil || i.Wanted == 0 || i.Holder != "other" {
			f.Errorf("not marked as wanted: %+v %v", i, err)
		}
		if f.headOf("0a").TXID != 2 {
			f.Error("the object was changed")
		}
		// A holder that lets go when it sees the mark.
		done := make(chan error, 1)
		go func() {
			_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: 30 * time.Second}, d)
			done <- err
		}()
		f.must(f.release("0a"))
		f.must(<-done)
	})
}

func (f *fixture) release(id string) error {
	i, _, err := lease.Inspect(f.Context(), f.plain, "C", id)
	if err == nil {
		_, err = lease.Held{Class: "C", ID: id, Holder: i.Holder, Stamp: i.Stamp}.Release(f.Context(), f.plain)
	}
	return err
}

// TestTakenOverMeanwhile: an operator who lost the lease changes nothing.
func TestTakenOverMeanwhile(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(3)
		d := f.open("0a", Target{TXID: 1})
		f.faults.set(func(stmts []libsql.Statement) error {
			if isCommit(stmts) {
				f.hold("0a", time.Minute)
			}
			return nil
		}, nil)
		_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a"}, d)
		wantError(f.T, err, durable.ErrFenced)
		if f.stored("0a", 0) != o.was[3] || f.headOf("0a").TXID != 3 {
			f.Error("the object was changed")
		}
		if h := f.holders("0a"); len(h) != 1 || h[0] != "other" {
			f.Errorf("held by %v", h)
		}
	})
}

// TestLeaseIsRenewed while the work takes longer than the lease lasts, and the
// work ends when that fails.
func TestLeaseIsRenewed(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.grow(3)
	d := f.open("0a", Target{TXID: 3})
	f.LeaseTTL = time.Second
	f.InlineLimit = 0
	extended := make(chan struct{}, 100)
	f.faults.set(nil, func(stmts []libsql.Statement) error {
		if isExtend(stmts) {
			extended <- struct{}{}
		}
		return nil
	})
	f.files.put = func() error { // a long upload: more than the lease lasts
		for range 4 {
			<-extended
		}
		return nil
	}
	f.restore("0a", d)

	f.faults.set(func(stmts []libsql.Statement) error {
		if isExtend(stmts) {
			f.hold("0a", time.Minute)
			close(extended)
		}
		return nil
	}, nil)
	f.files.put = func() error { <-extended; return nil }
	_, err := f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, d)
	wantError(t, err, durable.ErrFenced)
	if h := f.headOf("0a"); h.TXID != 4 {
		t.Errorf("at commit %d", h.TXID)
	}
}

func isAcquire(stmts []libsql.Statement) bool { return mentions(stmts, "$.acquired_at") }
func isCommit(stmts []libsql.Statement) bool  { return mentions(stmts, "INSERT INTO obj_log") }
func isExtend(stmts []libsql.Statement) bool {
	return !isAcquire(stmts) && mentions(stmts, "SET expires_at")
}

func mentions(stmts []libsql.Statement, text string) bool {
	for _, s := range stmts {
		if strings.Contains(s.SQL, text) {
			return true
		}
	}
	return false
}

// TestLostAnswers: what became of a commit is found out by a new lease.
func TestLostAnswers(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		once := func(is func([]libsql.Statement) bool) func([]libsql.Statement) error {
			done := false
			return func(stmts []libsql.Statement) error {
				if is(stmts) && !done {
					done = true
					return lost()
				}
				return nil
			}
		}
		n := uint64(4)
		for name, test := range map[string]struct {
			before, after func([]libsql.Statement) error
			applied       bool
		}{
			"acquire not executed":   {before: once(isAcquire), applied: true},
			"acquire executed":       {after: once(isAcquire), applied: true},
			"commit not executed":    {before: once(isCommit)},
			"commit executed":        {after: once(isCommit), applied: true},
			"extension not executed": {before: once(isExtend), applied: true},
		} {
			target := uint64(1) + n%3
			d := f.open("0a", Target{TXID: target})
			f.faults.set(test.before, test.after)
			_, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a", Wait: 10 * time.Second}, d)
			f.faults.set(nil, nil)
			if (err == nil) != test.applied || errors.Is(err, durable.ErrUnknownOutcome) {
				f.Errorf("%s: %v", name, err)
			}
			if test.applied {
				n++
				o.was[n] = o.was[target]
			}
			if h := f.headOf("0a"); h.TXID != n || f.stored("0a", 0) != o.was[n] {
				f.Errorf("%s: at commit %d, want %d", name, h.TXID, n)
			}
			f.idle()
		}
	})
}

// TestKilledAnywhere: at whatever statement or upload the process dies, the
// object is what it was or what it should become, and nothing in between.
func TestKilledAnywhere(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		const target = 2
		want := o.was[4]
		old, changed := 0, 0
		for _, executed := range []bool{false, true} {
			for step := 1; ; step++ {
				d := f.open("0a", Target{TXID: target})
				ctx, kill := context.WithCancel(f.Context())
				batches := 0
				dies := func([]libsql.Statement) error {
					if batches++; batches >= step {
						kill() // nothing is heard of it again
						return lost()
					}
					return nil
				}
				dead := func([]libsql.Statement) error {
					if ctx.Err() != nil {
						return lost()
					}
					return nil
				}
				if executed {
					f.faults.set(dead, dies)
				} else {
					f.faults.set(dies, nil)
				}
				before := f.headOf("0a")
				_, err := f.Ops.Restore(ctx, Change{Class: "C", ID: "0a"}, d)
				f.faults.set(nil, nil)
				kill()
				after := f.headOf("0a")
				switch {
				case after.TXID == before.TXID && after == before:
					old++
				case after.TXID == before.TXID+1:
					changed++
					want = o.was[target]
				default:
					f.Fatalf("step %d: %+v after %+v", step, after, before)
				}
				if f.stored("0a", 0) != want {
					f.Fatalf("step %d: neither the old state nor the new one", step)
				}
				f.must(f.release("0a")) // or its time is over
				if err == nil {
					break // it lived
				}
			}
		}
		if old < 3 || changed < 3 {
			f.Errorf("%d times the old state, %d times the new one", old, changed)
		}

		f.files.put = func() error { return errors.New("killed") }
		f.InlineLimit = 0
		d := f.open("0a", Target{TXID: target})
		before := f.headOf("0a")
		if _, err := f.Ops.Restore(f.Context(), Change{Class: "C", ID: "0a"}, d); err == nil {
			f.Error("a failed upload is no error")
		}
		if f.headOf("0a") != before || f.stored("0a", 0) != want {
			f.Error("an upload has changed the object")
		}
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

func TestDelete(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		path := filepath.Join(f.TempDir(), "x.db")
		if _, err := f.Export(f.Context(), "C", "0a", Target{}, path); err != nil {
			f.Fatal(err)
		}
		before, err := f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Second})
		if err != nil || before.TXID != 4 {
			f.Fatal(before, err)
		}
		h := f.headOf("0a")
		if h.TXID != 5 || h.Exists() || h.Pages != 0 {
			f.Errorf("%+v", h)
		}
		for name, err := range map[string]error{
			"delete":  second(f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a"})),
			"open":    second(f.Ops.Open(f.Context(), "C", "0a", Target{})),
			"restore": second(f.Ops.Open(f.Context(), "C", "0a", Target{TXID: 2})),
			"none":    second(f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0b"})),
		} {
			if !errors.Is(err, ErrNotFound) {
				f.Errorf("%s: %v", name, err)
			}
		}
		if i, err := f.Info(f.Context(), "C", "0a"); err != nil || i.DeletedAt == 0 || i.Positions != 0 {
			f.Errorf("%+v %v", i, err)
		}
		if n := f.sql(`SELECT count(*) FROM obj_garbage`).Rows[0][0]; n == int64(0) {
			f.Error("the files of the log did not become garbage")
		}
		// It comes to be again, from the file.
		d, err := f.OpenFile(path)
		f.must(err)
		defer d.Close()
		r := f.restore("0a", d)
		if r.After.TXID != 6 || f.stored("0a", 0) != o.was[4] {
			f.Errorf("%+v", r)
		}
		// And by its own commits, as its replica would.
		if _, err := f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Second}); err != nil {
			f.Fatal(err)
		}
		again := f.object("0a", mirror.Config{})
		f.must(again.m.Empty(7))
		again.head = f.headOf("0a")
		again.grow(2)
		if f.stored("0a", 0) != again.was[9] {
			f.Error("created again it is something else")
		}
		f.idle()
	})
}

func second[T any](_ T, err error) error { return err }

func TestDeleteWhoseAnswerIsLost(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(2)
		done := false
		f.faults.set(nil, func(stmts []libsql.Statement) error {
			if !done && mentions(stmts, "DELETE FROM obj_log") {
				done = true
				return lost()
			}
			return nil
		})
		if _, err := f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a"}); err != nil || !done {
			f.Error(err, done)
		}
		f.faults.set(nil, nil)
		if h := f.headOf("0a"); h.Exists() || h.TXID != 3 {
			f.Errorf("%+v", h)
		}
		f.idle()
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
		check := func() {
			f.Helper()
			f.must(k.Round(f.Context()))
			history, _, err := f.History(f.Context(), "C", "0a", 0)
			f.must(err)
			for i, p := range history {
				if i%5 == 0 && f.stored("0a", p.TXID) != o.was[p.TXID] {
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
