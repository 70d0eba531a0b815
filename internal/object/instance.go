package object

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// An instance is a constructed object with its State. It is a cache: it is
// used again while the head is the one that it last saw, and dropped together
// with anything that was undone.
type instance struct {
	a        *actor
	id       durable.ID
	object   durable.Object
	env      *instanceEnv
	txid     uint64
	commitID string

	// calls serialises what the event has the host do beside SQL.
	calls lock

	mu     sync.Mutex
	ev     *event // nil outside of events
	ctx    context.Context
	mirror *mirror.Mirror
	// pools are what DB of the SQL bindings returned, by name.
	pools map[string]*sql.DB
}

func newInstance(a *actor) *instance {
	i := &instance{a: a, calls: make(lock, 1), txid: a.head.TXID, commitID: a.head.CommitID}
	i.id, _ = durable.ParseID(a.id)
	i.env = &instanceEnv{Env: a.rt.classes[a.class].Env, i: i}
	return i
}

// A lock is a mutex that is held while the store is waited for. Who waits for it
// is seen to wait by testing/synctest, unlike with a sync.Mutex.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// begin lets the State be used, for one event.
func (i *instance) begin(ctx context.Context, ev *event) {
	if ev.name == "" {
		ev.name = i.a.head.Name
	}
	if ev.name != "" {
		i.id = durable.IDFromName(ev.name)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ev, i.ctx, i.mirror = ev, ctx, i.a.mirror
	ev.in, ev.running = i, ctx
}

// end revokes the State until the next event. It waits for a commit that a
// flush has under way; a running statement ends with the event's context.
func (i *instance) end() {
	i.calls.Lock()
	defer i.calls.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ev, i.ctx, i.mirror = nil, nil, nil
}

// revoke ends the use of the State for good.
func (i *instance) revoke() {
	i.end()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, db := range i.pools {
		db.Close() //nolint:errcheck // it has no connections of its own
	}
	i.pools = nil
}

// handle constructs the object unless it is there, and runs the event on it.
func (i *instance) handle(ctx context.Context, ev *event) error {
	if i.object == nil {
		o, err := i.a.rt.classes[i.a.class].New(&state{i: i}, i.env)
		if err != nil {
			return fmt.Errorf("construct %s: %w", i.a.class, err)
		}
		i.object = o
	}
	u, err := i.use(ctx)
	if err != nil {
		return err
	}
	if ev.built, err = u.mirror.Mark(); err != nil {
		return fmt.Errorf("construct %s: %w", i.a.class, err)
	}
	return ev.run(ctx, i.object)
}

// running returns the event that runs, unless it was cancelled.
func (i *instance) running() (*event, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.ev == nil:
		return nil, durable.ErrRevoked
	case i.ctx.Err() != nil:
		return nil, context.Cause(i.ctx)
	}
	return i.ev, nil
}

// current returns the event that runs, or nil.
func (i *instance) current() *event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ev
}

// flush commits what the running event has done so far.
func (i *instance) flush() error {
	i.calls.Lock()
	defer i.calls.Unlock()
	ev := i.current()
	switch {
	case ev == nil:
		return durable.ErrRevoked
	case ev.refused != nil:
		return ev.refused
	}
	return i.a.flush(ev)
}

// callOut prepares a call, made with a context, to something that is not part
// of the caller's event: what precedes it becomes durable first. It returns the
// event that calls, or nil when none does.
func (i *instance) callOut(ctx context.Context) (*event, error) {
	ev, err := i.caller(ctx)
	if err != nil {
		return nil, err
	}
	if ev == nil {
		from, _ := ctx.Value(eventKey{}).(*event)
		return from, nil
	}
	return ev, i.flush()
}

// caller returns the running event when a call is made from it, or nil when it
// is not: work that an earlier event left behind is its own caller. Whatever
// context a handler uses, it calls from its event.
func (i *instance) caller(ctx context.Context) (*event, error) {
	if ctx.Value(backgroundKey{}) != nil {
		return nil, nil
	}
	ev := i.current()
	if from, ok := ctx.Value(eventKey{}).(*event); ok && from.actor == i.a && from != ev {
		return nil, durable.ErrRevoked
	}
	return ev, nil
}
