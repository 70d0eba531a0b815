package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// Exec runs one or more statements; rows are dropped. Each statement takes as
// many of args as it has parameters, in order; [sql.NamedArg] values are found
// by name. Values are those of database/sql: a bool is bound as 0 or 1, a
// time.Time as RFC 3339 text in UTC, a uint64 above the int64 range is an error.
//
// The statements before one that fails stay done, unless a transaction is open.
// Errors of SQLite are [*SQLError], [*DeniedError], [ErrTooLarge] or
// [ErrDiskFull]. When ctx ends, the running statement is interrupted and undone,
// the error wraps ctx.Err(), and the connection stays usable.
func (m *Mirror) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ready(); err != nil {
		return durable.Result{}, err
	}
	var res durable.Result
	for {
		s, rest, err := m.prepare(ctx, query)
		if err != nil {
			return durable.Result{}, err
		}
		if s.empty() {
			if rest == "" {
				break
			}
			query = rest
			continue
		}
		if args, err = s.bind(args); err == nil {
			res, err = m.run(ctx, s)
		}
		if cerr := s.close(); err == nil {
			err = cerr
		}
		if err != nil {
			return durable.Result{}, m.sqlErr(err)
		}
		query = rest
	}
	if err := leftOver(args); err != nil {
		return res, err
	}
	return res, nil
}

// leftOver refuses positional arguments that no parameter took.
func leftOver(args []any) error {
	for _, arg := range args {
		if !isNamed(arg) {
			return fmt.Errorf("%d arguments more than parameters", len(args))
		}
	}
	return nil
}

// run runs a bound statement to its end.
func (m *Mirror) run(ctx context.Context, s *stmt) (durable.Result, error) {
	c := m.conn
	before := c.TotalChanges()
	for {
		row, err := s.step(ctx)
		if err != nil {
			return durable.Result{}, err
		}
		if !row {
			break
		}
	}
	res := durable.Result{LastRowID: c.LastInsertRowID()}
	if c.TotalChanges() != before {
		res.Changes = c.Changes()
	}
	return res, nil
}

// Query runs one statement and yields its rows, with values as they are stored.
// Other statements may run while the rows are read. A statement that writes has
// done so before its first row is seen. The first error ends the sequence.
func (m *Mirror) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		s, err := m.start(ctx, query, args)
		if err != nil {
			yield(durable.Row{}, err)
			return
		}
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			s.close() //nolint:errcheck // reported by step
		}()
		if !s.readonly {
			m.yieldWritten(ctx, s, yield)
			return
		}
		for {
			row, err := m.next(ctx, s)
			if err == io.EOF {
				return
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// start prepares and binds the only statement of a query.
func (m *Mirror) start(ctx context.Context, query string, args []any) (*stmt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ready(); err != nil {
		return nil, err
	}
	s, rest, err := m.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if s.empty() && rest == "" {
		return nil, errors.New("query without a statement")
	}
	if args, err = s.bind(args); err == nil {
		err = leftOver(args)
	}
	if err == nil {
		err = m.single(ctx, rest)
	}
	if err != nil {
		s.close() //nolint:errcheck // not run
		return nil, err
	}
	return s, nil
}

// single makes sure that nothing but comments follows a statement.
func (m *Mirror) single(ctx context.Context, rest string) error {
	for rest != "" {
		s, next, err := m.prepare(ctx, rest)
		if err != nil {
			return err
		}
		if !s.empty() {
			s.close() //nolint:errcheck // not run
			return errors.New("query has more than one statement")
		}
		rest = next
	}
	return nil
}

// next returns the next row, or io.EOF.
func (m *Mirror) next(ctx context.Context, s *stmt) (durable.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, err := s.step(ctx)
	if err != nil {
		return durable.Row{}, m.sqlErr(err)
	}
	if !row {
		return durable.Row{}, io.EOF
	}
	return durable.Row{Columns: s.ColumnNames(), Values: s.Row(make([]any, 0, s.Columns()))}, nil
}

// yieldWritten runs a statement that writes to its end and then yields what it
// returned, so that an error at its end is not missed by a caller that reads
// one row only.
func (m *Mirror) yieldWritten(ctx context.Context, s *stmt, yield func(durable.Row, error) bool) {
	var rows []durable.Row
	for {
		row, err := m.next(ctx, s)
		if err == io.EOF {
			break
		}
		if err != nil {
			yield(durable.Row{}, err)
			return
		}
		rows = append(rows, row)
	}
	m.mu.Lock()
	err := s.close()
	if err != nil {
		err = m.sqlErr(err)
	}
	m.mu.Unlock()
	if err != nil {
		yield(durable.Row{}, err)
		return
	}
	for _, row := range rows {
		if !yield(row, nil) {
			return
		}
	}
}

// Begin opens a transaction. Until Commit or Rollback, statements that would
// end it are refused, and when an error ended it, all others are refused too.
func (m *Mirror) Begin(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return err
	}
	if m.tx || !m.conn.Autocommit() {
		return ErrNested
	}
	if err := m.control(ctx, "BEGIN"); err != nil {
		return err
	}
	m.tx, m.conn.locked = true, true
	return nil
}

// Commit ends the transaction of Begin. When it fails, the transaction has been
// rolled back.
func (m *Mirror) Commit(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.endTx(); err != nil {
		return err
	}
	err := m.control(ctx, "COMMIT")
	if err != nil && m.conn != nil && !m.conn.Autocommit() {
		err = errors.Join(err, m.control(context.WithoutCancel(ctx), "ROLLBACK"))
	}
	return err
}

// Rollback undoes the transaction of Begin.
func (m *Mirror) Rollback() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.endTx()
	if errors.Is(err, ErrTxLost) {
		return nil
	} else if err != nil {
		return err
	}
	return m.control(context.Background(), "ROLLBACK")
}

