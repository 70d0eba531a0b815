package objectops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/spool"
)

// A Change names the object that is to be changed, and how.
type Change struct {
	Class, ID string
	// Name is kept with an object whose id came from it.
	Name string
	// Wait is how long to wait for the object's lease.
	Wait time.Duration
	// Expect, unless it is nil, is the head on which the change was decided:
	// another one is left alone.
	Expect *objlog.Head
	// With, unless it is nil, adds to the commit, such as the object's alarm.
	With func(*kv.Plan)
}

// begin takes the lease and looks at the head.
func (o *Ops) begin(ctx context.Context, c Change) (*tenure, error) {
	t, err := o.take(ctx, c.Class, c.ID, c.Wait)
	if err != nil {
		return nil, err
	}
	if err := t.expect(c); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// expect refuses a head that is not the expected one.
func (t *tenure) expect(c Change) error {
	if e := c.Expect; e != nil && (e.TXID != t.head.TXID || e.CommitID != t.head.CommitID) {
		return fmt.Errorf("%w: %s/%s is at commit %d, it was at %d", ErrChanged, c.Class, c.ID, t.head.TXID, e.TXID)
	}
	return nil
}

// Head reads the head of an object, of one that does not exist too.
func (o *Ops) Head(ctx context.Context, class, id string) (objlog.Head, error) {
	h, err := o.head(ctx, class, id)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return h, err
}

// A Restored says what was done.
type Restored struct {
	// Before is the head that was there, and After the one that was made.
	Before, After objlog.Head
	// Size is that of the log entry, in bytes, which is in the object store when
	// Offloaded.
	Size      int64
	Offloaded bool
}

// Rehearse does everything that [Ops.Restore] does before it takes the lease,
// and encodes the database. It returns the size of the entry that a restore
// would add, in bytes.
func (o *Ops) Rehearse(ctx context.Context, d *Database) (int64, error) {
	if err := o.acceptable(ctx, d); err != nil {
		return 0, err
	}
	entry, _, err := d.encode(1)
	if err != nil {
		return 0, err
	}
	return entry.Size(), entry.Close()
}

// acceptable refuses a database that must not become an object's.
func (o *Ops) acceptable(ctx context.Context, d *Database) error {
	if n := d.Bytes(); o.MaxSize > 0 && n > o.MaxSize {
		return fmt.Errorf("%w: the database has %d bytes, an object's may have %d", ErrTooLarge, n, o.MaxSize)
	}
	return d.Verify(ctx)
}

// Restore makes a database the object's, as one new commit under its lease. The
// database is verified first. Positions before it stay what they were, so it
// can be undone by another restore. An object that does not exist comes to be.
//
// When it fails nothing was changed, unless the error wraps
// [durable.ErrUnknownOutcome] or says that the commit was made.
func (o *Ops) Restore(ctx context.Context, c Change, d *Database) (Restored, error) {
	if err := o.acceptable(ctx, d); err != nil {
		return Restored{}, err
	}
	return o.restoreHeld(ctx, c, d, "")
}

// RestoreFile is Restore to a plain SQLite file, with no journal or WAL beside
// it. A small one, with which the caller has had SQLite find no fault, is
// committed in company if there is a Group and a head is expected, and it is the
// caller who reads it back.
func (o *Ops) RestoreFile(ctx context.Context, c Change, path string) (Restored, error) {
	doubt := ""
	if o.Group != nil && c.Expect != nil {
		out, done, commitID, err := o.restoreFree(ctx, c, path)
		if done || err != nil {
			return out, err
		}
		doubt = commitID
	}
	out, err := o.restoreLarge(ctx, c, path, doubt)
	if err != nil && doubt != "" {
		// What was sent before may still arrive.
		err = fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, err)
	}
	return out, err
}

func (o *Ops) restoreLarge(ctx context.Context, c Change, path, doubt string) (out Restored, err error) {
	d, err := o.OpenFile(path)
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err = o.acceptable(ctx, d); err == nil {
		out, err = o.restoreHeld(ctx, c, d, doubt)
	}
	return out, errors.Join(err, d.Close())
}

