// Package libsql opens SQL databases, by file or over the wire, behind two
// primitives: Batch, one atomic round trip, and Stream, the rows of one
// statement from one snapshot. It is the only place that knows drivers and the
// only one that classifies their errors.
package libsql

import (
	"context"
	"sync/atomic"
)

// A Statement is one SQL statement with positional arguments, which are nil,
// bool, int, int64, float64, string or []byte.
type Statement struct {
	SQL  string
	Args []any
}

// S is a Statement in one call.
func S(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args} }

// A Row holds nil, int64, float64, string or []byte, as the database stores
// them: no column type turns a text into a time.
type Row = []any

// A Result is what one statement of a batch returned.
type Result struct {
	Columns []string
	Rows    []Row
	// Changes counts the rows that an INSERT, UPDATE or DELETE changed; 0 for
	// other statements.
	Changes int64
	// LastRowID is the rowid of an INSERT; 0 for other statements.
	LastRowID int64
}

// Mode says how a batch begins.
type Mode uint8

const (
	// Read sees one snapshot and takes no write lock.
	Read Mode = iota
	// Write takes the write lock first: BEGIN IMMEDIATE.
	Write
	// Load is Write for a copy of what exists elsewhere: foreign keys are not
	// enforced, and in a file a batch may be lost with the machine, together with
	// those behind it, until a later Write has returned.
	Load
)

type tripsKey struct{}

// CountTrips returns a context whose store round trips are also added to n.
func CountTrips(ctx context.Context, n *atomic.Int64) context.Context {
	return context.WithValue(ctx, tripsKey{}, n)
}

func countTrip(ctx context.Context) {
	if n, ok := ctx.Value(tripsKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}
