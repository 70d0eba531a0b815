package mirror

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"

	"github.com/pierrec/lz4/v4"
)

// Inspect verifies the whole of an entry by itself, all checksums included, and
// returns what it is. Errors wrap [ErrBadEntry].
func Inspect(entry []byte) (Header, error) {
	return verifyEntry(entry, func(uint32, []byte) error { return nil })
}

// InspectFrom is Inspect for an entry that is read from r to its end.
func InspectFrom(r io.Reader) (Header, error) {
	return decodeFrom(r).each(func(uint32, []byte) error { return nil })
}

// verifyEntry checks everything about an entry that can be checked without the
// database. visit sees each page before the entry is known to be valid.
func verifyEntry(entry []byte, visit func(pgno uint32, page []byte) error) (Header, error) {
	return decodeBytes(entry).each(visit)
}

// A decoder reads one entry page by page, of which it holds no more than a
// window. After the last page it has verified everything about the entry that
// can be verified without the database.
type decoder struct {
	r      io.Reader // what follows window, or nil
	window []byte
	buf    []byte // of window, when there is a reader
	page   []byte // the last page, once the header is known
	pooled []*buffer
	offset int64 // of window within the entry

	h    Header // Post is known at the end only
	crc  uint64
	sum  uint64 // of the pages
	last uint32 // number of the last page
	// The index is only compared, by its length and a checksum.
	indexSum uint64
	indexLen int64
	scratch  [3 * binary.MaxVarintLen64]byte
	// unchecked skips checksums, for a second pass over the same memory.
	unchecked bool
}

func decodeBytes(entry []byte) *decoder {
	d := &decoder{window: entry}
	d.page = d.pool()
	return d
}

func decodeFrom(r io.Reader) *decoder {
	d := &decoder{r: r}
	d.page, d.buf = d.pool(), d.pool()
	return d
}

// decodeBeside is decodeFrom for one of many decoders: it takes no more memory
// than the entry's pages ask for.
func decodeBeside(r io.Reader) *decoder { return &decoder{r: r, buf: make([]byte, ltxHeaderSize)} }

// pool returns a pooled buffer, which holds the largest frame.
func (d *decoder) pool() []byte {
	b := getBuffer()
	d.pooled = append(d.pooled, b)
	return b[:]
}

// release gives the decoder's buffers back. The last page is no longer valid.
func (d *decoder) release() {
	for _, b := range d.pooled {
		putBuffer(b)
	}
	d.pooled, d.page, d.buf, d.window = nil, nil, nil, nil
}

// each reads the whole entry and releases the decoder.
func (d *decoder) each(visit func(pgno uint32, page []byte) error) (Header, error) {
	defer d.release()
	if err := d.header(); err != nil {
		return d.h, err
	}
	for {
		f, err := d.next()
		if err != nil || f.pgno == 0 {
			return d.h, err
		}
		if err := visit(f.pgno, f.page); err != nil {
			return d.h, err
		}
	}
}

// peek returns the next n bytes without taking them: fewer only at the end.
func (d *decoder) peek(n int) ([]byte, error) {
	for len(d.window) < n && d.r != nil {
		have := copy(d.buf, d.window)
		m, err := d.r.Read(d.buf[have:])
		d.window = d.buf[:have+m]
		if err == io.EOF {
			d.r = nil
		} else if err != nil {
			return nil, fmt.Errorf("read log entry: %w", err)
		}
	}
	return d.window[:min(n, len(d.window))], nil
}

// take returns the next n bytes, which are valid until the next call.
func (d *decoder) take(n int) ([]byte, error) {
	b, err := d.peek(n)
	if err != nil {
		return nil, err
	}
	if len(b) < n {
		return nil, badEntry("it is cut off at byte %d", d.offset+int64(len(b)))
	}
	d.window = d.window[n:]
	d.offset += int64(n)
	return b, nil
}

func (d *decoder) header() error {
	b, err := d.take(ltxHeaderSize)
	if err != nil {
		return err
	}
	d.crc = crc64.Update(0, crcTable, b)
	d.sum = checksumFlag
	if d.h, err = parseHeader(b); err != nil {
		return err
	}
	if d.page == nil {
		d.page = make([]byte, d.h.PageSize)
		d.buf = make([]byte, max(16<<10, frameHead+lz4.CompressBlockBound(int(d.h.PageSize))))
	}
	d.page = d.page[:d.h.PageSize]
	return nil
}

// frameHead is what precedes a page's compressed bytes.
const frameHead = ltxPageHeaderSize + 4

