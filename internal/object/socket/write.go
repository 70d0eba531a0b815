package socket

import (
	"errors"
	"slices"
	"time"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/internal/clock"
)

// startLocked has the queue written.
func (c *Conn) startLocked() {
	if c.wire == nil || c.writing || len(c.queue) == 0 {
		return
	}
	c.writing = true
	c.hub.goroutines.Go(c.write)
}

// write writes the queue until it is empty.
func (c *Conn) write() {
	for {
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		if len(queue) == 0 {
			c.writing = false
			if c.written != nil {
				close(c.written)
				c.written = nil
			}
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		n, err := c.writeItems(queue)
		c.mu.Lock()
		c.bytes -= n
		if err != nil {
			if c.ending == nil {
				c.ending = &status{code: Abnormal, reason: "it could not be written to"}
			}
			c.queue = nil
			c.wire.Conn.Close() //nolint:errcheck // the reader notices
		} else if c.pinging && slices.ContainsFunc(queue, item.isPing) {
			c.pinging = false
			if !c.pinged.IsZero() { // else something came meanwhile
				c.pinged = clock.Now()
			}
		}
		c.mu.Unlock()
	}
}

// writeItems writes some items and returns what they were counted with.
func (c *Conn) writeItems(queue []item) (n int64, err error) {
	for _, it := range queue {
		if it.message != nil {
			n += int64(it.message.size) + messageCost
		}
		if err != nil {
			continue
		}
		if it.message == nil {
			err = c.ws.WriteControl(it.control, it.payload, time.Time{})
			if errors.Is(err, websocket.ErrCloseSent) {
				err = nil // the library has closed it for a breach of the protocol
			}
		} else if p, perr := it.message.frame(); perr == nil {
			c.ws.EnableWriteCompression(it.message.size >= compressFrom)
			if err = c.ws.WritePreparedMessage(p); errors.Is(err, websocket.ErrCloseSent) {
				err = nil
			}
		}
		if err == nil && c.wire.buffered() >= flushAt {
			timeout, slow := c.patience()
			if slow {
				return n, nil // the close is next
			}
			err = c.wire.flush(timeout)
		}
	}
	if err == nil {
		timeout, _ := c.patience()
		err = c.wire.flush(timeout)
	}
	return n, err
}

// patience is how long a write may take. Slow is set when what is queued is not
// to be written any more.
func (c *Conn) patience() (timeout time.Duration, slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return closeWait, c.ending.code == TooSlow && !c.ending.quiet
	}
	return c.hub.cfg.Timeout, false
}
