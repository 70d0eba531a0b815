package sqlite

import (
	"fmt"
	"net/url"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// OpenReadOnly opens a file that must exist, for reading. Of a WAL database it
// may create the WAL's files.
func OpenReadOnly(path string) (*Conn, error) { return openFlags(path, lib.SQLITE_OPEN_READONLY) }

// OpenImmutable opens a file that nobody changes meanwhile, for reading: there
// are no locks, its WAL or journal is not looked at, and no file is created.
func OpenImmutable(path string) (*Conn, error) {
	uri := "file:" + (&url.URL{Path: path}).EscapedPath() + "?immutable=1"
	return openFlags(uri, lib.SQLITE_OPEN_READONLY|lib.SQLITE_OPEN_URI)
}

// FileReadOnly reports whether the file could only be opened for reading.
func (c *Conn) FileReadOnly() bool { return lib.Xsqlite3_db_readonly(c.tls, c.db, c.main) == 1 }

// LimitLength bounds the size of values, in bytes. A statement that would read
// a larger one ends with TooBig before it is read into memory.
func (c *Conn) LimitLength(n int) {
	lib.Xsqlite3_limit(c.tls, c.db, lib.SQLITE_LIMIT_LENGTH, int32(n))
}

// A Blob is one value of a row, a blob or text, that is read in parts, so that
// it never is in memory as a whole.
type Blob struct {
	c *Conn
	p uintptr
}

// OpenBlob opens the value of a column in the row of a table with rowids.
func (c *Conn) OpenBlob(table, column string, rowid int64) (*Blob, error) {
	t, err := c.cstring(table)
	if err != nil {
		return nil, err
	}
	defer lib.Xsqlite3_free(c.tls, t)
	name, err := c.cstring(column)
	if err != nil {
		return nil, err
	}
	defer lib.Xsqlite3_free(c.tls, name)
	rc := lib.Xsqlite3_blob_open(c.tls, c.db, c.main, t, name, rowid, 0, c.out)
	if rc != lib.SQLITE_OK {
		return nil, c.err(rc)
	}
	return &Blob{c: c, p: *(*uintptr)(pointer(c.out))}, nil
}

// Size returns the size in bytes.
func (b *Blob) Size() int64 { return int64(lib.Xsqlite3_blob_bytes(b.c.tls, b.p)) }

// Read returns n bytes from off, all of which must exist.
func (b *Blob) Read(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off+n > b.Size() {
		return nil, fmt.Errorf("bytes %d to %d of a value of %d", off, off+n, b.Size())
	}
	m := libc.Xmalloc(b.c.tls, libc.Tsize_t(n+1))
	if m == 0 {
		return nil, &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory", Offset: -1}
	}
	defer libc.Xfree(b.c.tls, m)
	if rc := lib.Xsqlite3_blob_read(b.c.tls, b.p, m, int32(n), int32(off)); rc != lib.SQLITE_OK {
		return nil, b.c.err(rc)
	}
	return append([]byte{}, libc.GoBytes(m, int(n))...), nil
}

// Close closes the value.
func (b *Blob) Close() error {
	if rc := lib.Xsqlite3_blob_close(b.c.tls, b.p); rc != lib.SQLITE_OK {
		return b.c.err(rc)
	}
	return nil
}
