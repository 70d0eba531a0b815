package objectops

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

func TestDelete(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(4)
		path := filepath.Join(f.TempDir(), "x.db")
		if _, err := f.Export(f.Context(), "C", "0a", Target{}, path); err != nil {
			f.Fatal(err)
		}
		before, err := f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Minute})
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
		if _, err := f.Ops.Delete(f.Context(), Change{Class: "C", ID: "0a", Wait: time.Minute}); err != nil {
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
