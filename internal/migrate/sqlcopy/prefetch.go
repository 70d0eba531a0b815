package sqlcopy

import (
	"context"
	"errors"
)

// prefetched are the rows of a table, read ahead by a goroutine.
type prefetched struct {
	chunks chan chunk
	at     chunk
	i      int
}

type chunk struct {
	rows [][]any
	err  error
	end  bool // the last one
	// done, when not nil, is closed when the rows were used: the reader is used
	// by one goroutine at a time, and large values are read from it.
	done chan struct{}
}

// Chunks are bounded by rows and bytes.
const (
	chunkRows  = 256
	chunkBytes = 256 << 10
)

func prefetch(ctx context.Context, r reader, t *table) *prefetched {
	p := &prefetched{chunks: make(chan chunk, 2)}
	go func() {
		defer close(p.chunks)
		var c chunk
		size := int64(0)
		send := func() bool {
			select {
			case p.chunks <- c:
			case <-ctx.Done():
				return false
			}
			if c.done != nil {
				select {
				case <-c.done:
				case <-ctx.Done():
					return false
				}
			}
			c, size = chunk{}, 0
			return true
		}
		for row, err := range scan(ctx, r, t, t.columns, 0) {
			if err != nil {
				c.err = err
				break
			}
			c.rows = append(c.rows, row)
			for _, v := range row {
				if _, ok := v.(*large); ok {
					c.done = make(chan struct{})
				} else {
					n, _ := sizeOf(v)
					size += n
				}
			}
			if (c.done != nil || size > chunkBytes || len(c.rows) == chunkRows) && !send() {
				return
			}
		}
		c.end = true
		send()
	}()
	return p
}

// errStopped is the error of rows whose context has ended.
var errStopped = errors.New("stopped")

// next returns the next row, nil at the end.
func (p *prefetched) next() ([]any, error) {
	for p.i == len(p.at.rows) {
		if p.at.err != nil || p.at.end {
			return nil, p.at.err
		}
		if p.at.done != nil {
			close(p.at.done)
		}
		var ok bool
		if p.at, ok = <-p.chunks; !ok {
			p.at, p.i = chunk{}, 0
			return nil, errStopped
		}
		p.i = 0
	}
	p.i++
	return p.at.rows[p.i-1], nil
}

// end waits for the goroutine, after its context has ended.
func (p *prefetched) end() {
	for range p.chunks {
	}
}
