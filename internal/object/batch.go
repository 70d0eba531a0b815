package object

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// Events that wait while their predecessor runs are run right behind it and
// committed with it, their outputs held together. These bounds close a batch.
const (
	batchEvents = 64
	batchBytes  = 1 << 20
	batchTime   = 5 * time.Millisecond
	// slowEvent is how long the events before a running one wait for its end.
	// Then they are committed while it runs.
	slowEvent = 10 * time.Millisecond
)

// A batch is what has run under the lease and waits for its commit.
type batch struct {
	events []*event
	from   time.Time
	// wrote is set when a handler, unlike a constructor, has written.
	wrote bool
}

func (b *batch) add(ev *event, wrote bool) {
	if len(b.events) == 0 {
		b.from = clock.Now()
	}
	b.events = append(b.events, ev)
	b.wrote = b.wrote || wrote
}

// arrived is when the last event of the batch arrived: a statement sent later
// speaks for all of them.
func (b *batch) arrived() time.Time {
	var last time.Time
	for _, ev := range b.events {
		if ev.arrived.After(last) {
			last = ev.arrived
		}
	}
	return last
}

// goesOn reports whether the next event that waits may join the batch.
func (a *actor) goesOn() bool {
	n := len(a.batch.events)
	if n == 0 || a.batch.events[n-1].commits > 0 || a.batch.events[n-1].firing != nil {
		return false // nothing has begun, or it has already been committed in part, or is an alarm
	}
	return a.othersWait() && n < batchEvents && clock.Since(a.batch.from) < batchTime &&
		a.mirror.Uncommitted() < batchBytes && a.tenure.usable() && !a.tenure.mustYield()
}

// closeBatch makes what the batch changed durable, or confirms the lease when
// nothing was changed, and lets the outputs go. The lease is released with the
// commit when nobody waits.
func (a *actor) closeBatch() {
	if len(a.batch.events) == 0 {
		return
	}
	entry, err := a.capture()
	if errors.Is(err, mirror.ErrEntryTooLarge) && len(a.batch.events) > 1 {
		a.splitBatch()
		entry, err = a.capture()
	}
	b := a.takeBatch()
	if len(b.events) == 0 {
		return
	}
	switch {
	case err != nil:
	case entry == nil && !b.changes():
		err = a.confirm(b.events[0], b.arrived())
	default:
		err = a.commit(b.events[0], b, entry, true)
	}
	if err != nil {
		a.undo(err)
	} else if entry == nil && a.mirror.Uncommitted() > 0 {
		a.undo(nil) // only constructors wrote: the object does not come to be
	}
	a.answer(b.events, err)
}

// splitBatch commits all but the last event of a batch that is too large for
// one commit, so that no event pays for another's size.
func (a *actor) splitBatch() {
	last := a.batch.events[len(a.batch.events)-1]
	rest := a.batch.events[:len(a.batch.events)-1]
	a.batch.events = rest
	err := a.commitTo(last.found, batch{events: rest, wrote: a.batch.wrote})
	a.takeBatch()
	if err != nil {
		a.undo(err)
		a.answer(append(rest[:len(rest):len(rest)], last), err)
		return
	}
	a.answer(rest, nil)
	a.batch.add(last, true)
}

// commitTo makes durable what the batch changed up to the mark, and keeps the
// lease.
func (a *actor) commitTo(mark mirror.Mark, b batch) error {
	var entry *mirror.Entry
	if a.head.Exists() || b.wrote {
		var err error
		if entry, err = a.mirror.CaptureTo(mark); err != nil {
			return captureError(err)
		}
	}
	if entry == nil && !b.changes() {
		return a.confirm(b.events[0], b.arrived())
	}
	return a.commit(b.events[0], b, entry, false)
}

// commitBehind commits the events before a running one, which has taken its
// time, while it runs. When that is refused, so is the running event, whose
// state is built on theirs.
func (a *actor) commitBehind(i *instance, running *event, cancel func(error)) {
	i.calls.Lock() // a flush of the running event commits them too
	defer i.calls.Unlock()
	if len(a.batch.events) == 0 {
		return
	}
	b := a.takeBatch()
	err := a.commitTo(running.found, b)
	if err != nil {
		running.refused = err
		cancel(err)
		running.takeBack() // before what it is built on
	}
	a.answer(b.events, err)
}

func (a *actor) takeBatch() batch {
	b := a.batch
	a.batch = batch{}
	return b
}

// capture returns the pages that the batch changed, or nil.
func (a *actor) capture() (*mirror.Entry, error) {
	if !a.head.Exists() && !a.batch.wrote {
		return nil, nil // what a constructor wrote is not worth an object
	}
	entry, err := a.mirror.Capture()
	return entry, captureError(err)
}

func captureError(err error) error {
	switch {
	case errors.Is(err, mirror.ErrEntryTooLarge):
		return fmt.Errorf("the event changed %w to commit: %w", durable.ErrTooLarge, err)
	case errors.Is(err, mirror.ErrDiskFull):
		return errors.Join(durable.ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("%w: its changes could not be read back: %w", durable.ErrHandlerFailed, err)
	}
	return nil
}

// answer lets the outputs of events go, or answers them with an error.
func (a *actor) answer(evs []*event, err error) {
	for _, ev := range slices.Backward(evs) {
		if err != nil {
			ev.takeBack()
		}
	}
	if errors.Is(err, durable.ErrUnknownOutcome) {
		a.rt.holds.poke(a)
	}
	for _, ev := range evs {
		failpoint.Hit("object.answer.before")
		header := http.Header{}
		header.Set("Dwk-Txid", strconv.FormatUint(a.head.TXID, 10))
		header.Set("Dwk-Epoch", strconv.FormatInt(ev.epoch, 10))
		result := err
		if err != nil && ev.commits > 0 {
			result = fmt.Errorf("%w after a part of the event had been committed: %v", durable.ErrHandlerFailed, err)
		}
		if err == nil {
			ev.letOut()
		}
		ev.finish(result, header)
		failpoint.Hit("object.answer.after")
		if result == nil {
			for _, work := range ev.after {
				a.rt.goBackground(work)
			}
		}
	}
}
