package object

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// handlerGrace is how long a cancelled handler may take to return. Later it
// keeps a dead State and its object goes on without it.
const handlerGrace = time.Second

// dispatch runs an event on the object and adds it to the batch. One that fails
// is undone alone.
func (a *actor) dispatch(ev *event) {
	ev.epoch = int64(a.tenure.Stamp)
	failpoint.Hit("object.run.before")
	err := a.run(ev)
	failpoint.Hit("object.run.after")
	if err != nil {
		ev.takeBack()
		a.undoEvent(ev, err)
		a.answer([]*event{ev}, err)
	}
	if err != nil || a.tenure == nil || !a.goesOn() {
		a.closeBatch()
	}
	if a.doubtful {
		a.drop("doubtful")
		a.rt.touch(a)
	}
}

// undoEvent takes back what one event did and keeps what the batch did before
// it.
func (a *actor) undoEvent(ev *event, why error) {
	if len(a.batch.events) == 0 {
		a.undo(why)
		return
	}
	a.dropInstance()
	err := mirror.ErrStaleMark
	if a.mirror != nil {
		err = a.mirror.UndoTo(ev.found)
	}
	if err != nil {
		// The batch's changes are gone with the mirror. None was committed.
		b := a.takeBatch()
		a.undo(errors.Join(why, err))
		a.answer(b.events, errors.Join(durable.ErrUnavailable, err))
	}
}

// run has the object handle the event, under a context that ends with the
// caller, the deadline or the lease.
func (a *actor) run(ev *event) error {
	deadline, cancelDeadline := context.WithTimeoutCause(ev.ctx, a.rt.cfg.EventTimeout-clock.Since(ev.arrived), errTooLong)
	defer cancelDeadline()
	ctx, cancel := context.WithCancelCause(context.WithValue(deadline, eventKey{}, ev))
	defer cancel(nil)
	t := a.tenure
	stop := context.AfterFunc(t.ctx, func() { cancel(durable.ErrFenced) })
	defer stop()

	if i := a.instance; i != nil && (i.txid != a.head.TXID || i.commitID != a.head.CommitID) {
		a.dropInstance()
	}
	if a.instance == nil {
		a.instance = newInstance(a)
	}
	i := a.instance
	var err error
	if err = a.mirror.Reset(); err == nil {
		ev.found, err = a.mirror.Mark()
	}
	if err != nil {
		return errors.Join(durable.ErrUnavailable, err)
	}
	i.begin(ctx, ev)
	ev.gate.setFlush(i.flush)
	var slow <-chan time.Time
	if len(a.batch.events) > 0 {
		timer := time.NewTimer(slowEvent)
		defer timer.Stop()
		slow = timer.C
	}
	done := make(chan error, 1)
	stuck := false
	a.rt.workers.run(&a.rt.handlers, func() { a.protect(ev, done, func() error { return i.handle(ctx, ev) }) })

	for running := true; running; {
		select {
		case err = <-done:
			running = false
		case <-slow:
			slow = nil
			a.commitBehind(i, ev, cancel)
		case <-ctx.Done():
			var returned bool
			if err, returned = a.lateHandler(done); !returned {
				stuck = true
			}
			running = false
		}
	}
	ev.gate.setFlush(nil)
	i.end()
	if stuck {
		ev.takeBack()
		// The handler still has a State and rows of this mirror. What the batch
		// did before is committed first, as far as the lease allows.
		a.leaveMirror(ev)
	}
	switch {
	case ev.refused != nil:
		return ev.refused
	case ctx.Err() != nil:
		// Whatever a cancelled handler returned, its work may be half done.
		return cancelled(context.Cause(ctx))
	case err != nil:
		return err
	}
	if err := ev.gate.failed(); err != nil {
		return err
	}
	now, err := a.mirror.Mark()
	if errors.Is(err, mirror.ErrOpenTx) {
		err := fmt.Errorf("%w: it ended inside an open transaction", durable.ErrHandlerFailed)
		a.rt.log.LogAttrs(ev.ctx, slog.LevelError, events.ObjectHandlerFailed, a.appAttrs(slog.Any(events.KeyError, err))...)
		return err
	} else if err != nil {
		return captureError(err)
	}
	a.batch.add(ev, now != ev.built || ev.commits > 0 || ev.changes())
	return nil
}

// leaveMirror gives the mirror up to a handler that does not return.
func (a *actor) leaveMirror(ev *event) {
	b := a.takeBatch()
	if len(b.events) > 0 {
		a.answer(b.events, a.commitTo(ev.found, b))
	}
	a.drop("handler stuck")
	a.rt.touch(a)
}

func cancelled(cause error) error {
	if errors.Is(cause, errTooLong) || errors.Is(cause, context.DeadlineExceeded) {
		return errTooLong
	}
	return cause
}

// lateHandler waits for a cancelled handler, for a moment.
func (a *actor) lateHandler(done <-chan error) (err error, returned bool) {
	timer := time.NewTimer(handlerGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err, true
	case <-timer.C:
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelError, events.ObjectHandlerStuck, a.appAttrs()...)
		return nil, false
	}
}

// protect runs f and turns its panic, or its goroutine's end, into an error.
func (a *actor) protect(ev *event, done chan<- error, f func() error) {
	err, returned := fmt.Errorf("%w: its goroutine ended", durable.ErrHandlerFailed), false
	defer func() {
		v := recover()
		if v == nil && !returned {
			v = err
		}
		if v != nil {
			err = fmt.Errorf("%w: panic", durable.ErrHandlerFailed)
			if cause, ok := v.(error); ok && errors.Is(cause, mirror.ErrDiskFull) {
				err = handlerError(cause)
			}
			if callee, ok := v.(calleeFailed); ok {
				err = callee.error
			} else if v == http.ErrAbortHandler {
				err = http.ErrAbortHandler
			} else {
				a.rt.log.LogAttrs(ev.ctx, slog.LevelError, events.ObjectHandlerFailed, a.appAttrs(slog.Any(events.KeyError, v), slog.String("stack", string(debug.Stack())))...)
			}
		}
		done <- err
	}()
	err = f()
	returned = true
	if err != nil {
		a.rt.log.LogAttrs(ev.ctx, slog.LevelError, events.ObjectHandlerFailed, a.appAttrs(slog.Any(events.KeyError, err))...)
		err = handlerError(err)
	}
}

// handlerError is the error of an event whose handler failed with err. A full
// disk is no fault of the handler's, and another replica may have room.
func handlerError(err error) error {
	if errors.Is(err, mirror.ErrDiskFull) {
		return errors.Join(durable.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", durable.ErrHandlerFailed, err)
}

// undo takes back what was not committed. The instance may have seen it, so it
// goes too.
func (a *actor) undo(why error) {
	a.dropInstance()
	if a.mirror == nil {
		return
	}
	if err := a.mirror.Undo(); err != nil {
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelInfo, events.ObjectMirrorDropped, a.attrs(slog.String("why", "undo"), slog.Any(events.KeyError, errors.Join(why, err)))...)
		a.drop("undo")
		a.rt.touch(a)
	}
}

func (r *Runtime) goBackground(work func(context.Context)) {
	r.background.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				r.log.LogAttrs(r.ctx, slog.LevelError, events.ObjectHandlerFailed, slog.Any(events.KeyError, v), slog.String("stack", string(debug.Stack())))
			}
		}()
		work(context.WithValue(r.ctx, backgroundKey{}, true))
	})
}

// Background runs work that is waited for when the runtime stops.
func (r *Runtime) Background(work func(context.Context)) { r.goBackground(work) }
