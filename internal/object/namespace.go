package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/spool"
)

// Namespace returns the objects of a class. It panics when no such class is
// registered.
func (r *Runtime) Namespace(class string) durable.Namespace { return r.namespace(class, nil) }

// namespace is Namespace for the calls of an instance, or of none.
func (r *Runtime) namespace(class string, in *instance) durable.Namespace {
	if _, ok := r.classes[class]; !ok {
		panic(fmt.Sprintf("object class %q is not brought by any mounted application", class))
	}
	return namespace{r, class, in}
}

type namespace struct {
	rt    *Runtime
	class string
	in    *instance
}

func (n namespace) ID(name string) durable.ID      { return durable.IDFromName(name) }
func (n namespace) UniqueID() durable.ID           { return durable.NewUniqueID() }
func (n namespace) Get(id durable.ID) durable.Stub { return stub{n, id} }

// eventKey is the context key of the event in whose handler a call is made, and
// backgroundKey marks the contexts of background work.
type (
	eventKey      struct{}
	backgroundKey struct{}
)

// path is the event's chain and its own object.
func (e *event) path() []key { return append(slices.Clip(e.chain), key{e.actor.class, e.actor.id}) }

type requestIDKey struct{}

// WithRequestID returns a context whose events carry the id, for logs and for
// whoever looks at their lease.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// stub sends requests to one object.
type stub struct {
	ns namespace
	id durable.ID
}

func (s stub) ID() durable.ID { return s.id }

// Do implements durable.Stub.
func (s stub) Do(r *http.Request) (*http.Response, error) {
	resp, _, err := s.do(r, false)
	return resp, err
}

// do delivers the request, which may become a socket when it is upgradable. The
// event is nil when it was not queued.
func (s stub) do(r *http.Request, upgradable bool) (resp *http.Response, ev *event, err error) {
	rt, ctx := s.ns.rt, r.Context()
	k := key{s.ns.class, s.id.String()}
	if s.id.IsZero() {
		return nil, nil, errors.New("the zero ID names no object")
	}
	caller, err := s.ns.caller(ctx)
	if err != nil {
		return nil, nil, err
	}
	var chain []key
	if caller != nil {
		chain = caller.path()
	}
	// What is refused in any case commits nothing of the caller.
	if slices.Contains(chain, k) {
		return nil, nil, fmt.Errorf("%w: object %s/%s is already part of this call", durable.ErrCycle, k.class, k.id)
	}
	body, err := s.spool(r)
	if err != nil {
		return nil, nil, err
	}
	g := newGate(spool.Config{Memory: rt.cfg.Buffer, Limit: rt.cfg.Spool, Dir: rt.cfg.Dir})
	ev = newEvent(ctx, lease.EventRequest, g)
	ev.body = body
	end := context.CancelFunc(func() {})
	if s.ns.in != nil {
		if _, err := s.ns.in.callOut(ctx); err != nil {
			ev.close()
			return nil, nil, err
		}
	}
	if caller != nil {
		ctx, end = caller.bound(ctx)
		ev.ctx, ev.arrived = ctx, clock.Now()
	}
	req := r.Clone(ctx)
	req.Body, req.ContentLength = http.NoBody, 0
	if body != nil {
		req.Body, req.ContentLength = body.Reader(), body.Size()
	}
	req.TransferEncoding = nil
	ev.requestID, _ = ctx.Value(requestIDKey{}).(string)
	ev.name, ev.chain = s.id.Name(), chain
	ev.upgradable = upgradable && caller == nil
	ev.run = serveHTTP(g, req)
	if err := rt.submit(k, ev); err != nil {
		end()
		ev.close()
		return nil, nil, err
	}
	resp, err = ev.await(r)
	if err != nil {
		end()
		return nil, ev, err
	}
	resp.Body = &callBody{resp.Body, end}
	return resp, ev, nil
}

// caller returns the event that calls, or nil when none does.
func (n namespace) caller(ctx context.Context) (*event, error) {
	from, _ := ctx.Value(eventKey{}).(*event)
	if n.in == nil {
		return from, nil
	}
	ev, err := n.in.caller(ctx)
	if err != nil || ev != nil {
		return ev, err
	}
	return from, nil
}

