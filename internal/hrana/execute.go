package hrana

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A sink takes what a statement returns: first its columns, then its rows, of
// which values are valid during the call. An error ends the statement.
type sink interface {
	columns(s *sqlite.Stmt) error
	row(s *sqlite.Stmt) error
}

// counts is what a statement tells at its end.
type counts struct {
	affected int64
	rowID    int64 // of an INSERT
	insert   bool
}

// text returns the SQL of a request, given or stored.
func (st *stream) text(sql *string, id *int32) (string, error) {
	switch {
	case (sql == nil) == (id == nil):
		return "", protocolError("Exactly one of `sql` and `sql_id` is required")
	case sql != nil:
		return *sql, nil
	}
	text, ok := st.sqls[*id]
	if !ok {
		return "", protocolError(fmt.Sprintf("SQL text %d not found", *id))
	}
	return text, nil
}

// execute runs one statement. Its errors are *proto.Error for the statement's
// own, else protocol errors or those of the sink.
func (st *stream) execute(ctx context.Context, q *proto.Statement, out sink) (counts, error) {
	sql, err := st.text(q.SQL, q.SQLID)
	if err != nil {
		return counts{}, err
	}
	if len(q.Args) > 0 && len(q.NamedArgs) > 0 {
		return counts{}, &proto.Error{Message: "Specifying both positional and named arguments is not supported", Code: "ARGS_BOTH_POSITIONAL_AND_NAMED"}
	}
	if err := st.admit(sql); err != nil {
		return counts{}, err
	}
	var s *sqlite.Stmt
	err = st.waitBusy(ctx, func() (err error) {
		s, err = st.conn.Statement(sql)
		return err
	})
	if err != nil {
		return counts{}, statementError(err)
	}
	defer s.Done() //nolint:errcheck // reported by the steps
	if err := bind(s, q); err != nil {
		return counts{}, err
	}
	if q.WantRows != nil && !*q.WantRows {
		out = columnsOnly{out}
	}
	before := st.conn.TotalChanges()
	if err := st.run(ctx, s, out); err != nil {
		return counts{}, statementError(err)
	}
	c := counts{insert: s.Insert(), rowID: st.conn.LastInsertRowID()}
	if st.conn.TotalChanges() != before {
		c.affected = st.conn.Changes()
	}
	return c, nil
}

// admit reports why a statement is not even looked at.
func (st *stream) admit(sql string) error {
	if st.timedOut {
		return errTimedOut
	}
	if st.strict {
		return refuse(sql)
	}
	return nil
}

// run steps a statement to its end, in the stream's turn when it writes.
func (st *stream) run(ctx context.Context, s *sqlite.Stmt, out sink) error {
	if !s.ReadOnly() {
		if st.readOnly {
			return &proto.Error{Message: "SQL write operations are forbidden: the token may only read", Code: "BLOCKED"}
		}
		if err := st.takeTurn(ctx); err != nil {
			return err
		}
	}
	err := st.step(ctx, s, out)
	if st.writing && st.evicted.Load() {
		s.Reset() //nolint:errcheck // reported by the steps
		err = st.checkTurn(err)
	}
	if st.conn.Autocommit() {
		st.yieldTurn()
	}
	return err
}

func (st *stream) step(ctx context.Context, s *sqlite.Stmt, out sink) error {
	if settingOf(s) {
		st.changed = true
	}
	var row bool
	err := st.waitBusy(ctx, func() (err error) {
		row, err = s.Step()
		return err
	})
	if err != nil {
		return err
	}
	// Names are those of the current schema only after the first step.
	if err := out.columns(s); err != nil {
		return err
	}
	for ; row; row, err = s.Step() {
		if err := out.row(s); err != nil {
			return err
		}
	}
	return err
}

// sequence runs all statements of a text up to the first error.
func (st *stream) sequence(ctx context.Context, sql string) error {
	for sql != "" {
		if err := st.admit(sql); err != nil {
			return err
		}
		s, tail, err := st.conn.Prepare(sql)
		if err != nil {
			return statementError(err)
		}
		if s == nil {
			return nil
		}
		err = st.run(ctx, s, nothing{})
		s.Close() //nolint:errcheck // reported by the steps
		if st.conn.Autocommit() {
			st.yieldTurn()
		}
		if err != nil {
			return statementError(err)
		}
		sql = tail
	}
	return nil
}

