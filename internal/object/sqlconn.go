package object

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

// A gatedConnector lends connections of a shared pool to one instance, each of
// whose calls passes the output gate first.
type gatedConnector struct {
	i    *instance
	next *sql.DB
}

func (c gatedConnector) Driver() driver.Driver { return c.next.Driver() }

func (c gatedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.next.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &gatedConn{i: c.i, conn: conn}, nil
}

type gatedConn struct {
	i    *instance
	conn *sql.Conn
}

func (c *gatedConn) Close() error { return c.conn.Close() }

// CheckNamedValue implements driver.NamedValueChecker: the connection below
// converts.
func (c *gatedConn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c *gatedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if _, err := c.i.callOut(ctx); err != nil {
		return nil, err
	}
	return c.conn.ExecContext(ctx, query, plain(args)...)
}

func (c *gatedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if _, err := c.i.callOut(ctx); err != nil {
		return nil, err
	}
	rows, err := c.conn.QueryContext(ctx, query, plain(args)...)
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	return &lentRows{rows: rows, columns: columns}, nil
}

func plain(args []driver.NamedValue) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if out[i] = a.Value; a.Name != "" {
			out[i] = sql.Named(a.Name, a.Value)
		}
	}
	return out
}

func (c *gatedConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *gatedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.i.callOut(ctx); err != nil {
		return nil, err
	}
	tx, err := c.conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.IsolationLevel(opts.Isolation), ReadOnly: opts.ReadOnly})
	if err != nil {
		return nil, err
	}
	return gatedTx{c.i, tx}, nil
}

// A gatedTx commits behind what the event wrote meanwhile.
type gatedTx struct {
	i *instance
	*sql.Tx
}

func (t gatedTx) Commit() error {
	if _, err := t.i.callOut(context.Background()); err != nil {
		return errors.Join(err, t.Rollback())
	}
	return t.Tx.Commit()
}

func (c *gatedConn) Prepare(query string) (driver.Stmt, error) { return gatedStmt{c, query}, nil }

// A gatedStmt is a text that is sent each time.
type gatedStmt struct {
	c     *gatedConn
	query string
}

func (s gatedStmt) Close() error                               { return nil }
func (s gatedStmt) NumInput() int                              { return -1 }
func (s gatedStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s gatedStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s gatedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

func (s gatedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

// lentRows are rows of a connection below.
type lentRows struct {
	rows    *sql.Rows
	columns []string
}

func (r *lentRows) Columns() []string { return r.columns }
func (r *lentRows) Close() error      { return r.rows.Close() }

func (r *lentRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, into := make([]any, len(dest)), make([]any, len(dest))
	for i := range values {
		into[i] = &values[i]
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	for i, v := range values {
		dest[i] = v
	}
	return nil
}
