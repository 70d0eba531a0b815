package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	// headsAtOnce bounds the heads that a step looks at.
	headsAtOnce = 256
	// worksAtOnce bounds the objects that a step works on.
	worksAtOnce = 32
	// mergesAtOnce bounds the rows that one visit adds to a level.
	mergesAtOnce = 64
	// tombstoneTime is how long the head of a deleted object stays.
	tombstoneTime = 24 * time.Hour
)

// A walk is how far the walk over everything has come.
type walk struct {
	phase     phase
	class, id string // the last head
	files     string // the cursor of their list
}

type phase int

const (
	heads phase = iota
	files
	garbage
)

// Step goes a step further on the way over all heads, then all files, then the
// garbage, and does what is due there. It reports whether it came to the end;
// the next step begins anew.
func (k *Keeper) Step(ctx context.Context) (end bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.walk.phase {
	case heads:
		return false, k.stepHeads(ctx)
	case files:
		return false, k.stepFiles(ctx)
	}
	more, err := k.collect(ctx)
	if err == nil && more {
		return false, nil
	}
	k.walk = walk{}
	return err == nil, err
}

// Round does steps up to the end.
func (k *Keeper) Round(ctx context.Context) error {
	for {
		if end, err := k.Step(ctx); end || err != nil {
			return err
		}
	}
}

// A survey is what the log of one object looks like.
type survey struct {
	class, id string
	txid      uint64
	buried    bool // a tombstone whose time is over
	// missing are the first rows of each level that are not there, 0 for none.
	missing   [objlog.MaxLevel + 1]uint64
	due, trim bool
}

