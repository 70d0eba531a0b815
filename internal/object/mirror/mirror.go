package mirror

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Defaults of Config.
const (
	DefaultPageSize        = 4096
	DefaultCacheBytes      = 200 << 10
	DefaultMaxEntry        = 4 << 20
	DefaultEntryMemory     = 1 << 20
	DefaultCheckpointBytes = 1 << 20
)

// Config sets a mirror's sizes. Zero means the default.
type Config struct {
	// PageSize of new databases, in bytes: a power of two from 512 to 65,536.
	// Databases that exist keep theirs.
	PageSize int
	// CacheBytes bounds SQLite's page cache. A transaction that needs more
	// spills into the WAL.
	CacheBytes int64
	// MaxEntry is the largest entry that Capture returns, in bytes.
	MaxEntry int64
	// EntryMemory is the largest entry that Capture keeps in memory, in bytes;
	// larger ones go to a file beside the database.
	EntryMemory int64
	// CheckpointBytes is the size of the WAL above which Confirm checkpoints.
	CheckpointBytes int64
	// MaxSize bounds the database, in bytes; 0 is no bound but SQLite's.
	MaxSize int64
}

// WithDefaults returns c with defaults in place of zeros.
func (c Config) WithDefaults() Config {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.PageSize == 0 {
		c.PageSize = DefaultPageSize
	}
	set(&c.CacheBytes, DefaultCacheBytes)
	set(&c.MaxEntry, DefaultMaxEntry)
	set(&c.EntryMemory, DefaultEntryMemory)
	set(&c.CheckpointBytes, DefaultCheckpointBytes)
	return c
}

// Validate reports sizes that cannot be used.
func (c Config) Validate() error {
	if c.PageSize != 0 && !validPageSize(uint32(c.PageSize)) {
		return fmt.Errorf("page size %d is not a power of two from %d to %d", c.PageSize, minPageSize, maxPageSize)
	}
	if c.CacheBytes < 0 || c.MaxEntry < 0 || c.EntryMemory < 0 || c.CheckpointBytes < 0 || c.MaxSize < 0 {
		return errors.New("a size of the mirror is negative")
	}
	return nil
}

// A Mirror is the local copy of one object's database. Its methods may be
// called by several goroutines; they run one after the other.
//
// After an error that wraps [ErrDiscarded] the files are gone and the position
// is zero. All other methods then fail with the same error until Apply has
// rebuilt the mirror or Discard has acknowledged the loss.
type Mirror struct {
	path string
	cfg  Config

	mu    sync.Mutex
	clean bool     // the files are this mirror's own; before that they are not trusted
	pos   Position // last confirmed
	// pageSize and pages describe the database at pos. pages is 0 when there is
	// none.
	pageSize uint32
	pages    uint32

	// The rest is set while the connection is open. While it is closed, the
	// database file alone holds the state at pos.
	conn  *conn
	db    *os.File // kept open as long as conn: closing any descriptor of the file drops SQLite's locks
	wal   *os.File
	end   walEnd             // of what is confirmed in the WAL
	inWAL map[uint32]walPage // pages of the database at pos that are in the WAL, and some beyond its end
	// captured is what Capture read last, until it is confirmed.
	captured *capture
	tx       bool   // Begin without its Commit or Rollback
	epoch    uint64 // changes when marks become stale

	// lost is the error for which the mirror was discarded. Nothing runs until
	// the caller has acknowledged it: an event must not go on with an empty
	// database.
	lost error
}

// New returns the mirror of the database file at path. It touches nothing: the
// first use removes whatever lies there, and begins at the zero position.
func New(path string, cfg Config) *Mirror {
	return &Mirror{path: path, cfg: cfg.WithDefaults()}
}

// Position returns the last confirmed position.
func (m *Mirror) Position() Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pos
}

// Size returns the page size and the number of pages at the last confirmed
// position. There is no database while pages is 0.
func (m *Mirror) Size() (pageSize, pages uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pageSize, m.pages
}

// Open reports whether the mirror holds a connection and file descriptors.
func (m *Mirror) Open() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn != nil
}

// prepareFiles removes what an earlier process left behind.
func (m *Mirror) prepareFiles() error {
	if m.clean {
		return nil
	}
	if err := m.removeFiles(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	m.clean = true
	return nil
}

func (m *Mirror) removeFiles() error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(m.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// open opens the connection when it is closed.
func (m *Mirror) open() error {
	if m.lost != nil || m.conn != nil {
		return m.lost
	}
	if err := m.prepareFiles(); err != nil {
		return fmt.Errorf("open mirror: %w", err)
	}
	if err := m.connect(); err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("open mirror: %w", err))
	}
	if err := m.checkFrames(0); err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("open mirror: %w", err))
	}
	m.end = walEnd{pages: m.pages}
	m.inWAL = map[uint32]walPage{}
	m.epoch++
	return nil
}

