package keeper

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// garbageTime is how long a file stays at least after it became garbage.
const garbageTime = 24 * time.Hour

// collectAtOnce bounds the files that one step deletes.
const collectAtOnce = 200

// unnamed tests a file f, as one of the JSON list of [describe]: no row names
// it, and nobody holds the lease under which one could.
const unnamed = `NOT EXISTS (SELECT 1 FROM obj_log l WHERE l.class = f.value->>1 AND l.id = f.value->>2 AND l.level IN (0, 1, 2, 3, 9)
	AND l.max_txid = f.value->>3 AND l.ref = f.value->>0)
	AND NOT EXISTS (SELECT 1 FROM kv WHERE k = unhex(f.value->>5) AND ` + kv.Live + ` AND ver = f.value->>4)`

// describe makes the JSON list of files of this store set that statements
// test, and returns the names that are not of this store set as well.
func (k *Keeper) describe(refs []string) (list string, foreign []string, err error) {
	rows := [][]any{}
	for _, ref := range refs {
		info, ok := objlog.ParseRef(ref)
		if !ok || info.StoreID != k.cfg.StoreID {
			foreign = append(foreign, ref)
			continue
		}
		rows = append(rows, []any{ref, info.Class, info.ID, int64(info.MaxTXID), int64(info.Stamp), hex.EncodeToString(lease.Key(info.Class, info.ID))})
	}
	b, err := json.Marshal(rows)
	return string(b), foreign, err
}

// stepFiles looks at some files of this store set in the object store. One
// that is not named after it was listed is garbage from now on, by the
// primary's clock. A merge may still name it within an hour of its upload; that
// is seen when the garbage is collected.
func (k *Keeper) stepFiles(ctx context.Context) error {
	refs, next, err := k.blobs.List(ctx, objlog.RefPrefix(k.cfg.StoreID), k.walk.files)
	if err != nil {
		k.walk.files = "" // perhaps the place is no longer known
		return fmt.Errorf("list files of logs: %w", err)
	}
	if len(refs) > 0 {
		list, _, err := k.describe(refs)
		if err != nil {
			return err
		}
		p := kv.NewPlan()
		p.Add(`INSERT INTO obj_garbage(ref, at) SELECT f.value->>0, `+kv.Now+` FROM json_each(?) f WHERE `+unnamed+` AND `+kv.OK+`
		ON CONFLICT(ref) DO NOTHING`, list)
		if _, err := k.store.Commit(ctx, p); err != nil {
			return fmt.Errorf("look for garbage: %w", err)
		}
	}
	if k.walk.files = next; next == "" {
		k.walk.phase = garbage
	}
	return nil
}

// collect deletes some garbage whose time is over. It reports whether there may
// be more.
func (k *Keeper) collect(ctx context.Context) (more bool, err error) {
	keep := max(garbageTime, k.cfg.Full, k.cfg.Hourly).Milliseconds()
	res, err := k.store.Decide(ctx, libsql.S(`SELECT ref FROM obj_garbage WHERE at < `+kv.Now+` - ? ORDER BY at LIMIT ?`, keep, collectAtOnce))
	if err != nil {
		return false, fmt.Errorf("read garbage: %w", err)
	}
	var refs []string
	for _, row := range res[0].Rows {
		ref, _ := row[0].(string)
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return false, nil
	}
	list, done, err := k.describe(refs)
	if err != nil {
		return false, err
	}
	// What a row names after all, or a row of another store set named, is not
	// garbage.
	res, err = k.store.Decide(ctx, libsql.S(`SELECT f.value->>0, `+unnamed+` FROM json_each(?) f
	WHERE EXISTS (SELECT 1 FROM obj_garbage g WHERE g.ref = f.value->>0 AND g.at < `+kv.Now+` - ?)`, list, keep))
	if err != nil {
		return false, fmt.Errorf("look at garbage: %w", err)
	}
	deleted := 0
	for _, row := range res[0].Rows {
		ref, _ := row[0].(string)
		if num(row[1]) != 0 {
			if err := k.blobs.Delete(ctx, ref); err != nil {
				return false, fmt.Errorf("delete %s: %w", ref, err)
			}
			deleted++
		}
		done = append(done, ref)
	}
	b, err := json.Marshal(done)
	if err != nil {
		return false, err
	}
	p := kv.NewPlan()
	p.Add(`DELETE FROM obj_garbage WHERE ref IN (SELECT value FROM json_each(?)) AND at < `+kv.Now+` - ? AND `+kv.OK, string(b), keep)
	if _, err := k.store.Commit(ctx, p); err != nil {
		return false, fmt.Errorf("forget garbage: %w", err)
	}
	k.log.LogAttrs(ctx, slog.LevelDebug, event.ObjectKeepCollected, slog.Int(event.KeyCount, deleted))
	return len(refs) == collectAtOnce, nil
}
