package object

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/spool"
)

// A gate holds the output of an event until the writes that precede it are
// durable. The handler writes into it; the loop opens it; the caller reads
// what has been let out.
type gate struct {
	body *spool.Spool
	// flush commits what the event has done so far. It is set while the event
	// runs.
	flush func() error

	mu      sync.Mutex
	changed *sync.Cond
	header  http.Header
	status  int
	// sent is the header as it was when the status was written.
	sent http.Header
	// open is the number of bytes that may leave.
	open int64
	// begun is closed when the header may leave; ended is set when nothing
	// follows.
	begun          chan struct{}
	started, ended bool
	// flushed is set when the handler has let the header out: it leaves, whatever
	// becomes of the event.
	flushed bool
	err     error
	// overflow is a write that was refused; the event fails.
	overflow error
	// closed is set when the caller reads no more.
	closed bool
}

func newGate(cfg spool.Config) *gate {
	g := &gate{body: spool.New(cfg), header: http.Header{}, begun: make(chan struct{})}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// Header implements http.ResponseWriter.
func (g *gate) Header() http.Header { return g.header }

// WriteHeader implements http.ResponseWriter.
func (g *gate) WriteHeader(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writeHeader(status)
}

func (g *gate) writeHeader(status int) {
	// Informational statuses would have to pass the gate on their own; they are
	// optional by nature.
	if g.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		g.status = status
		g.sent = g.header.Clone()
	}
}

// written reports whether the status has been written.
func (g *gate) written() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status != 0
}

// upgraded reports whether the answer is that the connection becomes a socket.
func (g *gate) upgraded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status == http.StatusSwitchingProtocols
}

// Write implements http.ResponseWriter: the bytes wait for the commit.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	g.writeHeader(http.StatusOK)
	upgraded := g.status == http.StatusSwitchingProtocols
	g.mu.Unlock()
	if upgraded {
		return 0, http.ErrBodyNotAllowed
	}
	n, err := g.body.Write(p)
	if errors.Is(err, spool.ErrLimit) {
		err = errors.Join(durable.ErrTooLarge, err)
		g.mu.Lock()
		g.overflow = err
		g.mu.Unlock()
	}
	return n, err
}

// FlushError commits what the event has done so far and lets out what it has
// written. http.ResponseController finds it.
func (g *gate) FlushError() error {
	g.mu.Lock()
	flush := g.flush
	g.mu.Unlock()
	if flush == nil {
		return durable.ErrRevoked
	}
	if err := flush(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writeHeader(http.StatusOK)
	g.start()
	g.flushed = true
	g.open = g.body.Size()
	g.changed.Broadcast()
	return nil
}

// Flush implements http.Flusher.
func (g *gate) Flush() { _ = g.FlushError() }

// setFlush arms the gate for a running event, or disarms it.
func (g *gate) setFlush(f func() error) {
	g.mu.Lock()
	g.flush = f
	g.mu.Unlock()
}

// finish opens the gate for all that was written, or ends it with an error.
// Headers are added for the caller's answer unless it has begun.
func (g *gate) finish(err error, extra http.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.flush = nil
	g.err = err
	if err == nil {
		g.writeHeader(http.StatusOK)
		g.open = g.body.Size()
		if !g.started {
			maps.Copy(g.sent, extra)
			if g.sent.Get("Content-Length") == "" && bodyAllowed(g.status) {
				g.sent.Set("Content-Length", strconv.FormatInt(g.open, 10))
			}
		}
	}
	g.start()
	g.ended = true
	if g.closed {
		g.body.Close()
	}
	g.changed.Broadcast()
}

func (g *gate) start() {
	if !g.started {
		g.started = true
		close(g.begun)
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// failed returns the error that the handler's writing ended with.
func (g *gate) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.overflow
}

// response returns the answer, or the error that took its place, once the gate
// has begun.
func (g *gate) response(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended && g.err != nil && !g.flushed {
		g.closed = true
		g.body.Close()
		return nil, g.err
	}
	resp := &http.Response{
		Status: strconv.Itoa(g.status) + " " + http.StatusText(g.status), StatusCode: g.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: g.sent, ContentLength: -1, Request: r, Body: &gateReader{g: g},
	}
	if n, err := strconv.ParseInt(g.sent.Get("Content-Length"), 10, 64); err == nil {
		resp.ContentLength = n
	}
	for _, name := range slices.Collect(maps.Keys(g.sent)) {
		if len(name) > len(http.TrailerPrefix) && name[:len(http.TrailerPrefix)] == http.TrailerPrefix {
			delete(g.sent, name)
		}
	}
	return resp, nil
}

// gateReader is the answer's body: it blocks until more may leave.
type gateReader struct {
	g   *gate
	off int64
}

func (r *gateReader) Read(p []byte) (int, error) {
	g := r.g
	g.mu.Lock()
	for r.off >= g.open && !g.ended && !g.closed {
		g.changed.Wait()
	}
	open, ended, err, closed := g.open, g.ended, g.err, g.closed
	g.mu.Unlock()
	switch {
	case closed:
		return 0, http.ErrBodyReadAfterClose
	case r.off < open:
		n, err := g.body.ReadAt(p[:min(int64(len(p)), open-r.off)], r.off)
		r.off += int64(n)
		return n, err
	case ended && err != nil:
		return 0, err
	default:
		return 0, io.EOF
	}
}

// Close lets the gate free its spool once the event has ended.
func (r *gateReader) Close() error {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.changed.Broadcast()
	if g.ended {
		return g.body.Close()
	}
	return nil
}
