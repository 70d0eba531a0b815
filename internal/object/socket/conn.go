package socket

import (
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
)

// A Handler takes what comes in, in order, on the socket's own goroutine: the
// next message is read when it has returned.
type Handler interface {
	// Message takes a message. It returns 0, or the code and the reason with which
	// the socket is to be closed.
	Message(m durable.SocketMessage) (code int, reason string)
	// Closed is the last call, when the socket has ended for another reason than
	// [Conn.Close] or [Conn.Drop].
	Closed(code int, reason string)
}

// closeWait is how long the other side may take to answer a close.
const closeWait = 2 * time.Second

// messageCost is what a message is counted with besides its data.
const messageCost = 64

// A Conn is one socket.
type Conn struct {
	hub     *Hub
	handler Handler

	mu    sync.Mutex
	wire  *wire // nil until it is upgraded
	ws    *websocket.Conn
	queue []item
	bytes int64 // of the messages that are queued or being written
	// writing is set while a goroutine writes the queue, and written, if not nil,
	// is closed when it ends.
	writing bool
	written chan struct{}
	ending  *status // why it ends, once it does

	// read is when the last byte came, moved when the last message passed in
	// either direction, and pinged when an answer was last asked for, or zero.
	read, moved, pinged time.Time
	pinging             bool // the ping has not been written
	busy                bool // the handler runs

	incoming int64 // of the hub's, for the message that is read; the reader's own
}

// An item of the queue: a message, or a control frame.
type item struct {
	message *Message
	control int // websocket.PingMessage and its like
	payload []byte
}

func (i item) isPing() bool { return i.message == nil && i.control == websocket.PingMessage }

// Upgrade answers the request with 101, and begins to read and to write. The
// header is part of the answer. When it fails the handler is told.
func (c *Conn) Upgrade(w http.ResponseWriter, r *http.Request, header http.Header) error {
	h := &hijacker{ResponseWriter: w}
	u := websocket.Upgrader{
		CheckOrigin:       func(*http.Request) bool { return true }, // see [Check]
		EnableCompression: true,
		WriteBufferPool:   &writeBuffers, WriteBufferSize: writeBuffer,
	}
	ws, err := u.Upgrade(h, r, header)
	if err == nil {
		err = h.wire.flush(c.hub.cfg.Timeout)
	}
	if err != nil {
		if h.wire != nil {
			h.wire.Close() //nolint:errcheck // it has failed already
		}
		c.Fail()
		return fmt.Errorf("upgrade to a WebSocket: %w", err)
	}
	ws.SetReadLimit(c.hub.cfg.MessageLimit + 1024) // on the wire; compression may add a little
	ws.SetPongHandler(func(string) error { c.heard(); return nil })
	ws.SetPingHandler(func(data string) error { c.heard(); c.pong(data); return nil })
	ws.SetCloseHandler(func(int, string) error { return nil })
	now := clock.Now()
	c.mu.Lock()
	c.wire, c.ws, c.read, c.moved = h.wire, ws, now, now
	if c.ending != nil {
		c.hastenLocked()
	}
	c.startLocked()
	c.mu.Unlock()
	c.hub.goroutines.Go(c.run)
	return nil
}

// writeBuffers are for the frames of control messages.
var writeBuffers sync.Pool

const writeBuffer = 1 << 10

// Drop gives up a socket that was never upgraded; the handler is not told.
func (c *Conn) Drop() { c.hub.remove(c) }

// Fail ends a socket that could not be upgraded; the handler is told.
func (c *Conn) Fail() {
	c.hub.goroutines.Go(func() { c.finish(status{code: Abnormal, reason: "no connection"}) })
}

