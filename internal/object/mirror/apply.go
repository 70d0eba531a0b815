package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Apply brings entries of the log into the mirror, in their order. Each is
// verified as a whole, against itself and against the database, before any of
// its pages is written. A snapshot replaces everything. An entry that covers
// several commits may begin at or before the mirror's position.
//
// The connection is closed; changes since the last Confirm are undone. On any
// error the mirror has been discarded: the error wraps [ErrDiverged] when the
// entries are to blame, and always [ErrDiscarded].
func (m *Mirror) Apply(entries ...[]byte) error {
	sources := make([]source, len(entries))
	for i, entry := range entries {
		sources[i] = func(again bool) *decoder {
			d := decodeBytes(entry)
			d.unchecked = again
			return d
		}
	}
	return m.applyAll(sources...)
}

// ApplyFrom is Apply for one entry of size bytes that is read from r, twice. It
// takes no more memory for a large entry than for a small one.
func (m *Mirror) ApplyFrom(r io.ReaderAt, size int64) error {
	return m.applyAll(func(bool) *decoder { return decodeFrom(io.NewSectionReader(r, 0, size)) })
}

// A source begins to read an entry, perhaps again after it has been verified.
type source func(again bool) *decoder

func (m *Mirror) applyAll(entries ...source) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(entries) == 0 {
		return m.lost
	}
	m.lost = nil
	if err := m.closeConfirmed(); err != nil {
		return m.discardFor(ErrDiscarded, err)
	}
	f, err := os.OpenFile(m.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return m.discardFor(ErrDiscarded, err)
	}
	for _, entry := range entries {
		if err = m.apply(f, entry); err != nil {
			break
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write database: %w", cerr)
	}
	if err == nil && m.pages > 0 {
		err = m.checkClosed()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errMismatch), errors.Is(err, ErrBadEntry):
		return m.discardFor(ErrDiverged, err)
	}
	return m.discardFor(ErrDiscarded, err)
}

// errMismatch: an entry does not follow the mirror's position.
var errMismatch = errors.New("entry does not fit")

func mismatch(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMismatch, fmt.Sprintf(format, args...))
}

// apply verifies and writes one entry.
func (m *Mirror) apply(f *os.File, entry source) error {
	d := entry(false)
	defer d.release()
	if err := d.header(); err != nil {
		return err
	}
	if err := m.follows(d.h); err != nil {
		return err
	}
	h, err := m.verify(f, d)
	if err != nil {
		return err
	}
	again := entry(true)
	defer again.release()
	if err := writePages(f, again, h); err != nil {
		return fmt.Errorf("write database: %w", err)
	}
	m.pos, m.pageSize, m.pages = h.After(), h.PageSize, h.Pages
	return nil
}

// verify reads an entry to its end, against itself and against the database.
func (m *Mirror) verify(f *os.File, d *decoder) (Header, error) {
	old := m.pages
	if d.h.Snapshot() {
		old = 0
	}
	var (
		buf   = getBuffer()
		prev  = buf[:d.h.PageSize]
		sum   = m.pos.Checksum
		added uint32 // pages beyond old
		lock  = lockPage(d.h.PageSize)
	)
	defer putBuffer(buf)
	take := func(pgno uint32) error {
		if _, err := f.ReadAt(prev, int64(pgno-1)*int64(len(prev))); err != nil {
			return fmt.Errorf("read old page %d: %w", pgno, err)
		}
		sum = addPage(sum, pageSum(pgno, prev))
		return nil
	}
	for {
		p, err := d.next()
		if err != nil {
			return d.h, err
		}
		if p.pgno == 0 {
			break
		}
		if p.pgno == 1 {
			if err := checkFirstPage(p.page); err != nil {
				return d.h, err
			}
		}
		if p.pgno > old {
			added++
		} else if err := take(p.pgno); err != nil {
			return d.h, err
		}
		if !d.h.Snapshot() {
			sum = addPage(sum, pageSum(p.pgno, p.page))
		}
	}
	h := d.h
	if h.Snapshot() {
		return h, nil
	}
	// The sum does not see pages that are missing at the end.
	if want := pagesBetween(old, h.Pages, lock); added != want {
		return h, mismatch("it has %d of %d new pages", added, want)
	}
	for pgno := h.Pages + 1; pgno <= old; pgno++ {
		if pgno != lock {
			if err := take(pgno); err != nil {
				return h, err
			}
		}
	}
	if sum != h.Post {
		return h, mismatch("the database would be at %016x, want %016x", sum, h.Post)
	}
	return h, nil
}