// stepHeads looks at some heads and works on their objects. An object that
// fails is passed over.
func (k *Keeper) stepHeads(ctx context.Context) error {
	found, err := k.surveys(ctx)
	if err != nil {
		return err
	}
	var errs []error
	works := 0
	for _, s := range found {
		if works == worksAtOnce || ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		k.walk.class, k.walk.id = s.class, s.id
		if !s.buried && !s.due && !s.trim && s.missing == [objlog.MaxLevel + 1]uint64{} {
			continue
		}
		works++
		if err := k.work(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	if len(found) < headsAtOnce {
		k.walk.phase = files
	}
	return errors.Join(errs...)
}

func (k *Keeper) work(ctx context.Context, s survey) error {
	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	if s.buried {
		return k.bury(ctx, s)
	}
	due := s.due
	for level := 1; level <= objlog.MaxLevel; level++ {
		d, err := k.fill(ctx, s, level)
		if err != nil {
			return err
		}
		due = due || d
	}
	if due {
		if err := k.snapshot(ctx, s.class, s.id); err != nil && !errors.Is(err, objlog.ErrGap) {
			return err
		}
	}
	return k.trim(ctx, s.class, s.id)
}

// fill adds rows of a level that are missing.
func (k *Keeper) fill(ctx context.Context, s survey, level int) (due bool, err error) {
	span := objlog.Span(level)
	merges := 0
	for n := s.missing[level]; n > 0 && n <= s.txid && merges < mergesAtOnce; n += span {
		d, err := k.merge(ctx, s.class, s.id, level, n)
		if err != nil && !errors.Is(err, objlog.ErrGap) {
			return due, err
		}
		due = due || d
		merges++
	}
	return due, nil
}

// surveys reads the heads that follow and looks at their logs.
func (k *Keeper) surveys(ctx context.Context) ([]survey, error) {
	// What is found is looked at again, at the primary, before it is acted on.
	res, err := k.store.Look(ctx, libsql.S(`SELECT class, id, txid, coalesce(deleted_at < `+kv.Now+` - ?, 0), deleted_at IS NULL FROM obj_head
	WHERE (class, id) > (?, ?) ORDER BY class, id LIMIT ?`, tombstoneTime.Milliseconds(), k.walk.class, k.walk.id, headsAtOnce))
	if err != nil {
		return nil, fmt.Errorf("walk over heads: %w", err)
	}
	var found []survey
	var stmts []libsql.Statement
	var of []int
	for i, row := range res[0].Rows {
		s := survey{txid: uint64(num(row[2])), buried: num(row[3]) != 0}
		s.class, _ = row[0].(string)
		s.id, _ = row[1].(string)
		found = append(found, s)
		if num(row[4]) != 0 {
			of = append(of, i)
			stmts = append(stmts, libsql.S(surveySQL, s.class, s.id, int64(s.txid), k.cfg.Full.Milliseconds(), k.cfg.FullSize),
				objlog.WeightStatement(s.class, s.id, s.txid))
		}
	}
	if len(stmts) == 0 {
		return found, nil
	}
	if res, err = k.store.Look(ctx, stmts...); err != nil {
		return nil, fmt.Errorf("look at logs: %w", err)
	}
	for j, i := range of {
		s := &found[i]
		row := res[2*j].Rows[0]
		for level := 1; level <= objlog.MaxLevel; level++ {
			s.missing[level] = uint64(num(row[level-1]))
		}
		s.trim = num(row[objlog.MaxLevel]) != 0
		_, first, others := objlog.ReadWeight(res[2*j+1])
		s.due = isDue(first, others)
	}
	return found, nil
}

// surveySQL finds the first row of each level that is missing above the newest
// snapshot, and whether there is something to trim. Its parameters are class,
// id, TXID of the head, and Full and FullSize of the configuration.
var surveySQL = func() string {
	var columns string
	for level := 1; level <= objlog.MaxLevel; level++ {
		columns += fmt.Sprintf(`(WITH RECURSIVE b(n) AS (SELECT (s.base / %[2]d + 1) * %[2]d UNION ALL
		SELECT n + %[2]d FROM b WHERE n <= ?3 AND EXISTS (SELECT 1 FROM obj_log WHERE class = ?1 AND id = ?2 AND level = %[1]d AND max_txid = n))
		SELECT max(n) FROM b WHERE n <= ?3 AND NOT EXISTS (SELECT 1 FROM obj_log WHERE class = ?1 AND id = ?2 AND level = %[1]d AND max_txid = n)),
	`, level, objlog.Span(level))
	}
	trim := `s.overflow`
	for level := 1; level <= objlog.MaxLevel; level++ {
		trim += fmt.Sprintf(` OR EXISTS (SELECT 1 FROM obj_log c WHERE c.class = ?1 AND c.id = ?2 AND c.level = %d AND c.at <= `+kv.Now+` - ?4
		AND EXISTS (SELECT 1 FROM obj_log r WHERE r.class = ?1 AND r.id = ?2 AND r.level = %d AND r.max_txid BETWEEN c.min_txid AND c.max_txid))`, level, level-1)
	}
	trim += fmt.Sprintf(` OR EXISTS (SELECT 1 FROM obj_log c WHERE c.class = ?1 AND c.id = ?2 AND c.level = %d AND c.at <= `+kv.Now+` - ?4
		AND EXISTS (SELECT 1 FROM obj_log r WHERE r.class = ?1 AND r.id = ?2 AND r.level IN (%s) AND r.max_txid <= c.max_txid
		UNION ALL SELECT 1 FROM obj_log r WHERE r.class = ?1 AND r.id = ?2 AND r.level = %[1]d AND r.max_txid < c.max_txid))`,
		objlog.SnapshotLevel, levelsBelow(objlog.SnapshotLevel))
	return `SELECT ` + columns + trim + ` FROM (SELECT
	coalesce((SELECT max_txid FROM obj_log WHERE class = ?1 AND id = ?2 AND level = ` + fmt.Sprint(objlog.SnapshotLevel) + ` ORDER BY max_txid DESC LIMIT 1), 0) AS base,
	(SELECT ` + lastLost + ` > 0 OR ` + heldSum + ` > ?5 ` + level0 + `) AS overflow) s`
}()

// bury removes the tombstone of an object.
func (k *Keeper) bury(ctx context.Context, s survey) error {
	p := kv.NewPlan()
	p.Require(`EXISTS (SELECT 1 FROM obj_head WHERE class = ? AND id = ? AND txid = ? AND deleted_at < `+kv.Now+` - ?)`,
		s.class, s.id, int64(s.txid), tombstoneTime.Milliseconds())
	objlog.AddGarbage(p, `class = ? AND id = ?`, s.class, s.id)
	p.Add(`DELETE FROM obj_log WHERE class = ? AND id = ? AND `+kv.OK, s.class, s.id)
	p.Add(`DELETE FROM obj_head WHERE class = ? AND id = ? AND `+kv.OK, s.class, s.id)
	if _, err := k.store.Commit(ctx, p); err != nil {
		return fmt.Errorf("remove tombstone of %s/%s: %w", s.class, s.id, err)
	}
	return nil
}