// A frame is one page of an entry.
type frame struct {
	pgno  uint32
	page  []byte
	block []byte // the page as it is compressed
}

// next returns the next page, which is valid until the call after it. The frame
// is zero at the end of an entry that has been verified.
func (d *decoder) next() (frame, error) {
	const head = frameHead
	at := d.offset
	b, err := d.peek(head)
	if err != nil {
		return frame{}, err
	}
	if len(b) < head {
		return frame{}, badEntry("pages are cut off")
	}
	f := frame{pgno: binary.BigEndian.Uint32(b)}
	flags := binary.BigEndian.Uint16(b[4:])
	if f.pgno == 0 && flags == 0 {
		return f, d.end()
	}
	lock := lockPage(d.h.PageSize)
	next := d.last + 1
	if next == lock {
		next++
	}
	if f.pgno == 0 || flags != ltxFlagSize {
		return f, badEntry("page %d has flags %#x", f.pgno, flags)
	}
	if f.pgno <= d.last || f.pgno > d.h.Pages || f.pgno == lock || d.h.Snapshot() && f.pgno != next {
		return f, badEntry("page %d after page %d of %d", f.pgno, d.last, d.h.Pages)
	}
	size := binary.BigEndian.Uint32(b[ltxPageHeaderSize:])
	if size > uint32(lz4.CompressBlockBound(int(d.h.PageSize))) {
		return f, badEntry("page %d has %d bytes", f.pgno, size)
	}
	if b, err = d.take(head + int(size)); err != nil {
		return f, err
	}
	f.block = b[head:]
	f.page = d.page
	if n, err := lz4.UncompressBlock(f.block, f.page); err != nil || n != len(f.page) {
		return f, badEntry("page %d cannot be decompressed", f.pgno)
	}
	d.last = f.pgno
	if d.unchecked {
		return f, nil
	}
	d.crc = crc64.Update(d.crc, crcTable, b[:head])
	d.crc = crc64.Update(d.crc, crcTable, f.page)
	d.sum = addPage(d.sum, pageSum(f.pgno, f.page))
	i := binary.AppendUvarint(d.scratch[:0], uint64(f.pgno))
	i = binary.AppendUvarint(i, uint64(at))
	d.index(binary.AppendUvarint(i, uint64(len(b))))
	return f, nil
}

// index notes what the index has to hold.
func (d *decoder) index(b []byte) {
	d.indexSum = crc64.Update(d.indexSum, crcTable, b)
	d.indexLen += int64(len(b))
}

// indexPiece is how much of an index is read at a time.
const indexPiece = 8 << 10

// end reads and verifies what follows the pages.
func (d *decoder) end() error {
	if d.unchecked {
		return nil
	}
	b, err := d.take(ltxPageHeaderSize)
	if err != nil {
		return err
	}
	d.crc = crc64.Update(d.crc, crcTable, b)
	d.index([]byte{0})
	d.index(binary.BigEndian.AppendUint64(d.scratch[:0], uint64(d.indexLen)))
	var sum uint64
	for left := d.indexLen; left > 0; left -= int64(len(b)) {
		if b, err = d.take(int(min(left, indexPiece))); err != nil {
			return err
		}
		sum = crc64.Update(sum, crcTable, b)
		d.crc = crc64.Update(d.crc, crcTable, b)
	}
	if sum != d.indexSum {
		return badEntry("index does not fit the pages")
	}
	if b, err = d.take(ltxTrailerSize); err != nil {
		return err
	}
	d.h.Post = binary.BigEndian.Uint64(b)
	d.crc = crc64.Update(d.crc, crcTable, b[:8])
	if want := binary.BigEndian.Uint64(b[8:]); want != checksumFlag|d.crc {
		return badEntry("file checksum is %016x, want %016x", checksumFlag|d.crc, want)
	}
	if b, err = d.peek(1); err != nil {
		return err
	} else if len(b) > 0 {
		return badEntry("more bytes follow it")
	}
	return d.checkEnd()
}

// checkEnd compares the pages with the header and trailer.
func (d *decoder) checkEnd() error {
	h := d.h
	switch {
	case h.Post&checksumFlag == 0:
		return badEntry("checksum after is %016x", h.Post)
	case !h.Snapshot():
		return nil
	case h.Pages == lockPage(h.PageSize):
		return badEntry("snapshot ends with the lock page")
	case d.last != h.Pages:
		return badEntry("snapshot ends with page %d of %d", d.last, h.Pages)
	case d.sum != h.Post:
		return badEntry("database checksum is %016x, want %016x", d.sum, h.Post)
	}
	return nil
}
