package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/spool"
)

const (
	// insertTime is how long after an upload, by the primary's clock, a row may
	// name it. Files are collected a day after they were first seen unnamed.
	insertTime = time.Hour
	// inputMemory is how much of a merge's inputs is kept in memory.
	inputMemory = 8 << 20
	// snapshotFloor: below it a snapshot saves a reader nothing.
	snapshotFloor = 64 << 10
	// writeBuffer gathers the small pieces that an encoder writes.
	writeBuffer = 64 << 10
)

// Compact merges what ends with a commit whose number is a multiple of 64, in
// all levels whose rows end there, and writes a snapshot when one is due.
func (k *Keeper) Compact(ctx context.Context, class, id string, txid uint64) error {
	if txid == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	var due bool
	for level := 1; level <= objlog.MaxLevel && txid%objlog.Span(level) == 0; level++ {
		var err error
		if due, err = k.merge(ctx, class, id, level, txid); err != nil && !errors.Is(err, objlog.ErrGap) {
			return err
		}
	}
	if due {
		if err := k.snapshot(ctx, class, id); err != nil {
			return err
		}
	}
	if txid%objlog.Span(2) == 0 {
		return k.trim(ctx, class, id)
	}
	return nil
}

// merge adds the row of a level that ends with commit n, unless there is one.
// It fails with [objlog.ErrGap] when its parts are not there. It reports
// whether a snapshot is due.
func (k *Keeper) merge(ctx context.Context, class, id string, level int, n uint64) (due bool, err error) {
	in := newInputs(k.reader)
	defer in.close()
	var until int64
	for at := n - objlog.Span(level); at < n; {
		res, err := k.store.Decide(ctx, objlog.MergeStatement(class, id, level, at, n),
			libsql.S(`SELECT `+kv.Now+`, EXISTS (SELECT 1 FROM obj_log WHERE class = ? AND id = ? AND ((level = ? AND max_txid = ?) OR (level = ? AND max_txid = ?)))`,
				class, id, level, int64(n), objlog.SnapshotLevel, int64(n)))
		if err != nil {
			return false, fmt.Errorf("read what to merge of %s/%s: %w", class, id, err)
		}
		if row := res[1].Rows[0]; row[1] == int64(1) {
			return false, nil
		} else if until == 0 {
			now, _ := row[0].(int64)
			until = now + insertTime.Milliseconds()
		}
		path, err := objlog.ReadPath(res[0], class, id, at, n)
		if err != nil {
			return false, err
		}
		if err := in.add(ctx, path); err != nil {
			return false, err
		}
		at = in.last().MaxTXID
	}
	return k.insert(ctx, class, id, level, in, until)
}

// snapshot writes a complete database at the head when one is due.
func (k *Keeper) snapshot(ctx context.Context, class, id string) error {
	in := newInputs(k.reader)
	defer in.close()
	var until int64
	target := uint64(anyTXID)
	for at := uint64(0); at < target; {
		res, err := k.store.Decide(ctx, objlog.HeadStatement(class, id), objlog.PathStatement(class, id, at, target), libsql.S(`SELECT `+kv.Now))
		if err != nil {
			return fmt.Errorf("read log of %s/%s: %w", class, id, err)
		}
		h, err := objlog.ReadHead(res[0])
		if err != nil || !h.Exists() || h.Checksum == 0 {
			return err
		}
		if until == 0 {
			now, _ := res[2].Rows[0][0].(int64)
			until, target = now+insertTime.Milliseconds(), h.TXID
		}
		entries, err := objlog.ReadPath(res[1], class, id, at, target)
		if err != nil {
			return err
		}
		if err := in.add(ctx, entries); err != nil {
			return err
		}
		at = in.last().MaxTXID
	}
	if first, others := in.weight(); !isDue(first, others) {
		return nil
	}
	_, err := k.insert(ctx, class, id, objlog.SnapshotLevel, in, until)
	return err
}

// anyTXID is more than any TXID.
const anyTXID = 1 << 58

// isDue reports whether a snapshot saves a reader enough: when the bytes above
// the last one exceed its size.
func isDue(first, others int64) bool { return others > max(first, snapshotFloor) }

