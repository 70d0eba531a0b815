package object

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/object/socket"
	"github.com/davidwkeith/dwk/internal/spool"
)

// A sock is a WebSocket of an object on this replica. Its messages and its end
// are events of the object, one at a time and in order: the next message is read
// when the event of the one before has ended.
type sock struct {
	a    *actor
	conn *socket.Conn

	mu         sync.Mutex
	attachment any
}

// socks are the sockets of an actor, in the order in which they were accepted.
type socks struct {
	mu   sync.Mutex
	list []*sock
}

func (s *socks) add(k *sock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, k)
}

func (s *socks) remove(k *sock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, k); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

func (s *socks) all() []*sock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func (s *socks) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// Message implements socket.Handler.
func (k *sock) Message(m durable.SocketMessage) (code int, reason string) {
	failpoint.Hit("object.socket.message")
	err := k.a.deliver(false, func(ctx context.Context, i *instance) error {
		h, _ := i.object.(durable.SocketHandler)
		if h == nil {
			return fmt.Errorf("objects of class %s have no sockets", i.a.class)
		}
		return h.SocketMessage(ctx, boundSocket{i, k}, m)
	})
	return k.a.closeCode(err)
}

// closeCode is what a socket is closed with after an event ended with err, or 0.
func (a *actor) closeCode(err error) (code int, reason string) {
	switch {
	case err == nil:
		return 0, ""
	case errors.Is(err, durable.ErrHandlerFailed), errors.Is(err, durable.ErrTooLarge), errors.Is(err, http.ErrAbortHandler):
		return socket.Failed, "the object's handler failed"
	}
	a.rt.log.LogAttrs(a.rt.ctx, slog.LevelWarn, events.SocketInterrupted, a.attrs(slog.Any(events.KeyError, err))...)
	return socket.Interrupted, "try again"
}

// Closed implements socket.Handler.
func (k *sock) Closed(code int, reason string) {
	k.gone()
	level := slog.LevelDebug
	if code == socket.TooSlow || code == socket.Failed {
		level = slog.LevelInfo
	}
	k.a.rt.log.LogAttrs(k.a.rt.ctx, level, events.SocketClosed, k.a.attrs(slog.Int("code", code), slog.String("reason", reason))...)
	err := k.a.deliver(false, func(ctx context.Context, i *instance) error {
		h, _ := i.object.(durable.SocketHandler)
		if h == nil {
			return nil
		}
		return h.SocketClose(ctx, boundSocket{i, k}, code, reason)
	})
	if err != nil {
		k.a.rt.log.LogAttrs(k.a.rt.ctx, slog.LevelWarn, events.SocketCloseLost, k.a.attrs(slog.Int("code", code), slog.Any(events.KeyError, err))...)
	}
}

// gone takes the socket from its object.
func (k *sock) gone() { k.a.socks.remove(k) }

// deliver runs an event that came from no request. One that was refused, and so
// surely not applied, is run again until its deadline.
func (a *actor) deliver(hold bool, run func(ctx context.Context, i *instance) error) error {
	ctx, cancel := context.WithTimeoutCause(a.rt.ctx, a.rt.cfg.EventTimeout, errTooLong)
	defer cancel()
	for bound := firstPause; ; bound = min(2*bound, lastPause) {
		ev := newEvent(ctx, lease.EventSocket, a.rt.deafGate())
		ev.hold = hold
		ev.run = func(ctx context.Context, _ durable.Object) error { return run(ctx, ev.in) }
		err := a.rt.submit(key{a.class, a.id}, ev)
		if err == nil {
			<-ev.gate.begun
			err = ev.err
		} else {
			ev.close()
		}
		if !repeatable(err) || !pause(ctx, rand.N(bound)) {
			return err
		}
	}
}

// repeatable reports whether an event was refused, and another replica's lease,
// the store or this object's queue are to blame.
func repeatable(err error) bool {
	var contended *durable.ContendedError
	if err == nil || errors.Is(err, durable.ErrHandlerFailed) || errors.Is(err, durable.ErrUnknownOutcome) || errors.Is(err, durable.ErrTooLarge) {
		return false
	}
	return errors.As(err, &contended) || errors.Is(err, durable.ErrFenced) || errors.Is(err, durable.ErrUnavailable)
}

// deafGate is the gate of an event whose output nobody reads.
func (r *Runtime) deafGate() *gate {
	g := newGate(spool.Config{Memory: r.cfg.Buffer, Limit: r.cfg.Spool, Dir: r.cfg.Dir})
	g.closed = true
	return g
}

// CloseSockets closes all sockets with a code, takes no others, and waits until
// their objects have been told. When ctx ends first it cuts what is left and
// returns an error that tells how many.
func (r *Runtime) CloseSockets(ctx context.Context, code int) error {
	return r.sockets.CloseAll(ctx, code, "the replica is stopping")
}