func (st *stream) waitBusy(ctx context.Context, attempt func() error) error {
	err := attempt()
	if e, ok := errors.AsType[*sqlite.Error](err); !ok || e.Primary() != sqlite.Busy {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, st.db.busyTimeout)
	defer cancel()
	return retryBusy(ctx, attempt)
}

// settingOf reports whether a statement may change the connection for those
// that come after the stream.
func settingOf(s *sqlite.Stmt) bool {
	if s.Verb() == "PRAGMA" {
		return !s.Asks()
	}
	return slices.Contains([]string{"ATTACH", "DETACH", "CREATE"}, s.Verb())
}

// bind binds positional arguments by their number and named ones by their full
// name or the name without its first character.
func bind(s *sqlite.Stmt, q *proto.Statement) error {
	n := s.Params()
	invalid := func(format string, args ...any) error {
		return &proto.Error{Message: "Arguments do not match SQL parameters: " + fmt.Sprintf(format, args...), Code: "ARGS_INVALID"}
	}
	if given := len(q.Args) + len(q.NamedArgs); given > n {
		return invalid("too many parameters, expected %d found %d", n, given)
	}
	for i := 1; i <= n; i++ {
		v, ok := argument(q, i, s.ParamName(i))
		if !ok && !s.Explain() {
			return invalid("value for parameter %d not found", i)
		}
		if err := s.Bind(i, v); err != nil {
			return statementError(err)
		}
	}
	return nil
}

func argument(q *proto.Statement, i int, name string) (any, bool) {
	if name == "" || name[0] == '?' {
		if name != "" {
			i, _ = strconv.Atoi(name[1:])
		}
		if i < 1 || i > len(q.Args) {
			return nil, false
		}
		return q.Args[i-1], true
	}
	for _, want := range []string{name, name[1:]} {
		for _, a := range q.NamedArgs {
			if a.Name == want {
				return a.Value, true
			}
		}
	}
	return nil, false
}

// statementError gives SQLite's errors the codes and texts that sqld does;
// other errors are passed on.
func statementError(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch {
		case e.Offset >= 0:
			return &proto.Error{Message: fmt.Sprintf("SQL input error: %s (at offset %d)", e.Message, e.Offset), Code: "SQL_INPUT_ERROR"}
		case e.Name() == "SQLITE_ERROR":
			return &proto.Error{Message: "SQLite error: " + e.Message, Code: "SQLITE_UNKNOWN"}
		default:
			return &proto.Error{Message: "SQLite error: " + e.Message, Code: e.Name()}
		}
	}
	switch {
	case errors.Is(err, sqlite.ErrNoStatement):
		return &proto.Error{Message: err.Error(), Code: "SQL_NO_STATEMENT"}
	case errors.Is(err, sqlite.ErrManyStatements):
		return &proto.Error{Message: err.Error(), Code: "SQL_MANY_STATEMENTS"}
	}
	return err
}

// columnsOnly drops rows.
type columnsOnly struct{ sink }

func (columnsOnly) row(*sqlite.Stmt) error { return nil }

// nothing drops all.
type nothing struct{}

func (nothing) columns(*sqlite.Stmt) error { return nil }
func (nothing) row(*sqlite.Stmt) error     { return nil }

// appendColumns appends the JSON list of a statement's columns.
func appendColumns(b []byte, s *sqlite.Stmt) []byte {
	b = append(b, '[')
	for i := range s.Columns() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = proto.AppendString(b, validText(s.ColumnName(i)))
		b = append(b, `,"decltype":`...)
		if t := s.ColumnType(i); t != "" {
			b = proto.AppendString(b, validText(t))
		} else {
			b = append(b, "null"...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// validText makes names and messages UTF-8, unlike values, which are exact.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// appendRow appends the JSON list of a row's values.
func appendRow(b []byte, s *sqlite.Stmt) (_ []byte, err error) {
	b = append(b, '[')
	for i := range s.Columns() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = proto.AppendValue(b, s.Value(i)); err != nil {
			return nil, &proto.Error{Message: "SQLite error: " + err.Error(), Code: "SQLITE_UNKNOWN"}
		}
	}
	return append(b, ']'), nil
}

// append appends the members affected_row_count and last_insert_rowid.
func (c counts) append(b []byte) []byte {
	b = append(b, `"affected_row_count":`...)
	b = strconv.AppendInt(b, c.affected, 10)
	b = append(b, `,"last_insert_rowid":`...)
	if !c.insert {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = strconv.AppendInt(b, c.rowID, 10)
	return append(b, '"')
}
