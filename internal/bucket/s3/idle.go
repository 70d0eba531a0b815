package s3

import (
	"context"
	"net"
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
		return &idleConn{c, timeout}, nil
	}
}

type idleConn struct {
	net.Conn
	timeout time.Duration
}

func (c *idleConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(clock.Deadline(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *idleConn) Write(p []byte) (int, error) {
	// While a request is written nothing need come back.
	if err := c.SetDeadline(clock.Deadline(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
