// Package socket is the wire side of WebSockets: it upgrades requests, reads
// messages, writes what is queued, and ends sockets that are slow, silent or
// break the protocol. It knows nothing of objects.
//
// The protocol is spoken by gorilla/websocket. Among the libraries without cgo it
// is the one that leaves the close handshake, pings and deadlines to its user,
// takes no goroutine of its own, reads into the HTTP server's buffer, needs a
// buffer for writing only while it writes, compresses a message for many
// sockets once, and keeps no compression state between messages.
package socket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// Close codes that this package sends or reports, besides those of the other
// side and of who calls Close.
const (
	Idle        = 1000
	GoingAway   = 1001
	Protocol    = 1002
	NoStatus    = 1005 // reported only
	Abnormal    = 1006 // reported only
	BadData     = 1007
	TooSlow     = 1008
	TooLarge    = 1009
	Failed      = 1011
	Interrupted = 1012
	Crowded     = 1013
)

// Config are the bounds of sockets. All fields but Incoming and Idle must be set.
type Config struct {
	// Max is how many sockets there may be.
	Max int
	// MessageLimit bounds a message that comes in, in bytes, decompressed.
	MessageLimit int64
	// QueueLimit is how many bytes of messages may wait for a reader.
	QueueLimit int64
	// Incoming bounds what all sockets together hold of messages that come in, or
	// that the handler has; 0 is no bound.
	Incoming int64
	// Ping is how long a socket may be silent before it is pinged, and Timeout how
	// long an answer, or the writing of what is queued, may take.
	Ping, Timeout time.Duration
	// Idle is how long a socket may go without a message in either direction; 0 is
	// for ever.
	Idle time.Duration
}

// messageTime is how long a message may take from its first byte to its last,
// besides what its size takes at 16 KiB a second.
const messageTime = 30 * time.Second

func (c Config) messageTime() time.Duration {
	return messageTime + time.Duration(c.MessageLimit/(16<<10))*time.Second
}

// Errors of [Hub.New].
var (
	ErrFull    = errors.New("too many sockets")
	ErrClosing = errors.New("sockets are being closed")
)

// A Hub has all sockets of a process. It is safe for concurrent use.
type Hub struct {
	cfg Config
	// goroutines are the readers, the writers and the watch.
	goroutines sync.WaitGroup
	quit       chan struct{}
	once       sync.Once
	incoming   atomic.Int64 // bytes of messages that come in or are handled

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	closing *status       // what all sockets are closed with, once they are
	empty   chan struct{} // closed when there is none left after closing
}

// A status is why a socket ends.
type status struct {
	code   int
	reason string
	// quiet ends are not told to the Handler.
	quiet bool
}

// NewHub returns a hub, which watches its sockets until [Hub.Stop].
func NewHub(cfg Config) *Hub {
	h := &Hub{cfg: cfg, conns: map[*Conn]struct{}{}, quit: make(chan struct{}), empty: make(chan struct{})}
	h.goroutines.Go(h.watch)
	return h
}

// Count is how many sockets there are.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// New returns a socket that has no connection yet. It ends with Drop, or with
// Upgrade and what follows.
func (h *Hub) New(handler Handler) (*Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing != nil:
		return nil, ErrClosing
	case len(h.conns) >= h.cfg.Max:
		return nil, ErrFull
	}
	c := &Conn{hub: h, handler: handler}
	h.conns[c] = struct{}{}
	return c, nil
}

func (h *Hub) remove(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	if h.closing != nil && len(h.conns) == 0 {
		select {
		case <-h.empty:
		default:
			close(h.empty)
		}
	}
}

func (h *Hub) list() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*Conn, 0, len(h.conns))
	for c := range h.conns {
		list = append(list, c)
	}
	return list
}

// CloseAll closes all sockets with a code, lets in no others, and waits until
// the handlers have been told. When ctx ends first it cuts the connections and
// tells how many are left.
func (h *Hub) CloseAll(ctx context.Context, code int, reason string) error {
	h.mu.Lock()
	if h.closing == nil {
		h.closing = &status{code: code, reason: reason}
		if len(h.conns) == 0 {
			close(h.empty)
		}
	}
	st := *h.closing
	h.mu.Unlock()
	for _, c := range h.list() {
		c.end(st)
	}
	select {
	case <-h.empty:
		return nil
	case <-ctx.Done():
	}
	left := h.list()
	for _, c := range left {
		c.cut()
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%d sockets had not ended: %w", len(left), context.Cause(ctx))
}

// Stop ends the watch and waits for the goroutines of sockets, which must all
// have been closed.
func (h *Hub) Stop() {
	h.once.Do(func() { close(h.quit) })
	h.goroutines.Wait()
}

// watch pings silent sockets and ends those that don't answer.
func (h *Hub) watch() {
	period := min(h.cfg.Ping, h.cfg.Timeout) / 4
	if h.cfg.Idle > 0 {
		period = min(period, h.cfg.Idle/4)
	}
	tick := time.NewTicker(min(max(period, 10*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-h.quit:
			return
		case <-tick.C:
		}
		now := clock.Now()
		for _, c := range h.list() {
			c.look(now)
		}
	}
}