// follows checks that an entry can be applied at the mirror's position.
func (m *Mirror) follows(h Header) error {
	switch next := m.pos.TXID + 1; {
	case h.Pages == 0:
		return mismatch("it leaves no database")
	case h.MaxTXID < next:
		return mismatch("it ends at commit %d, the mirror is at %s", h.MaxTXID, m.pos)
	case h.Snapshot():
		return nil
	case m.pages == 0:
		return mismatch("it is no snapshot, and there is no database")
	case h.MinTXID > next:
		return mismatch("it begins with commit %d, the mirror is at %s", h.MinTXID, m.pos)
	case h.MinTXID == next && h.Pre != m.pos.Checksum:
		return mismatch("it begins at %016x, the mirror is at %s", h.Pre, m.pos)
	case h.PageSize != m.pageSize:
		return mismatch("its page size is %d, the mirror's %d", h.PageSize, m.pageSize)
	}
	return nil
}

// pagesBetween counts the pages in (from, to] without the lock page.
func pagesBetween(from, to, lock uint32) uint32 {
	if to <= from {
		return 0
	}
	n := to - from
	if from < lock && lock <= to {
		n--
	}
	return n
}

// checkFirstPage refuses a database that SQLite would write to when it opens
// it, or not open at all.
func checkFirstPage(page []byte) error {
	size := uint32(binary.BigEndian.Uint16(page[16:]))
	if size == 1 {
		size = maxPageSize
	}
	if string(page[:16]) != headerMagic || size != uint32(len(page)) {
		return badEntry("its first page is not that of a SQLite database")
	}
	if page[18] != walVersion || page[19] != walVersion {
		return badEntry("its database is not in WAL mode")
	}
	return nil
}

// The beginning of a database file; bytes 18 and 19 are 2 in WAL mode, else 1.
const (
	headerMagic    = "SQLite format 3\x00"
	walVersion     = 2
	journalVersion = 1
)

// writePages writes the pages of a verified entry.
func writePages(f *os.File, entry *decoder, h Header) error {
	if err := entry.header(); err != nil {
		return err
	}
	if h.Snapshot() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	for {
		p, err := entry.next()
		if err != nil {
			return err
		}
		if p.pgno == 0 {
			break
		}
		if _, err := f.WriteAt(p.page, int64(p.pgno-1)*int64(h.PageSize)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(h.Pages) * int64(h.PageSize))
}

// Verify compares the checksum of the whole database file with the position.
// The connection is closed; changes since the last Confirm are undone. On a
// difference the mirror has been discarded and the error wraps [ErrDiverged].
func (m *Mirror) Verify() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	if err := m.closeConfirmed(); err != nil || m.pages == 0 {
		return err
	}
	sum := uint64(checksumFlag)
	lock := lockPage(m.pageSize)
	err := m.readClosed(func(pgno uint32, page []byte) error {
		if pgno != lock {
			sum = addPage(sum, pageSum(pgno, page))
		}
		return nil
	})
	if err == nil && sum != m.pos.Checksum {
		err = fmt.Errorf("the file's checksum is %016x, the mirror is at %s", sum, m.pos)
	}
	if err != nil {
		return m.discardFor(ErrDiverged, fmt.Errorf("verify: %w", err))
	}
	return nil
}

// readClosed reads the pages of the closed database.
func (m *Mirror) readClosed(visit func(pgno uint32, page []byte) error) error {
	if err := m.checkClosed(); err != nil {
		return err
	}
	f, err := os.Open(m.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return eachPage(f, m.pageSize, m.pages, visit)
}

// eachPage reads a database file page by page.
func eachPage(r io.ReaderAt, pageSize, pages uint32, visit func(pgno uint32, page []byte) error) error {
	buf := getBuffer()
	defer putBuffer(buf)
	batch := uint32(len(buf)) / pageSize
	for first := uint32(0); first < pages; {
		n := min(batch, pages-first)
		b := buf[:n*pageSize]
		if _, err := r.ReadAt(b, int64(first)*int64(pageSize)); err != nil {
			return fmt.Errorf("read page %d: %w", first+1, err)
		}
		for i := range n {
			if err := visit(first+i+1, b[i*pageSize:(i+1)*pageSize]); err != nil {
				return err
			}
		}
		first += n
	}
	return nil
}
