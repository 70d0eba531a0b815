package objectops

import (
	"context"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// Expand writes the database that an object has at a head to w, as a plain
// SQLite file, when its log is one small snapshot, as that of an object which
// was restored and did nothing since; ok is false without an error for any
// other, for which there is [Ops.Open]. It needs no file of its own. The
// snapshot is checked against its checksums and those of the head. With are
// statements whose results are returned in any case, in the same round trip.
func (o *Ops) Expand(ctx context.Context, class, id string, h objlog.Head, w io.Writer, with ...libsql.Statement) (results []libsql.Result, ok bool, err error) {
	res, err := o.Store.Decide(ctx, append(with, objlog.PathStatement(class, id, 0, h.TXID))...)
	if err != nil {
		return nil, false, fmt.Errorf("read %s/%s: %w", class, id, err)
	}
	path, err := objlog.ReadEntries(res[len(with)])
	if err != nil {
		return nil, false, fmt.Errorf("read %s/%s: %w", class, id, err)
	}
	if path = objlog.Shortest(path); len(path) != 1 || !path[0].Complete() || path[0].Ref != "" || !path[0].Paged() || path[0].MaxTXID != h.TXID {
		return res[:len(with)], false, nil
	}
	e := path[0]
	got, err := mirror.ExpandSnapshot(w, e.Data)
	if err == nil && (got.Post != e.Post || e.Post != h.Checksum || e.CommitID != h.CommitID) {
		err = fmt.Errorf("%w: the snapshot has the checksum %016x, its row %016x, the head %016x", mirror.ErrBadEntry, got.Post, e.Post, h.Checksum)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read commit %d of %s/%s: %w", h.TXID, class, id, damaged(err))
	}
	return res[:len(with)], true, nil
}
