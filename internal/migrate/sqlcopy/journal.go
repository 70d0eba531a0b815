package sqlcopy

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A journal is the row at the target that tells how far a copy is.
type journal struct {
	name   string // of the copy
	source string // schema.id of the source
	step   int64  // number of batches
	position
	last  string // digest of the last row of the table that is under way
	rows  int64
	bytes int64
}

// readJournal returns the target's journal, nil when there is none, and the name
// of something else that the target holds, if any.
func readJournal(ctx context.Context, t Target) (j *journal, other string, err error) {
	res, err := retried(ctx, t, libsql.S(`SELECT (SELECT count(*) FROM sqlite_master WHERE name = '`+journalTable+`'),
		(SELECT name FROM sqlite_master WHERE `+foreign+` LIMIT 1)`))
	if err != nil {
		return nil, "", err
	}
	other, _ = res[0].Rows[0][1].(string)
	if res[0].Rows[0][0] == int64(0) {
		return nil, other, nil
	}
	res, err = retried(ctx, t, libsql.S(`SELECT name, source, last, step, item, row, rows, bytes FROM `+journalTable+` WHERE id = 1`))
	if err != nil {
		return nil, "", err
	}
	if len(res[0].Rows) != 1 {
		return nil, "", fmt.Errorf("the journal at the target (table %s) is damaged: %w", journalTable, ErrConflict)
	}
	row := res[0].Rows[0]
	j = &journal{name: text(row[0]), source: text(row[1]), last: text(row[2])}
	var numbers [5]int64
	for i := range numbers {
		numbers[i], _ = row[3+i].(int64)
	}
	j.step, j.item, j.row, j.rows, j.bytes = numbers[0], int(numbers[1]), numbers[2], numbers[3], numbers[4]
	return j, other, nil
}

// foreign is the condition for what is neither SQLite's nor this package's.
const foreign = `name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT IN ('` + journalTable + `', '` + pieceTable + `')`

// begin writes the journal of a copy into a target that is empty.
func (j *journal) begin(ctx context.Context, t Target) error {
	_, err := t.Batch(ctx, libsql.Write,
		libsql.S(`CREATE TABLE `+journalTable+`(id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, source TEXT NOT NULL, step INTEGER NOT NULL,
			item INTEGER NOT NULL, row INTEGER NOT NULL, last TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL)`),
		libsql.S(`CREATE TABLE `+pieceTable+`(n INTEGER PRIMARY KEY, col INTEGER NOT NULL, data BLOB NOT NULL)`),
		// No step means NULL, which is refused.
		libsql.S(`INSERT INTO `+journalTable+` SELECT 1, ?, ?, CASE WHEN count(*) = 0 THEN 0 END, 0, 0, '', 0, 0 FROM sqlite_master WHERE `+foreign, j.name, j.source))
	return err
}

// move is the statement that moves the journal to where it is after a batch. It
// fails, and the batch with it, unless the journal is where the batch begins.
func (j *journal) move() libsql.Statement {
	return libsql.S(`UPDATE `+journalTable+` SET step = CASE WHEN step = ? THEN step + 1 END, item = ?, row = ?, last = ?, rows = ?, bytes = ? WHERE id = 1`,
		j.step-1, j.item, j.row, j.last, j.rows, j.bytes)
}

// open finds or begins the journal of this copy.
func (j *journal) open(ctx context.Context, t Target) (resumed bool, err error) {
	for try := 1; ; try++ {
		old, other, err := readJournal(ctx, t)
		switch {
		case err != nil:
			return false, err
		case old != nil && (old.name != j.name || old.source != j.source):
			what := ErrConflict
			if old.name == j.name {
				what = ErrSourceChanged
			}
			return false, fmt.Errorf("%v holds the journal of the copy %q of another schema or name: %w", t, old.name, what)
		case old != nil:
			*j = *old
			return j.step > 0 || try == 1, nil
		case other != "":
			return false, fmt.Errorf("%v holds %q: %w", t, other, ErrConflict)
		case try > attempts:
			return false, errors.New("the journal of the copy could not be made")
		}
		if err := j.begin(ctx, t); err == nil {
			return false, nil
		} else if !(passing(err) || libsql.OutcomeOf(err) == libsql.Unknown || constraint(err)) || try == attempts || !pause(ctx, try) {
			return false, fmt.Errorf("beginning the copy: %w", err)
		}
	}
}

func constraint(err error) bool {
	kind, ok := libsql.KindOf(err)
	return ok && kind == libsql.KindConstraint
}

// retried runs a statement that reads.
func retried(ctx context.Context, t Target, stmts ...libsql.Statement) ([]libsql.Result, error) {
	for try := 1; ; try++ {
		res, err := t.Batch(ctx, libsql.Read, stmts...)
		if err == nil || !passing(err) || try == attempts || !pause(ctx, try) {
			return res, err
		}
	}
}

// staged returns the bytes that are put aside of each large value.
func staged(ctx context.Context, t Target) (map[int64]int64, error) {
	res, err := retried(ctx, t, libsql.S(`SELECT col, sum(length(data)) FROM `+pieceTable+` GROUP BY col`))
	if err != nil {
		return nil, err
	}
	sizes := map[int64]int64{}
	for _, row := range res[0].Rows {
		col, _ := row[0].(int64)
		sizes[col], _ = row[1].(int64)
	}
	return sizes, nil
}

// Finish removes the journal of a copy that is done from its target. It may be
// repeated.
func Finish(ctx context.Context, t Target, opts Options) error {
	j, _, err := readJournal(ctx, t)
	switch {
	case err != nil:
		return fmt.Errorf("finishing the copy: %w", err)
	case j == nil:
		return nil
	case j.name != opts.Journal:
		return fmt.Errorf("%v holds the journal of the copy %q: %w", t, j.name, ErrConflict)
	}
	for try := 1; ; try++ {
		_, err := t.Batch(ctx, libsql.Write, libsql.S(`DROP TABLE IF EXISTS `+pieceTable), libsql.S(`DROP TABLE IF EXISTS `+journalTable))
		if err == nil {
			return nil
		}
		if !(passing(err) || libsql.OutcomeOf(err) == libsql.Unknown) || try == attempts || !pause(ctx, try) {
			return fmt.Errorf("finishing the copy: %w", err)
		}
	}
}
