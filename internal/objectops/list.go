package objectops

import (
	"context"
	"fmt"
	"iter"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// An Object is one row of a list. Times are epoch milliseconds by the
// primary's clock.
type Object struct {
	ID, Name        string
	TXID            uint64
	PageSize, Pages uint32
	CreatedAt       int64
	UpdatedAt       int64
	// DeletedAt is 0 unless the object was deleted; it is listed for a day more.
	DeletedAt int64
	// NowMs is when the object was seen.
	NowMs int64
}

// Bytes is the size of the object's database.
func (o Object) Bytes() int64 { return int64(o.PageSize) * int64(o.Pages) }

// ListOptions choose objects of a class.
type ListOptions struct {
	// After is the id before the first one, and Prefix what all begin with.
	After, Prefix string
	// Deleted has the objects listed that were deleted, instead of those that
	// exist.
	Deleted bool
	// Limit bounds the objects; 0 means all.
	Limit int
}

// listPage is how many objects one round trip returns.
const listPage = 500

// List yields objects of a class in the order of their ids. Each page is from
// one moment.
func (o *Ops) List(ctx context.Context, class string, opts ListOptions) iter.Seq2[Object, error] {
	state := "IS NULL"
	if opts.Deleted {
		state = "IS NOT NULL"
	}
	query := `SELECT id, name, txid, page_size, pages, created_at, updated_at, deleted_at, ` + kv.Now + ` FROM obj_head
	WHERE class = ?1 AND id > ?2 AND id >= ?4 AND id < ?4 || 'g' AND deleted_at ` + state + ` ORDER BY id LIMIT ?3`
	return func(yield func(Object, error) bool) {
		after, left := opts.After, opts.Limit
		for {
			page := listPage
			if opts.Limit > 0 {
				page = min(page, left)
			}
			res, err := o.Store.Decide(ctx, libsql.S(query, class, after, page, opts.Prefix))
			if err != nil {
				yield(Object{}, fmt.Errorf("list objects of class %s: %w", class, err))
				return
			}
			for _, row := range res[0].Rows {
				obj := Object{
					TXID: uint64(num(row[2])), PageSize: uint32(num(row[3])), Pages: uint32(num(row[4])),
					CreatedAt: num(row[5]), UpdatedAt: num(row[6]), DeletedAt: num(row[7]), NowMs: num(row[8]),
				}
				obj.ID, _ = row[0].(string)
				obj.Name, _ = row[1].(string)
				after = obj.ID
				if !yield(obj, nil) {
					return
				}
			}
			if left -= len(res[0].Rows); len(res[0].Rows) < page || opts.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// A Class says how many objects a class has.
type Class struct {
	Name string
	// Objects exist, and Deleted were deleted within the last day or so.
	Objects, Deleted int64
	// Bytes is the size of all their databases.
	Bytes int64
}

// Classes counts the objects of each class. It reads all heads.
func (o *Ops) Classes(ctx context.Context) ([]Class, error) {
	res, err := o.Store.Decide(ctx, libsql.S(`SELECT class, count(*) - count(deleted_at), count(deleted_at), sum(page_size * pages) FROM obj_head GROUP BY class ORDER BY class`))
	if err != nil {
		return nil, fmt.Errorf("count objects: %w", err)
	}
	var out []Class
	for _, row := range res[0].Rows {
		name, _ := row[0].(string)
		out = append(out, Class{Name: name, Objects: num(row[1]), Deleted: num(row[2]), Bytes: num(row[3])})
	}
	return out, nil
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}
