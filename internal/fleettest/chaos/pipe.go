package chaos

import (
	"context"
	"net"
	"sync"
	"time"
)

// A flow is how a pipe treats what goes through it.
type flow int

const (
	passes flow = iota
	// cut refuses connections and breaks those that there are.
	cut
	// holdsUp keeps what clients send, and holdsDown what they are answered, until
	// it flows again: then it arrives late.
	holdsUp
	holdsDown
	// crawls passes each piece on late.
	crawls
)

// crawl is how late, each way.
const crawl = 40 * time.Millisecond

// A pipe is one replica's way to a server.
type pipe struct {
	addr, target string

	ctx    context.Context
	cancel context.CancelFunc
	l      net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	flow    flow
	changed chan struct{}
	conns   map[net.Conn]bool
}

func newPipe(target string) (*pipe, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &pipe{addr: l.Addr().String(), target: target, l: l, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

func (p *pipe) close() {
	p.cancel()
	p.l.Close() //nolint:errcheck // it is gone
	p.breakAll()
	p.wg.Wait()
}

func (p *pipe) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if !p.keep(c) {
			c.Close() //nolint:errcheck // it is cut
			continue
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// keep remembers a connection; false while the pipe is cut or closed.
func (p *pipe) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flow == cut || p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *pipe) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close() //nolint:errcheck // it may be closed
}

func (p *pipe) serve(client net.Conn) {
	defer p.drop(client)
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	if !p.keep(server) {
		server.Close() //nolint:errcheck // it is cut
		return
	}
	defer p.drop(server)
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(server, client, holdsUp) })
	wg.Go(func() { p.copy(client, server, holdsDown) })
	wg.Wait()
}

// copy passes on what comes one way, until an end is closed.
func (p *pipe) copy(to, from net.Conn, held flow) {
	defer to.(*net.TCPConn).CloseWrite() //nolint:errcheck // it may be closed
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.wait(held) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait waits as long as what goes this way is held; false when it is cut.
func (p *pipe) wait(held flow) bool {
	for {
		p.mu.Lock()
		f, changed := p.flow, p.changed
		p.mu.Unlock()
		switch f {
		case cut:
			return false
		case crawls:
			select {
			case <-time.After(crawl):
				return true
			case <-p.ctx.Done():
				return false
			}
		case held:
			select {
			case <-changed:
			case <-p.ctx.Done():
				return false
			}
		default:
			return true
		}
	}
}

// passes reports whether all goes through.
func (p *pipe) passes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flow == passes || p.flow == crawls
}

func (p *pipe) set(f flow) {
	p.mu.Lock()
	p.flow = f
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if f == cut {
		p.breakAll()
	}
}

func (p *pipe) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close() //nolint:errcheck // it may be closed
	}
}
