package mirror

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// A stmt is one prepared statement.
type stmt struct {
	c        *conn
	p        uintptr // 0 when closed, or for text without a statement
	readonly bool
	args     []uintptr // C memory of bound values
	names    []string
}

// prepare compiles the first statement of query and returns the rest of the
// text. The statement is empty when the text holds only blanks and comments.
func (c *conn) prepare(ctx context.Context, query string) (s *stmt, rest string, err error) {
	if strings.IndexByte(query, 0) >= 0 {
		return nil, "", errors.New("NUL in statement")
	}
	text, err := libc.CString(query)
	if err != nil {
		return nil, "", err
	}
	defer libc.Xfree(c.tls, text)
	if err := ctx.Err(); err != nil {
		return nil, "", interrupted(ctx)
	}
	c.ctx = ctx
	rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(query))+1, 0, c.out, c.out+ptrSize)
	c.ctx = nil
	if rc != sqlite3.SQLITE_OK {
		return nil, "", c.stepErr(ctx, rc)
	}
	s = &stmt{c: c, p: c.outPointer(0)}
	if s.p != 0 {
		s.readonly = sqlite3.Xsqlite3_stmt_readonly(c.tls, s.p) != 0
		c.stmts[s] = struct{}{}
	}
	return s, query[c.outPointer(1)-text:], nil
}

// empty reports whether there is nothing to run.
func (s *stmt) empty() bool { return s.p == 0 }

// close ends the statement. It may be called again.
func (s *stmt) close() error {
	if s.p == 0 {
		return nil
	}
	rc := sqlite3.Xsqlite3_finalize(s.c.tls, s.p)
	s.p = 0
	delete(s.c.stmts, s)
	for _, p := range s.args {
		libc.Xfree(s.c.tls, p)
	}
	s.args = nil
	if rc != sqlite3.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}

// step runs the statement up to its next row.
func (s *stmt) step(ctx context.Context) (row bool, err error) {
	if s.p == 0 {
		return false, ErrStopped
	}
	// Short statements never reach the progress handler.
	if ctx.Err() != nil {
		return false, interrupted(ctx)
	}
	s.c.ctx = ctx
	rc := sqlite3.Xsqlite3_step(s.c.tls, s.p)
	s.c.ctx = nil
	switch rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	}
	return false, s.c.stepErr(ctx, rc)
}

// stepErr is err for calls that the end of ctx may have interrupted.
func (c *conn) stepErr(ctx context.Context, rc int32) error {
	err := c.err(rc)
	if e, ok := errors.AsType[*SQLError](err); ok && e.primary() == sqlite3.SQLITE_INTERRUPT && ctx.Err() != nil {
		return interrupted(ctx)
	}
	return err
}

func (s *stmt) columnCount() int { return int(sqlite3.Xsqlite3_column_count(s.c.tls, s.p)) }

// columns returns the names of the columns.
func (s *stmt) columns() []string {
	if s.names == nil {
		s.names = make([]string, s.columnCount())
		for i := range s.names {
			s.names[i] = libc.GoString(sqlite3.Xsqlite3_column_name(s.c.tls, s.p, int32(i)))
		}
	}
	return s.names
}

// column returns the value of column i of the current row as it is stored.
func (s *stmt) column(i int) any {
	tls, n := s.c.tls, int32(i)
	switch sqlite3.Xsqlite3_column_type(tls, s.p, n) {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(tls, s.p, n)
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(tls, s.p, n)
	case sqlite3.SQLITE_TEXT:
		p := sqlite3.Xsqlite3_column_text(tls, s.p, n)
		return string(s.bytes(p, n))
	case sqlite3.SQLITE_BLOB:
		p := sqlite3.Xsqlite3_column_blob(tls, s.p, n)
		return append([]byte{}, s.bytes(p, n)...)
	}
	return nil
}

// bytes is the memory of a text or blob, valid until the next step.
func (s *stmt) bytes(p uintptr, column int32) []byte {
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, column)
	if p == 0 || n == 0 {
		return nil
	}
	return libc.GoBytes(p, int(n))
}