// Send queues a message. A socket that has ended takes none, and one whose queue
// is full is cut off.
func (c *Conn) Send(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return
	}
	size := int64(m.size) + messageCost
	if c.bytes > 0 && c.bytes+size > c.hub.cfg.QueueLimit {
		c.endLocked(status{code: TooSlow, reason: "too slow"})
		return
	}
	c.bytes += size
	c.moved = clock.Now()
	c.queue = append(c.queue, item{message: m})
	c.startLocked()
}

// Close closes the socket behind what is queued. The handler is not told.
func (c *Conn) Close(code int, reason string) {
	c.end(status{code: code, reason: reason, quiet: true})
}

// End is Close, but the handler is told.
func (c *Conn) End(code int, reason string) { c.end(status{code: code, reason: reason}) }

func (c *Conn) end(st status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(st)
}

// endLocked begins the end. The first reason counts.
func (c *Conn) endLocked(st status) {
	if c.ending != nil {
		return
	}
	c.ending = &st
	if st.code == TooSlow && !st.quiet {
		c.queue = nil // it would not read it
	}
	c.queue = append(c.queue, item{control: websocket.CloseMessage, payload: closePayload(st)})
	if c.wire != nil {
		c.hastenLocked()
		c.startLocked()
	}
}

// hastenLocked bounds the time that an end may take: what is being written, and
// the other side's answer.
func (c *Conn) hastenLocked() {
	wait := clock.Deadline(closeWait)
	c.wire.Conn.SetReadDeadline(wait) //nolint:errcheck // the reader notices
	if c.writing {
		c.wire.Conn.SetWriteDeadline(wait) //nolint:errcheck // the writer notices
	}
}

// closePayload is what a close frame holds. Codes that may not be sent become
// none, and a reason is cut to what fits.
func closePayload(st status) []byte {
	if st.code == NoStatus || st.code == Abnormal {
		return nil
	}
	reason := st.reason
	for len(reason) > maxReason || !utf8.ValidString(reason) {
		reason = reason[:len(reason)-1]
	}
	return websocket.FormatCloseMessage(st.code, reason)
}

// maxReason is what fits into a close frame, in bytes.
const maxReason = 123

// cut ends the connection at once.
func (c *Conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == nil {
		c.ending = &status{code: Abnormal}
	}
	c.queue = nil
	if c.wire != nil {
		c.wire.Conn.Close() //nolint:errcheck // reader and writer notice
	}
}

// heard notes that the other side is alive.
func (c *Conn) heard() {
	c.mu.Lock()
	c.read, c.pinged = clock.Now(), time.Time{}
	c.mu.Unlock()
}

// pong queues the answer to a ping, in place of one that has not left.
func (c *Conn) pong(data string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return
	}
	for i := range c.queue {
		if c.queue[i].control == websocket.PongMessage {
			c.queue[i].payload = []byte(data)
			return
		}
	}
	c.queue = append(c.queue, item{control: websocket.PongMessage, payload: []byte(data)})
	c.startLocked()
}

// look pings a silent socket, and ends one that is dead or idle.
func (c *Conn) look(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg := c.hub.cfg
	switch {
	case c.wire == nil || c.ending != nil || c.busy:
	case c.pinging: // behind messages, whose writing has its own bound
	case !c.pinged.IsZero() && now.Sub(c.pinged) > cfg.Timeout:
		c.ending = &status{code: Abnormal, reason: "no answer to a ping"}
		c.queue = nil
		c.wire.Conn.Close() //nolint:errcheck // reader and writer notice
	case cfg.Idle > 0 && now.Sub(c.moved) > cfg.Idle:
		c.endLocked(status{code: Idle, reason: "idle"})
	case c.pinged.IsZero() && now.Sub(c.read) > cfg.Ping:
		c.pinged, c.pinging = now, true
		c.queue = append(c.queue, item{control: websocket.PingMessage})
		c.startLocked()
	}
}

