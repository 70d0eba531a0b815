package sqlite

import (
	"errors"
	"sync"
	"sync/atomic"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Callbacks from C carry a number, not a Go pointer.
var (
	conns      sync.Map // of uintptr to *Conn
	lastHandle atomic.Uintptr
)

func connOf(handle uintptr) *Conn {
	c, _ := conns.Load(handle)
	return c.(*Conn)
}

// Hooks are functions that SQLite calls; any may be nil.
type Hooks struct {
	// Authorize is asked what a statement may do while it is compiled. false
	// fails the statement with Auth.
	Authorize func(Access) bool
	// Commit is told, when a statement that committed ends well, how many
	// frames the WAL then has. It also takes the place of automatic checkpoints.
	Commit func(frames int)
}

// SetHooks installs hooks in place of earlier ones.
func (c *Conn) SetHooks(h Hooks) error {
	c.hooks = h
	var authorize, commit uintptr
	if h.Authorize != nil {
		authorize = function(onAuthorize)
	}
	if h.Commit != nil {
		commit = function(onCommit)
	}
	if rc := lib.Xsqlite3_set_authorizer(c.tls, c.db, authorize, c.handle); rc != lib.SQLITE_OK {
		return c.err(rc)
	}
	lib.Xsqlite3_wal_hook(c.tls, c.db, commit, c.handle)
	return nil
}

// An Access is something that a statement does. What the arguments are depends
// on the action (sqlite.org/c3ref/c_alter_table.html).
type Access struct {
	Action   int
	args     [2]uintptr
	database uintptr
}

// The actions that callers tell apart.
const (
	Attach            = lib.SQLITE_ATTACH
	Detach            = lib.SQLITE_DETACH
	Transaction       = lib.SQLITE_TRANSACTION
	Pragma            = lib.SQLITE_PRAGMA
	CreateTempIndex   = lib.SQLITE_CREATE_TEMP_INDEX
	CreateTempTable   = lib.SQLITE_CREATE_TEMP_TABLE
	CreateTempTrigger = lib.SQLITE_CREATE_TEMP_TRIGGER
	CreateTempView    = lib.SQLITE_CREATE_TEMP_VIEW
	CreateVTable      = lib.SQLITE_CREATE_VTABLE
)

// Arg returns an argument, 0 or 1; ok is false without one.
func (a Access) Arg(i int) (text string, ok bool) { return libc.GoString(a.args[i]), a.args[i] != 0 }

// Database returns the name of the database, such as main or temp.
func (a Access) Database() string { return libc.GoString(a.database) }

func onAuthorize(_ *libc.TLS, handle uintptr, action int32, arg1, arg2, database, _ uintptr) int32 {
	if connOf(handle).hooks.Authorize(Access{Action: int(action), args: [2]uintptr{arg1, arg2}, database: database}) {
		return lib.SQLITE_OK
	}
	return lib.SQLITE_DENY
}

func onCommit(_ *libc.TLS, handle, _, _ uintptr, frames int32) int32 {
	connOf(handle).hooks.Commit(int(frames))
	return lib.SQLITE_OK
}

// onProgress runs inside a statement; anything but 0 interrupts it.
func onProgress(_ *libc.TLS, handle uintptr) int32 {
	if c := connOf(handle); c.ctx != nil && c.ctx.Err() != nil {
		return 1
	}
	return 0
}

// The modes of Checkpoint.
const (
	CheckpointNoop     = lib.SQLITE_CHECKPOINT_NOOP
	CheckpointPassive  = lib.SQLITE_CHECKPOINT_PASSIVE
	CheckpointRestart  = lib.SQLITE_CHECKPOINT_RESTART
	CheckpointTruncate = lib.SQLITE_CHECKPOINT_TRUNCATE
)

// Checkpoint returns the number of frames that are in the WAL afterwards. It is
// not possible, in no mode, while statements run.
func (c *Conn) Checkpoint(mode int) (frames int, err error) {
	if rc := lib.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, c.main, int32(mode), c.out, 0); rc != lib.SQLITE_OK {
		return 0, c.err(rc)
	}
	if frames = int(*(*int32)(pointer(c.out))); frames < 0 {
		return 0, errors.New("database is not in WAL mode")
	}
	return frames, nil
}
