// Package sqlite is a thin binding to the pure Go translation of SQLite
// (modernc.org/sqlite/lib). It exists beside that module's database/sql driver
// because the driver turns texts of columns declared DATE, DATETIME or
// TIMESTAMP into times, and because a Hrana server needs what the driver does
// not show: the rest of a text after its first statement, names of parameters,
// declared types, autocommit.
//
// A Conn and its statements belong to one goroutine at a time. There is no busy
// handler: a lock that is taken shows at once as Busy, and callers decide how to
// wait.
package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // sets up the library for its platform
	lib "modernc.org/sqlite/lib"
)

// watchInterval is the number of virtual machine steps between two looks at
// whether the context of the call has ended.
const watchInterval = 1000

// A Conn is one connection to a database file.
type Conn struct {
	tls   *libc.TLS
	db    uintptr
	out   uintptr // two pointers that SQLite writes results to
	ended *atomic.Int32
	stmts map[string]*Stmt
}

// Open opens the database file at path, which is taken as it is, and creates it
// when it does not exist; its folder must exist.
func Open(path string) (*Conn, error) {
	c := &Conn{tls: libc.NewTLS(), stmts: map[string]*Stmt{}}
	// The flag that the progress handler looks at lies in SQLite's memory,
	// next to the two result pointers.
	c.out = lib.Xsqlite3_malloc64(c.tls, 3*8)
	name, err := c.cstring(path)
	if err != nil || c.out == 0 {
		c.release()
		return nil, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory"}
	}
	defer lib.Xsqlite3_free(c.tls, name)
	c.ended = (*atomic.Int32)(pointer(c.out + 16))
	c.ended.Store(0)
	const flags = lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_CREATE | lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_EXRESCODE
	rc := lib.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = *(*uintptr)(pointer(c.out))
	if rc != lib.SQLITE_OK {
		err := c.err(rc)
		c.Close()
		return nil, err
	}
	lib.Xsqlite3_progress_handler(c.tls, c.db, watchInterval, function(progress), c.out+16)
	return c, nil
}

// progress runs inside a statement; anything but 0 interrupts it.
func progress(_ *libc.TLS, ended uintptr) int32 {
	return (*atomic.Int32)(pointer(ended)).Load()
}

// Close closes the connection; an open transaction is rolled back.
func (c *Conn) Close() error {
	for _, s := range c.stmts {
		s.Close()
	}
	rc := lib.Xsqlite3_close_v2(c.tls, c.db)
	c.db = 0
	c.release()
	if rc != lib.SQLITE_OK {
		return &Error{Code: int(rc), Message: "closing"}
	}
	return nil
}

func (c *Conn) release() {
	lib.Xsqlite3_free(c.tls, c.out)
	c.tls.Close()
	c.tls = nil
}

// Watch makes statements end with Interrupt after ctx has ended. The function
// it returns ends the watch and must be called before the connection is used
// for anything else.
func (c *Conn) Watch(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		c.ended.Store(1)
		close(done)
	})
	return func() {
		if !cancel() {
			<-done
		}
		c.ended.Store(0)
	}
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
		s.Close()
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
	if err != nil {
		return "", err
	}
	defer s.Close()
	if ok, err := s.Step(); !ok {
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

// cstring copies s into SQLite's memory with a zero byte at its end.
func (c *Conn) cstring(s string) (uintptr, error) {
	p := lib.Xsqlite3_malloc64(c.tls, uint64(len(s))+1)
	if p == 0 {
		return 0, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory"}
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
