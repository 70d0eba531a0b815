package objlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of what one round trip returns of a path.
const (
	PathRows  = 256
	PathBytes = 4 << 20
)

// ErrGap says that no path leads from one position to another: it is no longer
// kept, or never was.
var ErrGap = errors.New("log does not lead there")

// Path reads the first entries of the shortest path from one position to
// another: as many as one round trip may return, at least one. From 0 it begins
// with the newest snapshot. From there, each time, it takes the highest level
// whose next row begins at or before the next commit, and ends at or before the
// target. Where retention removed what follows a position, it goes on with the
// newest snapshot, so the first entry may be complete. There is no data of
// offloaded entries.
//
// It fails with [ErrGap] when nothing leads on.
func Path(ctx context.Context, s *kv.Store, class, id string, have, target uint64) ([]Entry, error) {
	res, err := s.Decide(ctx, PathStatement(class, id, have, target))
	if err != nil {
		return nil, fmt.Errorf("read log of %s/%s: %w", class, id, err)
	}
	return ReadPath(res[0], class, id, have, target)
}

// PathStatement is the statement of Path.
func PathStatement(class, id string, have, target uint64) libsql.Statement {
	return libsql.S(pathSQL, class, id, int64(have), int64(target), PathBytes)
}

// ReadPath returns the entries that the result of a PathStatement shows.
func ReadPath(r libsql.Result, class, id string, have, target uint64) ([]Entry, error) {
	entries, err := ReadEntries(r)
	if err != nil {
		return nil, fmt.Errorf("read log of %s/%s: %w", class, id, err)
	}
	if len(entries) == 0 && have != target {
		return nil, fmt.Errorf("%w: %s/%s from commit %d to %d", ErrGap, class, id, have, target)
	}
	return Shortest(entries), nil
}

// Shortest leaves out what comes before the last complete entry.
func Shortest(path []Entry) []Entry {
	for i := len(path) - 1; i > 0; i-- {
		if path[i].Complete() {
			return path[i:]
		}
	}
	return path
}

// pathSQL walks from row to row with one index search a level. k is the row
// last taken, as max_txid*16+level; held are the bytes of the rows before it.
// Its parameters are class, id, have, target and the budget in bytes.
var pathSQL = walk(`?3`, MaxLevel, true) + entriesOfPath

const (
	rowsOfPath    = ` FROM path p CROSS JOIN obj_log l ON l.class = ?1 AND l.id = ?2 AND l.level = p.k & 15 AND l.max_txid = p.k >> 4 WHERE p.n > 0`
	entriesOfPath = ` SELECT ` + columns + rowsOfPath + ` AND (p.n = 1 OR p.held + CASE WHEN l.ref IS NULL THEN l.size ELSE 0 END <= ?5) ORDER BY p.n`
)

// mergeSQL are, by level, the paths of rows below it that have no snapshots,
// from the newest snapshot if that is later.
var mergeSQL = func() (sql [MaxLevel + 1]string) {
	for level := 1; level <= MaxLevel; level++ {
		sql[level] = walk(fmt.Sprintf(`max(?3, coalesce((SELECT max_txid FROM obj_log WHERE class = ?1 AND id = ?2 AND level = %d AND max_txid <= ?4
	ORDER BY max_txid DESC LIMIT 1), 0))`, SnapshotLevel), level-1, false) + entriesOfPath
	}
	return sql
}()

// MergeStatement reads what a row of the level has to merge between two
// positions, as far as one round trip may: rows of lower levels, and of those
// only what follows the newest snapshot.
func MergeStatement(class, id string, level int, have, target uint64) libsql.Statement {
	return libsql.S(mergeSQL[level], class, id, int64(have), int64(target), PathBytes)
}

// WeightStatement sums up the path from nothing to a position, for
// [ReadWeight].
func WeightStatement(class, id string, target uint64) libsql.Statement {
	return libsql.S(weightSQL, class, id, 0, int64(target), int64(math.MaxInt64))
}

var weightSQL = walk(`?3`, MaxLevel, true) + ` SELECT count(*), coalesce(sum(l.size), 0), coalesce(max(CASE WHEN p.n = 1 THEN l.size END), 0)` + rowsOfPath

// ReadWeight returns the number of rows of a path, the bytes of its first entry
// and those of all others.
func ReadWeight(r libsql.Result) (rows, first, others int64) {
	if len(r.Rows) == 0 {
		return 0, 0, 0
	}
	row := r.Rows[0]
	return num(row[0]), num(row[2]), num(row[1]) - num(row[2])
}

// walk is the recursive part of pathSQL from a position on, through the levels
// from top downwards, with or without snapshots.
func walk(from string, top int, snapshots bool) string {
	const (
		rows = `FROM obj_log WHERE class = ?1 AND id = ?2 AND level = `
		next = ` AND max_txid > (p.k >> 4) AND max_txid <= ?4 ORDER BY max_txid LIMIT 1)`
	)
	newest := fmt.Sprintf(`(SELECT max_txid * 16 + %d %s%[1]d AND max_txid > (p.k >> 4) AND max_txid <= ?4 ORDER BY max_txid DESC LIMIT 1)`, SnapshotLevel, rows)
	var choices []string
	if snapshots {
		choices = append(choices, `CASE WHEN p.k = 0 THEN `+newest+` END`)
	}
	for level := top; level > 0; level-- {
		choices = append(choices, fmt.Sprintf(`(SELECT CASE WHEN min_txid <= (p.k >> 4) + 1 THEN max_txid * 16 + %d END %s%[1]d%[3]s`, level, rows, next))
	}
	choices = append(choices, `(SELECT CASE WHEN min_txid <= (p.k >> 4) + 1 AND `+usable+` THEN max_txid * 16 END `+rows+`0`+next)
	if snapshots {
		choices = append(choices, newest)
	}
	return fmt.Sprintf(`WITH RECURSIVE path(n, k, held) AS (
	SELECT 0, %s * 16, 0 UNION ALL
	SELECT p.n + 1, coalesce(%s, 0),
		p.held + CASE WHEN p.n > 0 THEN coalesce((SELECT %s %s(p.k & 15) AND max_txid = p.k >> 4), 0) ELSE 0 END
	FROM path p WHERE p.n < %d AND p.held <= ?5 AND (p.n = 0 OR p.k > 0))`, from, strings.Join(choices, ",\n\t"), inline, rows, PathRows)
}
