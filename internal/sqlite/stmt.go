package sqlite

import (
	"strings"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A Stmt is one prepared statement.
type Stmt struct {
	c      *Conn
	p      uintptr
	params int
	names  []string // of parameters, once asked for
	bound  []memory // of parameters
	large  []int32  // parameters bound to memory that is freed by Reset
	verb   string

	columns  []string // names, as of the compilation with this number
	compiled int32

	text  string // of a cached one
	taken bool   // of a cached one: in use
	asks  bool   // its text sets nothing
}

// Prepare compiles the first statement of sql and returns what follows it. The
// statement is nil when sql holds only spaces and comments.
func (c *Conn) Prepare(sql string) (s *Stmt, tail string, err error) {
	if i := strings.IndexByte(sql, 0); i >= 0 {
		return nil, "", &Error{Code: lib.SQLITE_ERROR, Message: "the SQL text holds a zero byte", Offset: i}
	}
	for ; sql != ""; sql = tail { // a lone semicolon is a statement without a handle
		text, err := c.cstring(sql)
		if err != nil {
			return nil, "", err
		}
		rc := lib.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(sql))+1, lib.SQLITE_PREPARE_PERSISTENT, c.out, c.out+8)
		lib.Xsqlite3_free(c.tls, text)
		if rc != lib.SQLITE_OK {
			return nil, "", c.err(rc)
		}
		p, end := *(*uintptr)(pointer(c.out)), *(*uintptr)(pointer(c.out + 8))-text
		tail = sql[end:]
		if p != 0 {
			n := int(lib.Xsqlite3_bind_parameter_count(c.tls, p))
			return &Stmt{c: c, p: p, params: n, verb: verb(sql[:end]), compiled: -1, asks: !strings.ContainsAny(sql[:end], "=(")}, tail, nil
		}
	}
	return nil, "", nil
}

// Close ends the statement for good, and returns the error of Done. It may be
// repeated.
func (s *Stmt) Close() error {
	if s.text != "" {
		delete(s.c.stmts, s.text)
		s.text = ""
	}
	return s.finalize()
}

func (s *Stmt) finalize() error {
	if s.p == 0 {
		return nil
	}
	rc := lib.Xsqlite3_finalize(s.c.tls, s.p)
	s.p, s.taken = 0, false
	for _, m := range s.bound {
		lib.Xsqlite3_free(s.c.tls, m.p)
	}
	s.bound = nil
	if rc != lib.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}

// Step runs the statement to its next row; false is its end or an error.
func (s *Stmt) Step() (row bool, err error) {
	switch rc := lib.Xsqlite3_step(s.c.tls, s.p); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.err(rc)
	}
}

// Run steps to the end and drops the rows.
func (s *Stmt) Run() error {
	for {
		if row, err := s.Step(); !row {
			return err
		}
	}
}

// Reset makes the statement ready for the next run, and returns the error of
// Done. What is bound stays bound, except that much memory is given back:
// clearing numbers can make SQLite plan the statement anew.
func (s *Stmt) Reset() error {
	rc := lib.Xsqlite3_reset(s.c.tls, s.p)
	var err error
	if rc != lib.SQLITE_OK {
		err = s.c.err(rc)
	}
	for _, i := range s.large {
		lib.Xsqlite3_bind_null(s.c.tls, s.p, i)
	}
	s.large = s.large[:0]
	return err
}

// Insert reports whether it is an INSERT or REPLACE.
func (s *Stmt) Insert() bool { return s.verb == "INSERT" || s.verb == "REPLACE" }

// Verb returns the word that says what the statement does, in upper case, such
// as SELECT or PRAGMA.
func (s *Stmt) Verb() string { return s.verb }

// ReadOnly reports whether it changes nothing in the file directly.
func (s *Stmt) ReadOnly() bool { return lib.Xsqlite3_stmt_readonly(s.c.tls, s.p) != 0 }

// Explain reports whether it is an EXPLAIN or EXPLAIN QUERY PLAN.
func (s *Stmt) Explain() bool { return lib.Xsqlite3_stmt_isexplain(s.c.tls, s.p) != 0 }

// Columns returns the number of columns; after the first step it is that of the
// schema the statement runs on.
func (s *Stmt) Columns() int { return int(lib.Xsqlite3_column_count(s.c.tls, s.p)) }

// ColumnName returns the name of column i, from 0.
func (s *Stmt) ColumnName(i int) string { return s.ColumnNames()[i] }

// ColumnNames returns the names of all columns, nil when there are none. They
// are shared by all runs and must not be changed.
func (s *Stmt) ColumnNames() []string {
	// SQLite compiles again when the schema has changed.
	compiled := lib.Xsqlite3_stmt_status(s.c.tls, s.p, lib.SQLITE_STMTSTATUS_REPREPARE, 0)
	if s.compiled == compiled {
		return s.columns
	}
	s.columns, s.compiled = nil, compiled
	for i := range int32(s.Columns()) {
		s.columns = append(s.columns, libc.GoString(lib.Xsqlite3_column_name(s.c.tls, s.p, i)))
	}
	return s.columns
}

// ColumnType returns the declared type of column i, or "" for an expression.
func (s *Stmt) ColumnType(i int) string {
	return libc.GoString(lib.Xsqlite3_column_decltype(s.c.tls, s.p, int32(i)))
}

// Value returns column i of the row: nil, an int64, float64, string or []byte.
func (s *Stmt) Value(i int) any {
	tls, n := s.c.tls, int32(i)
	switch lib.Xsqlite3_column_type(tls, s.p, n) {
	case lib.SQLITE_INTEGER:
		return int64(lib.Xsqlite3_column_int64(tls, s.p, n))
	case lib.SQLITE_FLOAT:
		return lib.Xsqlite3_column_double(tls, s.p, n)
	case lib.SQLITE_TEXT:
		p := lib.Xsqlite3_column_text(tls, s.p, n)
		return string(s.bytes(p, n))
	case lib.SQLITE_BLOB:
		p := lib.Xsqlite3_column_blob(tls, s.p, n)
		return append([]byte{}, s.bytes(p, n)...)
	default:
		return nil
	}
}

// Row appends the values of all columns to row.
func (s *Stmt) Row(row []any) []any {
	for i := range int(lib.Xsqlite3_data_count(s.c.tls, s.p)) {
		row = append(row, s.Value(i))
	}
	return row
}

// bytes views the memory of column i until the next step.
func (s *Stmt) bytes(p uintptr, i int32) []byte {
	size := lib.Xsqlite3_column_bytes(s.c.tls, s.p, i)
	if p == 0 || size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), size)
}
