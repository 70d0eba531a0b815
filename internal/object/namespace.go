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

// namespace is Namespace for a caller whose own event is prepared by callOut.
func (r *Runtime) namespace(class string, callOut callOut) durable.Namespace {
	if _, ok := r.classes[class]; !ok {
		panic(fmt.Sprintf("object class %q is not brought by any mounted application", class))
	}
	return namespace{r, class, callOut}
}

type namespace struct {
	rt      *Runtime
	class   string
	callOut callOut
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
	rt, ctx := s.ns.rt, r.Context()
	k := key{s.ns.class, s.id.String()}
	if s.id.IsZero() {
		return nil, errors.New("the zero ID names no object")
	}
	caller, _ := ctx.Value(eventKey{}).(*event)
	if s.ns.callOut != nil {
		var err error
		if caller, err = s.ns.callOut(ctx); err != nil {
			return nil, err
		}
	}
	var chain []key
	if caller != nil {
		chain = caller.path()
	}
	if slices.Contains(chain, k) {
		return nil, fmt.Errorf("%w: object %s/%s is already part of this call", durable.ErrCycle, k.class, k.id)
	}
	body, err := s.spool(r)
	if err != nil {
		return nil, err
	}
	g := newGate(spool.Config{Memory: rt.cfg.Buffer, Limit: rt.cfg.Spool, Dir: rt.cfg.Dir})
	req := r.Clone(ctx)
	req.Body, req.ContentLength = http.NoBody, 0
	if body != nil {
		req.Body, req.ContentLength = body.Reader(), body.Size()
	}
	req.TransferEncoding = nil
	ev := newEvent(ctx, lease.EventRequest, g)
	ev.requestID, _ = ctx.Value(requestIDKey{}).(string)
	ev.name, ev.chain = s.id.Name(), chain
	ev.run = serveHTTP(g, req)
	ev.body = body
	if err := rt.submit(k, ev); err != nil {
		ev.close()
		return nil, err
	}
	return ev.await(r)
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
	resp, err := s.Do(r)
	if err != nil {
		WriteError(w, err)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if err := copyBody(w, resp); err != nil {
		// A cut body must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}

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
