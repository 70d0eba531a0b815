package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/migrate/sqlcopy"
)

// database is the binding to which a SQL database moves.
func (m *mover) database(name string) (Database, error) {
	to := m.cfg.target(name)
	d, ok := m.cfg.Databases[to]
	if !ok {
		return nil, skipError{fmt.Sprintf("there is no SQL database %q in the configuration: add it, or give it another name with --map %s=NAME", to, name)}
	}
	return d, nil
}

// bareSQL counts what somebody made in a database.
const bareSQL = `SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'`

func bareDatabase(ctx context.Context, d Database) (bool, error) {
	res, err := d.Batch(ctx, libsql.Read, libsql.S(bareSQL))
	if err != nil {
		return false, err
	}
	return res[0].Rows[0][0] == int64(0), nil
}

func (u *Up) planDatabase(ctx context.Context, f found, e entry) error {
	d, err := u.database(f.name)
	if err != nil || d == nil {
		return err
	}
	bare, err := bareDatabase(ctx, d)
	switch {
	case err != nil:
		return err
	case bare && u.deletedSince(f, e):
		return u.emptied(ctx, f, d)
	case bare || u.cfg.OnConflict != ConflictFail || e.State == stateBegun && e.Print == f.print:
		return nil
	case e.State == stateBegun:
		return errHalf
	}
	return u.sameDatabase(ctx, f, d, false)
}

// errHalf says that the target has a part of a copy, and cannot have the rest.
var errHalf = conflictError{"it has a part of this database as it was before it changed; --on-conflict replace removes that and copies it anew"}

// emptied tells a database that was moved, and of which nothing is left, from one
// that held nothing.
func (m *mover) emptied(ctx context.Context, f found, d Database) error {
	err := m.sameDatabase(ctx, f, d, true)
	if errors.Is(err, ErrConflict) {
		err = errDeletedSince
	}
	return err
}

// sameDatabase compares a database with the target's, which is a conflict when
// they differ.
func (m *mover) sameDatabase(ctx context.Context, f found, d Database, counts bool) error {
	diff, err := sqlcopy.Compare(ctx, sqlcopy.File(f.path), sqlcopy.Database(d), sqlcopy.Options{Counts: counts})
	if err == nil && !diff.Equal() {
		err = conflictError{differenceText(diff)}
	}
	return err
}

func differenceText(d sqlcopy.Diff) string {
	x := d.Differences[0]
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s here, %s there", x.What, x.Name, x.Key, x.Column, x.A, x.B))
}

// moveDatabase copies one SQL database and compares both sides.
func (m *mover) moveDatabase(ctx context.Context, f found, je entry) (l Line, e entry, err error) {
	l = Line{Kind: f.kind, Item: f.item, Outcome: Moved, Bytes: f.size, Verified: m.cfg.Verify}
	e = entry{State: stateBegun, Bytes: f.size, Print: f.print}
	d, err := m.database(f.name)
	if err != nil {
		return l, e, err
	}
	if err := checkWAL(f.path + "-wal"); err != nil {
		return l, e, sourceError{err}
	}
	bare, err := bareDatabase(ctx, d)
	if err != nil {
		return l, e, err
	}
	ours := je.State != "" && je.Print == f.print
	if bare && m.deletedSince(f, je) {
		if err := m.emptied(ctx, f, d); err != nil {
			return l, e, err
		}
	}
	if !bare && !ours {
		var err error = errHalf
		if je.State != stateBegun {
			err = m.sameDatabase(ctx, f, d, false)
		}
		switch {
		case err == nil:
			l.Outcome = Already
			return m.verifyDatabase(ctx, f, d, l, e, sqlcopy.Options{Counts: true})
		case !errors.Is(err, ErrConflict):
			return l, e, err
		case m.cfg.OnConflict != ConflictReplace:
			return l, e, err
		}
		if err := clearDatabase(ctx, d); err != nil {
			return l, e, fmt.Errorf("remove what is there: %w", err)
		}
	}
	if err := m.journal.set(ctx, map[string]any{f.item: e}); err != nil {
		return l, e, err
	}
	failpoint.Hit("migrate.sql.begun")
	opts := sqlcopy.Options{Journal: m.planID + "/" + f.name}
	var sent int64
	opts.Progress = func(rows, bytes int64) {
		m.progress.bytes(SQL, max(0, min(bytes, f.size)-sent))
		sent = max(sent, min(bytes, f.size))
	}
	sum, err := sqlcopy.Up(ctx, f.path, d, opts)
	if errors.Is(err, sqlcopy.ErrConflict) && ours {
		// It was complete when the journal of the copy was removed.
		if err = m.sameDatabase(ctx, f, d, false); err == nil {
			return m.verifyDatabase(ctx, f, d, l, e, sqlcopy.Options{Counts: m.cfg.Verify == VerifyCounts})
		}
	}
	if err != nil {
		return l, e, sqlError(err)
	}
	m.progress.bytes(SQL, f.size-sent)
	failpoint.Hit("migrate.sql.copied")
	var left []string
	opts = sqlcopy.Options{Counts: m.cfg.Verify == VerifyCounts}
	for _, x := range sum.Left {
		opts.Without = append(opts.Without, x.What)
		left = append(left, x.What+": "+x.Why)
	}
	if len(left) > 0 {
		l.Reason = "left out: " + strings.Join(left, "; ")
	}
	return m.verifyDatabase(ctx, f, d, l, e, opts)
}

