package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

const (
	// entryPrefix begins the keys of entries that a load makes.
	entryPrefix = "dwk_bench"
	// entryTTL ends those of a load that was killed.
	entryTTL = time.Hour
)

// Entries loads the coordination store: each operation is a commit of its own
// that sets one entry.
type Entries struct {
	Store *kv.Store
	Seed  uint64
}

func (e Entries) prefix() tuple.Key { return tuple.Key{entryPrefix, strconv.FormatUint(e.Seed, 10)} }

// Do implements [Target].
func (e Entries) Do(ctx context.Context, client int, op Op) Answer {
	_, err := e.Store.Set(ctx, append(e.prefix(), op.Object), client, entryTTL)
	if err != nil {
		kind, _ := libsql.KindOf(err)
		return Answer{Status: fmt.Sprint(kind)}
	}
	return Answer{OK: true}
}

// Clean removes the entries and returns how many there were.
func (e Entries) Clean(ctx context.Context) (int, error) {
	n := 0
	plan := kv.NewPlan()
	flush := func() error {
		_, err := e.Store.Commit(ctx, plan)
		plan = kv.NewPlan()
		return err
	}
	for entry, err := range e.Store.List(ctx, kv.ListOptions{Prefix: e.prefix()}) {
		if err == nil {
			err = plan.DeleteKey(entry.Key)
		}
		if err == nil && n%100 == 99 {
			err = flush()
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, flush()
}

// Foreign counts the objects of a store set that no load has made, and returns
// the names of a few of them as CLASS/NAME, or CLASS/ID for one without a name.
func Foreign(ctx context.Context, db *libsql.DB) (n int64, some []string, err error) {
	const foreign = ` FROM obj_head WHERE deleted_at IS NULL AND NOT (class IN ('Counter', 'Note') AND coalesce(name, '') GLOB '` + NamePrefix + `*')`
	res, err := db.Batch(ctx, libsql.Read,
		libsql.S(`SELECT count(*)`+foreign),
		libsql.S(`SELECT class || '/' || coalesce(name, id)`+foreign+` LIMIT 3`))
	if err != nil {
		return 0, nil, fmt.Errorf("look for other objects: %w", err)
	}
	n, _ = res[0].Rows[0][0].(int64)
	for _, row := range res[1].Rows {
		name, _ := row[0].(string)
		some = append(some, name)
	}
	return n, some, nil
}
