package audit

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	headsAtOnce = 256
	// logsAtOnce bounds the objects whose logs one round trip reads, rowsAtOnce
	// the rows of each.
	logsAtOnce = 16
	rowsAtOnce = 500
)

// An object is named by class and id.
type object struct{ class, id string }

// objects looks at the log of every object, and chooses those whose databases
// are looked at.
func (a *auditor) objects(ctx context.Context) error {
	t := twice[object]{a: a, look: a.lookLogs}
	var last object
	for more := true; more; {
		cond, args := `(class, id) > (?, ?)`, []any{last.class, last.id}
		if a.Class != "" {
			cond, args = `class = ? AND id > ?`, []any{a.Class, last.id}
		}
		res, err := a.Store.Decide(ctx, libsql.S(`SELECT class, id, deleted_at IS NULL FROM obj_head WHERE `+cond+` ORDER BY class, id LIMIT ?`, append(args, headsAtOnce)...))
		if err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		var objects []object
		for _, row := range res[0].Rows {
			last = object{text(row[0]), text(row[1])}
			objects = append(objects, last)
			a.sum.Objects++
			if num(row[2]) != 0 {
				a.sample.add(last)
			}
		}
		for len(objects) > 0 {
			n := min(logsAtOnce, len(objects))
			if err := t.first(ctx, objects[:n]); err != nil {
				return err
			}
			objects = objects[n:]
		}
		more = len(res[0].Rows) == headsAtOnce
	}
	return t.flush(ctx)
}