// restoreHeld is Restore under the lease. A commit with the id doubt may have
// been made before, on what was expected; "" is none.
func (o *Ops) restoreHeld(ctx context.Context, c Change, d *Database, doubt string) (Restored, error) {
	t, err := o.take(ctx, c.Class, c.ID, c.Wait)
	if err != nil {
		return Restored{}, err
	}
	defer t.end()
	if doubt != "" && t.head.CommitID == doubt {
		return Restored{Before: *c.Expect, After: t.head}, nil
	}
	if err := t.expect(c); err != nil {
		return Restored{}, err
	}
	out := Restored{Before: t.head}
	entry, h, err := d.encode(t.head.TXID + 1)
	if err != nil {
		return out, err
	}
	defer entry.Close() //nolint:errcheck // a temporary file
	commit := objlog.Commit{
		Class: c.Class, ID: c.ID, Name: c.Name, Base: t.head, CommitID: uuid.NewString(), Epoch: t.held.Stamp,
		Post: h.Post, PageSize: h.PageSize, Pages: h.Pages, Size: entry.Size(), Snapshot: true,
	}
	if err := o.store(t.ctx, &commit, entry); err != nil {
		return out, t.why(err)
	}
	err = t.commit(commit.TXID(), commit.CommitID, func(p *kv.Plan) {
		o.addRestore(p, c, commit)
	})
	if err != nil {
		if commit.Ref != "" && !errors.Is(err, durable.ErrUnknownOutcome) {
			o.forget(ctx, commit.Ref)
		}
		return out, err
	}
	out.After, out.Size, out.Offloaded = commit.Head(), commit.Size, commit.Ref != ""
	return out, o.verifyCommit(ctx, commit)
}

// addRestore adds the commit of a restore to a plan.
func (o *Ops) addRestore(p *kv.Plan, c Change, commit objlog.Commit) {
	commit.Add(p)
	// As a snapshot too, so that no reader needs a way that leads there.
	objlog.AddPromotion(p, c.Class, c.ID, objlog.Entry{Level: objlog.Level0, MaxTXID: commit.TXID(), CommitID: commit.CommitID})
	if c.With != nil {
		c.With(p)
	}
}

// verifyCommit reads a commit that was made.
func (o *Ops) verifyCommit(ctx context.Context, c objlog.Commit) error {
	if err := o.readBack(ctx, c); err != nil {
		return fmt.Errorf("commit %d of %s/%s was made, but cannot be read back: %w", c.TXID(), c.Class, c.ID, err)
	}
	return nil
}

// store puts a large entry into the object store and reads it again.
func (o *Ops) store(ctx context.Context, c *objlog.Commit, entry *spool.Spool) (err error) {
	if c.Size <= o.InlineLimit {
		c.Data, err = io.ReadAll(entry.Reader())
		return err
	}
	ref := objlog.Ref(o.StoreID, c.Class, c.ID, c.TXID(), c.Epoch)
	if err := o.Blobs.Put(ctx, ref, entry.Reader(), c.Size); err != nil {
		if errors.Is(err, durable.ErrUnknownOutcome) {
			return fmt.Errorf("put %s: %v", ref, err) // it is known of the restore: no row names the file
		}
		return fmt.Errorf("put %s: %w", ref, err)
	}
	failpoint.Hit("objectops.put.after")
	h, err := o.inspectFile(ctx, ref, c.Size)
	if err == nil && h.Post != c.Post {
		err = fmt.Errorf("%w: %s is not what was put there", ErrDamaged, ref)
	}
	if err != nil {
		o.forget(ctx, ref)
		return err
	}
	c.Ref = ref
	return nil
}

// forget removes a file that no row names. What fails is collected later.
func (o *Ops) forget(ctx context.Context, ref string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	_ = o.Blobs.Delete(ctx, ref)
}

// readBack compares the rows of a commit with what was committed.
func (o *Ops) readBack(ctx context.Context, c objlog.Commit) error {
	path, err := objlog.Path(ctx, o.Store, c.Class, c.ID, 0, c.TXID())
	if err != nil {
		return err
	}
	e := path[0]
	if e.MaxTXID != c.TXID() || e.CommitID != c.CommitID || e.Post != c.Post || e.Size != max(c.Size, int64(len(c.Data))) || e.Ref != c.Ref {
		return fmt.Errorf("%w: the log leads to another database", ErrDamaged)
	}
	if e.Ref != "" {
		return nil // the file has been read before
	}
	h, err := mirror.Inspect(e.Data)
	if err == nil && h.Post != c.Post {
		err = fmt.Errorf("its file leads to %016x, the commit to %016x", h.Post, c.Post)
	}
	return damaged(err)
}

// Delete deletes an object, under its lease. Its positions are gone at once;
// the head stays as a tombstone for a day. It returns the head that was there.
// When it fails nothing was changed, unless the error wraps
// [durable.ErrUnknownOutcome].
func (o *Ops) Delete(ctx context.Context, c Change) (objlog.Head, error) {
	t, err := o.begin(ctx, c)
	if err != nil {
		return objlog.Head{}, err
	}
	defer t.end()
	if !t.head.Exists() {
		return t.head, o.absent(c.Class, c.ID, t.head)
	}
	before := t.head
	d := objlog.Delete{Class: c.Class, ID: c.ID, Base: before, CommitID: uuid.NewString(), Epoch: t.held.Stamp}
	return before, t.commit(d.TXID(), d.CommitID, func(p *kv.Plan) {
		d.Add(p)
		alarm.AddClear(p, c.Class, c.ID)
	})
}
