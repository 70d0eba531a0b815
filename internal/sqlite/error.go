package sqlite

import (
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// An Error is a result code of SQLite.
type Error struct {
	Code    int // the extended result code
	Message string
	Offset  int // byte of the SQL text that the error is about, or -1
}

func (e *Error) Error() string { return e.Message }

// The result codes that callers act on.
const (
	Busy         = lib.SQLITE_BUSY
	BusySnapshot = lib.SQLITE_BUSY_SNAPSHOT // extended; the snapshot is too old to write
	Interrupt    = lib.SQLITE_INTERRUPT
	IOErr        = lib.SQLITE_IOERR
	Auth         = lib.SQLITE_AUTH
	Full         = lib.SQLITE_FULL
	Corrupt      = lib.SQLITE_CORRUPT
	CorruptVTab  = lib.SQLITE_CORRUPT_VTAB // extended; the content of a virtual table
	NotADB       = lib.SQLITE_NOTADB
	TooBig       = lib.SQLITE_TOOBIG
	ReadOnly     = lib.SQLITE_READONLY
	CantOpen     = lib.SQLITE_CANTOPEN
	Protocol     = lib.SQLITE_PROTOCOL
)

// Primary returns the primary result code.
func (e *Error) Primary() int { return e.Code & 0xff }

// Name returns the name of the primary result code, such as SQLITE_CONSTRAINT.
func (e *Error) Name() string {
	if name, ok := names[e.Primary()]; ok {
		return name
	}
	return "SQLITE_UNKNOWN"
}

var names = map[int]string{
	lib.SQLITE_ERROR:      "SQLITE_ERROR",
	lib.SQLITE_INTERNAL:   "SQLITE_INTERNAL",
	lib.SQLITE_PERM:       "SQLITE_PERM",
	lib.SQLITE_ABORT:      "SQLITE_ABORT",
	lib.SQLITE_BUSY:       "SQLITE_BUSY",
	lib.SQLITE_LOCKED:     "SQLITE_LOCKED",
	lib.SQLITE_NOMEM:      "SQLITE_NOMEM",
	lib.SQLITE_READONLY:   "SQLITE_READONLY",
	lib.SQLITE_INTERRUPT:  "SQLITE_INTERRUPT",
	lib.SQLITE_IOERR:      "SQLITE_IOERR",
	lib.SQLITE_CORRUPT:    "SQLITE_CORRUPT",
	lib.SQLITE_NOTFOUND:   "SQLITE_NOTFOUND",
	lib.SQLITE_FULL:       "SQLITE_FULL",
	lib.SQLITE_CANTOPEN:   "SQLITE_CANTOPEN",
	lib.SQLITE_PROTOCOL:   "SQLITE_PROTOCOL",
	lib.SQLITE_EMPTY:      "SQLITE_EMPTY",
	lib.SQLITE_SCHEMA:     "SQLITE_SCHEMA",
	lib.SQLITE_TOOBIG:     "SQLITE_TOOBIG",
	lib.SQLITE_CONSTRAINT: "SQLITE_CONSTRAINT",
	lib.SQLITE_MISMATCH:   "SQLITE_MISMATCH",
	lib.SQLITE_MISUSE:     "SQLITE_MISUSE",
	lib.SQLITE_NOLFS:      "SQLITE_NOLFS",
	lib.SQLITE_AUTH:       "SQLITE_AUTH",
	lib.SQLITE_FORMAT:     "SQLITE_FORMAT",
	lib.SQLITE_RANGE:      "SQLITE_RANGE",
	lib.SQLITE_NOTADB:     "SQLITE_NOTADB",
}

// err makes the error of a failed call from its result code; the message is the
// connection's when it is about the same code.
func (c *Conn) err(rc int32) error {
	e := &Error{Code: int(rc), Offset: -1}
	if c.db != 0 && lib.Xsqlite3_extended_errcode(c.tls, c.db)&0xff == rc&0xff {
		e.Message = libc.GoString(lib.Xsqlite3_errmsg(c.tls, c.db))
		e.Offset = int(lib.Xsqlite3_error_offset(c.tls, c.db))
	} else {
		e.Message = libc.GoString(lib.Xsqlite3_errstr(c.tls, rc))
	}
	return e
}