// AcceptSocket implements durable.State.
func (s *state) AcceptSocket(w http.ResponseWriter, r *http.Request, attachment any) (durable.Socket, error) {
	i := s.i
	i.calls.Lock()
	defer i.calls.Unlock()
	ev, err := i.running()
	if err != nil {
		return nil, err
	}
	if _, ok := i.object.(durable.SocketHandler); !ok {
		return nil, fmt.Errorf("objects of class %s have no sockets: %w", i.a.class, durable.ErrInvalid)
	}
	if !ev.upgradable || ev.sock != nil || ev.gate.written() {
		return nil, fmt.Errorf("the event is no request that can still become a WebSocket: %w", durable.ErrInvalid)
	}
	refuse := func(status int, text string, err error) (durable.Socket, error) {
		h := w.Header()
		switch status {
		case http.StatusServiceUnavailable:
			h.Set("Retry-After", "1")
		case http.StatusUpgradeRequired:
			h.Set("Upgrade", "websocket")
			h.Set("Sec-Websocket-Version", "13")
		case http.StatusMethodNotAllowed:
			h.Set("Allow", http.MethodGet)
		}
		http.Error(w, text, status)
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	var refusal *socket.Refusal
	if errors.As(socket.Check(r, i.env.BaseURL()), &refusal) {
		return refuse(refusal.Status, refusal.Text, durable.ErrInvalid)
	}
	if p := w.Header().Get("Sec-Websocket-Protocol"); p != "" && !socket.Offered(r, p) {
		return nil, fmt.Errorf("the client does not speak the subprotocol %q: %w", p, durable.ErrInvalid)
	}
	k := &sock{a: i.a, attachment: attachment}
	if k.conn, err = i.a.rt.sockets.New(k); errors.Is(err, socket.ErrClosing) {
		return refuse(http.StatusServiceUnavailable, "the replica is stopping", durable.ErrDraining)
	} else if err != nil {
		return refuse(http.StatusServiceUnavailable, "the replica has no room for another socket", durable.ErrOverloaded)
	}
	if w.WriteHeader(http.StatusSwitchingProtocols); !ev.gate.upgraded() {
		k.conn.Drop()
		return nil, fmt.Errorf("the writer is not that of the event: %w", durable.ErrInvalid)
	}
	ev.sock, ev.accepted = k, true
	i.a.socks.add(k)
	ev.hold = ev.hold || !i.a.rt.holds.holds(i.a)
	return boundSocket{i, k}, nil
}

// Sockets implements durable.State.
func (s *state) Sockets() []durable.Socket {
	s.i.calls.Lock()
	defer s.i.calls.Unlock()
	ev, err := s.i.running()
	if err != nil {
		return nil
	}
	list := s.i.a.socks.all()
	out := make([]durable.Socket, 0, len(list))
	for _, k := range list {
		if !ev.closing[k] {
			out = append(out, boundSocket{s.i, k})
		}
	}
	return out
}

// WakeSockets implements durable.State.
func (s *state) WakeSockets() error {
	s.i.calls.Lock()
	defer s.i.calls.Unlock()
	ev, err := s.i.running()
	if err != nil {
		return err
	}
	ev.wake = true
	return nil
}

// A boundSocket is a socket as one instance has it.
type boundSocket struct {
	i *instance
	k *sock
}

// Send implements durable.Socket.
func (b boundSocket) Send(m durable.SocketMessage) error {
	b.i.calls.Lock()
	defer b.i.calls.Unlock()
	ev, err := b.i.running()
	if err != nil {
		return err
	}
	return ev.send(b.k, m, b.i.a.rt.cfg.Spool)
}

// Close implements durable.Socket.
func (b boundSocket) Close(code int, reason string) error {
	if !socket.ValidClose(code, reason) {
		return fmt.Errorf("a socket cannot be closed with code %d and %d bytes of reason: %w", code, len(reason), durable.ErrInvalid)
	}
	b.i.calls.Lock()
	defer b.i.calls.Unlock()
	ev, err := b.i.running()
	if err != nil {
		return err
	}
	ev.socketEffects.close(b.k, code, reason)
	return nil
}

// Attachment implements durable.Socket.
func (b boundSocket) Attachment() any {
	b.k.mu.Lock()
	defer b.k.mu.Unlock()
	return b.k.attachment
}

// SetAttachment implements durable.Socket.
func (b boundSocket) SetAttachment(v any) {
	b.i.calls.Lock()
	defer b.i.calls.Unlock()
	ev, err := b.i.running()
	if err != nil {
		return
	}
	b.k.mu.Lock()
	defer b.k.mu.Unlock()
	ev.attached = append(ev.attached, attached{b.k, b.k.attachment})
	b.k.attachment = v
}

// upgrade makes the request of an event that was committed the socket that it
// accepted.
func (k *sock) upgrade(w http.ResponseWriter, r *http.Request, header http.Header) {
	began := clock.Now()
	header = header.Clone()
	for name, values := range w.Header() { // which the server would have sent
		if header[name] == nil {
			header[name] = values
		}
	}
	header.Del("Content-Length")
	header.Del("Sec-Websocket-Extensions")
	err := k.conn.Upgrade(w, r, header)
	attrs := k.a.attrs(slog.Duration(events.KeyTook, clock.Since(began)))
	if err != nil {
		attrs = append(attrs, slog.Any(events.KeyError, err))
	}
	k.a.rt.log.LogAttrs(k.a.rt.ctx, slog.LevelDebug, events.SocketAccepted, attrs...)
}
