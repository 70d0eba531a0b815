package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	wire "github.com/davidwkeith/dwk/internal/libsql"
)

// A connector opens the connections of a driver with their traps closed.
type connector struct {
	driver.Connector
	pool   *pool
	remote bool
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(innerConn)
	if !ok {
		inner.Close() //nolint:errcheck // it cannot be used
		return nil, fmt.Errorf("a driver with connections of type %T", inner)
	}
	return &conn{inner: full, pool: c.pool, remote: c.remote}, nil
}

// An innerConn is what both drivers' connections are.
type innerConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

// A conn is one connection. What the drivers do differently, and what is unsafe
// in one of them, ends here: a call over the wire has a deadline, also a commit;
// transactions take the write lock at their beginning; one that was lost to an
// error is not gone on with, where statements would commit alone; what is read
// outside a transaction is read at the primary; errors are the contract's.
type conn struct {
	inner  innerConn
	pool   *pool
	remote bool
	tx     *tx
	broken bool
}

var (
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
)

// bound gives a call over the wire a deadline. Rows of a file are read as they
// are used: their context must live on.
func (c *conn) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.remote {
		return ctx, func() {}
	}
	timeout := c.pool.cfg.Timeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	return context.WithTimeout(ctx, timeout)
}

// guarded calls the driver, which panics on answers that it does not expect.
func (c *conn) guarded(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.broken = true
			err = &panicError{v}
		}
	}()
	return call()
}

// trip is guarded for what is a round trip, and tells who counts these.
func (c *conn) trip(call func() error) error {
	began := clock.Now()
	err := c.guarded(call)
	observe := c.pool.cfg.Observe
	switch {
	case observe == nil, errors.Is(err, driver.ErrBadConn): // nothing was sent
	case err == nil:
		observe(clock.Since(began), nil)
	default:
		observe(clock.Since(began), driverError(err))
	}
	return err
}

// A panicError is a panic of a driver.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("an answer that the driver cannot read: %v", e.value)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	err = c.trip(func() (err error) { res, err = c.inner.ExecContext(ctx, query, args); return err })
	return res, c.done(ctx, err, false)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	reads, _, classifyErr := classify(query)
	reads = reads && classifyErr == nil
	ctx, cancel := c.bound(ctx)
	defer cancel()
	primary := reads && c.remote && c.tx == nil
	if primary {
		query = wire.Primary + "; " + query
	}
	err = c.trip(func() (err error) {
		rows, err = c.inner.QueryContext(ctx, query, args)
		if err == nil && primary {
			err = rows.(driver.RowsNextResultSet).NextResultSet() // behind the answer to wire.Primary
		}
		return err
	})
	if err = c.done(ctx, err, reads); err != nil {
		return nil, err
	}
	return guardedRows{c, rows}, nil
}

// done ends a call: its error is put into the contract's words, and a stream
// that no transaction needs is closed at once, not when it is used again.
func (c *conn) done(ctx context.Context, err error, reads bool) error {
	if err != nil && c.tx != nil {
		c.tx.doubt = true
	}
	if c.remote && c.tx == nil {
		c.inner.ResetSession(ctx) //nolint:errcheck // it says nothing
	}
	if err == nil || errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return fmt.Errorf("SQL database %s: %w", c.pool.name, meaning(driverError(err), reads))
}

// PrepareContext implements driver.ConnPrepareContext. Nothing is sent.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return stmt{c, query}, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return stmt{c, query}, nil }

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	rows, err := c.QueryContext(ctx, "SELECT 1", nil)
	if err != nil {
		return err
	}
	return rows.Close()
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.broken || c.tx != nil {
		return driver.ErrBadConn
	}
	return c.inner.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.broken }

// Close implements driver.Conn.
func (c *conn) Close() error { return c.inner.Close() }

// CheckNamedValue implements driver.NamedValueChecker. Times are text that both
// drivers read back from a column declared DATETIME or TIMESTAMP.
func (c *conn) CheckNamedValue(v *driver.NamedValue) (err error) {
	if v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value); err != nil {
		return err
	}
	switch x := v.Value.(type) {
	case time.Time:
		v.Value = x.UTC().Format("2006-01-02T15:04:05.999999999-07:00")
	case bool:
		v.Value = int64(0)
		if x {
			v.Value = int64(1)
		}
	default:
		v.Value, err = argument(x)
	}
	return err
}

