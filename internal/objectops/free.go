package objectops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// restoreFree commits a small database in one transaction that demands that
// nobody holds the object's lease: what the lease would be taken for, committed
// under and released for is over with it. done is false when that was not to be,
// and the lease has to be taken. doubt is the id of a commit then of which
// nobody knows whether it was made: a lease keeps it away, and a commit under
// that lease for ever, as the head is another one then.
func (o *Ops) restoreFree(ctx context.Context, c Change, path string) (out Restored, done bool, doubt string, err error) {
	out.Before = *c.Expect
	data, h, err := o.smallSnapshot(path, c.Expect.TXID+1)
	if err != nil || data == nil {
		return out, false, "", err
	}
	commit := objlog.Commit{
		Class: c.Class, ID: c.ID, Name: c.Name, Base: *c.Expect, CommitID: uuid.NewString(), Stamped: true,
		Post: h.Post, PageSize: h.PageSize, Pages: h.Pages, Data: data, Size: int64(len(data)), Snapshot: true,
	}
	p := kv.NewPlan()
	lease.RequireFree(p, c.Class, c.ID, o.Store.Clock().Add(callTime).UnixMilli())
	o.addRestore(p, c, commit)
	row := objlog.AddCommitID(p, c.Class, c.ID, commit.TXID())
	// An interruption comes too late from here on: it would leave a doubt.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	failpoint.Hit("objectops.commit.before")
	v, err := o.Group.Commit(call, p)
	failpoint.Hit("objectops.commit.after")
	switch {
	case err == nil:
		// A proxy that repeats a request gets a no for what it has got a yes for.
		if id, _ := objlog.ReadCommitID(v.Results[row]); !v.OK && id != commit.CommitID {
			return out, false, "", nil
		}
	case errors.Is(err, kv.ErrNoVerdict), libsql.OutcomeOf(err) != libsql.Unknown:
		return out, false, "", fmt.Errorf("commit %d of %s/%s: %w", commit.TXID(), c.Class, c.ID, err)
	default:
		return out, false, commit.CommitID, nil
	}
	commit.Epoch = v.Stamp
	out.After, out.Size = commit.Head(), commit.Size
	return out, true, "", nil
}

// smallSnapshot encodes a file as the snapshot that is commit txid; nil without
// an error when it is no small one.
func (o *Ops) smallSnapshot(path string, txid uint64) ([]byte, mirror.Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, mirror.Header{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	// What does not become much smaller is not tried.
	if err != nil || info.Size() > 4*o.InlineLimit || o.MaxSize > 0 && info.Size() > o.MaxSize {
		return nil, mirror.Header{}, err
	}
	var out bytes.Buffer
	h, err := mirror.EncodeSnapshot(&out, f, info.Size(), txid)
	if err != nil {
		return nil, h, fmt.Errorf("%w: encode the database: %w", ErrDamaged, err)
	}
	if int64(out.Len()) > o.InlineLimit {
		return nil, h, nil
	}
	again, err := mirror.Inspect(out.Bytes())
	if err != nil || again.After() != h.After() {
		return nil, h, errors.Join(fmt.Errorf("encode the database: the snapshot is of %s, the file of %s", again.After(), h.After()), err)
	}
	return out.Bytes(), h, nil
}
