package objlog

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Position is a state that an object can be brought back to.
type Position struct {
	TXID     uint64
	CommitID string
	// At is when the position was committed, in epoch milliseconds by the
	// primary's clock.
	At int64
	// Size is what was written, in bytes: by the commit, or where its own entry
	// is gone, by the commits that are merged with it.
	Size int64
	// Exists is false where the object has no database.
	Exists bool
}

// positionPage is how many rows one round trip returns.
const positionPage = 1000

// positionsSQL merges the rows of all levels by their last commit. Its
// parameters are class, id and the row last seen, as max_txid and level, and
// the number of rows.
var positionsSQL = func() string {
	var levels []string
	for _, level := range []int{0, 1, 2, 3, SnapshotLevel} {
		levels = append(levels, fmt.Sprintf(`SELECT * FROM (SELECT level, min_txid, max_txid, post, commit_id, at, size FROM obj_log
	WHERE class = ?1 AND id = ?2 AND level = %d AND max_txid > ?3 - (%[1]d > ?4) AND %s ORDER BY max_txid LIMIT ?5)`, level, usable))
	}
	return strings.Join(levels, "\n\tUNION ALL ") + ` ORDER BY max_txid, level LIMIT ?5`
}()

// Positions yields the positions that the log leads to, in rising order.
func Positions(ctx context.Context, s *kv.Store, class, id string) iter.Seq2[Position, error] {
	return func(yield func(Position, error) bool) {
		var reached uint64 // the last position found
		var max, level int64
		for {
			res, err := s.Decide(ctx, libsql.S(positionsSQL, class, id, max, level, positionPage))
			if err != nil {
				yield(Position{}, fmt.Errorf("list positions of %s/%s: %w", class, id, err))
				return
			}
			for _, row := range res[0].Rows {
				level, max = num(row[0]), num(row[2])
				min, txid := uint64(num(row[1])), uint64(max)
				if txid == reached || min > reached+1 && min != 1 {
					continue
				}
				reached = txid
				p := Position{TXID: txid, At: num(row[5]), Size: num(row[6])}
				sum, err := parseSum(row[3])
				p.Exists = sum != 0
				p.CommitID, _ = row[4].(string)
				if !yield(p, err) || err != nil {
					return
				}
			}
			if len(res[0].Rows) < positionPage {
				return
			}
		}
	}
}