// lookLogs checks the logs of some objects against their heads. Of each, head
// and first rows are from one transaction.
func (a *auditor) lookLogs(ctx context.Context, objects []object) ([][]Finding, error) {
	found := make([][]Finding, len(objects))
	for first := 0; first < len(objects); first += logsAtOnce {
		some := objects[first:min(first+logsAtOnce, len(objects))]
		var stmts []libsql.Statement
		for _, o := range some {
			stmts = append(stmts, objlog.HeadStatement(o.class, o.id), rowsStatement(o, 0, 0), libsql.S(acrossSQL, o.class, o.id), libsql.S(levelSQL, o.class, o.id))
		}
		res, err := a.Store.Decide(ctx, stmts...)
		if err != nil {
			return nil, fmt.Errorf("read logs: %w", err)
		}
		for i, o := range some {
			if found[first+i], err = a.judgeLog(ctx, o, res[4*i:4*i+4]); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// judgeLog checks a log of which the head, the first rows, breaks across levels
// and rows of unknown levels have been read.
func (a *auditor) judgeLog(ctx context.Context, o object, res []libsql.Result) ([]Finding, error) {
	if len(res[0].Rows) == 0 {
		return nil, nil // it has just gone
	}
	c := logCheck{object: o, storeID: a.StoreID}
	var err error
	if c.head, err = objlog.ReadHead(res[0]); err != nil {
		c.add(LogHead, "", "the head cannot be read: %v", err)
		return c.found, nil
	}
	for _, row := range res[2].Rows {
		c.add(LogChain, fmt.Sprint(row[0], row[2]), "commits %d to %d of level %d begin at %s, the one before ends at %s", num(row[1]), num(row[2]), num(row[0]), text(row[3]), text(row[4]))
	}
	for _, row := range res[3].Rows {
		c.add(LogRow, fmt.Sprint(row[0], row[1]), "commit %d is of level %d, which there is not", num(row[1]), num(row[0]))
	}
	rows := res[1]
	for first := true; ; first = false {
		for _, row := range rows.Rows {
			if !c.row(readRow(row), first) {
				break
			}
		}
		if len(rows.Rows) < rowsAtOnce || c.done {
			break
		}
		next, err := a.Store.Decide(ctx, rowsStatement(o, c.last.max, c.last.level))
		if err != nil {
			return nil, fmt.Errorf("read log of %s/%s: %w", o.class, o.id, err)
		}
		rows = next[0]
	}
	c.end()
	a.count(&a.sum.Rows, int(c.rows))
	if err := a.checkFiles(ctx, &c); err != nil {
		return nil, err
	}
	return c.found, nil
}

// rowsSQL reads the rows of all levels in the order of their last commits,
// without their data. Its parameters are class, id, and the row last seen.
var rowsSQL = func() string {
	var s string
	for i, level := range levels {
		if i > 0 {
			s += "\n\tUNION ALL "
		}
		s += fmt.Sprintf(`SELECT * FROM (SELECT level, min_txid, max_txid, pre, post, commit_id, size, length(data), ref FROM obj_log
	WHERE class = ?1 AND id = ?2 AND level = %d AND max_txid > ?3 - (%[1]d > ?4) ORDER BY max_txid LIMIT %d)`, level, rowsAtOnce)
	}
	return s + fmt.Sprintf(` ORDER BY max_txid, level LIMIT %d`, rowsAtOnce)
}()

var levels = []int{objlog.Level0, 1, 2, objlog.MaxLevel, objlog.SnapshotLevel}

func rowsStatement(o object, max uint64, level int) libsql.Statement {
	return libsql.S(rowsSQL, o.class, o.id, int64(max), level)
}

const (
	// acrossSQL finds merged rows that do not begin where a row of any level
	// ends.
	acrossSQL = `SELECT h.level, h.min_txid, h.max_txid, h.pre, b.post FROM obj_log h
	CROSS JOIN obj_log b ON b.class = h.class AND b.id = h.id AND b.level IN (0, 1, 2, 3, 9) AND b.max_txid = h.min_txid - 1
	WHERE h.class = ? AND h.id = ? AND h.level IN (1, 2, 3) AND h.min_txid > 1 AND b.post <> h.pre GROUP BY h.level, h.max_txid LIMIT 3`
	// levelSQL finds rows that no reader looks for.
	levelSQL = `SELECT level, max_txid FROM obj_log WHERE class = ?1 AND id = ?2 AND level < 0
	UNION ALL SELECT level, max_txid FROM obj_log WHERE class = ?1 AND id = ?2 AND level > 3 AND level < 9
	UNION ALL SELECT level, max_txid FROM obj_log WHERE class = ?1 AND id = ?2 AND level > 9 LIMIT 3`
)

// strays looks for logs without a head.
func (a *auditor) strays(ctx context.Context) error {
	t := twice[object]{a: a, look: a.lookStrays}
	last := object{class: a.Class}
	for {
		res, err := a.Store.Decide(ctx, libsql.S(ownersSQL, last.class, last.id, headsAtOnce))
		if err != nil {
			return fmt.Errorf("list logs: %w", err)
		}
		var lost []object
		more := len(res[0].Rows) == headsAtOnce
		for _, row := range res[0].Rows {
			last = object{text(row[0]), text(row[1])}
			if a.Class != "" && last.class != a.Class {
				more = false
				break
			}
			if num(row[2]) == 0 {
				lost = append(lost, last)
			}
		}
		if err := t.first(ctx, lost); err != nil {
			return err
		}
		if !more {
			return t.flush(ctx)
		}
	}
}

// ownersSQL finds those who have a log, with two index searches each.
const ownersSQL = `WITH RECURSIVE o(c, i, n) AS (SELECT ?1, ?2, 0 UNION ALL
	SELECT (SELECT class FROM obj_log WHERE (class, id) > (o.c, o.i) ORDER BY class, id LIMIT 1),
		(SELECT id FROM obj_log WHERE (class, id) > (o.c, o.i) ORDER BY class, id LIMIT 1), n + 1 FROM o WHERE o.c IS NOT NULL AND n < ?3)
	SELECT c, i, EXISTS (SELECT 1 FROM obj_head WHERE class = c AND id = i) FROM o WHERE n > 0 AND c IS NOT NULL ORDER BY n`

func (a *auditor) lookStrays(ctx context.Context, objects []object) ([][]Finding, error) {
	found := make([][]Finding, len(objects))
	for i, o := range objects {
		res, err := a.Store.Decide(ctx, libsql.S(`SELECT count(*), max(max_txid) FROM obj_log WHERE class = ?1 AND id = ?2 AND NOT EXISTS (SELECT 1 FROM obj_head WHERE class = ?1 AND id = ?2)`, o.class, o.id))
		if err != nil {
			return nil, fmt.Errorf("read log of %s/%s: %w", o.class, o.id, err)
		}
		if n := num(res[0].Rows[0][0]); n > 0 {
			found[i] = []Finding{{Check: LogStray, Class: o.class, ID: o.id, Count: n, Message: fmt.Sprintf("the log leads to commit %d, and the object has no head", num(res[0].Rows[0][1]))}}
		}
	}
	return found, nil
}

// garbage looks for files that are marked as garbage and named by the log.
func (a *auditor) garbage(ctx context.Context) error {
	if a.Class != "" {
		return nil
	}
	last := ""
	for {
		res, err := a.Store.Decide(ctx, libsql.S(`SELECT ref, at, `+kv.Now+` FROM obj_garbage WHERE ref > ? ORDER BY ref LIMIT ?`, last, keysAtOnce))
		if err != nil {
			return fmt.Errorf("read garbage: %w", err)
		}
		for _, row := range res[0].Rows {
			last = text(row[0])
			if err := a.judgeGarbage(ctx, last); err != nil {
				return err
			}
		}
		if len(res[0].Rows) < keysAtOnce {
			return nil
		}
	}
}

func (a *auditor) judgeGarbage(ctx context.Context, ref string) error {
	info, ok := objlog.ParseRef(ref)
	if !ok {
		return nil // nobody deletes it
	}
	res, err := a.Store.Decide(ctx, libsql.S(`SELECT 1 FROM obj_garbage g WHERE g.ref = ?1 AND EXISTS (SELECT 1 FROM obj_log
	WHERE class = ?2 AND id = ?3 AND level IN (0, 1, 2, 3, 9) AND max_txid = ?4 AND ref = ?1)`, ref, info.Class, info.ID, int64(info.MaxTXID)))
	if err != nil {
		return fmt.Errorf("look at garbage: %w", err)
	}
	if len(res[0].Rows) == 0 {
		return nil
	}
	return a.report.add(Finding{Check: FileGarbage, Class: info.Class, ID: info.ID, Message: fmt.Sprintf("commit %d names %s, which is marked as garbage", info.MaxTXID, ref)})
}
