package s3

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// dialer makes connections that end when nothing moves on them for so long: a
// body may take its time, but not stand still.
func dialer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &idleConn{Conn: c, timeout: timeout, began: clock.Now()}, nil
	}
}

type idleConn struct {
	net.Conn
	timeout     time.Duration
	began       time.Time
	read, write atomic.Int64 // when the deadlines were set last, since began; 0 never
}

// late reports whether a deadline is to be set again. Not each time: that costs
// more than reading a few bytes.
func (c *idleConn) late(set *atomic.Int64) bool {
	now := int64(clock.Since(c.began)) + 1
	if was := set.Load(); was > 0 && now-was < int64(c.timeout)/16 {
		return false
	}
	set.Store(now)
	return true
}

func (c *idleConn) Read(p []byte) (int, error) {
	if c.late(&c.read) {
		if err := c.SetReadDeadline(clock.Deadline(c.timeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}

func (c *idleConn) Write(p []byte) (int, error) {
	// While a request is written nothing need come back.
	if c.late(&c.write) {
		if err := c.SetDeadline(clock.Deadline(c.timeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}
