package mirror

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// An encoder writes one entry. Encoders are pooled, because the table of the
// compressor is far bigger than a usual entry.
type encoder struct {
	w     io.Writer
	n     int64  // bytes written
	crc   uint64 // of what was written, pages uncompressed
	lz4   lz4.Compressor
	block []byte // one compressed page
	buf   []byte
	index []byte
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

func newEncoder(w io.Writer) *encoder {
	e := encoders.Get().(*encoder)
	e.w, e.n, e.crc = w, 0, 0
	e.index = e.index[:0]
	return e
}

// release returns the encoder to the pool.
func (e *encoder) release() {
	e.w = nil
	const keep = 1 << 20
	if cap(e.index) > keep {
		e.index = nil
	}
	encoders.Put(e)
}

func (e *encoder) write(b []byte) error {
	e.crc = crc64.Update(e.crc, crcTable, b)
	return e.writeRaw(b)
}

func (e *encoder) writeRaw(b []byte) error {
	n, err := e.w.Write(b)
	e.n += int64(n)
	return err
}

func (e *encoder) header(h Header) error {
	e.buf = h.appendTo(e.buf[:0])
	return e.write(e.buf)
}

// page writes one page. Pages come in ascending order.
func (e *encoder) page(pgno uint32, page []byte) error {
	if bound := lz4.CompressBlockBound(len(page)); len(e.block) < bound {
		e.block = make([]byte, bound)
	}
	size, err := e.lz4.CompressBlock(page, e.block)
	if err != nil || size == 0 {
		return fmt.Errorf("compress page %d: %w", pgno, err)
	}
	return e.compressed(pgno, page, e.block[:size])
}

// compressed is page with the page's compressed bytes given.
func (e *encoder) compressed(pgno uint32, page, block []byte) error {
	offset := e.n
	e.buf = binary.BigEndian.AppendUint32(e.buf[:0], pgno)
	e.buf = binary.BigEndian.AppendUint16(e.buf, ltxFlagSize)
	e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(len(block)))
	if err := e.write(e.buf); err != nil {
		return err
	}
	e.crc = crc64.Update(e.crc, crcTable, page)
	if err := e.writeRaw(block); err != nil {
		return err
	}
	e.index = binary.AppendUvarint(e.index, uint64(pgno))
	e.index = binary.AppendUvarint(e.index, uint64(offset))
	e.index = binary.AppendUvarint(e.index, uint64(e.n-offset))
	return nil
}

// close writes the end of the entry.
func (e *encoder) close(post uint64) error {
	var end [ltxPageHeaderSize]byte
	if err := e.write(end[:]); err != nil {
		return err
	}
	e.index = binary.AppendUvarint(e.index, 0)
	e.index = binary.BigEndian.AppendUint64(e.index, uint64(len(e.index)))
	if err := e.write(e.index); err != nil {
		return err
	}
	e.buf = binary.BigEndian.AppendUint64(e.buf[:0], post)
	if err := e.write(e.buf); err != nil {
		return err
	}
	e.buf = binary.BigEndian.AppendUint64(e.buf[:0], checksumFlag|e.crc)
	return e.writeRaw(e.buf)
}

// An appender is a growing byte slice.
type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
