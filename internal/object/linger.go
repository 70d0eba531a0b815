package object

import (
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// A lease lingers when its actor keeps it though no event waits, because the
// next one will probably come soon: that one then costs neither an acquire nor a
// release. It is a kept lease like any other. What is answered under it still
// waits for a statement sent after the event arrived.
//
// The price is that another replica that wants the object waits for longer, once:
// a lease that was wanted ends the lingering for a while.
const (
	// The first and the longest time in which an object's lease does not linger
	// after another replica wanted it. What is longer ago is forgotten.
	firstRest, longestRest = 10 * time.Second, 5 * time.Minute
	// lingerGrid is the part of the time to linger in which leases that end do so
	// together, for their releases to share a transaction.
	lingerGrid = 8
)

// linger says whether an actor's leases linger. It belongs to the loop.
type linger struct {
	// pays is set for a tenure that began soon after the one before had ended here.
	pays bool
	// served is when an event, but an alarm, last ran, and tip the object's position
	// when the last tenure ended.
	served time.Time
	tip    uint64
	// rest is for how long leases do not linger, until notBefore, because others
	// wanted one.
	rest      time.Duration
	notBefore time.Time
}

// wanted notes that another replica wanted the lease, or had it when it was
// wanted here.
func (l *linger) wanted() {
	now := clock.Now()
	switch {
	case now.Before(l.notBefore): // leases did not linger, so nobody waited for that
	case l.rest == 0 || now.Sub(l.notBefore) >= longestRest:
		l.rest = firstRest
	default:
		l.rest = min(2*l.rest, longestRest)
	}
	l.notBefore = now.Add(l.rest)
}

// judge decides whether it pays that a new tenure, asked for at asked, lingers:
// the last one ended here a moment before, and nobody has changed the object
// meanwhile.
func (a *actor) judge(asked time.Time) {
	a.linger.pays = asked.Sub(a.letGoAt) < a.rt.cfg.Linger && a.head.TXID == a.linger.tip
}

// lingers reports whether the lease is kept when no event waits.
func (a *actor) lingers() bool {
	t, l := a.tenure, &a.linger
	return t != nil && l.pays && t.usable() && !t.isWanted() && !clock.Now().Before(l.notBefore) && a.lingerLeft() > 0 && !a.rt.leaving()
}

// lingerLeft is for how long the lease is kept still.
func (a *actor) lingerLeft() time.Duration {
	d := a.rt.cfg.Linger
	end := a.linger.served.Add(d).Sub(a.rt.began).Truncate(d / lingerGrid)
	return end - clock.Since(a.rt.began)
}

// dueIn is in how long the object's alarm, if there is one, is to be run.
func (a *actor) dueIn() (time.Duration, bool) {
	if !a.slot.Set || !a.head.Exists() {
		return 0, false
	}
	d := time.Duration(a.slot.EpochMs-a.rt.store.Clock().UnixMilli()) * time.Millisecond
	return max(d, a.notDue.Sub(clock.Now())), true
}

// lingerLocked leaves a lease that lingers to a timer, by which the actor's loop
// goes on. It reports false when the loop has something to do at once.
func (r *Runtime) lingerLocked(a *actor) bool {
	d := a.lingerLeft()
	if due, ok := a.dueIn(); ok {
		d = min(d, due)
	}
	if d <= 0 || r.closed || r.hasty || a.tenure.isWanted() || !a.tenure.usable() {
		return false
	}
	r.loops.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		defer r.loops.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		if a.lingering == timer {
			r.startLocked(a)
		}
	})
	a.lingering = timer
	return true
}

// endLingerLocked takes the lease back from the timer.
func (r *Runtime) endLingerLocked(a *actor) {
	if a.lingering == nil {
		return
	}
	if a.lingering.Stop() {
		r.loops.Done()
	}
	a.lingering = nil
}

// hurry has the loop look at a lease that lingers.
func (r *Runtime) hurry(actors ...*actor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range actors {
		if a.lingering != nil {
			r.startLocked(a)
		}
	}
}

// Hasten has no lease linger as long as it is on: the objects of a replica that is
// about to stop are wanted by others.
func (r *Runtime) Hasten(on bool) {
	r.mu.Lock()
	r.hasty = on
	r.mu.Unlock()
	if on {
		r.hurry(r.list()...)
	}
}

// leaving reports whether no lease lingers.
func (r *Runtime) leaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed || r.hasty
}

// seeMark takes what the release of an earlier lease has told.
func (a *actor) seeMark() {
	a.rt.mu.Lock()
	at := a.marked
	a.marked = time.Time{}
	a.rt.mu.Unlock()
	if at.IsZero() {
		return
	}
	a.linger.wanted()
	if until := at.Add(yieldFor); until.After(a.notBefore) {
		a.notBefore = until
	}
}
