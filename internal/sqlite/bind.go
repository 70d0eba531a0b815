package sqlite

import (
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// boundSize is the memory that a parameter keeps for its next value.
const boundSize = 256

// memory is what a parameter's texts and blobs are copied to. SQLite sees it as
// static: it changes only between runs.
type memory struct {
	p    uintptr
	size int
}

// Params returns the number of parameters, the largest number that a ?N names.
func (s *Stmt) Params() int { return s.params }

// Asks reports, of a PRAGMA, that it has no value to set.
func (s *Stmt) Asks() bool { return s.asks }

// ParamName returns the name of parameter i, from 1, with its first character,
// or "" when it has none.
func (s *Stmt) ParamName(i int) string {
	if s.names == nil {
		s.names = make([]string, s.params)
		for i := range s.names {
			s.names[i] = libc.GoString(lib.Xsqlite3_bind_parameter_name(s.c.tls, s.p, int32(i+1)))
		}
	}
	return s.names[i-1]
}

// Bind sets parameter i, from 1, to nil, an int64, float64, string or []byte,
// before the first step of a run. A nil slice is an empty blob.
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
		p, free, err := s.copy(i, v)
		if err != nil {
			return err
		}
		rc = lib.Xsqlite3_bind_text64(tls, s.p, n, p, uint64(len(v)), free, lib.SQLITE_UTF8)
	case []byte:
		p, free, err := s.copy(i, unsafe.String(unsafe.SliceData(v), len(v)))
		if err != nil {
			return err
		}
		rc = lib.Xsqlite3_bind_blob64(tls, s.p, n, p, uint64(len(v)), free)
	default:
		return fmt.Errorf("cannot bind a %T", v)
	}
	if rc != lib.SQLITE_OK {
		return s.c.err(rc)
	}
	return nil
}

// copy copies a value of parameter i into SQLite's memory, and returns it with
// the function that frees it, or 0.
func (s *Stmt) copy(i int, v string) (p, free uintptr, err error) {
	if len(v) >= boundSize || i < 1 || i > s.params || i > 1000 {
		p, err = s.c.cstring(v)
		s.large = append(s.large, int32(i))
		return p, function(lib.Xsqlite3_free), err
	}
	for len(s.bound) < i {
		s.bound = append(s.bound, memory{})
	}
	m := &s.bound[i-1]
	if m.size <= len(v) {
		size := 32
		for size <= len(v) {
			size *= 2
		}
		// The parameter may still be bound to what it had.
		lib.Xsqlite3_bind_null(s.c.tls, s.p, int32(i))
		lib.Xsqlite3_free(s.c.tls, m.p)
		*m = memory{}
		if m.p = lib.Xsqlite3_malloc64(s.c.tls, uint64(size)); m.p == 0 {
			return 0, 0, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory", Offset: -1}
		}
		m.size = size
	}
	b := unsafe.Slice((*byte)(pointer(m.p)), len(v)+1)
	copy(b, v)
	b[len(v)] = 0
	return m.p, 0, nil
}
