package mirror

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A capture is what an Entry was made of.
type capture struct {
	end   walEnd
	pages map[uint32]walPage
	post  Position
}

// Capture returns everything that was committed since the last Confirm as one
// entry, or nil when nothing was. The first entry of a database is a complete
// snapshot. It may be called again, and while queries are being read.
//
// It fails with [ErrOpenTx] within a transaction, with [ErrEntryTooLarge] and
// when a large entry cannot be written to the local disk, all of which leave
// the changes as they are. When the WAL is not what SQLite
// says, the mirror is discarded and the error wraps [ErrCapture].
func (m *Mirror) Capture() (*Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil || m.conn == nil {
		return nil, m.lost
	}
	if !m.conn.Autocommit() {
		return nil, ErrOpenTx
	}
	frames, err := m.committed()
	if err != nil {
		return nil, m.discardFor(ErrCapture, err)
	}
	return m.capture(frames)
}

// CaptureTo is Capture for what was committed between the last Confirm and the
// mark. It may be called within a transaction, and while statements run.
func (m *Mirror) CaptureTo(mark Mark) (*Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return nil, m.lost
	}
	if m.conn == nil || mark.epoch != m.epoch {
		return nil, ErrStaleMark
	}
	if err := m.unchanged(); err != nil {
		return nil, m.discardFor(ErrCapture, err)
	}
	return m.capture(mark.frames)
}

// Uncommitted is the size of the WAL behind the last Confirm, in bytes: what a
// Capture would have to read.
func (m *Mirror) Uncommitted() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil || m.conn == nil {
		return 0
	}
	frames, err := m.conn.walFrames()
	if err != nil {
		return 0 // the next capture finds out what is wrong
	}
	return int64(frames-m.end.frames) * int64(m.pageSize)
}

// capture encodes the frames between the last Confirm and the given number of
// frames.
func (m *Mirror) capture(frames int) (*Entry, error) {
	if frames == m.end.frames {
		return nil, nil
	}
	var err error
	c := &capture{post: Position{TXID: m.pos.TXID + 1}}
	if c.end, c.pages, err = scanWAL(m.wal, m.pageSize, m.end, frames); err != nil {
		return nil, m.discardFor(ErrCapture, err)
	}
	e, err := m.encode(c)
	if _, onDisk := errors.AsType[spillError](err); onDisk || errors.Is(err, ErrEntryTooLarge) {
		return nil, err
	} else if err != nil {
		return nil, m.discardFor(ErrCapture, err)
	}
	m.captured = c
	return e, nil
}

// committed returns the number of frames in the WAL, having made sure that the
// WAL is the file that is being read and that it was not started anew.
func (m *Mirror) committed() (int, error) {
	frames, err := m.conn.walFrames()
	if err != nil {
		return 0, err
	}
	if frames < m.end.frames {
		return 0, fmt.Errorf("the WAL has %d frames, had %d", frames, m.end.frames)
	}
	return frames, m.unchanged()
}

// unchanged makes sure that the WAL is the file that is being read and that it
// was not started anew.
func (m *Mirror) unchanged() error {
	if there, err := linked(m.wal); err != nil {
		return err
	} else if !there {
		return errors.New("the WAL was replaced")
	}
	if m.end.frames > 0 {
		var salts [len(m.end.salts)]byte
		if _, err := m.wal.ReadAt(salts[:], walSaltOffset); err != nil {
			return err
		}
		if salts != m.end.salts {
			return errRestarted
		}
	}
	return nil
}

// encode makes the entry of a capture, and completes the capture.
func (m *Mirror) encode(c *capture) (*Entry, error) {
	numbers, err := m.changed(c)
	if err != nil {
		return nil, err
	}
	out := &spill{dir: filepath.Dir(m.path), limit: m.cfg.EntryMemory}
	out.memory = make(appender, 0, min(int64(len(numbers))*int64(m.pageSize)/2+512, out.limit, 1<<16))
	if err := m.encodeTo(out, c, numbers); err != nil {
		out.close() //nolint:errcheck // the error above matters
		return nil, err
	}
	e := &Entry{Pre: m.pos, Post: c.post, Data: out.memory, file: out.file, PageSize: m.pageSize, Pages: c.end.pages}
	if e.Size = int64(len(e.Data)); e.file != nil {
		info, err := e.file.Stat()
		if err != nil {
			out.close() //nolint:errcheck // the error above matters
			return nil, spillError{err}
		}
		e.Size = info.Size()
	}
	return e, nil
}

// encodeTo writes the entry of a capture and finds its checksums.
func (m *Mirror) encodeTo(out *spill, c *capture, numbers []uint32) error {
	h := Header{
		PageSize: m.pageSize, Pages: c.end.pages, MinTXID: c.post.TXID, MaxTXID: c.post.TXID,
		Timestamp: clock.UnixMilli(), Pre: m.pos.Checksum,
	}
	if m.pages == 0 {
		h.MinTXID = 1
	}
	enc := newEncoder(out)
	defer enc.release()
	if err := enc.header(h); err != nil {
		return err
	}
	buf := getBuffer()
	defer putBuffer(buf)
	page := buf[:m.pageSize]
	sum := checksumFlag | m.pos.Checksum
	var err error
	for _, pgno := range numbers {
		if pgno <= m.pages {
			if sum, err = m.takeOut(sum, pgno, page); err != nil {
				return err
			}
		}
		w, ok := c.pages[pgno]
		if ok {
			_, err = m.wal.ReadAt(page, w.offset)
		} else {
			// The first page of a new database is written before the WAL.
			_, err = m.db.ReadAt(page, int64(pgno-1)*int64(m.pageSize))
		}
		if err != nil {
			return fmt.Errorf("read page %d: %w", pgno, err)
		}
		s := pageSum(pgno, page)
		sum = addPage(sum, s)
		if ok {
			w.sum = s
			c.pages[pgno] = w
		}
		if err := enc.page(pgno, page); err != nil {
			return err
		}
		if enc.n > m.cfg.MaxEntry {
			return ErrEntryTooLarge
		}
	}
	lock := lockPage(m.pageSize)
	for pgno := c.end.pages + 1; pgno <= m.pages; pgno++ {
		if pgno == lock {
			continue
		}
		if sum, err = m.takeOut(sum, pgno, page); err != nil {
			return err
		}
	}
	if err := enc.close(sum); err != nil {
		return err
	}
	if enc.n > m.cfg.MaxEntry {
		return ErrEntryTooLarge
	}
	c.post.Checksum = sum
	return out.flush()
}

