package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	// rowTime is how long a row of level 0 stays: its commit id decides what
	// became of a commit whose answer was lost.
	rowTime = 2 * time.Minute
	// coversAtOnce and rowsAtOnce bound what one round trip looks at.
	coversAtOnce = 64
	rowsAtOnce   = 4096

	hour = int64(time.Hour / time.Millisecond)
)

// Trim removes what retention no longer keeps of an object's log.
//
// A row is covered when a row of a higher level contains its commits, or a
// later snapshot does. It is superseded when what covers it is older than
// Config.Full, or lies before the newest Config.FullSize bytes of level 0: no
// way to the head or to a position that is still kept leads over it then. What
// is superseded is removed, except for the way to the last position of each
// hour: everything in the cover up to the latest such position stays.
func (k *Keeper) Trim(ctx context.Context, class, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trim(ctx, class, id)
}

func (k *Keeper) trim(ctx context.Context, class, id string) error {
	t := trimmer{k: k, class: class, id: id}
	if err := t.begin(ctx); err != nil {
		return err
	}
	for {
		more, err := t.step(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if t.removed > 0 {
		k.log.LogAttrs(ctx, slog.LevelDebug, event.ObjectKeepTrimmed, slog.String(event.KeyClass, class), slog.String(event.KeyObject, id), slog.Int64(event.KeyCount, t.removed))
	}
	return nil
}

// A trimmer goes through the covers of one log.
type trimmer struct {
	k         *Keeper
	class, id string
	now       int64
	full      int64 // covers at or before this time supersede
	overflow  int64 // and those that end here or before
	after     [objlog.MaxLevel + 1]int64
	done      [objlog.MaxLevel + 1]bool
	snapshots []cover // that supersede; the first one is the log's beginning
	removed   int64
}

// A cover supersedes the rows of lower levels in [from, to].
type cover struct {
	level    int
	from, to int64
	at       int64
	rows     []covered // from the last to the first
	partial  bool      // there are more rows before these
	// before is, for a snapshot, the one that it supersedes: removed as well
	// when nothing above it is kept.
	before *covered
}

type covered struct {
	max, at int64
	usable  bool
}

// Sums over the rows of level 0, l: the bytes that they hold, and the last one
// that has lost its data for having been in the overflow.
const (
	heldSum  = `coalesce(sum(CASE WHEN l.data IS NULL AND l.ref IS NULL THEN 0 ELSE l.size END), 0)`
	lastLost = `coalesce(max(CASE WHEN l.size > 0 AND l.data IS NULL AND l.ref IS NULL THEN l.max_txid END), 0)`
	level0   = `FROM obj_log l WHERE l.class = ?1 AND l.id = ?2 AND l.level = 0`
)

// overflowSQL finds the last row of level 0 before the newest ones of so many
// bytes, or the last one that has lost its data. It takes class, id and the
// bytes. A log that holds no more than those, as most do, is only summed up.
const overflowSQL = `SELECT max(s.lost, CASE WHEN s.held <= ?3 THEN 0 ELSE (SELECT coalesce(max(max_txid), 0) FROM (
		SELECT l.max_txid, sum(CASE WHEN l.data IS NULL AND l.ref IS NULL THEN 0 ELSE l.size END) OVER (ORDER BY l.max_txid DESC) AS held ` + level0 + `)
	WHERE held > ?3) END) FROM (SELECT ` + heldSum + ` AS held, ` + lastLost + ` AS lost ` + level0 + `) s`

func (t *trimmer) begin(ctx context.Context) error {
	res, err := t.k.store.Decide(ctx,
		libsql.S(`SELECT `+kv.Now),
		libsql.S(overflowSQL, t.class, t.id, t.k.cfg.FullSize),
		libsql.S(`SELECT max_txid, at FROM obj_log WHERE class = ? AND id = ? AND level = ? ORDER BY max_txid`, t.class, t.id, objlog.SnapshotLevel))
	if err != nil {
		return t.fail(err)
	}
	t.now, t.overflow = num(res[0].Rows[0][0]), num(res[1].Rows[0][0])
	t.full = t.now - t.k.cfg.Full.Milliseconds()
	var before *covered
	for _, row := range res[2].Rows {
		s := covered{max: num(row[0]), at: num(row[1]), usable: true}
		if t.supersedes(s.max, s.at) {
			c := cover{level: objlog.SnapshotLevel, from: 1, to: s.max, at: s.at, before: before}
			if before != nil {
				c.from = before.max + 1
			}
			t.snapshots = append(t.snapshots, c)
		}
		before = &s
	}
	return nil
}

func (t *trimmer) supersedes(to, at int64) bool { return at <= t.full || to <= t.overflow }

func (t *trimmer) fail(err error) error {
	return fmt.Errorf("trim log of %s/%s: %w", t.class, t.id, err)
}

// coveredSQL reads the rows that covers of one level contain, of those behind a
// position, the last rows of a cover first. Rows that are complete belong to
// snapshots. In the overflow also the first cover that ends behind it counts,
// for level 0.
var coveredSQL = func() (sql [objlog.MaxLevel + 1]string) {
	for level := 1; level <= objlog.MaxLevel; level++ {
		var exists []string
		for below := range level {
			exists = append(exists, fmt.Sprintf(`EXISTS (SELECT 1 FROM obj_log r WHERE r.class = ?1 AND r.id = ?2 AND r.level = %d
		AND r.max_txid BETWEEN c.min_txid AND c.max_txid AND r.min_txid >= c.min_txid)`, below))
		}
		overflow := `c.max_txid`
		if level == 1 {
			overflow = `c.min_txid`
		}
		sql[level] = fmt.Sprintf(`WITH covers AS (SELECT c.min_txid, c.max_txid, c.at FROM obj_log c
	WHERE c.class = ?1 AND c.id = ?2 AND c.level = %d AND c.max_txid > ?3 AND (c.at <= ?4 OR %s <= ?5) AND (%s)
	ORDER BY c.max_txid LIMIT ?6)
	SELECT c.min_txid, c.max_txid, c.at, r.max_txid, r.at, (r.size = 0 OR r.data IS NOT NULL OR r.ref IS NOT NULL)
	FROM covers c CROSS JOIN obj_log r ON r.class = ?1 AND r.id = ?2 AND r.level IN (%s)
	AND r.max_txid BETWEEN c.min_txid AND c.max_txid AND r.min_txid >= c.min_txid
	ORDER BY c.max_txid, r.max_txid DESC LIMIT ?7`, level, overflow, strings.Join(exists, " OR "), levelsBelow(level))
	}
	return sql
}()

func levelsBelow(level int) string {
	var s []string
	for l := range min(level, objlog.MaxLevel+1) {
		s = append(s, fmt.Sprint(l))
	}
	return strings.Join(s, ", ")
}

// beneathSQL reads the rows between two snapshots, the last ones first.
var beneathSQL = `SELECT max_txid, at, (size = 0 OR data IS NOT NULL OR ref IS NOT NULL) FROM obj_log
	WHERE class = ? AND id = ? AND level IN (` + levelsBelow(objlog.SnapshotLevel) + `) AND max_txid BETWEEN ? AND ? ORDER BY max_txid DESC LIMIT ?`

// snapshotsAtOnce bounds the snapshots that one round trip looks beneath.
const snapshotsAtOnce = 8

// step looks at some covers of each level and removes what they supersede, the
// lower levels first. It reports whether there are more.
func (t *trimmer) step(ctx context.Context) (more bool, err error) {
	var stmts []libsql.Statement
	var levels []int
	for level := 1; level <= objlog.MaxLevel; level++ {
		if !t.done[level] {
			levels = append(levels, level)
			stmts = append(stmts, libsql.S(coveredSQL[level], t.class, t.id, t.after[level], t.full, t.overflow, coversAtOnce, rowsAtOnce))
		}
	}
	snapshots := t.snapshots[:min(len(t.snapshots), snapshotsAtOnce)]
	for _, c := range snapshots {
		stmts = append(stmts, libsql.S(beneathSQL, t.class, t.id, c.from, c.to, rowsAtOnce))
	}
	if len(stmts) == 0 {
		return false, nil
	}
	res, err := t.k.store.Decide(ctx, stmts...)
	if err != nil {
		return false, t.fail(err)
	}
	var covers []cover
	for i, level := range levels {
		found := readCovers(level, res[i])
		covers = append(covers, found...)
		if len(found) == 0 {
			t.done[level] = true
		} else {
			t.after[level] = found[len(found)-1].to
		}
	}
	for i, c := range snapshots {
		for _, row := range res[len(levels)+i].Rows {
			c.rows = append(c.rows, covered{num(row[0]), num(row[1]), num(row[2]) != 0})
		}
		c.partial = len(c.rows) == rowsAtOnce
		covers = append(covers, c)
	}
	t.snapshots = t.snapshots[len(snapshots):]
	return true, t.remove(ctx, covers)
}

func readCovers(level int, r libsql.Result) []cover {
	var covers []cover
	for _, row := range r.Rows {
		if to := num(row[1]); len(covers) == 0 || covers[len(covers)-1].to != to {
			covers = append(covers, cover{level: level, from: num(row[0]), to: to, at: num(row[2])})
		}
		c := &covers[len(covers)-1]
		c.rows = append(c.rows, covered{num(row[3]), num(row[4]), num(row[5]) != 0})
	}
	if len(r.Rows) == rowsAtOnce {
		covers[len(covers)-1].partial = true
	}
	return covers
}

// keep returns the position up to which the rows of a cover stay, 0 for none:
// the latest one that is the last of its hour, not older than Config.Hourly,
// and before the cover's own. When not all rows were read and those that were
// contain no such position, it is the one before them.
func (t *trimmer) keep(c cover) int64 {
	rows := c.rows
	if c.before != nil {
		rows = append(rows[:len(rows):len(rows)], *c.before)
	}
	next := c.at
	for _, r := range rows {
		if !r.usable || r.max == c.to {
			continue
		}
		if r.at >= t.now-t.k.cfg.Hourly.Milliseconds() && r.at/hour != next/hour {
			return r.max
		}
		next = r.at
	}
	if c.partial {
		return c.rows[len(c.rows)-1].max - 1
	}
	return 0
}

// remove removes what the covers supersede, in one round trip.
func (t *trimmer) remove(ctx context.Context, covers []cover) error {
	p := kv.NewPlan()
	var deletes []int
	for _, c := range covers {
		keep := t.keep(c)
		if len(c.rows) > 0 && c.rows[0].max > keep {
			deletes = append(deletes, t.addRemoval(p, c, max(keep+1, c.from))...)
		}
		if c.before != nil && keep < c.before.max {
			cond, args := `class = ? AND id = ? AND level = ? AND max_txid = ? AND `+isThere, []any{
				t.class, t.id, objlog.SnapshotLevel, c.before.max, t.class, t.id, c.level, c.to}
			objlog.AddGarbage(p, cond, args...)
			deletes = append(deletes, p.Add(`DELETE FROM obj_log WHERE `+cond+` AND `+kv.OK, args...))
		}
	}
	if len(deletes) == 0 {
		return nil
	}
	v, err := t.k.store.Commit(ctx, p)
	if err != nil {
		return t.fail(err)
	}
	for _, i := range deletes {
		t.removed += v.Results[i].Changes
	}
	return nil
}

// isThere tests that the cover still is.
const isThere = `EXISTS (SELECT 1 FROM obj_log c WHERE c.class = ? AND c.id = ? AND c.level = ? AND c.max_txid = ?)`

// addRemoval adds the removal of a cover's rows from a position on to a plan.
// Young rows of level 0 only lose what they hold.
func (t *trimmer) addRemoval(p *kv.Plan, c cover, from int64) []int {
	levels := levelsBelow(c.level)
	if !t.supersedes(c.to, c.at) {
		levels = "0" // the cover that the overflow ends in
	}
	cond := `class = ? AND id = ? AND level IN (` + levels + `) AND max_txid BETWEEN ? AND ? AND min_txid >= ? AND ` + isThere
	first := c.from
	if c.level == objlog.SnapshotLevel {
		first = 0 // complete rows are covered by a snapshot alone
	}
	args := []any{t.class, t.id, from, c.to, first, t.class, t.id, c.level, c.to}
	old := kv.Now + ` - ` + fmt.Sprint(rowTime.Milliseconds())
	objlog.AddGarbage(p, cond, args...)
	p.Add(`UPDATE obj_log SET data = NULL, ref = NULL WHERE `+cond+` AND size > 0 AND level = 0 AND at >= `+old+` AND `+kv.OK, args...)
	return []int{p.Add(`DELETE FROM obj_log WHERE `+cond+` AND (level > 0 OR at < `+old+`) AND `+kv.OK, args...)}
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}
