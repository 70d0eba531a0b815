// Package object runs durable objects: it queues the events of each object,
// takes the object's lease, brings its mirror up to date, runs the event and
// commits what it changed before anything that the event lets out is seen.
package object

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/socket"
)

// Config are the bounds of a Runtime. Every field must be set.
type Config struct {
	// Replica is the id of this process in the fleet.
	Replica string
	// Dir is this process's own directory for mirrors and spools.
	Dir string
	// LeaseTTL is how long a lease lasts without renewal.
	LeaseTTL time.Duration
	// Linger is how long a lease is kept behind the last event when the next one
	// can be expected soon, or 0.
	Linger time.Duration
	// AcquireTimeout is how long an event waits for its turn, from its arrival:
	// local queue and lease together.
	AcquireTimeout time.Duration
	// EventTimeout is an event's deadline, from its arrival.
	EventTimeout time.Duration
	// Waiters is the number of events of one object that may wait.
	Waiters int
	// BodyLimit, Buffer and Spool bound a request's body, what of a body is
	// kept in memory, and a response's body, in bytes.
	BodyLimit, Buffer, Spool int64
	// Idle is how long an unused object keeps its mirror and instance, Resident
	// how many objects may have one, and Memory how many bytes the mirrors may
	// take together, as far as that is known.
	Idle     time.Duration
	Resident int
	Memory   int64
	// Mirror configures the objects' databases.
	Mirror mirror.Config
	// StoreID is the store set's identity, and Blobs holds the entries of the
	// log that are larger than InlineLimit, in bytes.
	StoreID     string
	Blobs       keeper.Blobs
	InlineLimit int64
	// Committed, when not nil, is told of every commit. It must not wait.
	Committed func(class, id string, txid uint64)
	// AlarmRetries is how often a failing alarm is run again before it is given
	// up, and AlarmBackoff the wait before the first time; it doubles.
	AlarmRetries int
	AlarmBackoff time.Duration
	// AlarmBatch is how many alarms that a poll has taken may run at a time.
	AlarmBatch int
	// Sockets bounds WebSockets, and HoldTTL is how long other replicas believe
	// that this one has sockets of an object, without word from it.
	Sockets socket.Config
	HoldTTL time.Duration
	// WakeAt, when not nil, is told of the times, by the primary's clock, at which
	// a poll will find work. It must not wait.
	WakeAt func(time.Time)
}

// A Class is a registered object class.
type Class struct {
	New durable.Class
	// App is the name of the application that brought the class.
	App string
	// Env is that application's environment.
	Env durable.Env
}

// Runtime runs the objects of one replica. It is safe for concurrent use.
type Runtime struct {
	cfg   Config
	store *kv.Store
	// commits are the plans of all objects: those ready together go together.
	commits *kv.Group
	reader  keeper.Reader
	classes map[string]Class
	log     *slog.Logger

	// began is when the runtime was made.
	began time.Time
	// ctx ends when Stop can wait no longer.
	ctx    context.Context
	cancel context.CancelFunc
	// loops counts the actors' loops and renewals, releases the releases that
	// follow behind an answer, handlers and background the applications' work.
	loops, releases, handlers, background sync.WaitGroup
	// workers run all of these that are short and many.
	workers workers
	sockets *socket.Hub
	holds   *Holds
	// wakes are the events by which objects are told of marks.
	wakes sync.WaitGroup

	mu sync.Mutex
	// closed is set when no more events are taken, and hasty while no lease lingers.
	closed, hasty bool
	actors        map[key]*actor
	// givenUp are the holder ids that ended with an alarm claimed.
	givenUp map[string]givenUp
	// resident orders the actors that have a mirror, least recently used first.
	resident *list.List
	// memory is what they take, in bytes, as of the last event of each.
	memory int64
}

type key struct{ class, id string }

// New returns a runtime for the classes, by name, whose objects live in store.
func New(cfg Config, store *kv.Store, log *slog.Logger) *Runtime {
	r := &Runtime{cfg: cfg, store: store, commits: kv.NewGroup(store), reader: keeper.Reader{Store: store, Blobs: cfg.Blobs, Dir: cfg.Dir}, classes: map[string]Class{}, log: log, began: clock.Now(), actors: map[key]*actor{}, givenUp: map[string]givenUp{}, resident: list.New()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.sockets, r.holds = socket.NewHub(cfg.Sockets), newHolds(r)
	r.loops.Go(r.evictIdle)
	return r
}

// className: names are part of keys, paths and URLs.
var className = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// Register adds a class. It fails when the name is taken. All classes are
// registered before the first event.
func (r *Runtime) Register(name string, c Class) error {
	if !className.MatchString(name) {
		return fmt.Errorf("object class %q: a name is a letter and up to 63 letters, digits and underscores", name)
	}
	if _, ok := r.classes[name]; ok {
		return fmt.Errorf("object class %q is brought by two applications", name)
	}
	r.classes[name] = c
	return nil
}

// Commits is the group in which the runtime commits, for others on the same
// store. It works until the store is closed.
func (r *Runtime) Commits() *kv.Group { return r.commits }

// Stats are figures of a runtime at one moment.
type Stats struct {
	// Objects have a mirror, Running run or wait for an event, Lingering are idle and
	// keep their lease, and Plans are the commits and lease changes that wait for a
	// transaction.
	Objects, Running, Lingering, Plans int
	// Sockets are open.
	Sockets int
	// Memory is what the mirrors take, in bytes.
	Memory int64
}

// Stats returns the present figures.
func (r *Runtime) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Objects: r.resident.Len(), Plans: r.commits.Waiting(), Memory: r.memory, Sockets: r.sockets.Count()}
	for _, a := range r.actors {
		if a.running {
			s.Running++
		}
		if a.lingering != nil {
			s.Lingering++
		}
	}
	return s
}

