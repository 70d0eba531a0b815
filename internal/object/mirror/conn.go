package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// A conn is one SQLite connection. It speaks the C interface rather than the
// database/sql driver, which offers no way to stop a step that is not the
// first of its query, to close without a checkpoint, to ask for the frames in
// the WAL, or to get the text of a column declared DATE as it is stored. It is
// not safe for concurrent use.
type conn struct {
	tls    *libc.TLS
	db     uintptr
	handle uintptr // of callbacks
	out    uintptr // C memory for results of calls
	main   uintptr // C string "main"
	stmts  map[*stmt]struct{}

	ctx    context.Context // of the call in progress
	user   bool            // a statement of the application is being prepared
	locked bool            // the application must not end the transaction
	denied string          // what the authorizer refused last
	dirty  bool            // connection state differs from that after open
	frames int             // in the WAL after the last commit
}

const (
	ptrSize = unsafe.Sizeof(uintptr(0))
	outSize = 16 // two pointers
)

// Callbacks from C carry a number, not a Go pointer.
var (
	conns      sync.Map // of uintptr to *conn
	lastHandle atomic.Uintptr
	patch      = sync.OnceFunc(sqlite3.PatchIssue199) // page size on linux/arm64
)

// progressSteps is the number of virtual machine instructions between two
// looks at the context.
const progressSteps = 1000

// openConn opens an existing file, which may be empty.
func openConn(path string) (*conn, error) {
	patch()
	if strings.IndexByte(path, 0) >= 0 {
		return nil, fmt.Errorf("open %q: NUL in path", path)
	}
	c := &conn{tls: libc.NewTLS(), stmts: map[*stmt]struct{}{}}
	name, err := libc.CString(path)
	if err == nil {
		defer libc.Xfree(c.tls, name)
		c.main, err = libc.CString("main")
	}
	if c.out = libc.Xmalloc(c.tls, types.Size_t(outSize)); c.out == 0 && err == nil {
		err = errors.New("out of memory")
	}
	if err != nil {
		c.close(false) //nolint:errcheck // nothing is open
		return nil, err
	}
	// Calls are serialized by the mirror.
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_NOMUTEX
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = c.outPointer(0)
	if rc == sqlite3.SQLITE_OK {
		rc = sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	}
	if rc == sqlite3.SQLITE_OK {
		rc = c.config(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)
	}
	if rc != sqlite3.SQLITE_OK {
		err := c.err(rc)
		c.close(false) //nolint:errcheck // the error above matters
		return nil, err
	}
	c.handle = lastHandle.Add(1)
	conns.Store(c.handle, c)
	sqlite3.Xsqlite3_progress_handler(c.tls, c.db, progressSteps, funcPointer(onProgress), c.handle)
	// The hook also takes the place of SQLite's own automatic checkpoints.
	sqlite3.Xsqlite3_wal_hook(c.tls, c.db, funcPointer(onCommit), c.handle)
	return c, nil
}

