// Package sqlcopy copies one SQLite database into a SQL database of the fleet,
// or back into a file, and compares both: schema, rows with their rowids, exact
// values, counters and settings.
//
// A copy goes by batches that are atomic and small, whatever the size of the
// database, and each batch also moves the copy's journal, a row at the target.
// So a copy that was killed, whose answers were lost or for which there was no
// room goes on where it stopped when it is called again, and no batch counts
// twice.
//
// The order is: tables, their rows, virtual tables with what they hold,
// AUTOINCREMENT counters, indexes, views, triggers, settings. So nothing fires
// while rows are loaded, and foreign keys are not enforced. Virtual tables are
// made by their own definition. One that keeps what it was given is read and
// written through itself; an FTS5 table that keeps none or another table's
// content gets its index row by row, as nothing else tells what was indexed.
//
// The calls are
//
//	Up(ctx, file, target, options) (Summary, error)    // file to target
//	Down(ctx, target, file, options) (Summary, error)  // target to a new file
//	Compare(ctx, a, b, options) (Diff, error)          // of File(path) or Database(target)
//	Finish(ctx, target, options) error                 // forget the journal
//
// The journal stays at the target after Up, so that another call of it returns
// at once; Compare passes over it. Finish removes it when the caller has noted
// elsewhere that the copy is done; another Up is then a conflict.
package sqlcopy

import (
	"context"
	"errors"
	"iter"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Target is a SQL database: what [libsql.DB] is. Its timeout must be long
// enough for the largest CREATE INDEX.
type Target interface {
	Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error)
	Stream(ctx context.Context, stmt libsql.Statement) iter.Seq2[libsql.Row, error]
}

var _ Target = (*libsql.DB)(nil)

// Options of a copy or comparison; zero values mean the defaults.
type Options struct {
	// BatchBytes is about the size of a batch, and of the pieces of a value that
	// is larger; 2 MiB. Memory is a few times that, whatever the size of the
	// database. One value over the size is put together by the target at once,
	// which in a file costs this process about five times the value's size.
	BatchBytes int
	// Progress, when not nil, is called after each batch, or now and then by a
	// comparison, with the rows and bytes of values so far, those of an earlier
	// call that this one continues too. It is never called twice at a time.
	Progress func(rows, bytes int64)
	// Journal names the copy. A target that holds the journal of another copy
	// is a conflict. Compare does not use it.
	Journal string
	// Counts makes Compare compare the numbers of rows, not the rows.
	Counts bool
	// Without is what Compare does not compare: Left.What of a Summary.
	Without []string
}

// A Summary tells what a copy did, with what earlier calls of it had done.
type Summary struct {
	Tables int   `json:"tables"`
	Rows   int64 `json:"rows"`
	Bytes  int64 `json:"bytes"` // of values
	// Resumed: an earlier call had begun.
	Resumed bool `json:"resumed,omitempty"`
	// Left is what cannot be kept at the target.
	Left []Left `json:"left,omitempty"`
}

// A Left is something that was left out, such as statistics of the query
// planner, or a setting that a server does not take.
type Left struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// A Side is one of two databases that are compared.
type Side struct {
	path   string
	target Target
}

// File is a database file, which is read with its WAL and not changed.
func File(path string) Side { return Side{path: path} }

// Database is a SQL database of the fleet.
func Database(t Target) Side { return Side{target: t} }

// A Diff is the result of a comparison.
type Diff struct {
	// Tables are the tables that both sides have, by name.
	Tables []TableDiff `json:"tables"`
	Rows   int64       `json:"rows"`  // of the first side
	Bytes  int64       `json:"bytes"` // of values, of the first side; 0 when only rows were counted
	// Differences are the first ones, at most a few of each table.
	Differences []Difference `json:"differences,omitempty"`
}

// Equal reports whether nothing differs.
func (d Diff) Equal() bool { return len(d.Differences) == 0 }

// A TableDiff is what was compared of a table.
type TableDiff struct {
	Name string   `json:"name"`
	Rows [2]int64 `json:"rows"` // of each side
	// SHA256 is the hash of all values with their types in the order of the
	// table, "" when only rows were counted. It is of the first side.
	SHA256 string `json:"sha256,omitempty"`
	Equal  bool   `json:"equal"`
}

// A Difference is one thing that is not the same.
type Difference struct {
	// What is the kind: schema, rows, row, value, counter or setting.
	What string `json:"what"`
	// Name is the table, or other thing of the schema, or setting.
	Name string `json:"name"`
	// Key is the row: its rowid, or the values of its primary key.
	Key string `json:"key,omitempty"`
	// Column is that of a value.
	Column string `json:"column,omitempty"`
	// A and B tell what each side has, in short.
	A string `json:"a"`
	B string `json:"b"`
}

// Errors of a copy. Errors of a database below keep their type, [libsql.Error].
var (
	// ErrConflict: the target holds something else than this copy: other tables,
	// the journal of another copy, or a file that exists. Nothing was changed.
	ErrConflict = errors.New("the target is not empty")
	// ErrSourceChanged: the source is not what it was when the copy began, or
	// was changed while it was read.
	ErrSourceChanged = errors.New("the source has changed")
	// ErrUnsupported: the source holds something that no copy can be made of.
	ErrUnsupported = errors.New("cannot be copied")
)