// insert merges the inputs and adds the result to the log, when the last input
// is still there and the head no earlier.
func (k *Keeper) insert(ctx context.Context, class, id string, level int, in *inputs, until int64) (due bool, err error) {
	last := in.last()
	p := kv.NewPlan()
	p.Require(`EXISTS (SELECT 1 FROM obj_log WHERE class = ? AND id = ? AND level = ? AND max_txid = ? AND commit_id = ?)`,
		class, id, last.Level, int64(last.MaxTXID), last.CommitID)
	p.Require(`EXISTS (SELECT 1 FROM obj_head WHERE class = ? AND id = ? AND txid >= ?)`, class, id, int64(last.MaxTXID))
	p.Require(kv.Now+` < ?`, until)

	merged := objlog.Merged{Class: class, ID: id, Level: level, Last: last}
	parts := in.entries
	if level != objlog.SnapshotLevel && parts[0].Complete() {
		// What is complete belongs into the level of snapshots, not into those
		// that merge it again and again.
		objlog.AddPromotion(p, class, id, parts[0])
		parts = parts[1:]
	}
	var ref string
	if len(parts) > 0 {
		merged.MinTXID, merged.Pre = parts[0].MinTXID, parts[0].Pre
		out, err := k.encode(merged, in, parts)
		if err != nil {
			return false, fmt.Errorf("merge commits %d to %d of %s/%s: %w", merged.MinTXID, last.MaxTXID, class, id, err)
		}
		defer out.Close() //nolint:errcheck // a temporary file
		if merged.Size = out.Size(); merged.Size > k.cfg.InlineLimit {
			ref = objlog.Ref(k.cfg.StoreID, class, id, last.MaxTXID, 0)
			if err := k.blobs.Put(ctx, ref, out.Reader(), merged.Size); err != nil {
				return false, fmt.Errorf("put %s: %w", ref, err)
			}
			merged.Ref = ref
		} else if merged.Data, err = io.ReadAll(out.Reader()); err != nil {
			return false, err
		}
		merged.Add(p)
	}
	failpoint.Hit("keeper.insert.before")
	weigh := objlog.WeightStatement(class, id, last.MaxTXID)
	weight := p.Add(weigh.SQL, weigh.Args...)
	v, err := k.store.Commit(ctx, p)
	if err != nil {
		return false, fmt.Errorf("add to log of %s/%s: %w", class, id, err)
	}
	if !v.OK {
		if ref != "" {
			// Nobody else knows the name; what fails here is collected later.
			k.blobs.Delete(ctx, ref) //nolint:errcheck
		}
		return false, nil
	}
	k.log.LogAttrs(ctx, slog.LevelDebug, event.ObjectKeepMerged, slog.String(event.KeyClass, class), slog.String(event.KeyObject, id),
		slog.Uint64(event.KeyTXID, last.MaxTXID), slog.Int("level", level), slog.Int64("bytes", merged.Size))
	_, first, others := objlog.ReadWeight(v.Results[weight])
	return isDue(first, others), nil
}

// encode merges the files of the parts. The result is empty when they have
// none.
func (k *Keeper) encode(merged objlog.Merged, in *inputs, parts []objlog.Entry) (*spool.Spool, error) {
	out := spool.New(spool.Config{Memory: k.cfg.InlineLimit, Dir: k.cfg.Dir})
	files := in.files(parts)
	if len(files) == 0 {
		return out, nil
	}
	minTXID := merged.MinTXID
	if merged.Level == objlog.SnapshotLevel {
		minTXID = 1
	}
	w := bufio.NewWriterSize(out, writeBuffer)
	h, err := mirror.Merge(w, minTXID, merged.Last.MaxTXID, merged.Last.At, files...)
	if err == nil {
		err = w.Flush()
	}
	if err == nil && h.Post != merged.Last.Post {
		err = fmt.Errorf("the files lead to %016x, the rows to %016x", h.Post, merged.Last.Post)
	}
	if err != nil {
		out.Close() //nolint:errcheck // a temporary file
		return nil, err
	}
	return out, nil
}