// close closes the connection. With checkpoint, SQLite copies the WAL into the
// database and removes it.
func (c *conn) close(checkpoint bool) error {
	c.stop()
	rc := int32(sqlite3.SQLITE_OK)
	if c.db != 0 {
		if !checkpoint {
			rc = c.config(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
		}
		if rc2 := sqlite3.Xsqlite3_close(c.tls, c.db); rc == sqlite3.SQLITE_OK {
			rc = rc2
		}
	}
	conns.Delete(c.handle)
	libc.Xfree(c.tls, c.out)
	libc.Xfree(c.tls, c.main)
	c.tls.Close()
	c.db = 0
	if rc != sqlite3.SQLITE_OK {
		return &SQLError{Code: int(rc), Msg: "close"}
	}
	return nil
}

// stop ends all statements.
func (c *conn) stop() {
	for s := range c.stmts {
		s.close() //nolint:errcheck // it has been reported by step
	}
}

// config switches a boolean option of the connection on.
func (c *conn) config(option int32) int32 {
	args := libc.Xmalloc(c.tls, 16)
	if args == 0 {
		return sqlite3.SQLITE_NOMEM
	}
	defer libc.Xfree(c.tls, args)
	return sqlite3.Xsqlite3_db_config(c.tls, c.db, option, libc.VaList(args, int32(1), uintptr(0)))
}

// authorize installs the authorizer.
func (c *conn) authorize() error {
	if rc := sqlite3.Xsqlite3_set_authorizer(c.tls, c.db, funcPointer(onAuthorize), c.handle); rc != sqlite3.SQLITE_OK {
		return c.err(rc)
	}
	return nil
}

// pragma runs one of the mirror's own pragmas and returns its first value.
func (c *conn) pragma(text string) (any, error) {
	s, _, err := c.prepare(context.Background(), "PRAGMA "+text)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // reported by step
	row, err := s.step(context.Background())
	if err != nil || !row || s.columnCount() == 0 {
		return nil, err
	}
	return s.column(0), nil
}

// autocommit reports whether no transaction is open.
func (c *conn) autocommit() bool { return sqlite3.Xsqlite3_get_autocommit(c.tls, c.db) != 0 }

// clearLastRowID makes last_insert_rowid() what it is on a new connection.
func (c *conn) clearLastRowID() { sqlite3.Xsqlite3_set_last_insert_rowid(c.tls, c.db, 0) }

// walFrames returns the number of frames in the WAL that SQLite itself counts
// as committed.
func (c *conn) walFrames() (int, error) {
	if len(c.stmts) == 0 {
		return c.checkpoint(sqlite3.SQLITE_CHECKPOINT_NOOP)
	}
	// While statements are running, no checkpoint is possible, not even this
	// one. The commit hook knows the number after the last commit, which was
	// ours, but it is called when a statement ends well: a commit of one that
	// failed halfway (INSERT OR FAIL) waits for the next.
	s, _, err := c.prepare(context.Background(), "SELECT 1 WHERE 0")
	if err != nil {
		return 0, err
	}
	_, err = s.step(context.Background())
	if cerr := s.close(); err == nil {
		err = cerr
	}
	return c.frames, err
}

// checkpoint returns the number of frames that are in the WAL afterwards.
func (c *conn) checkpoint(mode int32) (frames int, err error) {
	rc := sqlite3.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, c.main, mode, c.out, 0)
	if rc != sqlite3.SQLITE_OK {
		return 0, c.err(rc)
	}
	frames = int(int32(binary.NativeEndian.Uint32(libc.GoBytes(c.out, 4))))
	if frames < 0 {
		return 0, errors.New("database is not in WAL mode")
	}
	c.frames = frames
	return frames, nil
}

// err describes a result code of the last call.
func (c *conn) err(rc int32) error {
	e := &SQLError{Code: int(rc), Msg: libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))}
	if c.db == 0 {
		return e
	}
	if c.denied != "" && e.primary() == sqlite3.SQLITE_AUTH {
		what := c.denied
		c.denied = ""
		return &DeniedError{What: what}
	}
	if msg := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)); msg != "" {
		e.Msg = msg
	}
	return e
}

// outPointer reads the i-th pointer of the result memory.
func (c *conn) outPointer(i int) uintptr {
	b := libc.GoBytes(c.out+uintptr(i)*ptrSize, int(ptrSize))
	return *(*uintptr)(unsafe.Pointer(&b[0]))
}

// funcPointer returns a declared function as the translated C code calls it.
func funcPointer[F any](f F) uintptr {
	return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f}))
}

func connOf(handle uintptr) *conn {
	c, _ := conns.Load(handle)
	return c.(*conn)
}

// onProgress ends a statement whose context has ended.
func onProgress(_ *libc.TLS, handle uintptr) int32 {
	if c := connOf(handle); c.ctx != nil && c.ctx.Err() != nil {
		return 1
	}
	return 0
}

// onCommit notes the number of frames that a commit left in the WAL.
func onCommit(_ *libc.TLS, handle, _, _ uintptr, frames int32) int32 {
	connOf(handle).frames = int(frames)
	return sqlite3.SQLITE_OK
}
