package object

import (
	"container/list"
	"context"
	"log/slog"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// An actor is one object on this replica. Its loop runs while events wait, and
// has mirror, instance and lease to itself.
type actor struct {
	rt        *Runtime
	class, id string

	// Guarded by rt.mu.
	queue   []*event
	running bool
	// stopped is closed when running ends.
	stopped chan struct{}
	place   *list.Element
	weight  int64 // part of rt.memory
	// released are holder ids whose leases have surely ended.
	released []string
	used     time.Time
	// offer is a lease that a poll has taken for the object's alarm.
	offer *offer
	// lingering is the timer of an idle actor that keeps its lease for a while.
	lingering *time.Timer
	// marked is when a release has shown that its lease had been wanted.
	marked time.Time
	// socks guards itself.
	socks socks

	// What follows belongs to the loop, or to whoever made the actor busy.

	tenure *tenure
	// notBefore is when the lease may be asked for again after it was yielded.
	notBefore time.Time
	// letGoAt is when the last lease was no longer used. Until yieldFor after it
	// an attempt does not ask for another's: who took a free lease has just
	// begun with it.
	letGoAt time.Time
	linger  linger
	// givenUp are the holder ids that are no longer used, each until no
	// statement under it can matter any more.
	givenUp    map[string]time.Time
	mirror     *mirror.Mirror
	generation int
	// head is the object's last position. It is known while the lease is held.
	head objlog.Head
	// tail is what the acquire returned of the log and has not been applied.
	tail []objlog.Entry
	// slot is the object's alarm. It is known while the lease is held.
	slot alarm.Shown
	// notDue is until when the alarm is surely not due, fired whether the last
	// event was an alarm, and serving whether an event waits for it to end.
	notDue         time.Time
	fired, serving bool
	// settled, when not nil, is told when the offered alarm is done with.
	settled  func()
	instance *instance
	// batch has run and waits for its commit. While a handler runs it is
	// guarded by the instance's calls.
	batch batch
	// doubtful is set when the mirror must not be used for another event.
	doubtful bool
}

func newActor(r *Runtime, k key) *actor {
	return &actor{rt: r, class: k.class, id: k.id, givenUp: map[string]time.Time{}}
}

// idle returns a channel that is closed when the actor does nothing.
func (a *actor) idle() <-chan struct{} {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	if !a.running {
		done := make(chan struct{})
		close(done)
		return done
	}
	return a.stopped
}

func (a *actor) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String(events.KeyClass, a.class), slog.String(events.KeyObject, a.id)}, more...)
}

// appAttrs are attrs with the application, for what is that application's fault.
func (a *actor) appAttrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String(events.KeyApp, a.rt.classes[a.class].App)}, a.attrs(more...)...)
}

// loop serves the waiting events, one at a time in the order of their arrival,
// and ends when there is none and the lease has been let go or lingers.
func (a *actor) loop() {
	a.rt.touch(a)
	for {
		a.takeOffer()
		if a.mayFire() {
			a.fire()
			continue
		}
		ev := a.next()
		if ev == nil {
			a.closeBatch()
			if !a.lingers() {
				a.letGo()
			}
			a.weigh()
			if a.sleep() {
				a.rt.shrink()
				return
			}
			continue
		}
		a.serve(ev)
	}
}

// next takes the first event that still waits.
func (a *actor) next() *event {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	for len(a.queue) > 0 {
		ev := a.queue[0]
		a.queue = a.queue[1:]
		if ev.take() {
			return ev
		}
	}
	a.queue = nil
	return nil
}

// requestsLocked is how many requests wait. Each socket has one event at a time
// and needs no bound.
func (a *actor) requestsLocked() (n int) {
	for _, ev := range a.queue {
		if ev.kind != lease.EventSocket {
			n++
		}
	}
	return n
}

// sleep ends the loop unless there is something to do. A lease that is still
// there lingers.
func (a *actor) sleep() bool {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	if len(a.queue) > 0 || a.offer != nil {
		return false
	}
	if a.tenure != nil && !a.rt.lingerLocked(a) {
		return false
	}
	a.running = false
	a.used = clock.Now()
	close(a.stopped)
	return true
}