// bound returns ctx ended by the event's own context, and by its deadline.
func (e *event) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	running := e.running
	if running == nil {
		return ctx, func() {}
	}
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(running, func() { cancel(context.Cause(running)) })
	end := func() { stop(); cancel(nil) }
	if d, ok := running.Deadline(); ok {
		late, endLate := context.WithDeadline(out, d)
		return late, func() { endLate(); end() }
	}
	return out, end
}

// callBody ends what bounds a call when its answer has been read.
type callBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b *callBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// spool reads the request's body, so that a slow client never holds the lease.
func (s stub) spool(r *http.Request) (*spool.Spool, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	cfg := s.ns.rt.cfg
	if r.ContentLength > cfg.BodyLimit {
		return nil, fmt.Errorf("request body of %d bytes, at most %d: %w", r.ContentLength, cfg.BodyLimit, durable.ErrTooLarge)
	}
	b, err := spool.Fill(spool.Config{Memory: cfg.Buffer, Limit: cfg.BodyLimit, Dir: cfg.Dir}, r.Body)
	if tooLong := (*http.MaxBytesError)(nil); errors.Is(err, spool.ErrLimit) || errors.As(err, &tooLong) {
		return nil, fmt.Errorf("request body: %w: %w", durable.ErrTooLarge, err)
	}
	if err != nil {
		return nil, &badBodyError{err}
	}
	return b, nil
}

// badBodyError says that a request's body could not be read.
type badBodyError struct{ err error }

func (e *badBodyError) Error() string { return "read request body: " + e.err.Error() }
func (e *badBodyError) Unwrap() error { return e.err }

// await waits for the event's answer to begin. An event whose turn does not
// come in time is dropped, unless it has been taken.
func (e *event) await(r *http.Request) (*http.Response, error) {
	turn := time.NewTimer(e.actor.rt.cfg.AcquireTimeout - clock.Since(e.arrived))
	defer turn.Stop()
	gone := e.ctx.Done()
	for late := turn.C; ; {
		select {
		case <-e.gate.begun:
			return e.gate.response(r)
		case <-gone:
			gone = nil // a taken event ends by itself: its context has ended
			if e.drop() {
				e.actor.forgetEvent(e)
				e.close()
				return nil, e.ctx.Err()
			}
		case <-late:
			late = nil
			if e.drop() {
				e.actor.forgetEvent(e)
				e.close()
				return nil, &durable.ContendedError{Class: e.actor.class, ID: e.actor.id}
			}
		}
	}
}

// ServeHTTP implements durable.Stub.
func (s stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, ev, err := s.do(r, true)
	if err != nil {
		if ev != nil && ev.sock != nil {
			ev.sock.conn.Fail() // a part that was committed has accepted it
		}
		if caller, _ := s.ns.caller(r.Context()); caller != nil && caller.gate != nil && answers(w, caller.gate) {
			panic(calleeFailed{err})
		}
		WriteError(w, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols && ev.sock != nil { // in this order: the event of any other may still run
		ev.sock.upgrade(w, r, resp.Header)
		// An event that has flushed the acceptance goes on, with this request's
		// context.
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			ev.sock.conn.End(ev.sock.a.closeCode(err))
		}
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if err := copyBody(w, resp); err != nil {
		// A cut body must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}

// answers tells whether what is written to w is the answer behind the gate, and
// not something that a handler, or a goroutine of it, looks at itself.
func answers(w http.ResponseWriter, g *gate) bool {
	for {
		if w == http.ResponseWriter(g) {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// A calleeFailed is the panic by which an event that hands its answer over to
// another object fails as that one did: an answer that says that nothing was
// applied is then true of both.
type calleeFailed struct{ error }

// copySize is the memory that copies a body.
const copySize = 32 << 10

// copyBody sends what the gate lets out, as it comes.
func copyBody(w http.ResponseWriter, resp *http.Response) error {
	streaming := resp.ContentLength < 0
	size := int64(copySize)
	if !streaming {
		size = min(size, resp.ContentLength+1) // most answers are short
	}
	buf := make([]byte, size)
	rc := http.NewResponseController(w)
	if streaming {
		_ = rc.Flush() // a server without flushing sends it at the end
	}
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if streaming {
				_ = rc.Flush()
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
