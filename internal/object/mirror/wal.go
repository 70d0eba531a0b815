package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
)

// The layout of SQLite's WAL: a header, then frames of a header and a page. A
// frame counts when it carries the salts of the WAL's header and the right
// checksum, which runs on from frame to frame, and when it or a later one ends
// a commit. (https://www.sqlite.org/fileformat2.html#walformat)
const (
	walHeaderSize = 32
	walFrameSize  = 24
	walMagic      = 0x377f0682 // the lowest bit says that checksums are big-endian
	walSaltOffset = 16
)

var errRestarted = errors.New("the WAL was started anew")

// A walEnd is the end of a commit in the WAL: the state that the checksums of
// the next frame build on. Its zero value, except pages, is an empty WAL. The
// salts belong to it, because SQLite may choose new ones as long as the WAL
// holds no commit.
type walEnd struct {
	frames    int
	pages     uint32 // of the database
	sum       [2]uint32
	salts     [8]byte
	bigEndian bool
}

// A walPage is the newest frame of a page.
type walPage struct {
	offset int64  // of the page's bytes in the WAL
	sum    uint64 // checksum of the page
}

// frameOffset is where frame number n, counted from 0, begins.
func frameOffset(n int, pageSize uint32) int64 {
	return walHeaderSize + int64(n)*int64(walFrameSize+pageSize)
}

// scanWAL reads the frames from one commit up to the frame number to, which
// must be the end of another. It returns that end and the offsets of the newest
// frame of each page in between.
func scanWAL(f *os.File, pageSize uint32, from walEnd, to int) (walEnd, map[uint32]walPage, error) {
	end := from
	var head [walHeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return end, nil, fmt.Errorf("read WAL header: %w", err)
	}
	if from.frames == 0 {
		if err := end.begin(head[:], pageSize); err != nil {
			return end, nil, err
		}
	} else if [8]byte(head[walSaltOffset:]) != from.salts {
		return end, nil, errRestarted
	}
	var (
		buf   = getBuffer()
		size  = walFrameSize + int(pageSize)
		batch = len(buf) / size
		pages = make(map[uint32]walPage)
		last  uint32 // database size in the last frame
	)
	defer putBuffer(buf)
	for end.frames < to {
		n := min(batch, to-end.frames)
		offset := frameOffset(end.frames, pageSize)
		if _, err := f.ReadAt(buf[:n*size], offset); err != nil {
			return end, nil, fmt.Errorf("read WAL frames: %w", err)
		}
		for i := range n {
			b := buf[i*size : (i+1)*size]
			pgno, err := end.next(b)
			if err != nil {
				return end, nil, fmt.Errorf("WAL frame %d of %d: %w", end.frames, to, err)
			}
			last = binary.BigEndian.Uint32(b[4:])
			pages[pgno] = walPage{offset: offset + int64(i*size) + walFrameSize}
			if last != 0 {
				end.pages = last
			}
		}
	}
	if last == 0 {
		return end, nil, fmt.Errorf("WAL frame %d is not the end of a commit", to)
	}
	return end, pages, nil
}

// begin takes over the header of a WAL.
func (e *walEnd) begin(head []byte, pageSize uint32) error {
	magic := binary.BigEndian.Uint32(head)
	if magic&^1 != walMagic {
		return fmt.Errorf("WAL magic is %#x", magic)
	}
	if n := binary.BigEndian.Uint32(head[8:]); n != pageSize && !(n == 1 && pageSize == maxPageSize) {
		return fmt.Errorf("WAL page size is %d, want %d", n, pageSize)
	}
	e.bigEndian = magic&1 != 0
	e.salts = [8]byte(head[walSaltOffset:])
	e.sum = [2]uint32{}
	e.add(head[:24])
	if !e.matches(head[24:32]) {
		return errors.New("WAL header has a wrong checksum")
	}
	return nil
}

// next verifies the frame that follows and returns its page number.
func (e *walEnd) next(frame []byte) (pgno uint32, err error) {
	if [8]byte(frame[8:16]) != e.salts {
		return 0, errors.New("wrong salts")
	}
	e.add(frame[:8])
	e.add(frame[walFrameSize:])
	if !e.matches(frame[16:24]) {
		return 0, errors.New("wrong checksum")
	}
	e.frames++
	return binary.BigEndian.Uint32(frame), nil
}

// add runs the WAL's checksum over b.
func (e *walEnd) add(b []byte) {
	s0, s1 := e.sum[0], e.sum[1]
	if e.bigEndian {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.BigEndian.Uint32(b) + s1
			s1 += binary.BigEndian.Uint32(b[4:]) + s0
		}
	} else {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	}
	e.sum = [2]uint32{s0, s1}
}

func (e *walEnd) matches(b []byte) bool {
	return binary.BigEndian.Uint32(b) == e.sum[0] && binary.BigEndian.Uint32(b[4:]) == e.sum[1]
}

// A buffer holds at least one frame of the largest page size.
type buffer [128 << 10]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func getBuffer() *buffer  { return buffers.Get().(*buffer) }
func putBuffer(b *buffer) { buffers.Put(b) }
