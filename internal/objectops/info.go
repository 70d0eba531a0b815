package objectops

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// Info is what is known about one object without reading its database.
type Info struct {
	objlog.Head
	// Levels are those of the log that have rows.
	Levels []Level
	// Oldest and Newest are the first and the last position that the object can
	// be brought back to, of Positions; they are zero when there is none.
	Oldest, Newest objlog.Position
	Positions      int
	// Lease is the live one, if Held.
	Lease lease.Info
	Held  bool
	// NowMs is the primary's clock in epoch milliseconds.
	NowMs int64
}

// Bytes is the size of the object's database.
func (i Info) Bytes() int64 { return int64(i.PageSize) * int64(i.Pages) }

// A Level is the part of a log on one level. See package objlog.
type Level struct {
	Level int
	Rows  int64
	// Bytes are those of the rows' entries, of which Offloaded are in the object
	// store.
	Bytes, Offloaded int64
	// The rows lie between these commits; there may be gaps.
	MinTXID, MaxTXID uint64
}

// Info looks at one object. A deleted one has a tombstone for a day, which is
// shown as well.
func (o *Ops) Info(ctx context.Context, class, id string) (Info, error) {
	res, err := o.Store.Decide(ctx, objlog.HeadStatement(class, id), libsql.S(`SELECT level, count(*), sum(size), sum(CASE WHEN ref IS NULL THEN 0 ELSE size END), min(min_txid), max(max_txid)
	FROM obj_log WHERE class = ? AND id = ? GROUP BY level ORDER BY level`, class, id), libsql.S(`SELECT `+kv.Now))
	if err != nil {
		return Info{}, fmt.Errorf("look at %s/%s: %w", class, id, err)
	}
	head, err := objlog.ReadHead(res[0])
	if err != nil {
		return Info{}, fmt.Errorf("look at %s/%s: %w", class, id, err)
	}
	if head.TXID == 0 {
		return Info{}, notFound("no object %s/%s in %s", class, id, o.Store)
	}
	info := Info{Head: head, NowMs: num(res[2].Rows[0][0])}
	for _, row := range res[1].Rows {
		info.Levels = append(info.Levels, Level{
			Level: int(num(row[0])), Rows: num(row[1]), Bytes: num(row[2]), Offloaded: num(row[3]), MinTXID: uint64(num(row[4])), MaxTXID: uint64(num(row[5])),
		})
	}
	for p, err := range objlog.Positions(ctx, o.Store, class, id) {
		if err != nil {
			return Info{}, err
		}
		if !p.Exists {
			continue
		}
		if info.Positions == 0 {
			info.Oldest = p
		}
		info.Newest = p
		info.Positions++
	}
	info.Lease, info.Held, err = lease.Inspect(ctx, o.Store, class, id)
	return info, err
}

// head reads the head of an object that exists.
func (o *Ops) head(ctx context.Context, class, id string) (objlog.Head, error) {
	res, err := o.Store.Decide(ctx, objlog.HeadStatement(class, id))
	if err != nil {
		return objlog.Head{}, fmt.Errorf("look at %s/%s: %w", class, id, err)
	}
	h, err := objlog.ReadHead(res[0])
	if err != nil {
		return objlog.Head{}, fmt.Errorf("look at %s/%s: %w", class, id, err)
	}
	if !h.Exists() {
		return h, o.absent(class, id, h)
	}
	return h, nil
}

// absent is the error about an object that does not exist.
func (o *Ops) absent(class, id string, h objlog.Head) error {
	if h.DeletedAt > 0 {
		return notFound("object %s/%s was deleted at %s", class, id, instant(h.DeletedAt))
	}
	return notFound("no object %s/%s in %s", class, id, o.Store)
}
