package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

const (
	// bodyStart is how long a body may take whatever its rate on average is.
	bodyStart = time.Minute
	// stallRate is the least rate within each stall, in bytes a second.
	stallRate = 1 << 10
	// sendPiece is how much of an answer has to go within Pace.Send.
	sendPiece = 64 << 10
)

// A Pace bounds how slow clients may be. Only the time that is spent waiting for
// them counts. The zero Pace bounds nothing.
type Pace struct {
	// Stall is the time over which the rate of a body is looked at: at least
	// 1 KiB a second, so that what came fast does not pay for a standstill. It
	// also bounds the wait for the rest of a body that nobody wants.
	Stall time.Duration
	// Rate is the least rate of a body on average, in bytes a second: it may take
	// a minute, and a second more for each Rate bytes that have come. 0 means none.
	Rate int64
	// Send is how long each 64 KiB of an answer may wait for its client.
	Send time.Duration
}

// errSlow is what reading a body that is too slow ends with.
var errSlow = fmt.Errorf("the request's body comes too slowly: %w", os.ErrDeadlineExceeded)

// clientWaits counts the requests that wait for their clients at this moment.
type clientWaits struct {
	bodies  atomic.Int64 // for more of their bodies
	answers atomic.Int64 // for room to send
}

func (c *clientWaits) String() string {
	var parts []string
	if n := c.bodies.Load(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d still receive their bodies", n))
	}
	if n := c.answers.Load(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d still send their answers", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// A pacedBody is the body of a request, whose client may not be too slow. Only
// one goroutine reads it at a time, as with any body.
type pacedBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	pace  Pace
	waits *clientWaits

	reading atomic.Bool
	ended   atomic.Bool // nothing more is read from the client
	err     error       // errSlow from when it was too slow
	// waited and got are what it took and brought so far, sliceWaited and sliceGot
	// since the last look.
	waited, sliceWaited time.Duration
	got, sliceGot       int64
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.reading.Store(true)
	b.waits.bodies.Add(1)
	b.deadline(max(b.left(), 1))
	began := clock.Now()
	n, err := b.ReadCloser.Read(p)
	slow := b.count(n, clock.Since(began))
	// From here on the handler has its time, and the server reads ahead.
	b.deadline(0)
	b.waits.bodies.Add(-1)
	b.reading.Store(false)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), err == nil && slow:
		b.err = errSlow
		b.ended.Store(true)
		return n, errSlow
	case err != nil:
		b.ended.Store(true)
	}
	return n, err
}

// Close has the server look for the end of the body.
func (b *pacedBody) Close() error {
	if b.unread() {
		b.deadline(b.pace.Stall)
		defer b.deadline(0)
		b.ended.Store(true)
	}
	return b.ReadCloser.Close()
}

// unread reports whether more of the body may come, and nobody waits for it.
func (b *pacedBody) unread() bool { return b != nil && !b.ended.Load() && !b.reading.Load() }

// deadline is when reading must have got on; 0 is never.
func (b *pacedBody) deadline(d time.Duration) {
	b.conn.SetReadDeadline(deadline(d)) //nolint:errcheck // not every writer has a deadline
}

// slow reports whether the body came too slowly.
func (b *pacedBody) slow() bool { return b != nil && b.ended.Load() && b.err != nil }

// least is what a slice has to bring.
func (b *pacedBody) least() int64 { return int64(b.pace.Stall.Seconds() * stallRate) }

// left is how long nothing may come.
func (b *pacedBody) left() time.Duration {
	d := b.pace.Stall - b.sliceWaited
	if b.sliceGot >= b.least() {
		d += b.pace.Stall
	}
	if b.pace.Rate > 0 {
		d = min(d, b.allowed()-b.waited)
	}
	return d
}

// allowed is how long what has come so far may have taken.
func (b *pacedBody) allowed() time.Duration {
	return bodyStart + time.Duration(float64(b.got)/float64(b.pace.Rate)*float64(time.Second))
}