// run reads until the socket has ended.
func (c *Conn) run() {
	st := c.readAll()
	c.end(st) // the close is answered, or told
	c.mu.Lock()
	var written chan struct{}
	if c.writing {
		written = make(chan struct{})
		c.written = written
		c.wire.Conn.SetWriteDeadline(clock.Deadline(closeWait)) //nolint:errcheck // the writer notices
	}
	c.mu.Unlock()
	if written != nil {
		<-written
	}
	c.wire.Conn.Close() //nolint:errcheck // it may be closed
	c.mu.Lock()
	st = *c.ending
	c.mu.Unlock()
	c.finish(st)
}

// finish tells the handler and forgets the socket.
func (c *Conn) finish(st status) {
	c.mu.Lock()
	if c.ending == nil {
		c.ending = &st
	}
	st = *c.ending
	c.mu.Unlock()
	if !st.quiet {
		c.handler.Closed(st.code, st.reason)
	}
	c.hub.remove(c)
}

// readAll reads messages until the connection ends, and returns why.
func (c *Conn) readAll() status {
	defer func() { c.hub.incoming.Add(-c.incoming) }()
	for {
		c.hub.incoming.Add(-c.incoming) // the message before
		c.incoming = 0
		kind, r, err := c.ws.NextReader()
		if err != nil {
			return statusOf(err)
		}
		c.heard()
		if !c.reading(c.hub.cfg.messageTime()) {
			continue // what comes behind our close is no message of the socket
		}
		data, err := io.ReadAll(io.LimitReader(hearing{c, r}, c.hub.cfg.MessageLimit+1))
		switch {
		case errors.Is(err, errCrowded):
			return status{code: Crowded, reason: err.Error()}
		case err != nil:
			return statusOf(err)
		case int64(len(data)) > c.hub.cfg.MessageLimit:
			return status{code: TooLarge, reason: fmt.Sprintf("a message is over %d bytes", c.hub.cfg.MessageLimit)}
		case kind == websocket.TextMessage && !utf8.Valid(data):
			return status{code: BadData, reason: "text that is not UTF-8"}
		}
		if !c.begin() {
			continue
		}
		code, reason := c.handler.Message(durable.SocketMessage{Binary: kind == websocket.BinaryMessage, Data: data})
		c.idle()
		if code != 0 {
			c.end(status{code: code, reason: reason})
		}
	}
}

var errCrowded = errors.New("too many messages come in at once")

// hearing notes that the other side is alive with each part of a message, and
// what all messages that come in take.
type hearing struct {
	c *Conn
	r io.Reader
}

func (h hearing) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.c.heard()
	h.c.incoming += int64(n)
	if sum, limit := h.c.hub.incoming.Add(int64(n)), h.c.hub.cfg.Incoming; limit > 0 && sum > limit {
		return n, errCrowded
	}
	return n, err
}

// reading bounds the rest of a message, or, with 0, waits for the next one. It
// reports whether the socket is not ending.
func (c *Conn) reading(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return false
	}
	deadline := time.Time{}
	if d > 0 {
		deadline = clock.Deadline(d)
	}
	c.wire.Conn.SetReadDeadline(deadline) //nolint:errcheck // the reader notices
	return true
}

// begin and idle are around the handler of a message.
func (c *Conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return false
	}
	c.busy, c.moved = true, clock.Now()
	return true
}

func (c *Conn) idle() {
	c.heard()
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
	c.reading(0)
}

// statusOf tells why a read failed.
func statusOf(err error) status {
	var closed *websocket.CloseError
	var timeout net.Error
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &closed):
		return status{code: closed.Code, reason: closed.Text}
	case errors.Is(err, websocket.ErrReadLimit):
		return status{code: TooLarge, reason: "a message is too large"}
	case errors.As(err, &corrupt), errors.Is(err, io.ErrUnexpectedEOF): // the library has its own for a connection that ends
		return status{code: BadData, reason: "bad compression"}
	case errors.As(err, &timeout), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF):
		return status{code: Abnormal}
	}
	return status{code: Protocol, reason: "bad frame"}
}
