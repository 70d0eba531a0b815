package object

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/socket"
)

// Holds keep the entries of the objects that have sockets on this replica, and
// have the objects told of the marks that other replicas' events put on them. They
// are a part of the replica's poll: the methods Poll and Polled are called in turn.
//
// The commit that accepts an object's first socket stores the entry, so that
// every later commit finds it. An entry is never removed while the replica runs,
// but expires: a removal might hit one that was stored again meanwhile.
type Holds struct {
	rt  *Runtime
	ttl time.Duration

	mu      sync.Mutex
	stopped bool // polls go on after the runtime has stopped
	objects map[key]*hold
	// order is in which the objects are polled, from next on.
	order []key
	next  int
	// sent are the objects of the last poll, by class, and kept those of them
	// whose entries it extended.
	sent []look
}

// A hold is one object's entry.
type hold struct {
	// a is the actor that stored it. An object that was let go and has come back is
	// another one, which stores its own.
	a *actor
	// until is how long the entry surely lives, by this machine's clock, and kept
	// when it was last extended.
	until, kept time.Time
	// seen is the stamp of the last mark that the object was told of.
	seen kv.Versionstamp
	// waking is set while the object is being told, and again when there was
	// another mark meanwhile, and store when the entry is gone and has to be stored
	// again.
	waking, again, store bool
}

type look struct {
	class string
	ids   []string
	kept  []string
}

// perPoll is how many objects one poll looks at.
const perPoll = 4000

func newHolds(rt *Runtime) *Holds {
	return &Holds{rt: rt, ttl: rt.cfg.HoldTTL, objects: map[key]*hold{}}
}

// Holds returns the part of the poll.
func (r *Runtime) Holds() *Holds { return r.holds }

// holds reports whether the entry of an object, which has a socket, is there, for
// long enough.
func (s *Holds) holds(a *actor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.objects[key{a.class, a.id}]
	return h != nil && h.a == a && clock.Now().Before(h.until)
}

// stored notes that a statement sent at sent has stored the entry. If there was
// one, a mark may have gone with it: the object is told, unless it just was.
func (s *Holds) stored(a *actor, sent time.Time, told bool) {
	k := key{a.class, a.id}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.objects[k]
	if h == nil {
		s.order = append(s.order, k)
	}
	if h == nil || h.a != a {
		h = &hold{a: a}
		s.objects[k] = h
	} else if !told {
		s.wakeLocked(h)
	}
	h.until, h.kept = sent.Add(s.ttl*2/3), sent
}

// Name names the part in logs and metrics.
func (s *Holds) Name() string { return "sockets" }

// Poll returns the statements of the next poll. Entries are extended at a third
// of their TTL.
func (s *Holds) Poll(bytes int) []libsql.Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = slices.DeleteFunc(s.order, func(k key) bool {
		gone := s.objects[k].a.socks.len() == 0
		if gone {
			delete(s.objects, k)
		}
		return gone
	})
	n := min(len(s.order), perPoll, max(bytes/128, 1))
	byClass := map[string]*look{}
	keep := map[string]map[string]int{}
	now := clock.Now()
	for i := range n {
		k := s.order[(s.next+i)%len(s.order)]
		l := byClass[k.class]
		if l == nil {
			l = &look{class: k.class}
			byClass[k.class], keep[k.class] = l, map[string]int{}
		}
		l.ids = append(l.ids, k.id)
		if h := s.objects[k]; now.Sub(h.kept) >= s.ttl/3 {
			l.kept = append(l.kept, k.id)
			keep[k.class][k.id] = h.a.socks.len()
		}
	}
	if n > 0 {
		s.next = (s.next + n) % len(s.order)
	}
	s.sent = nil
	var out []libsql.Statement
	for class, l := range byClass {
		s.sent = append(s.sent, *l)
		out = append(out, holders.LookStatement(class, s.rt.cfg.Replica, l.ids))
		if len(l.kept) > 0 {
			out = append(out, holders.KeepStatement(class, s.rt.cfg.Replica, keep[class], s.ttl))
		}
	}
	return out
}

// Polled takes the poll's results, or its error.
func (s *Holds) Polled(res []libsql.Result, err error, sent time.Time) bool {
	if err != nil {
		return false // the marks stay
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.sent {
		live := holders.ReadLook(res[0])
		res = res[1:]
		if len(l.kept) > 0 {
			res = res[1:]
		}
		for _, id := range l.ids {
			h := s.objects[key{l.class, id}]
			if h == nil {
				continue
			}
			found, ok := live[id]
			switch {
			case !ok && h.kept.After(sent): // stored after the poll was sent
			case !ok:
				h.until = time.Time{}
				h.store = true
				s.wakeLocked(h)
			case found.Marked && found.Stamp != h.seen:
				h.seen = found.Stamp
				s.wakeLocked(h)
			}
		}
		for _, id := range l.kept {
			if h := s.objects[key{l.class, id}]; h != nil && !h.store {
				h.until, h.kept = sent.Add(s.ttl*2/3), sent
			}
		}
	}
	return false
}

// poke has an object told, if it has sockets here: what it stored last may be
// there although its event sent nothing.
func (s *Holds) poke(a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.objects[key{a.class, a.id}]; h != nil {
		s.wakeLocked(h)
	}
}

// stop has no object told any more.
func (s *Holds) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// wakeLocked has an object told, once at a time.
func (s *Holds) wakeLocked(h *hold) {
	if s.stopped {
		return
	}
	if h.waking {
		h.again = true
		return
	}
	h.waking = true
	s.rt.wakes.Go(func() { s.wake(h) })
}

// wake tells an object that has sockets here of what others have stored.
func (s *Holds) wake(h *hold) {
	for {
		s.mu.Lock()
		store := h.store
		h.again, h.store = false, false
		s.mu.Unlock()
		began := clock.Now()
		err := h.a.deliver(store, func(ctx context.Context, i *instance) error {
			if w, ok := i.object.(durable.SocketWaker); ok {
				return w.SocketWake(ctx)
			}
			return nil
		})
		attrs := h.a.attrs(slog.Duration(events.KeyTook, clock.Since(began)))
		if err == nil {
			s.rt.log.LogAttrs(s.rt.ctx, slog.LevelDebug, events.SocketWakeOK, attrs...)
		} else {
			s.rt.log.LogAttrs(s.rt.ctx, slog.LevelWarn, events.SocketWakeFailed, append(attrs, slog.Any(events.KeyError, err))...)
			code, reason := socket.Interrupted, "try again"
			if c, r := h.a.closeCode(err); c != 0 {
				code, reason = c, r
			}
			for _, k := range h.a.socks.all() {
				k.conn.End(code, reason)
			}
		}
		s.mu.Lock()
		if again := h.again && s.rt.ctx.Err() == nil; !again {
			h.waking = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}