// changed returns the numbers of the pages that belong into the entry of c.
func (m *Mirror) changed(c *capture) ([]uint32, error) {
	lock := lockPage(m.pageSize)
	if m.pages == 0 {
		numbers := make([]uint32, 0, c.end.pages)
		for pgno := uint32(1); pgno <= c.end.pages; pgno++ {
			if pgno != lock {
				numbers = append(numbers, pgno)
			}
		}
		return numbers, nil
	}
	// A transaction can leave frames of pages behind that it cut off later.
	maps.DeleteFunc(c.pages, func(pgno uint32, _ walPage) bool { return pgno > c.end.pages })
	for pgno := m.pages + 1; pgno <= c.end.pages; pgno++ {
		if _, ok := c.pages[pgno]; !ok && pgno != lock {
			return nil, fmt.Errorf("new page %d is not in the WAL", pgno)
		}
	}
	numbers := slices.AppendSeq(make([]uint32, 0, len(c.pages)), maps.Keys(c.pages))
	slices.Sort(numbers)
	if _, ok := slices.BinarySearch(numbers, lock); ok {
		return nil, errors.New("the lock page was written")
	}
	return numbers, nil
}

// takeOut removes the confirmed state of a page from a rolling checksum. It
// may use page as a buffer.
func (m *Mirror) takeOut(sum uint64, pgno uint32, page []byte) (uint64, error) {
	if w, ok := m.inWAL[pgno]; ok {
		return addPage(sum, w.sum), nil
	}
	if _, err := m.db.ReadAt(page, int64(pgno-1)*int64(m.pageSize)); err != nil {
		return 0, fmt.Errorf("read old page %d: %w", pgno, err)
	}
	return addPage(sum, pageSum(pgno, page)), nil
}

// Confirm tells the mirror that the entry that Capture returned last is in the
// log. post is that entry's Post. Changes made after the capture stay
// unconfirmed.
func (m *Mirror) Confirm(post Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	c := m.captured
	if c == nil || c.post != post {
		return fmt.Errorf("confirm %s: that is not what was captured", post)
	}
	m.captured = nil
	m.epoch++
	maps.Copy(m.inWAL, c.pages)
	m.end, m.pages, m.pos = c.end, c.end.pages, c.post
	if frameOffset(m.end.frames, m.pageSize) > m.cfg.CheckpointBytes {
		m.checkpoint()
	}
	return nil
}

// checkpoint moves the WAL into the database, when all of it is confirmed. It
// may fail, as on a full disk: the WAL is still complete then, and whatever is
// wrong with it is found by the next capture.
func (m *Mirror) checkpoint() {
	if len(m.conn.stmts) > 0 || !m.conn.Autocommit() {
		return
	}
	if frames, err := m.conn.walFrames(); err != nil || frames != m.end.frames {
		return
	}
	frames, err := m.conn.checkpoint(sqlite.CheckpointTruncate)
	if err != nil || frames != 0 {
		return
	}
	m.end = walEnd{pages: m.pages}
	clear(m.inWAL)
}

// Skip tells the mirror that the log has one commit more, in which no page was
// changed. Changes stay unconfirmed.
func (m *Mirror) Skip(txid uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	if txid != m.pos.TXID+1 || m.captured != nil {
		return fmt.Errorf("skip to commit %d from %s", txid, m.pos)
	}
	m.epoch++
	m.pos.TXID = txid
	return nil
}

// Empty moves the position to a later commit that left no database, as a
// deletion does. Changes since the last Confirm are undone. Like Apply it may
// follow an error that wraps [ErrDiscarded], and ends with such an error.
func (m *Mirror) Empty(txid uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost == nil && txid <= m.pos.TXID {
		return fmt.Errorf("empty at commit %d from %s", txid, m.pos)
	}
	m.lost = nil
	m.epoch++
	if err := m.discard(); err != nil {
		return m.discardFor(ErrDiscarded, err)
	}
	m.pos.TXID = txid
	return nil
}

// Advance moves the position to a later commit that changed no page. Nothing
// may be unconfirmed.
func (m *Mirror) Advance(txid uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	if txid <= m.pos.TXID {
		return fmt.Errorf("advance to commit %d from %s", txid, m.pos)
	}
	if m.conn != nil {
		if frames, err := m.conn.walFrames(); err != nil || frames != m.end.frames || !m.conn.Autocommit() {
			return fmt.Errorf("advance to commit %d: there are unconfirmed changes", txid)
		}
	} else if err := m.prepareFiles(); err != nil {
		return err
	}
	m.captured = nil
	m.pos.TXID = txid
	return nil
}
