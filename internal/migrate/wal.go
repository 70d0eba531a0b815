package migrate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The parts of a WAL file.
const (
	walHeader      = 32
	walFrameHeader = 24
	walMagic       = 0x377f0682 // the last bit: checksums are big-endian
)

// checkWAL refuses a WAL that ends in the middle of a frame or of a
// transaction, or has a damaged frame among the others: SQLite drops all that
// follows in silence, which is right after a crash, and a loss when the file was
// cut. What an earlier use of the file left behind the end is none of it.
func checkWAL(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	cut := func(format string, args ...any) error {
		return fmt.Errorf("its WAL %s: what is behind that would be lost; if the host has crashed and that is right, open the database once with sqlite3 and try again", fmt.Sprintf(format, args...))
	}
	r := bufio.NewReaderSize(f, 256<<10)
	var h [walHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return cut("of %d bytes ends in its header", info.Size())
	}
	magic := binary.BigEndian.Uint32(h[:])
	if magic&^1 != walMagic {
		return cut("has a damaged header")
	}
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	s0, s1 := walSum(order, 0, 0, h[:24])
	if s0 != binary.BigEndian.Uint32(h[24:]) || s1 != binary.BigEndian.Uint32(h[28:]) {
		return cut("has a damaged header")
	}
	pageSize := int(binary.BigEndian.Uint32(h[8:]))
	if pageSize < 512 || pageSize > 65536 {
		return cut("has a damaged header")
	}
	frame := make([]byte, walFrameHeader+pageSize)
	for n, last := 1, 0; ; n++ {
		got, err := io.ReadFull(r, frame)
		switch {
		case err == io.EOF && last == n-1:
			return nil
		case err == io.EOF:
			return cut("ends within a transaction, after frame %d", n-1)
		case errors.Is(err, io.ErrUnexpectedEOF):
			if got >= 16 && string(frame[8:16]) != string(h[16:24]) {
				return nil // of an earlier use
			}
			return cut("ends within frame %d", n)
		case err != nil:
			return err
		}
		if string(frame[8:16]) != string(h[16:24]) {
			return nil // of an earlier use
		}
		s0, s1 = walSum(order, s0, s1, frame[:8])
		s0, s1 = walSum(order, s0, s1, frame[walFrameHeader:])
		if s0 != binary.BigEndian.Uint32(frame[16:]) || s1 != binary.BigEndian.Uint32(frame[20:]) {
			return cut("has a damaged frame, number %d", n)
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 {
			last = n
		}
	}
}

// walSum goes on with the checksum of a WAL.
func walSum(order binary.ByteOrder, s0, s1 uint32, b []byte) (uint32, uint32) {
	for ; len(b) >= 8; b = b[8:] {
		s0 += order.Uint32(b) + s1
		s1 += order.Uint32(b[4:]) + s0
	}
	return s0, s1
}