// forgetEvent takes an event that its caller dropped out of the queue.
func (a *actor) forgetEvent(ev *event) {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	for i, e := range a.queue {
		if e == ev {
			a.queue = append(a.queue[:i:i], a.queue[i+1:]...)
			return
		}
	}
}

// othersWait reports whether an event waits for its turn.
func (a *actor) othersWait() bool {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	return len(a.queue) > 0 || a.serving
}

// serve runs one event from lease to answer.
func (a *actor) serve(ev *event) {
	if err := ev.ctx.Err(); err != nil {
		ev.finish(err, nil)
		return
	}
	if a.tenure != nil && (a.tenure.mustYield() || !a.tenure.usable()) {
		a.closeBatch()
		a.letGo()
	}
	for a.tenure == nil {
		if err := a.acquire(ev); err != nil {
			ev.finish(err, nil)
			return
		}
		if a.claimed() { // a poll had taken the lease
			a.serving = true
			a.fire()
			a.serving = false
			if clock.Since(ev.arrived) > a.rt.cfg.AcquireTimeout {
				ev.finish(&durable.ContendedError{Class: a.class, ID: a.id}, nil)
				return
			}
		}
	}
	a.fired = false
	if len(a.batch.events) == 0 { // else the mirror is ahead of the head
		if err := a.sync(ev); err != nil {
			ev.finish(err, nil)
			return
		}
		a.rt.touch(a)
	}
	a.linger.served = clock.Now()
	a.dispatch(ev)
	a.linger.served = clock.Now()
}

// letGo releases the lease, when one is held, behind the answer. From here on
// its holder counts as given up, so that the next acquire need not wait.
func (a *actor) letGo() {
	t := a.tenure
	if t == nil {
		return
	}
	unclaimed := !a.slot.Set // no alarm can be claimed under the lease
	a.endTenure()
	a.giveUp(t.Holder)
	a.rt.workers.run(&a.rt.releases, func() {
		failpoint.Hit("object.release.before")
		ended, wanted := a.rt.release(t.Held)
		a.rt.mu.Lock()
		if ended && unclaimed {
			a.released = append(a.released, t.Holder)
		}
		if wanted {
			a.marked = clock.Now()
		}
		a.rt.mu.Unlock()
		failpoint.Hit("object.release.after")
	})
}

// endTenure stops using the lease.
func (a *actor) endTenure() {
	if t := a.tenure; t != nil {
		if t.isWanted() {
			a.notBefore = clock.Now().Add(yieldFor)
			a.linger.wanted()
		}
		a.letGoAt, a.linger.tip = clock.Now(), a.head.TXID
		t.end()
		t.lose()
		a.tenure = nil
		a.rt.leftClaim(t)
	}
	a.settleOffer()
}

// giveUp remembers a holder id that may be replaced, for as long as a late
// statement under it could keep its lease alive.
func (a *actor) giveUp(holder string) {
	a.forget()
	a.givenUp[holder] = clock.Now().Add(attemptTime + 2*a.rt.cfg.LeaseTTL)
}

// forget drops the given-up holder ids that can matter no more.
func (a *actor) forget() {
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	a.forgetLocked()
}

func (a *actor) forgetLocked() {
	for _, h := range a.released {
		delete(a.givenUp, h)
	}
	a.released = nil
	now := clock.Now()
	for h, until := range a.givenUp {
		if now.After(until) {
			delete(a.givenUp, h)
		}
	}
}

// drop discards mirror and instance.
func (a *actor) drop(why string) {
	a.dropInstance()
	if a.mirror != nil {
		if err := a.mirror.Discard(); err != nil {
			a.rt.log.LogAttrs(a.rt.ctx, slog.LevelWarn, events.ObjectMirrorDropped, a.attrs(slog.String("why", why), slog.Any(events.KeyError, err))...)
		}
		a.mirror = nil
	}
	a.doubtful = false
	a.rt.mu.Lock()
	a.weighLocked(0)
	if a.place != nil {
		a.rt.resident.Remove(a.place)
		a.place = nil
	}
	a.rt.mu.Unlock()
}

func (a *actor) dropInstance() {
	if a.instance != nil {
		a.instance.revoke()
		a.instance = nil
	}
}

// pause waits for d, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
