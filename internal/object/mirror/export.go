package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/internal/clock"
)

// Export writes the database at the confirmed position to w, as a plain SQLite
// file that needs no WAL. The connection is closed; changes since the last
// Confirm are undone.
func (m *Mirror) Export(w io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	if err := m.closeConfirmed(); err != nil {
		return err
	}
	if m.pages == 0 {
		return ErrNoDatabase
	}
	return m.readClosed(func(pgno uint32, page []byte) error {
		if pgno == 1 {
			page[18], page[19] = journalVersion, journalVersion
		}
		_, err := w.Write(page)
		return err
	})
}

// EncodeSnapshot writes the plain SQLite file in r, of size bytes, to w as a
// snapshot that is commit txid. The file must have no WAL or journal beside it.
func EncodeSnapshot(w io.Writer, r io.ReaderAt, size int64, txid uint64) (Header, error) {
	h, err := snapshotHeader(r, size, txid)
	if err != nil {
		return h, err
	}
	enc := newEncoder(w)
	defer enc.release()
	if err := enc.header(h); err != nil {
		return h, err
	}
	sum := uint64(checksumFlag)
	lock := lockPage(h.PageSize)
	if err := eachPage(r, h.PageSize, h.Pages, func(pgno uint32, page []byte) error {
		switch pgno {
		case 1:
			page[18], page[19] = walVersion, walVersion
		case lock:
			return nil
		}
		sum = addPage(sum, pageSum(pgno, page))
		return enc.page(pgno, page)
	}); err != nil {
		return h, err
	}
	h.Post = sum
	return h, enc.close(sum)
}

// ExpandSnapshot writes the database of a snapshot to w, as a plain SQLite file.
// What it has written is the database when there is no error.
func ExpandSnapshot(w io.Writer, entry []byte) (Header, error) {
	next := uint32(1)
	h, err := verifyEntry(entry, func(pgno uint32, page []byte) error {
		if pgno != next {
			return fmt.Errorf("%w: page %d follows page %d", ErrBadEntry, pgno, next-1)
		}
		if next++; pgno == 1 {
			page[18], page[19] = journalVersion, journalVersion
		}
		_, err := w.Write(page)
		return err
	})
	if err == nil && (!h.Snapshot() || h.Pages != next-1) {
		err = fmt.Errorf("%w: it has %d of %d pages", ErrBadEntry, next-1, h.Pages)
	}
	return h, err
}

func snapshotHeader(r io.ReaderAt, size int64, txid uint64) (Header, error) {
	var b [100]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return Header{}, fmt.Errorf("read database header: %w", err)
	}
	pageSize := uint32(binary.BigEndian.Uint16(b[16:]))
	if pageSize == 1 {
		pageSize = maxPageSize
	}
	if string(b[:16]) != headerMagic || !validPageSize(pageSize) {
		return Header{}, errors.New("not a SQLite database")
	}
	if size%int64(pageSize) != 0 || size/int64(pageSize) > maxPages || size == 0 {
		return Header{}, fmt.Errorf("database of %d bytes has no whole number of pages of %d", size, pageSize)
	}
	if txid == 0 {
		return Header{}, errors.New("commits are counted from 1")
	}
	return Header{
		PageSize: pageSize, Pages: uint32(size / int64(pageSize)),
		MinTXID: 1, MaxTXID: txid, Timestamp: clock.UnixMilli(),
	}, nil
}
