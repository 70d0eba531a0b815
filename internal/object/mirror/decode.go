package mirror

import (
	"encoding/binary"
	"hash/crc64"

	"github.com/pierrec/lz4/v4"
)

// Inspect verifies the whole of an entry by itself, all checksums included, and
// returns what it is. Errors wrap [ErrBadEntry].
func Inspect(entry []byte) (Header, error) {
	return verifyEntry(entry, func(uint32, []byte) error { return nil })
}

// A frame is one page of an entry.
type frame struct {
	pgno         uint32
	offset, size int    // of the frame within the entry
	block        []byte // compressed page
}

// nextFrame decodes the frame at offset; its size is 0 at the end of the pages.
func nextFrame(entry []byte, offset int, pageSize uint32) (frame, error) {
	b := entry[offset : len(entry)-ltxTrailerSize]
	if len(b) < ltxPageHeaderSize {
		return frame{}, badEntry("pages are cut off")
	}
	f := frame{pgno: binary.BigEndian.Uint32(b), offset: offset}
	flags := binary.BigEndian.Uint16(b[4:])
	if f.pgno == 0 && flags == 0 {
		return f, nil
	}
	if f.pgno == 0 || flags != ltxFlagSize {
		return f, badEntry("page %d has flags %#x", f.pgno, flags)
	}
	const head = ltxPageHeaderSize + 4
	if len(b) < head {
		return f, badEntry("page %d is cut off", f.pgno)
	}
	size := binary.BigEndian.Uint32(b[ltxPageHeaderSize:])
	if size > uint32(lz4.CompressBlockBound(int(pageSize))) || int(size) > len(b)-head {
		return f, badEntry("page %d has %d bytes", f.pgno, size)
	}
	f.size = head + int(size)
	f.block = b[head:f.size]
	return f, nil
}

// decompress fills page with the frame's content.
func (f frame) decompress(page []byte) error {
	n, err := lz4.UncompressBlock(f.block, page)
	if err != nil || n != len(page) {
		return badEntry("page %d cannot be decompressed", f.pgno)
	}
	return nil
}

// verifyEntry checks everything about an entry that can be checked without the
// database. visit sees each page before the entry is known to be valid.
func verifyEntry(entry []byte, visit func(pgno uint32, page []byte) error) (Header, error) {
	h, err := parseHeader(entry)
	if err != nil {
		return h, err
	}
	buf := getBuffer()
	defer putBuffer(buf)
	var (
		page  = buf[:h.PageSize]
		lock  = lockPage(h.PageSize)
		crc   = crc64.Update(0, crcTable, entry[:ltxHeaderSize])
		sum   = uint64(checksumFlag)
		last  uint32
		index []byte
		pos   = ltxHeaderSize
	)
	for {
		f, err := nextFrame(entry, pos, h.PageSize)
		if err != nil {
			return h, err
		}
		if f.size == 0 {
			break
		}
		next := last + 1
		if next == lock {
			next++
		}
		if f.pgno <= last || f.pgno > h.Pages || f.pgno == lock || h.Snapshot() && f.pgno != next {
			return h, badEntry("page %d after page %d of %d", f.pgno, last, h.Pages)
		}
		if err := f.decompress(page); err != nil {
			return h, err
		}
		crc = crc64.Update(crc, crcTable, entry[pos:pos+ltxPageHeaderSize+4])
		crc = crc64.Update(crc, crcTable, page)
		sum = addPage(sum, pageSum(f.pgno, page))
		if err := visit(f.pgno, page); err != nil {
			return h, err
		}
		index = binary.AppendUvarint(index, uint64(f.pgno))
		index = binary.AppendUvarint(index, uint64(f.offset))
		index = binary.AppendUvarint(index, uint64(f.size))
		last = f.pgno
		pos += f.size
	}
	index = binary.AppendUvarint(index, 0)
	index = binary.BigEndian.AppendUint64(index, uint64(len(index)))
	rest := entry[pos+ltxPageHeaderSize:]
	if string(rest[:len(rest)-ltxTrailerSize]) != string(index) {
		return h, badEntry("index does not fit the pages")
	}
	crc = crc64.Update(crc, crcTable, entry[pos:len(entry)-8])
	if want := binary.BigEndian.Uint64(entry[len(entry)-8:]); want != checksumFlag|crc {
		return h, badEntry("file checksum is %016x, want %016x", checksumFlag|crc, want)
	}
	if h.Snapshot() {
		end := h.Pages
		if end == lock { // cannot end with the lock page
			return h, badEntry("snapshot ends with the lock page")
		}
		if last != end {
			return h, badEntry("snapshot ends with page %d of %d", last, h.Pages)
		}
		if sum != h.Post {
			return h, badEntry("database checksum is %016x, want %016x", sum, h.Post)
		}
	}
	return h, nil
}