// row returns the values of the current row.
func (s *stmt) row() []any {
	values := make([]any, s.columnCount())
	for i := range values {
		values[i] = s.column(i)
	}
	return values
}

// bind binds the parameters: those with a name to the [sql.NamedArg] of that
// name, the others to args in their order. It returns the args that it did not
// use.
func (s *stmt) bind(args []any) (rest []any, err error) {
	n := int(sqlite3.Xsqlite3_bind_parameter_count(s.c.tls, s.p))
	used := 0 // positional arguments
	for i := 1; i <= n; i++ {
		name := libc.GoString(sqlite3.Xsqlite3_bind_parameter_name(s.c.tls, s.p, int32(i)))
		var v any
		if arg, ok := named(args, name); ok {
			v = arg
		} else if i > len(args) || isNamed(args[i-1]) {
			return nil, fmt.Errorf("no argument for parameter %d %s", i, name)
		} else {
			v, used = args[i-1], i
		}
		if err := s.bindValue(int32(i), v); err != nil {
			return nil, fmt.Errorf("parameter %d %s: %w", i, name, err)
		}
	}
	return args[used:], nil
}

func named(args []any, name string) (any, bool) {
	if name == "" {
		return nil, false
	}
	for _, arg := range args {
		if a, ok := arg.(sql.NamedArg); ok && a.Name == name[1:] {
			return a.Value, true
		}
	}
	return nil, false
}

func isNamed(arg any) bool {
	_, ok := arg.(sql.NamedArg)
	return ok
}

// bindValue binds any value that database/sql would take.
func (s *stmt) bindValue(i int32, v any) error {
	v, err := driver.DefaultParameterConverter.ConvertValue(v)
	if err != nil {
		return err
	}
	tls, rc := s.c.tls, int32(sqlite3.SQLITE_OK)
	switch v := v.(type) {
	case nil:
		rc = sqlite3.Xsqlite3_bind_null(tls, s.p, i)
	case int64:
		rc = sqlite3.Xsqlite3_bind_int64(tls, s.p, i, v)
	case float64:
		if math.IsNaN(v) {
			return errors.New("NaN cannot be stored")
		}
		rc = sqlite3.Xsqlite3_bind_double(tls, s.p, i, v)
	case bool:
		n := int64(0)
		if v {
			n = 1
		}
		rc = sqlite3.Xsqlite3_bind_int64(tls, s.p, i, n)
	case time.Time:
		return s.bindText(i, v.UTC().Format(time.RFC3339Nano))
	case string:
		return s.bindText(i, v)
	case []byte:
		return s.bindBlob(i, v)
	default:
		return fmt.Errorf("cannot bind a %T", v)
	}
	if rc != sqlite3.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}

func (s *stmt) bindText(i int32, v string) error {
	p, err := libc.CString(v)
	if err != nil {
		return err
	}
	s.args = append(s.args, p)
	rc := sqlite3.Xsqlite3_bind_text64(s.c.tls, s.p, i, p, uint64(len(v)), 0, sqlite3.SQLITE_UTF8)
	if rc != sqlite3.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}

func (s *stmt) bindBlob(i int32, v []byte) error {
	var rc int32
	switch {
	case v == nil:
		rc = sqlite3.Xsqlite3_bind_null(s.c.tls, s.p, i)
	case len(v) == 0:
		rc = sqlite3.Xsqlite3_bind_zeroblob(s.c.tls, s.p, i, 0)
	default:
		p := libc.Xmalloc(s.c.tls, types.Size_t(len(v)))
		if p == 0 {
			return errors.New("out of memory")
		}
		s.args = append(s.args, p)
		copy(libc.GoBytes(p, len(v)), v)
		rc = sqlite3.Xsqlite3_bind_blob64(s.c.tls, s.p, i, p, uint64(len(v)), 0)
	}
	if rc != sqlite3.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}