// A stmt is a text that is sent each time.
type stmt struct {
	c     *conn
	query string
}

func (s stmt) Close() error  { return nil }
func (s stmt) NumInput() int { return -1 }

func (s stmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
func (s stmt) CheckNamedValue(v *driver.NamedValue) error { return s.c.CheckNamedValue(v) }

func (s stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

func (s stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

// guardedRows are rows whose errors are the contract's.
type guardedRows struct {
	c *conn
	driver.Rows
}

func (r guardedRows) Next(dest []driver.Value) error {
	err := r.c.guarded(func() error { return r.Rows.Next(dest) })
	if err == nil || err == io.EOF {
		return err
	}
	return fmt.Errorf("SQL database %s: %w", r.c.pool.name, meaning(driverError(err), true))
}

func (r guardedRows) HasNextResultSet() bool {
	s, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && s.HasNextResultSet()
}

func (r guardedRows) NextResultSet() error {
	if s, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return s.NextResultSet()
	}
	return io.EOF
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r guardedRows) ColumnTypeDatabaseTypeName(i int) string {
	if t, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// errTxLost is what a transaction answers after it was rolled back by an error.
var errTxLost = errors.New("the transaction was rolled back by an earlier error")

// A tx is the open transaction of a conn.
type tx struct {
	c *conn
	// doubt: a statement failed, and may have taken the transaction with it.
	// What followed would then commit alone.
	doubt, lost bool
}

// BeginTx implements driver.ConnBeginTx. It takes the write lock: an upgrade
// from reading fails when somebody else wrote meanwhile.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	switch sql.IsolationLevel(opts.Isolation) {
	case sql.LevelDefault, sql.LevelSerializable:
	default:
		return nil, fmt.Errorf("SQL database %s: the isolation level is always serializable: %w", c.pool.name, durable.ErrInvalid)
	}
	bounded, cancel := c.bound(ctx)
	defer cancel()
	c.tx = &tx{c: c} // for done to keep the stream
	err := c.trip(func() error { _, err := c.inner.ExecContext(bounded, "BEGIN IMMEDIATE", nil); return err })
	if err != nil {
		c.tx = nil
		return nil, c.done(ctx, err, true)
	}
	return c.tx, nil
}

// alive finds out whether the transaction that an error left in doubt is there.
func (c *conn) alive(ctx context.Context) error {
	t := c.tx
	switch {
	case t == nil:
		return nil
	case t.doubt && !t.lost:
		ctx, cancel := c.bound(ctx)
		defer cancel()
		err := c.trip(func() error { _, err := c.inner.ExecContext(ctx, "BEGIN", nil); return err })
		t.doubt = false
		if err != nil && strings.Contains(err.Error(), "within a transaction") {
			return nil
		}
		t.lost = true
		c.broken = c.broken || err != nil
		if err == nil {
			err = c.trip(func() error { _, err := c.inner.ExecContext(ctx, "ROLLBACK", nil); return err })
			c.broken = c.broken || err != nil
		}
	}
	if t.lost {
		return fmt.Errorf("SQL database %s: %w: %w", c.pool.name, durable.ErrUnavailable, errTxLost)
	}
	return nil
}

// Commit implements driver.Tx.
func (t *tx) Commit() error { return t.end("COMMIT") }

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	err := t.end("ROLLBACK")
	if errors.Is(err, errTxLost) {
		return nil
	}
	return err
}

func (t *tx) end(how string) error {
	c, ctx := t.c, context.Background()
	if err := c.alive(ctx); err != nil {
		c.tx = nil
		return err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	err := c.trip(func() error { _, err := c.inner.ExecContext(ctx, how, nil); return err })
	if err != nil && how == "COMMIT" {
		// A constraint that was deferred leaves the transaction open.
		if c.trip(func() error { _, err := c.inner.ExecContext(ctx, "ROLLBACK", nil); return err }) != nil {
			c.broken = true
		}
	} else if err != nil {
		c.broken = true // and with it ends what is open
	}
	c.tx = nil
	return c.done(ctx, err, how == "ROLLBACK")
}
