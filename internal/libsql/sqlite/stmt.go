package sqlite

import (
	"fmt"
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
	buffer []int32 // parameters bound to memory
	verb   string
	taken  bool // of a cached one: in use
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
			return &Stmt{c: c, p: p, params: n, verb: verb(sql[:end])}, tail, nil
		}
	}
	return nil, "", nil
}

// Close ends the statement.
func (s *Stmt) Close() {
	lib.Xsqlite3_finalize(s.c.tls, s.p) // repeats the error of the last step
	s.p = 0
}

// Params returns the number of parameters, the largest number that a ?N names.
func (s *Stmt) Params() int { return s.params }

// ParamName returns the name of parameter i, from 1, with its first character,
// or "" when it has none.
func (s *Stmt) ParamName(i int) string {
	return libc.GoString(lib.Xsqlite3_bind_parameter_name(s.c.tls, s.p, int32(i)))
}

// Bind sets parameter i, from 1, to nil, an int64, float64, string or []byte. A
// nil slice is an empty blob.
func (s *Stmt) Bind(i int, v any) error {
	var rc int32
	tls, n := s.c.tls, int32(i)
	switch v := v.(type) {
	case nil:
		rc = lib.Xsqlite3_bind_null(tls, s.p, n)
	case int64:
		rc = lib.Xsqlite3_bind_int64(tls, s.p, n, v)
	case float64:
		rc = lib.Xsqlite3_bind_double(tls, s.p, n, v)
	case string:
		p, err := s.c.cstring(v)
		if err != nil {
			return err
		}
		s.buffer = append(s.buffer, n)
		rc = lib.Xsqlite3_bind_text64(tls, s.p, n, p, uint64(len(v)), function(lib.Xsqlite3_free), lib.SQLITE_UTF8)
	case []byte:
		p, err := s.c.cstring(unsafe.String(unsafe.SliceData(v), len(v)))
		if err != nil {
			return err
		}
		s.buffer = append(s.buffer, n)
		rc = lib.Xsqlite3_bind_blob64(tls, s.p, n, p, uint64(len(v)), function(lib.Xsqlite3_free))
	default:
		return fmt.Errorf("cannot bind a %T", v)
	}
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

// Reset makes the statement ready for the next run. The memory of texts and
// blobs is given back; numbers stay bound, which costs nothing, whereas clearing
// them can make SQLite plan the statement anew.
func (s *Stmt) Reset() {
	lib.Xsqlite3_reset(s.c.tls, s.p) // repeats the error of the last step
	for _, i := range s.buffer {
		lib.Xsqlite3_bind_null(s.c.tls, s.p, i)
	}
	s.buffer = s.buffer[:0]
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
func (s *Stmt) ColumnName(i int) string {
	return libc.GoString(lib.Xsqlite3_column_name(s.c.tls, s.p, int32(i)))
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

// bytes views the memory of column i until the next step.
func (s *Stmt) bytes(p uintptr, i int32) []byte {
	size := lib.Xsqlite3_column_bytes(s.c.tls, s.p, i)
	if p == 0 || size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), size)
}
