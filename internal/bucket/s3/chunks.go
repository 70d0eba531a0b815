package s3

import (
	"errors"
	"io"
	"sync"
)

// chunkSize is what a body in memory takes at a time, in bytes.
const chunkSize = 64 << 10

var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// chunks are a body in memory, of pieces that are used again: one that grows
// would be copied all the time, and be garbage afterwards.
type chunks struct {
	list []*[chunkSize]byte
	size int64
}

// read reads until the end of a body, or until there are limit bytes.
func (c *chunks) read(r io.Reader, limit int64) error {
	for c.size < limit {
		if c.size == int64(len(c.list))*chunkSize {
			c.list = append(c.list, chunkPool.Get().(*[chunkSize]byte))
		}
		last := c.list[len(c.list)-1]
		n, err := r.Read(last[c.size%chunkSize : min(chunkSize, c.size%chunkSize+limit-c.size)])
		c.size += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (c *chunks) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < c.size {
		in := off % chunkSize
		m := copy(p[n:], c.list[off/chunkSize][in:min(chunkSize, in+c.size-off)])
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// reader reads the body from its beginning.
func (c *chunks) reader() io.Reader { return io.NewSectionReader(c, 0, c.size) }

// each calls f with the pieces of the body.
func (c *chunks) each(f func([]byte)) {
	for i, chunk := range c.list {
		f(chunk[:min(chunkSize, c.size-int64(i)*chunkSize)])
	}
}

// free gives the memory back. Nobody may read any more.
func (c *chunks) free() {
	for _, chunk := range c.list {
		chunkPool.Put(chunk)
	}
	*c = chunks{}
}
