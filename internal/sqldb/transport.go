package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	wire "github.com/davidwkeith/dwk/internal/libsql"
)

// The wire's driver sends all of its requests through net/http's default client
// and takes no other one: no certificates, connections or bounds of a database's
// own. So that client gets a transport that tells its requests apart: those with
// routeHeader, which the driver adds for us, go the way of their database,
// without it; all others go on as before. It is set once, before anything could
// use the client at the same time.
func init() {
	http.DefaultClient.Transport = &router{next: http.DefaultClient.Transport}
}

// routeHeader names a route. It is never sent.
const routeHeader = "X-Dwk-Route"

// maxAnswer bounds an answer, in bytes. Servers bound theirs to 10 MB of values.
const maxAnswer = 32 << 20

var (
	routes    sync.Map // name -> *route
	lastRoute atomic.Int64
)

// A router is the default client's transport.
type router struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *router) RoundTrip(req *http.Request) (*http.Response, error) {
	name := req.Header.Get(routeHeader)
	if name == "" {
		return t.others().RoundTrip(req)
	}
	r, ok := routes.Load(name)
	if !ok {
		return nil, errClosed
	}
	return r.(*route).send(req)
}

// CloseIdleConnections has the client's method of this name work as before.
func (t *router) CloseIdleConnections() {
	if c, ok := t.others().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *router) others() http.RoundTripper {
	if t.next != nil {
		return t.next
	}
	return http.DefaultTransport
}

var errClosed = errors.New("the database is closed")

// A route is the way of one database's requests.
type route struct {
	name      string
	transport *http.Transport
	cfg       wire.Config

	mu     sync.Mutex
	closed bool
	// open counts requests whose answers have not been read: the driver ends
	// streams in the background, and nobody else waits for it.
	open sync.WaitGroup
}

func newRoute(cfg wire.Config) (*route, error) {
	transport, err := wire.NewTransport(cfg)
	if err != nil {
		return nil, err
	}
	r := &route{name: strconv.FormatInt(lastRoute.Add(1), 10), transport: transport, cfg: cfg}
	routes.Store(r.name, r)
	return r, nil
}

// headers are what the driver is to add to its requests.
func (r *route) headers() map[string]string {
	h := map[string]string{routeHeader: r.name}
	if r.cfg.Namespace != "" {
		h["X-Namespace"] = r.cfg.Namespace
	}
	return h
}

func (r *route) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.open.Add(1)
	}
	return !r.closed
}

// send sends a request. What ends streams has no deadline of its own.
func (r *route) send(req *http.Request) (*http.Response, error) {
	if !r.begin() {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(req.Context())
	if _, bounded := ctx.Deadline(); !bounded {
		cancel()
		ctx, cancel = context.WithTimeout(req.Context(), r.cfg.Timeout)
	}
	ctx, nothingSent := wire.TraceSending(ctx)
	done := func() { cancel(); r.open.Done() }
	req = req.Clone(ctx)
	req.Header.Del(routeHeader)
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		done()
		if nothingSent() {
			err = &unsent{err}
		}
		return nil, err
	}
	if resp.StatusCode/100 == 3 { // the client would follow, with the token
		resp.Body.Close()
		done()
		return nil, fmt.Errorf("HTTP status %d: a redirection, which is not followed", resp.StatusCode)
	}
	resp.Body = &answer{body: resp.Body, left: maxAnswer, done: sync.OnceFunc(done)}
	return resp, nil
}

// close waits for what is under way.
func (r *route) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.open.Wait()
	routes.Delete(r.name)
	r.transport.CloseIdleConnections()
}

// An answer is the body of one. That it ends too early is a lostAnswer.
type answer struct {
	body io.ReadCloser
	left int64
	done func()
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	a.left -= int64(n)
	switch {
	case err == io.EOF:
		return n, err
	case err != nil:
		return n, &lostAnswer{err}
	case a.left < 0:
		return n, &lostAnswer{fmt.Errorf("an answer over %d bytes", int64(maxAnswer))}
	}
	return n, nil
}

func (a *answer) Close() error {
	defer a.done()
	return a.body.Close()
}

// A lostAnswer says that a request may have been executed.
type lostAnswer struct{ err error }

func (e *lostAnswer) Error() string { return "the answer was lost: " + e.err.Error() }
func (e *lostAnswer) Unwrap() error { return e.err }

// An unsent says that a request was not sent.
type unsent struct{ err error }

func (e *unsent) Error() string { return e.err.Error() }
func (e *unsent) Unwrap() error { return e.err }