// Stop takes no more events, waits for those that run and wait, for their
// background work and their releases, and closes the mirrors. When ctx ends
// first it cancels what is left and returns an error that names it.
func (r *Runtime) Stop(ctx context.Context) error {
	sockets := r.CloseSockets(ctx, socket.GoingAway)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.handBackOffers()
	r.hurry(r.list()...)

	err := errors.Join(sockets, r.settle(ctx))
	r.holds.stop()
	r.cancel()
	r.loops.Wait()
	r.wakes.Wait()
	r.sockets.Stop()
	r.releases.Wait()
	r.commits.Wait()
	if r.workers.close(); err == nil { // else one runs a handler that does not end
		r.workers.all.Wait()
	}
	for _, a := range r.list() {
		a.drop("stopped")
	}
	return err
}

// settle waits until nothing runs.
func (r *Runtime) settle(ctx context.Context) error {
	for _, a := range r.list() {
		if !ended(ctx, a.idle()) {
			return fmt.Errorf("object %s/%s is still running an event", a.class, a.id)
		}
	}
	if !wait(ctx, &r.background) {
		return errors.New("background work of an application is still running")
	}
	if !wait(ctx, &r.handlers) {
		return errors.New("a handler that was cancelled is still running")
	}
	if !wait(ctx, &r.releases) {
		return errors.New("leases are still being released")
	}
	return nil
}

func wait(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	return ended(ctx, done)
}

// lastLook is how long something is given to show that it has ended, when there
// is no time left to wait for it.
const lastLook = time.Second

func ended(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(lastLook):
		return false
	}
}

// release ends a lease; it is repeated until the lease would have ended by
// itself. It reports whether an answer said that there is no such lease any
// more, and whether the lease was wanted.
func (r *Runtime) release(h lease.Held) (ended, wanted bool) {
	for deadline := clock.Now().Add(r.cfg.LeaseTTL); clock.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(r.ctx, r.cfg.LeaseTTL)
		ok, wanted, err := h.End(ctx, r.commits)
		cancel()
		if err == nil {
			if !ok {
				r.log.LogAttrs(r.ctx, slog.LevelDebug, events.LeaseReleaseLost, slog.String(events.KeyClass, h.Class), slog.String(events.KeyObject, h.ID))
			}
			return true, wanted
		}
		if !pause(r.ctx, r.cfg.LeaseTTL/20) {
			return false, false
		}
	}
	return false, false
}

func (r *Runtime) list() []*actor {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*actor, 0, len(r.actors))
	for _, a := range r.actors {
		out = append(out, a)
	}
	return out
}

// submit queues an event of an object, or says why not.
func (r *Runtime) submit(k key, ev *event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return durable.ErrDraining
	}
	a := r.actors[k]
	if a == nil {
		a = newActor(r, k)
		r.actors[k] = a
	}
	if ev.kind != lease.EventSocket && a.requestsLocked() >= r.cfg.Waiters {
		return durable.ErrOverloaded
	}
	ev.actor = a
	a.queue = append(a.queue, ev)
	r.startLocked(a)
	return nil
}

// stopping reports whether no more events are taken.
func (r *Runtime) stopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

func (r *Runtime) startLocked(a *actor) {
	if !a.running {
		r.endLingerLocked(a)
		a.running = true
		a.stopped = make(chan struct{})
		r.workers.run(&r.loops, a.loop)
	}
}

// touch marks the actor as having a mirror, most recently used, and makes room
// for it.
func (r *Runtime) touch(a *actor) {
	r.mu.Lock()
	if a.place == nil {
		a.place = r.resident.PushBack(a)
	} else {
		r.resident.MoveToBack(a.place)
	}
	a.used = clock.Now()
	r.mu.Unlock()
	r.shrink()
}

// claimLocked makes an idle actor busy so that it can be dropped.
func (r *Runtime) claimLocked(a *actor) bool {
	if a.running {
		return false
	}
	r.endLingerLocked(a)
	a.running = true
	a.stopped = make(chan struct{})
	return true
}

// evict drops claimed actors and lets go of them, or has them go on with what
// was queued meanwhile.
func (r *Runtime) evict(actors []*actor) {
	for _, a := range actors {
		a.letGo()
		a.drop("evicted")
		r.mu.Lock()
		if len(a.queue) > 0 || a.offer != nil {
			r.workers.run(&r.loops, a.loop)
		} else {
			a.running = false
			close(a.stopped)
			if len(a.givenUp) == 0 && a.socks.len() == 0 {
				delete(r.actors, key{a.class, a.id})
			}
		}
		r.mu.Unlock()
	}
}

// evictIdle drops what has not been used for the idle time.
func (r *Runtime) evictIdle() {
	period := max(r.cfg.Idle/4, 100*time.Millisecond)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		var victims []*actor
		r.mu.Lock()
		for _, a := range r.actors {
			if !a.running && clock.Since(a.used) > r.cfg.Idle && r.claimLocked(a) {
				a.forgetLocked()
				victims = append(victims, a)
			}
		}
		r.mu.Unlock()
		r.evict(victims)
	}
}

func (r *Runtime) mirrorPath(k key, generation int) string {
	return filepath.Join(r.cfg.Dir, "objects", k.class, fmt.Sprintf("%s.%d.db", k.id, generation))
}
