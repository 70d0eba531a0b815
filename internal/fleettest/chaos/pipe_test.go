package chaos

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// What is held arrives when the pipe flows again, each way; what is cut is
// broken, and refused until then.
func TestPipe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan byte, 10)
	done := make(chan struct{})
	go func() { // answers each byte with the next one
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					break
				}
				got <- b[0]
				b[0]++
				c.Write(b) //nolint:errcheck // it may be cut
			}
			c.Close()
		}
	}()
	p, err := newPipe(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.close(); l.Close(); <-done }()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(b byte) {
		t.Helper()
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(want byte) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // it has one
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != want {
			t.Errorf("received %v %v, want %v", b[0], err, want)
		}
	}
	nothing := func() {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) //nolint:errcheck // it has one
		if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, errTimeout(err)) {
			t.Errorf("received %d bytes, %v", n, err)
		}
	}
	for _, f := range []flow{passes, crawls} {
		p.set(f)
		send(1)
		receive(2)
		<-got
	}
	p.set(holdsUp)
	send(5)
	nothing()
	if len(got) > 0 {
		t.Error("what is held has arrived")
	}
	p.set(passes)
	receive(6)
	<-got
	p.set(holdsDown)
	send(7)
	<-got
	nothing()
	p.set(passes)
	receive(8)
	p.set(cut)
	c.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // it has one
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("a cut connection: %d bytes, %v", n, err)
	}
	if p.passes() {
		t.Error("a cut pipe says that all goes through")
	}
}

// errTimeout is err when it says that the time is over.
func errTimeout(err error) error {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return err
	}
	return errors.New("no timeout")
}
