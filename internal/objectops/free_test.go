package objectops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// inCompany are the operations with a group, and a small file to restore to.
func (f *fixture) inCompany() (o *Ops, path string) {
	f.Helper()
	src := f.object("5c", mirror.Config{})
	src.exec(`CREATE TABLE x(a); INSERT INTO x VALUES ('restored')`)
	src.commit()
	path = filepath.Join(f.TempDir(), "small.db")
	out, err := os.Create(path)
	f.must(err)
	f.must(src.m.Export(out))
	f.must(out.Close())
	g := kv.NewGroup(f.Store)
	f.Cleanup(g.Wait)
	return f.In(g), path
}

// TestRestoreInCompany: a small file becomes an object's without a lease, in one
// batch; the epoch is the stamp of the commit.
func TestRestoreInCompany(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(2)
		ops, path := f.inCompany()
		f.hold("0b", time.Minute) // the stamp that the last commit has by hand
		f.must(f.release("0b"))
		leases := 0
		f.faults.set(func(stmts []libsql.Statement) error {
			if isAcquire(stmts) {
				leases++
			}
			return nil
		}, nil)
		for _, id := range []string{"0a", "0b"} {
			before := f.headOf(id)
			r, err := ops.RestoreFile(f.Context(), Change{Class: "C", ID: id, Expect: &before}, path)
			f.must(err)
			head := f.headOf(id)
			if f.stored(id, 0) != f.stored("5c", 0) || head.TXID != before.TXID+1 || head.Epoch <= before.Epoch || r.After.Epoch != head.Epoch || r.After.CommitID != head.CommitID {
				f.Errorf("%+v, the head is %+v", r, head)
			}
			sum := sumWriter{}
			if _, ok, err := ops.Expand(f.Context(), "C", id, head, &sum); err != nil || !ok || sum.n != int64(head.Pages)*int64(head.PageSize) {
				f.Errorf("expand: %v %v, %d bytes", ok, err, sum.n)
			}
			head.Checksum++
			if _, _, err := ops.Expand(f.Context(), "C", id, head, &sum); !errors.Is(err, ErrDamaged) {
				f.Errorf("expand for another checksum: %v", err)
			}
		}
		if leases > 0 {
			f.Errorf("%d leases were taken", leases)
		}
		f.idle()
		// What was expected is no more.
		_, err := ops.RestoreFile(f.Context(), Change{Class: "C", ID: "0a", Expect: &o.head}, path)
		wantError(f.T, err, ErrChanged)
	})
}

type sumWriter struct{ n int64 }

func (w *sumWriter) Write(p []byte) (int, error) { w.n += int64(len(p)); return len(p), nil }

// TestCompanyRespectsLeases: an object that somebody works on is waited for.
func TestCompanyRespectsLeases(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(1)
		ops, path := f.inCompany()
		f.hold("0a", time.Minute)
		_, err := ops.RestoreFile(f.Context(), Change{Class: "C", ID: "0a", Expect: &o.head}, path)
		if _, ok := errors.AsType[*durable.ContendedError](err); !ok {
			f.Errorf("%v", err)
		}
		if f.headOf("0a").TXID != 1 {
			f.Error("the object was changed under a lease")
		}
		f.must(f.release("0a"))
		_, err = ops.RestoreFile(f.Context(), Change{Class: "C", ID: "0a", Wait: 30 * time.Second, Expect: &o.head}, path)
		f.must(err)
	})
}

// TestCompanyInDoubt: the answer to a commit is lost. If it was made it is
// found, and not made again; if not it is made once, and what arrives afterwards
// changes nothing.
func TestCompanyInDoubt(t *testing.T) {
	each(t, func(f *fixture) { companyInDoubt(f, true) })
}

func TestCompanyInDoubtNotArrived(t *testing.T) {
	each(t, func(f *fixture) { companyInDoubt(f, false) })
}

func companyInDoubt(f *fixture, arrived bool) {
	o := f.object("0a", mirror.Config{})
	o.grow(1)
	ops, path := f.inCompany()
	var late []libsql.Statement
	hook := func(stmts []libsql.Statement) error {
		if late != nil || !isCommit(stmts) {
			return nil
		}
		late = stmts
		return lost()
	}
	if arrived {
		f.faults.set(nil, hook)
	} else {
		f.faults.set(hook, nil)
	}
	r, err := ops.RestoreFile(f.Context(), Change{Class: "C", ID: "0a", Wait: 30 * time.Second, Expect: &o.head}, path)
	f.must(err)
	head := f.headOf("0a")
	if late == nil || head.TXID != 2 || r.After.CommitID != head.CommitID || f.stored("0a", 0) != f.stored("5c", 0) {
		f.Errorf("%+v, the head is %+v", r, head)
	}
	if _, err := f.db.Batch(context.Background(), libsql.Write, late...); err != nil {
		f.Fatal(err)
	}
	if now := f.headOf("0a"); now != head {
		f.Errorf("what came late changed %+v to %+v", head, now)
	}
	f.idle()
}
