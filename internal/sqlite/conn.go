// Package sqlite is a thin binding to the pure Go translation of SQLite
// (modernc.org/sqlite/lib). It exists beside that module's database/sql driver
// because the driver turns texts of columns declared DATE, DATETIME or
// TIMESTAMP into times, and because a Hrana server and the mirrors of objects
// need what the driver does not show: the rest of a text after its first
// statement, names of parameters, declared types, autocommit, a stop within a
// query, the frames in the WAL, a close without a checkpoint.
//
// A Conn and its statements belong to one goroutine at a time. There is no busy
// handler: a lock that is taken shows at once as Busy, and callers decide how to
// wait.
package sqlite

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // sets up the library for its platform
	lib "modernc.org/sqlite/lib"
)

// watchInterval is the number of virtual machine steps between two looks at
// whether the context of the call has ended.
const watchInterval = 1000

// outSize is the memory that SQLite writes results to: two pointers.
const outSize = 16

// A Conn is one connection to a database file.
type Conn struct {
	tls    *libc.TLS
	db     uintptr
	out    uintptr // two pointers that SQLite writes results to
	main   uintptr // the name of the database
	handle uintptr // of callbacks

	ctx     context.Context // of the call in progress
	unwatch func()
	hooks   Hooks

	stmts map[string]*Stmt // the cache
	limit int              // of the cache
}

// Open opens the database file at path, which is taken as it is, and creates it
// when it does not exist; its folder must exist.
func Open(path string) (*Conn, error) { return openFlags(path, lib.SQLITE_OPEN_CREATE) }

// OpenExisting is Open for a file that exists, and may be empty.
func OpenExisting(path string) (*Conn, error) { return openFlags(path, 0) }

func openFlags(path string, flags int32) (*Conn, error) {
	setUp()
	if i := strings.IndexByte(path, 0); i >= 0 {
		return nil, &Error{Code: lib.SQLITE_CANTOPEN, Message: "the path holds a zero byte", Offset: -1}
	}
	c := &Conn{tls: libc.NewTLS(), stmts: map[string]*Stmt{}, limit: cachedStatements}
	c.unwatch = func() { c.ctx = nil }
	c.out = lib.Xsqlite3_malloc64(c.tls, outSize)
	c.main, _ = c.cstring("main")
	name, err := c.cstring(path)
	if err != nil || c.out == 0 || c.main == 0 {
		c.release()
		return nil, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory", Offset: -1}
	}
	defer lib.Xsqlite3_free(c.tls, name)
	if flags&lib.SQLITE_OPEN_READONLY == 0 {
		flags |= lib.SQLITE_OPEN_READWRITE
	}
	flags |= lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_EXRESCODE
	rc := lib.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = *(*uintptr)(pointer(c.out))
	if rc != lib.SQLITE_OK {
		err := c.err(rc)
		c.Close() //nolint:errcheck // the error above matters
		return nil, err
	}
	c.handle = lastHandle.Add(1)
	conns.Store(c.handle, c)
	lib.Xsqlite3_progress_handler(c.tls, c.db, watchInterval, function(onProgress), c.handle)
	return c, nil
}

// Close closes the connection; an open transaction is rolled back. When it is
// the last one of a WAL database SQLite checkpoints and removes the WAL.
// Statements that are not cached must have been closed.
func (c *Conn) Close() error {
	c.ForgetStatements()
	rc := lib.Xsqlite3_close_v2(c.tls, c.db)
	c.db = 0
	c.release()
	if rc != lib.SQLITE_OK {
		return &Error{Code: int(rc), Message: "closing", Offset: -1}
	}
	return nil
}

// CloseKeepingWAL is Close without a checkpoint.
func (c *Conn) CloseKeepingWAL() error {
	err := c.configure(lib.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	return err
}

func (c *Conn) release() {
	conns.Delete(c.handle)
	lib.Xsqlite3_free(c.tls, c.out)
	lib.Xsqlite3_free(c.tls, c.main)
	c.tls.Close()
	c.tls = nil
}

// Defend forbids statements that can damage the file, such as writes to
// sqlite_schema.
func (c *Conn) Defend() error { return c.configure(lib.SQLITE_DBCONFIG_DEFENSIVE) }

// configure switches a boolean option of the connection on.
func (c *Conn) configure(option int32) error {
	args := lib.Xsqlite3_malloc64(c.tls, 16)
	if args == 0 {
		return &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory", Offset: -1}
	}
	defer lib.Xsqlite3_free(c.tls, args)
	if rc := lib.Xsqlite3_db_config(c.tls, c.db, option, libc.VaList(args, int32(1), uintptr(0))); rc != lib.SQLITE_OK {
		return c.err(rc)
	}
	return nil
}

// Watch makes statements end with Interrupt after ctx has ended. The function
// it returns ends the watch and must be called before the connection is used
// for anything else.
func (c *Conn) Watch(ctx context.Context) (stop func()) {
	c.ctx = ctx
	return c.unwatch
}

// Exec runs all statements of a text, without arguments and dropping rows, up
// to the first error.
func (c *Conn) Exec(sql string) error {
	for sql != "" {
		s, tail, err := c.Prepare(sql)
		if err != nil {
			return err
		}
		if s == nil {
			return nil
		}
		err = s.Run()
		s.Close() //nolint:errcheck // reported by Run
		if err != nil {
			return err
		}
		sql = tail
	}
	return nil
}

// QueryText runs one statement without arguments and returns the first column
// of its first row as a text, or "" when there is none.
func (c *Conn) QueryText(sql string) (string, error) {
	s, _, err := c.Prepare(sql)
	if err != nil || s == nil {
		return "", err
	}
	defer s.Close() //nolint:errcheck // reported by Step
	if ok, err := s.Step(); !ok || s.Columns() == 0 {
		return "", err
	}
	return fmt.Sprint(s.Value(0)), nil
}

// Autocommit reports whether no transaction is open.
func (c *Conn) Autocommit() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) != 0 }

// Changes returns the rows that the last INSERT, UPDATE or DELETE changed.
func (c *Conn) Changes() int64 { return int64(lib.Xsqlite3_changes64(c.tls, c.db)) }

// TotalChanges returns the rows that all statements changed.
func (c *Conn) TotalChanges() int64 { return int64(lib.Xsqlite3_total_changes64(c.tls, c.db)) }

// LastInsertRowID returns the rowid of the last INSERT.
func (c *Conn) LastInsertRowID() int64 { return int64(lib.Xsqlite3_last_insert_rowid(c.tls, c.db)) }

// ClearLastInsertRowID makes LastInsertRowID what it is on a new connection.
func (c *Conn) ClearLastInsertRowID() { lib.Xsqlite3_set_last_insert_rowid(c.tls, c.db, 0) }

// cstring copies s into SQLite's memory with a zero byte at its end.
func (c *Conn) cstring(s string) (uintptr, error) {
	p := lib.Xsqlite3_malloc64(c.tls, uint64(len(s))+1)
	if p == 0 {
		return 0, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory", Offset: -1}
	}
	b := unsafe.Slice((*byte)(pointer(p)), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return p, nil
}

// pointer is for memory that SQLite allocated, which the collector does not
// know and does not move.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// function returns f as the translated C code holds functions: the address of
// its closure, which for a top level function never moves.
func function[T any](f T) uintptr {
	return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f}))
}
