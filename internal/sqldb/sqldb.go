// Package sqldb makes a SQL database shared by the fleet of a libSQL server or a
// file: [durable.Database] on the primitives of the package libsql. Every
// statement runs at the primary, each call in a transaction and a round trip of
// its own.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Database is one SQL binding. It is safe for concurrent use.
type Database struct {
	name string
	db   *libsql.DB
	pool pool
}

var _ durable.Database = (*Database)(nil)

// Open checks the configuration of the binding with this name. A server is
// first spoken to by the first call; for a file the folders above it are
// created.
func Open(name string, cfg libsql.Config) (*Database, error) {
	db, err := libsql.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("SQL database %s: %w", name, err)
	}
	return &Database{name: name, db: db, pool: pool{name: name, cfg: cfg}}, nil
}

// Close waits for what is under way and closes all connections.
func (d *Database) Close() error { return errors.Join(d.pool.close(), d.db.Close()) }

// Name is the name of the binding.
func (d *Database) Name() string { return d.name }

// String returns the address, without secrets.
func (d *Database) String() string { return d.db.String() }

// LibSQL is the database below, for the host's own tools.
func (d *Database) LibSQL() *libsql.DB { return d.db }

// Exec implements [durable.Database].
func (d *Database) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	stmt, err := prepare(durable.Statement{SQL: query, Args: args})
	if err != nil {
		return durable.Result{}, d.refuse(-1, err)
	}
	res, err := d.run(ctx, []statement{stmt})
	if err != nil {
		return durable.Result{}, d.fail(err, stmt.reads, false)
	}
	return result(res[0]), nil
}

// Query implements [durable.Database].
func (d *Database) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		stmt, err := prepare(durable.Statement{SQL: query, Args: args})
		switch {
		case err != nil:
			yield(durable.Row{}, d.refuse(-1, err))
		case stmt.streams:
			d.stream(ctx, stmt, yield)
		default:
			d.whole(ctx, stmt, yield)
		}
	}
}

// stream yields the rows of a statement that reads, as they come.
func (d *Database) stream(ctx context.Context, stmt statement, yield func(durable.Row, error) bool) {
	var columns []string
	for values, err := range d.db.StreamRows(ctx, stmt.Statement, func(c []string) { columns = c }) {
		if err != nil {
			yield(durable.Row{}, d.fail(err, true, false))
			return
		}
		if !yield(durable.Row{Columns: columns, Values: values}, nil) {
			return
		}
	}
}

// whole yields the rows of a statement that may write, when it is over: one
// whose rows were read in part would be done in part.
func (d *Database) whole(ctx context.Context, stmt statement, yield func(durable.Row, error) bool) {
	res, err := d.run(ctx, []statement{stmt})
	if err != nil {
		yield(durable.Row{}, d.fail(err, stmt.reads, false))
		return
	}
	for _, values := range res[0].Rows {
		if !yield(durable.Row{Columns: res[0].Columns, Values: values}, nil) {
			return
		}
	}
}

// First implements [durable.Database].
func (d *Database) First(ctx context.Context, query string, args ...any) (durable.Row, error) {
	stmt, err := prepare(durable.Statement{SQL: query, Args: args})
	if err != nil {
		return durable.Row{}, d.refuse(-1, err)
	}
	// A stream that is broken off costs a connection, so the few rows that
	// there mostly are come as a whole.
	res, err := d.run(ctx, []statement{stmt})
	if kind, _ := libsql.KindOf(err); stmt.streams && kind == libsql.KindTooLarge {
		for row, err := range d.Query(ctx, query, args...) {
			return row, err
		}
		return durable.Row{}, sql.ErrNoRows
	}
	switch {
	case err != nil:
		return durable.Row{}, d.fail(err, stmt.reads, false)
	case len(res[0].Rows) == 0:
		return durable.Row{}, sql.ErrNoRows
	default:
		return durable.Row{Columns: res[0].Columns, Values: res[0].Rows[0]}, nil
	}
}

// Batch implements [durable.Database].
func (d *Database) Batch(ctx context.Context, statements ...durable.Statement) ([]durable.BatchResult, error) {
	stmts, i, err := prepareAll(statements)
	if err != nil {
		return nil, d.refuse(i, err)
	}
	if len(stmts) == 0 {
		return nil, nil
	}
	reads := true
	for _, s := range stmts {
		reads = reads && s.reads
	}
	res, err := d.run(ctx, stmts)
	if err != nil {
		return nil, d.fail(err, reads, len(stmts) > 1)
	}
	out := make([]durable.BatchResult, len(res))
	for i, r := range res {
		out[i].Result = result(r)
		for _, values := range r.Rows {
			out[i].Rows = append(out[i].Rows, durable.Row{Columns: r.Columns, Values: values})
		}
	}
	return out, nil
}

// run runs the statements in one transaction at the primary: one round trip.
func (d *Database) run(ctx context.Context, stmts []statement) ([]libsql.Result, error) {
	reads := true
	list := make([]libsql.Statement, 0, len(stmts)+1)
	for _, s := range stmts {
		reads = reads && s.reads
		list = append(list, s.Statement)
	}
	switch {
	case !reads:
		return d.db.Batch(ctx, libsql.Write, list...)
	case d.db.Local():
		return d.db.Batch(ctx, libsql.Read, list...)
	}
	res, err := d.db.Batch(ctx, libsql.Read, append(list, libsql.S(libsql.Primary))...)
	if err != nil {
		return nil, err
	}
	return res[:len(stmts)], nil
}

func result(r libsql.Result) durable.Result {
	return durable.Result{Changes: r.Changes, LastRowID: r.LastRowID}
}