// count adds n bytes that took d, and reports whether the slice that ends with
// them has brought too little. Nothing that comes is too late for the average.
func (b *pacedBody) count(n int, d time.Duration) (slow bool) {
	b.waited, b.sliceWaited = b.waited+d, b.sliceWaited+d
	b.got, b.sliceGot = b.got+int64(n), b.sliceGot+int64(n)
	if b.sliceWaited >= b.pace.Stall {
		slow = b.sliceGot < b.least()
		b.sliceWaited, b.sliceGot = 0, 0
	}
	return slow
}

// A pacedWriter bounds how long each piece of an answer may wait for its client,
// and how long the server waits for the rest of a body that was not read.
type pacedWriter struct {
	http.ResponseWriter
	server *Server
	conn   *http.ResponseController
	body   *pacedBody // nil without one
	// http1 is false from when the connection is somebody else's.
	http1 bool
	begun bool // the header is sent, or about to be
}

// Unwrap is for [http.ResponseController].
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *pacedWriter) WriteHeader(status int) {
	if status >= 200 {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

// begin has the client use another connection for what it asks next, while the
// server is about to stop and after a body that is left behind.
func (w *pacedWriter) begin() {
	if !w.begun && (w.server.leaving.Load() || w.body.slow()) {
		w.Header().Set("Connection", "close")
	}
	w.begun = true
}

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for {
		piece := p[n:min(len(p), n+sendPiece)]
		err = w.within(func() error {
			var m int
			m, err := w.ResponseWriter.Write(piece)
			n += m
			return err
		})
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}

// ReadFrom keeps the server's fast path for files.
func (w *pacedWriter) ReadFrom(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: r, N: 1<<63 - 1}
	}
	if _, ok := limited.R.(*os.File); !ok {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	for limited.N > 0 {
		piece := &io.LimitedReader{R: limited.R, N: min(limited.N, sendPiece)}
		var m int64
		err = w.within(func() (err error) {
			m, err = io.Copy(w.ResponseWriter, piece)
			return err
		})
		n += m
		limited.N -= m
		if err != nil || piece.N > 0 {
			break
		}
	}
	return n, err
}

// Hijack leaves the connection, and how long it may wait, to the caller.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := w.conn.Hijack()
	w.http1 = w.http1 && err != nil
	return c, rw, err
}

// FlushError is what [http.ResponseController] looks for.
func (w *pacedWriter) FlushError() error { return w.within(w.conn.Flush) }

// Flush is for handlers that assert the interface.
func (w *pacedWriter) Flush() { w.FlushError() } //nolint:errcheck // http.Flusher has no way to tell

// within sends something. Before the header the server reads what is left of
// the body, in HTTP/1.
func (w *pacedWriter) within(send func() error) error {
	w.begin()
	rest := w.http1 && w.body.unread()
	if rest {
		w.body.deadline(w.server.pace.Stall)
	}
	w.server.waits.answers.Add(1)
	w.deadline(w.server.pace.Send)
	err := send()
	w.deadline(0)
	w.server.waits.answers.Add(-1)
	if rest && !w.body.reading.Load() {
		w.body.deadline(0)
	}
	return err
}

// deadline is when sending must have got on; 0 is never.
func (w *pacedWriter) deadline(d time.Duration) {
	if w.server.pace.Send > 0 {
		w.conn.SetWriteDeadline(deadline(d)) //nolint:errcheck // not every writer has a deadline
	}
}

func deadline(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return clock.Deadline(d)
}

// paced has a handler serve clients that may not be too slow.
func (s *Server) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &pacedWriter{ResponseWriter: rw, server: s, conn: http.NewResponseController(rw), http1: r.ProtoMajor == 1}
		if s.pace.Stall > 0 && r.Body != nil && r.Body != http.NoBody {
			w.body = &pacedBody{ReadCloser: r.Body, conn: w.conn, pace: s.pace, waits: &s.waits}
			r = r.WithContext(r.Context()) // the server goes on with its own
			r.Body = w.body
		}
		if w.http1 {
			// What is left of the answer and of the body comes behind the handler, and
			// these end before the connection's next request.
			w.deadline(0)
			defer func() {
				if !w.http1 {
					return
				}
				w.deadline(s.pace.Send)
				if w.body.unread() {
					w.body.deadline(s.pace.Stall)
				}
			}()
		}
		next.ServeHTTP(w, r)
		w.begin()
	})
}
