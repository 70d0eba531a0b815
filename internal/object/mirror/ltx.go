package mirror

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
)

// The layout of an LTX file, version 3: a header; for each page a header, the
// size of its compressed bytes and these bytes (one LZ4 block); a zero page
// header; an index of the pages; a trailer. Integers are big-endian. The file
// checksum is over everything before it, with the pages uncompressed.
const (
	ltxMagic          = "LTX1"
	ltxHeaderSize     = 100
	ltxPageHeaderSize = 6
	ltxTrailerSize    = 16
	ltxFlagSize       = 1       // page flag: the size of the block follows
	checksumFlag      = 1 << 63 // set in every checksum

	minPageSize = 512
	maxPageSize = 65536
	// lockByte lies in a page that SQLite never uses: the lock page is neither
	// in entries nor in checksums.
	lockByte = 1 << 30
)

// maxPages bounds the number of pages of a database, as SQLite does.
const maxPages = 0xfffffffe

var crcTable = crc64.MakeTable(crc64.ISO)

// A Position is a state of an object's database: the number of its last commit
// and the rolling checksum of its pages. Its zero value is an object that does
// not exist. The checksum is 0 as long as there is no database, even when there
// have been commits.
type Position struct {
	TXID     uint64
	Checksum uint64
}

// ChecksumString returns the checksum as 16 hex digits.
func (p Position) ChecksumString() string { return fmt.Sprintf("%016x", p.Checksum) }

// String returns the TXID in decimal and the checksum.
func (p Position) String() string { return fmt.Sprintf("%d/%s", p.TXID, p.ChecksumString()) }

// A Header says what an entry contains.
type Header struct {
	PageSize uint32
	// Pages is the size of the database after the entry, in pages.
	Pages uint32
	// MinTXID and MaxTXID are the commits that the entry covers. A MinTXID of 1
	// means that it is a complete snapshot.
	MinTXID, MaxTXID uint64
	// Timestamp is when the last commit was encoded, in epoch milliseconds of
	// the encoding replica's clock.
	Timestamp int64
	// Pre and Post are the rolling checksums before and after; Pre is 0 for a
	// snapshot.
	Pre, Post uint64
}

// Snapshot reports whether the entry is complete by itself.
func (h Header) Snapshot() bool { return h.MinTXID == 1 }

// After is the position that the entry leads to.
func (h Header) After() Position { return Position{TXID: h.MaxTXID, Checksum: h.Post} }

// appendTo appends the encoded header. Post is part of the trailer.
func (h Header) appendTo(b []byte) []byte {
	b = append(b, ltxMagic...)
	b = binary.BigEndian.AppendUint32(b, 0) // flags
	b = binary.BigEndian.AppendUint32(b, h.PageSize)
	b = binary.BigEndian.AppendUint32(b, h.Pages)
	b = binary.BigEndian.AppendUint64(b, h.MinTXID)
	b = binary.BigEndian.AppendUint64(b, h.MaxTXID)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Timestamp))
	b = binary.BigEndian.AppendUint64(b, h.Pre)
	return append(b, make([]byte, ltxHeaderSize-48)...) // WAL position, salts, node
}

// parseHeader checks and decodes the first bytes of an entry. Post is not among
// them.
func parseHeader(b []byte) (Header, error) {
	if string(b[:4]) != ltxMagic {
		return Header{}, badEntry("no LTX file")
	}
	h := Header{
		PageSize:  binary.BigEndian.Uint32(b[8:]),
		Pages:     binary.BigEndian.Uint32(b[12:]),
		MinTXID:   binary.BigEndian.Uint64(b[16:]),
		MaxTXID:   binary.BigEndian.Uint64(b[24:]),
		Timestamp: int64(binary.BigEndian.Uint64(b[32:])),
		Pre:       binary.BigEndian.Uint64(b[40:]),
	}
	switch flags := binary.BigEndian.Uint32(b[4:]); {
	case flags != 0:
		return h, badEntry("flags %#x", flags)
	case !validPageSize(h.PageSize):
		return h, badEntry("page size %d", h.PageSize)
	case h.Pages > maxPages:
		return h, badEntry("%d pages", h.Pages)
	case h.MinTXID == 0 || h.MaxTXID < h.MinTXID:
		return h, badEntry("TXIDs %d to %d", h.MinTXID, h.MaxTXID)
	case h.Snapshot() && h.Pre != 0, !h.Snapshot() && h.Pre&checksumFlag == 0:
		return h, badEntry("checksum before is %016x", h.Pre)
	}
	return h, nil
}

func badEntry(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadEntry, fmt.Sprintf(format, args...))
}

func validPageSize(n uint32) bool {
	return n >= minPageSize && n <= maxPageSize && n&(n-1) == 0
}

// lockPage is the number of the page that SQLite never uses.
func lockPage(pageSize uint32) uint32 { return lockByte/pageSize + 1 }

// pageSum is the checksum of one page.
func pageSum(pgno uint32, page []byte) uint64 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], pgno)
	return checksumFlag | crc64.Update(crc64.Update(0, crcTable, b[:]), crcTable, page)
}

// addPage adds a page to a rolling checksum, or takes it out.
func addPage(sum, page uint64) uint64 { return checksumFlag | (sum ^ page) }