// verifyDatabase compares both sides as asked, and ends the copy.
func (m *mover) verifyDatabase(ctx context.Context, f found, d Database, l Line, e entry, opts sqlcopy.Options) (Line, entry, error) {
	if now, _, err := databasePrint(f.path); err != nil || now != f.print {
		return l, e, sourceError{errors.Join(ErrChanged, err)}
	}
	if m.cfg.Verify != VerifyNone {
		diff, err := sqlcopy.Compare(ctx, sqlcopy.File(f.path), sqlcopy.Database(d), opts)
		if err != nil {
			return l, e, fmt.Errorf("verify it: %w", err)
		}
		if !diff.Equal() {
			return l, e, fmt.Errorf("verify it: %s", differenceText(diff))
		}
		l.Source, l.Target = sidesOf(diff, f.size)
	}
	if err := sqlcopy.Finish(ctx, d, sqlcopy.Options{Journal: m.planID + "/" + f.name}); err != nil {
		return l, e, fmt.Errorf("end the copy: %w", err)
	}
	failpoint.Hit("migrate.sql.finished")
	e.State = stateFor(m.cfg.Verify)
	return l, e, nil
}

func sidesOf(d sqlcopy.Diff, size int64) (a, b *Side) {
	rows := d.Rows
	a, b = &Side{Bytes: size, Rows: &rows, Tables: map[string]TableSide{}}, &Side{Bytes: d.Bytes, Tables: map[string]TableSide{}}
	for _, t := range d.Tables {
		a.Tables[t.Name] = TableSide{t.Rows[0], t.SHA256}
		b.Tables[t.Name] = TableSide{t.Rows[1], t.SHA256}
	}
	return a, b
}

// sqlError tells errors about the source from those about the target.
func sqlError(err error) error {
	switch {
	case errors.Is(err, sqlcopy.ErrConflict):
		return conflictError{err.Error()}
	case errors.Is(err, sqlcopy.ErrUnsupported):
		return skipError{err.Error()}
	case errors.Is(err, sqlcopy.ErrSourceChanged):
		return sourceError{fmt.Errorf("%w: %w; take what is at the target away with --on-conflict replace", ErrChanged, err)}
	}
	if _, ok := errors.AsType[*libsql.Error](err); ok {
		return err
	}
	return sourceError{err}
}

// clearDatabase removes all that somebody made in a database.
func clearDatabase(ctx context.Context, d Database) error {
	for {
		res, err := d.Batch(ctx, libsql.Read, libsql.S(`SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger') OR type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
			AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow') ORDER BY type = 'table', rowid LIMIT 100`))
		if err != nil || len(res[0].Rows) == 0 {
			return err
		}
		stmts := []libsql.Statement{libsql.S(`PRAGMA defer_foreign_keys = 1`)}
		for _, row := range res[0].Rows {
			kind, _ := row[0].(string)
			name, _ := row[1].(string)
			stmts = append(stmts, libsql.S(`DROP `+strings.ToUpper(kind)+` IF EXISTS "`+strings.ReplaceAll(name, `"`, `""`)+`"`))
		}
		if _, err := d.Batch(ctx, libsql.Write, stmts...); err != nil {
			return err
		}
	}
}
