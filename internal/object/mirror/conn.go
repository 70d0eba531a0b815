package mirror

import (
	"context"
	"errors"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// cachedStatements bounds the compiled statements of a mirror: there are
// thousands of mirrors, and each statement takes a few KB.
const cachedStatements = 32

// A conn is one SQLite connection. It is not safe for concurrent use.
type conn struct {
	*sqlite.Conn
	stmts map[*stmt]struct{} // in use

	user   bool   // a statement of the application is being prepared
	locked bool   // the application must not end the transaction
	denied string // what the authorizer refused last
	dirty  bool   // connection state differs from that after open
	frames int    // in the WAL after the last commit
}

// openConn opens an existing file, which may be empty.
func openConn(path string) (*conn, error) {
	db, err := sqlite.OpenExisting(path)
	if err != nil {
		return nil, sqlError(err)
	}
	c := &conn{Conn: db, stmts: map[*stmt]struct{}{}}
	db.LimitCache(cachedStatements)
	if err = db.Defend(); err == nil {
		err = db.SetHooks(sqlite.Hooks{Commit: c.onCommit})
	}
	if err != nil {
		c.close(false) //nolint:errcheck // the error above matters
		return nil, sqlError(err)
	}
	return c, nil
}

// close closes the connection. With checkpoint, SQLite copies the WAL into the
// database and removes it.
func (c *conn) close(checkpoint bool) error {
	c.stop()
	if checkpoint {
		return sqlError(c.Close())
	}
	return sqlError(c.CloseKeepingWAL())
}

// stop ends all statements.
func (c *conn) stop() {
	for s := range c.stmts {
		s.close() //nolint:errcheck // it has been reported by step
	}
}

// authorize installs the authorizer.
func (c *conn) authorize() error {
	return sqlError(c.SetHooks(sqlite.Hooks{Commit: c.onCommit, Authorize: c.onAuthorize}))
}

// onCommit notes the number of frames that a commit left in the WAL.
func (c *conn) onCommit(frames int) { c.frames = frames }

// pragma runs one of the mirror's own pragmas and returns its first value.
func (c *conn) pragma(text string) (any, error) {
	s, _, err := c.prepare(context.Background(), "PRAGMA "+text)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // reported by step
	row, err := s.step(context.Background())
	if err != nil || !row || s.Columns() == 0 {
		return nil, err
	}
	return s.Value(0), nil
}

// walFrames returns the number of frames in the WAL that SQLite itself counts
// as committed.
func (c *conn) walFrames() (int, error) {
	if len(c.stmts) == 0 {
		return c.checkpoint(sqlite.CheckpointNoop)
	}
	// While statements are running, no checkpoint is possible, not even this
	// one. The commit hook knows the number after the last commit, which was
	// ours, but it is called when a statement ends well: a commit of one that
	// failed halfway (INSERT OR FAIL) waits for the next.
	s, err := c.own("SELECT 1 WHERE 0")
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
func (c *conn) checkpoint(mode int) (frames int, err error) {
	if frames, err = c.Checkpoint(mode); err != nil {
		return 0, sqlError(err)
	}
	c.frames = frames
	return frames, nil
}

// sqlError gives an error of SQLite the type of this package.
func sqlError(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return &SQLError{Code: e.Code, Msg: e.Message}
	}
	return err
}