// connect opens the connection and the descriptors, whatever is in the WAL.
func (m *Mirror) connect() (err error) {
	if m.pages == 0 {
		// SQLite would make the file readable for everybody.
		f, err := os.OpenFile(m.path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		f.Close() //nolint:errcheck // nothing was written
		m.pageSize = uint32(m.cfg.PageSize)
	}
	if m.db, err = os.Open(m.path); err != nil {
		return err
	}
	if m.conn, err = openConn(m.path); err != nil {
		return err
	}
	if err := m.configure(); err != nil {
		return err
	}
	if m.wal, err = os.Open(m.path + "-wal"); err != nil {
		return err
	}
	return m.conn.authorize()
}

// configure sets the connection up. The order matters: locking_mode must come
// before the first look at the WAL, so that SQLite needs no shared memory, and
// page_size before journal_mode, which writes the first page.
func (m *Mirror) configure() error {
	set := func(format string, args ...any) (any, error) {
		text := fmt.Sprintf(format, args...)
		v, err := m.conn.pragma(text)
		if err != nil {
			return nil, fmt.Errorf("PRAGMA %s: %w", text, err)
		}
		return v, nil
	}
	if m.pages == 0 {
		if _, err := set("page_size=%d", m.pageSize); err != nil {
			return err
		}
	}
	if _, err := set("locking_mode=EXCLUSIVE"); err != nil {
		return err
	}
	if mode, err := set("journal_mode=WAL"); err != nil {
		return err
	} else if mode != "wal" {
		return fmt.Errorf("journal mode is %v", mode)
	}
	// The first read opens the WAL.
	if _, err := set("schema_version"); err != nil {
		return err
	}
	if size, err := set("page_size"); err != nil {
		return err
	} else if size != int64(m.pageSize) {
		return fmt.Errorf("page size is %v, want %d", size, m.pageSize)
	}
	for _, text := range []string{
		"synchronous=OFF",
		fmt.Sprintf("cache_size=%d", -max(m.cfg.CacheBytes>>10, 1)),
		"foreign_keys=ON",
	} {
		if _, err := set("%s", text); err != nil {
			return err
		}
	}
	if m.cfg.MaxSize > 0 {
		if _, err := set("max_page_count=%d", m.maxPages()); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) maxPages() int64 {
	return min(max(m.cfg.MaxSize/int64(m.pageSize), 1), maxPages)
}

// checkFrames compares the number of frames that SQLite sees with want.
func (m *Mirror) checkFrames(want int) error {
	frames, err := m.conn.walFrames()
	if err == nil && frames != want {
		err = fmt.Errorf("SQLite counts %d frames in the WAL, want %d", frames, want)
	}
	return err
}

// disconnect closes the connection and the descriptors.
func (m *Mirror) disconnect(checkpoint bool) error {
	var err error
	if m.conn != nil {
		err = m.conn.close(checkpoint)
	}
	for _, f := range []*os.File{m.wal, m.db} {
		if f != nil {
			f.Close() //nolint:errcheck // only read from
		}
	}
	m.conn, m.db, m.wal = nil, nil, nil
	m.captured, m.inWAL = nil, nil
	m.tx = false
	return err
}

// closeConfirmed closes the connection so that the database file alone holds
// the state at the confirmed position. Changes since then are undone.
func (m *Mirror) closeConfirmed() error {
	if m.conn == nil {
		return m.prepareFiles()
	}
	if err := m.undo(m.end.frames); err != nil {
		return err
	}
	if m.conn == nil {
		return nil
	}
	if err := m.disconnect(true); err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("close mirror: %w", err))
	}
	if m.pages == 0 {
		return m.removeFiles()
	}
	if err := m.checkClosed(); err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("close mirror: %w", err))
	}
	return nil
}

// checkClosed looks at the closed files: a WAL that is left would be replayed
// over whatever is written to the database.
func (m *Mirror) checkClosed() error {
	if _, err := os.Lstat(m.path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		return errors.New("the WAL was not checkpointed")
	}
	info, err := os.Stat(m.path)
	if err != nil {
		return err
	}
	if want := int64(m.pages) * int64(m.pageSize); info.Size() != want {
		return fmt.Errorf("database has %d bytes, want %d", info.Size(), want)
	}
	return nil
}

// Close closes the connection and keeps the file, which the same Mirror can
// open again. Changes since the last Confirm are undone.
func (m *Mirror) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return nil
	}
	return m.closeConfirmed()
}

// Reset restores the state of the connection between two events: TEMP objects
// are dropped, pragmas have their defaults, last_insert_rowid() is 0, queries
// that nobody read to their end are stopped. It costs nothing when the event
// left none of them. Changes in the database stay, captured or not, and so do
// marks.
func (m *Mirror) Reset() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil || m.conn == nil {
		return m.lost
	}
	if !m.conn.Autocommit() {
		return ErrOpenTx
	}
	m.conn.stop()
	if !m.conn.dirty {
		m.conn.ClearLastInsertRowID()
		return nil
	}
	frames, err := m.conn.walFrames()
	if err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("reset connection: %w", err))
	}
	return m.reconnect(frames)
}

// Discard removes the files: the mirror is at the zero position again.
func (m *Mirror) Discard() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = nil
	return m.discard()
}

func (m *Mirror) discard() error {
	m.disconnect(false) //nolint:errcheck // the files are removed
	m.pos, m.pageSize, m.pages = Position{}, 0, 0
	m.clean = false // until the removal has worked
	if err := m.prepareFiles(); err != nil {
		return fmt.Errorf("discard mirror: %w", err)
	}
	return nil
}

// discardFor discards the mirror because of an error, and returns that error
// as one of kind, which is or wraps ErrDiscarded.
func (m *Mirror) discardFor(kind, cause error) error {
	if m.lost != nil {
		return m.lost
	}
	m.lost = fmt.Errorf("%w: %w", kind, cause)
	if err := m.discard(); err != nil {
		m.lost = errors.Join(m.lost, err)
	}
	return m.lost
}