func (m *Mirror) endTx() error {
	if m.lost != nil {
		return m.lost
	}
	if !m.tx {
		return errors.New("no transaction is open")
	}
	m.tx = false
	m.conn.locked = false
	if m.conn.Autocommit() {
		return ErrTxLost
	}
	return nil
}

// InTx reports whether a transaction is open, by Begin or by a statement.
func (m *Mirror) InTx() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn != nil && (m.tx || !m.conn.Autocommit())
}

// control runs BEGIN, COMMIT or ROLLBACK.
func (m *Mirror) control(ctx context.Context, text string) error {
	s, err := m.conn.own(text)
	if err != nil {
		return m.sqlErr(err)
	}
	_, err = m.run(ctx, s)
	if cerr := s.close(); err == nil {
		err = cerr
	}
	return m.sqlErr(err)
}

// ready opens the connection and refuses statements in a lost transaction.
func (m *Mirror) ready() error {
	if err := m.open(); err != nil {
		return err
	}
	if m.tx && m.conn.Autocommit() {
		return ErrTxLost
	}
	return nil
}

// prepare compiles a statement of the application.
func (m *Mirror) prepare(ctx context.Context, query string) (*stmt, string, error) {
	m.conn.user, m.conn.denied = true, ""
	s, rest, err := m.conn.prepare(ctx, query)
	m.conn.user = false
	if err != nil {
		return nil, "", m.sqlErr(err)
	}
	return s, rest, nil
}

// sqlErr gives an error of a statement its meaning. It discards the mirror when
// the error says that the files are damaged.
func (m *Mirror) sqlErr(err error) error {
	e, ok := errors.AsType[*SQLError](err)
	if !ok {
		return err
	}
	if e.damaged() {
		return m.discardFor(ErrDiscarded, err)
	}
	if e.primary() == sqlite.Full {
		if m.cfg.MaxSize > 0 && hasSpace(m.path) {
			return ErrTooLarge
		}
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// hasSpace tries to write to the disk of path: SQLite has one error for a full
// disk and for a database at its limit.
func hasSpace(path string) bool {
	probe := path + "-probe"
	defer os.Remove(probe) //nolint:errcheck // removed with the directory
	return os.WriteFile(probe, make([]byte, 64<<10), 0o600) == nil
}
