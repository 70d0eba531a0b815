package socket

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// flushAt is how much is gathered before it is written.
const flushAt = 64 << 10

// buffers are for gathering. A socket has one only while it writes.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// A wire gathers what is written, so that many messages leave in one system
// call. Only the socket's writer, or who upgrades it, flushes. Deadlines for
// writing are the wire's own affair.
type wire struct {
	net.Conn
	mu  sync.Mutex
	buf *[]byte
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf == nil {
		w.buf, _ = buffers.Get().(*[]byte)
	}
	*w.buf = append(*w.buf, p...)
	return len(p), nil
}

func (w *wire) SetWriteDeadline(time.Time) error { return nil }

func (w *wire) buffered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf == nil {
		return 0
	}
	return len(*w.buf)
}

// flush writes what was gathered, within the timeout.
func (w *wire) flush(timeout time.Duration) error {
	w.mu.Lock()
	buf := w.buf
	w.buf = nil
	w.mu.Unlock()
	if buf == nil {
		return nil
	}
	w.Conn.SetWriteDeadline(clock.Deadline(timeout)) //nolint:errcheck // the write tells
	_, err := w.Conn.Write(*buf)
	if cap(*buf) <= 2*flushAt {
		*buf = (*buf)[:0]
		buffers.Put(buf)
	}
	return err
}

// A hijacker gives the connection of a request as a wire.
type hijacker struct {
	http.ResponseWriter
	wire *wire
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.wire = &wire{Conn: c}
	return h.wire, rw, nil
}
