package objlog

import (
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// The levels of a log. A row of level n covers up to Span(n) commits.
const (
	Level0 = 0
	// MaxLevel is the highest level that merges the one below.
	MaxLevel = 3
	// SnapshotLevel holds complete databases.
	SnapshotLevel = 9
)

// fanout is how many rows of a level make one of the next.
const fanout = 64

// Span is the number of commits that a row of a level covers at most: 1, 64,
// 4,096, 262,144. Such a row ends at a multiple of it.
func Span(level int) uint64 {
	n := uint64(1)
	for range level {
		n *= fanout
	}
	return n
}

// An Entry is one row of the log: the positions [MinTXID, MaxTXID].
type Entry struct {
	Level            int
	MinTXID, MaxTXID uint64
	Pre, Post        uint64
	// CommitID is that of the last commit.
	CommitID string
	// At is when the last commit was made, in epoch milliseconds by the
	// primary's clock.
	At int64
	// Size is that of the LTX file, in bytes; 0 when no page was changed.
	Size int64
	// Data is the LTX file, unless Ref names it in the object store.
	Data []byte
	Ref  string
}

// Complete reports whether the entry needs no database to be applied to: a
// snapshot, or with Post 0 the end of the database.
func (e Entry) Complete() bool { return e.MinTXID == 1 }

// Paged reports whether the entry has an LTX file.
func (e Entry) Paged() bool { return e.Size > 0 }

// columns are those of an Entry, of the table alias l.
const columns = `l.level, l.min_txid, l.max_txid, l.pre, l.post, l.commit_id, l.at, l.size, l.data, l.ref`

// Usable tests that the row has what its size promises. A young row of level 0
// that retention removed has lost only its data.
const usable = `(size = 0 OR data IS NOT NULL OR ref IS NOT NULL)`

// inline is the size of what a row holds itself.
const inline = `CASE WHEN ref IS NULL THEN size ELSE 0 END`

// Bounds of what an acquire returns of the log; more takes further trips.
const (
	MaxRows  = 64
	MaxBytes = 4 << 20
)

// tailSQL reads the rows of level 0 that follow a position without a gap, in
// order, at most MaxRows rows and MaxBytes bytes, the first row always.
const tailSQL = `SELECT ` + columns + ` FROM (
	SELECT max_txid AS m, sum(n) OVER w AS s, row_number() OVER w AS r, min(u) OVER w AS u
	FROM (SELECT max_txid, ` + inline + ` AS n, ` + usable + ` AS u FROM obj_log
		WHERE class = ? AND id = ? AND level = 0 AND max_txid > ? ORDER BY max_txid LIMIT ?)
	WINDOW w AS (ORDER BY max_txid)) t
	CROSS JOIN obj_log l ON l.class = ? AND l.id = ? AND l.level = 0 AND l.max_txid = t.m
	WHERE t.u AND t.m = ? + t.r`

// AddTail adds the reading of the entries behind a position to a plan, of which
// a refused plan returns none. Where retention has removed them there are none:
// then [Path] reads on.
func AddTail(p *kv.Plan, class, id string, have uint64) int {
	return p.AddShared(tailSQL+` AND `+kv.OK+` AND (t.r = 1 OR t.s <= ?) ORDER BY l.max_txid`,
		class, id, int64(have), MaxRows, class, id, int64(have), MaxBytes)
}

// ReadEntries returns the entries that the result shows.
func ReadEntries(r libsql.Result) ([]Entry, error) {
	out := make([]Entry, 0, len(r.Rows))
	for _, row := range r.Rows {
		e, err := readEntry(row)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func readEntry(row libsql.Row) (Entry, error) {
	e := Entry{Level: int(num(row[0])), MinTXID: uint64(num(row[1])), MaxTXID: uint64(num(row[2])), At: num(row[6]), Size: num(row[7])}
	var err error
	if e.Pre, err = parseSum(row[3]); err != nil {
		return e, fmt.Errorf("log entry %d: %w", e.MaxTXID, err)
	}
	if e.Post, err = parseSum(row[4]); err != nil {
		return e, fmt.Errorf("log entry %d: %w", e.MaxTXID, err)
	}
	e.CommitID, _ = row[5].(string)
	e.Data, _ = row[8].([]byte)
	e.Ref, _ = row[9].(string)
	return e, nil
}
