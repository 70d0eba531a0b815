package libsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// setUp is run on every connection. A commit is durable when it returns; the
// limit makes a WAL that a long reader let grow shrink again. A checkpoint of
// 16 MB instead of 4 writes pages that change all the time a quarter as often.
// Foreign keys are enforced, as sqld does by default.
const setUp = "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=16777216; PRAGMA wal_autocheckpoint=4000; PRAGMA foreign_keys=1;"

// A fileConn is one connection to a file.
type fileConn struct {
	*sqlite.Conn
	broken bool // to be closed, not used again
	loads  bool // foreign keys are not enforced
}

func openConn(path string, readOnly bool) (*fileConn, error) {
	conn, err := sqlite.Open(path)
	if err != nil {
		return nil, err
	}
	c := &fileConn{Conn: conn}
	mode, err := conn.QueryText("PRAGMA journal_mode=WAL")
	if err == nil && mode != "wal" {
		err = fmt.Errorf("the file cannot be used as a WAL database (journal mode %s)", mode)
	}
	if err == nil {
		err = conn.Exec(setUp)
	}
	if err == nil && readOnly {
		err = conn.Exec("PRAGMA query_only=1")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// prepare sets the connection up for a mode, which inside a transaction could
// not be done. A change makes SQLite compile all statements anew.
func (c *fileConn) prepare(mode Mode) error {
	loads := mode == Load
	if loads == c.loads {
		return nil
	}
	settings := []string{"PRAGMA foreign_keys=1", "PRAGMA synchronous=FULL"}
	if loads {
		settings = []string{"PRAGMA foreign_keys=0", "PRAGMA synchronous=NORMAL"}
	}
	for _, sql := range settings {
		if err := c.exec(sql); err != nil {
			c.broken = true
			return err
		}
	}
	c.loads = loads
	return nil
}

// begin takes the write lock; waited says that another process had it.
func (c *fileConn) begin(ctx context.Context) (waited bool, err error) {
	attempts := 0
	err = retryBusy(ctx, func() error {
		attempts++
		if err := c.exec("BEGIN IMMEDIATE"); err != nil {
			return fromSQLite(ctx, Refused, -1, err)
		}
		return nil
	})
	return attempts > 1, err
}

// write runs the statements in the transaction that begin began.
func (c *fileConn) write(ctx context.Context, stmts []Statement) ([]Result, error) {
	results, err := c.statements(ctx, stmts)
	if err != nil {
		c.rollback()
		return nil, err
	}
	// From here on the end of the context changes nothing.
	if err := c.exec("COMMIT"); err != nil {
		// What failed while it wrote or synced the log may be found committed
		// after a crash; anything else was rolled back.
		outcome := Failed
		if e, ok := errors.AsType[*sqlite.Error](err); !ok || e.Primary() == sqlite.IOErr {
			outcome = Unknown
			c.broken = true
		}
		c.rollback()
		return nil, fromSQLite(ctx, outcome, -1, err)
	}
	return results, nil
}

// read runs the statements on one snapshot. A lock can be in the way only at
// the first one, for example while another process recovers the log.
func (c *fileConn) read(ctx context.Context, stmts []Statement) ([]Result, error) {
	if len(stmts) > 1 {
		if err := c.exec("BEGIN"); err != nil {
			return nil, fromSQLite(ctx, Refused, -1, err)
		}
		defer c.rollback()
	}
	results, err := c.statements(ctx, stmts)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == KindBusy {
		e.Outcome = Refused
	}
	return results, err
}

func (c *fileConn) stream(ctx context.Context, stmt Statement, head func([]string), yield func(Row) bool) error {
	defer c.Watch(ctx)()
	s, err := c.bind(stmt)
	if err != nil {
		return statementError(ctx, 0, err)
	}
	defer s.Done() //nolint:errcheck // reported by the steps
	for first := true; ; first = false {
		row, err := s.Step()
		if err != nil {
			e := statementError(ctx, 0, err)
			if first && e.Kind == KindBusy {
				e.Outcome = Refused
			}
			return e
		}
		if first && head != nil {
			head(columns(s))
		}
		if !row || !yield(values(s)) {
			return nil
		}
		if ctx.Err() != nil { // short statements are not interrupted
			return statementError(ctx, 0, ctx.Err())
		}
	}
}

func (c *fileConn) statements(ctx context.Context, stmts []Statement) ([]Result, error) {
	defer c.Watch(ctx)()
	results := make([]Result, len(stmts))
	size := 0
	for i, stmt := range stmts {
		if err := ctx.Err(); err != nil {
			return nil, &Error{Outcome: Failed, Kind: KindTimeout, Statement: i, Err: err}
		}
		if err := c.statement(stmt, &results[i], &size); err != nil {
			return nil, statementError(ctx, i, err)
		}
	}
	return results, nil
}

// statement runs one statement; size counts the bytes of the batch's answer.
func (c *fileConn) statement(stmt Statement, r *Result, size *int) error {
	s, err := c.bind(stmt)
	if err != nil {
		return err
	}
	defer s.Done() //nolint:errcheck // reported by the steps
	before := c.TotalChanges()
	row, err := s.Step()
	r.Columns = columns(s) // of the current schema only after the first step
	for ; row; row, err = s.Step() {
		v := values(s)
		for _, v := range v {
			*size += proto.ValueSize(v)
		}
		if *size > answerLimit {
			return errTooLarge
		}
		r.Rows = append(r.Rows, v)
	}
	if err != nil {
		return err
	}
	if c.TotalChanges() != before {
		r.Changes = c.Changes()
		if s.Insert() && r.Changes > 0 {
			r.LastRowID = c.LastInsertRowID()
		}
	}
	return nil
}

var (
	errTooLarge  = errors.New("the rows of the batch are more than 10 MB")
	errArguments = errors.New("the arguments do not match the parameters")
)

func statementError(ctx context.Context, i int, err error) *Error {
	e := fromSQLite(ctx, Failed, i, err)
	switch {
	case errors.Is(err, errTooLarge):
		e.Kind, e.Code = KindTooLarge, "RESPONSE_TOO_LARGE"
	case errors.Is(err, errArguments):
		e.Code = "ARGS_INVALID"
	case errors.Is(err, sqlite.ErrNoStatement):
		e.Code = "SQL_NO_STATEMENT"
	case errors.Is(err, sqlite.ErrManyStatements):
		e.Code = "SQL_MANY_STATEMENTS"
	case ctx.Err() != nil && errors.Is(e.Err, ctx.Err()):
		e.Kind = KindTimeout
	}
	return e
}

// bind prepares a statement, or takes it from the cache, and binds its
// arguments.
func (c *fileConn) bind(stmt Statement) (*sqlite.Stmt, error) {
	s, err := c.Statement(stmt.SQL)
	if err != nil {
		return nil, err
	}
	if n := s.Params(); n != len(stmt.Args) {
		s.Done() //nolint:errcheck // not run
		return nil, fmt.Errorf("%w: %d for %d", errArguments, len(stmt.Args), n)
	}
	for i, a := range stmt.Args {
		if err := s.Bind(i+1, a); err != nil {
			s.Done() //nolint:errcheck // not run
			return nil, err
		}
	}
	return s, nil
}

// exec runs a statement without arguments and rows.
func (c *fileConn) exec(sql string) error {
	s, err := c.Statement(sql)
	if err != nil {
		return err
	}
	defer s.Done() //nolint:errcheck // reported by Run
	return s.Run()
}

// rollback ends the transaction, if SQLite has not done so itself.
func (c *fileConn) rollback() {
	if !c.Autocommit() && c.exec("ROLLBACK") != nil {
		c.broken = true
	}
}

// columns returns the names of the columns, nil without any. They are those of
// the current schema only after the first step.
func columns(s *sqlite.Stmt) []string {
	if names := s.ColumnNames(); len(names) > 0 {
		return names
	}
	return nil
}

func values(s *sqlite.Stmt) Row {
	return s.Row(make(Row, 0, len(s.ColumnNames())))
}
