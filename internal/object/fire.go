package object

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// An alarm runs as an event of its own under a lease that claims it: the slot
// names the lease's holder, and moves with the lease. The event's last commit
// clears or replaces the slot, so it fires once. A run that fails is written
// back with a later time; one whose replica dies is due again when the lease
// has ended, and whoever takes it counts it.

// A firing is one run of an alarm.
type firing struct {
	slot alarm.Slot
	// startedMs is when it began, by the primary's clock.
	startedMs int64
}

// addHistory adds the run, and the crash that it follows, to the history.
func (f *firing) addHistory(p *kv.Plan, a *actor, outcome, errText string) {
	r := alarm.Run{Due: f.slot.Asked(), Replica: a.rt.cfg.Replica, Outcome: outcome, Error: errText}
	if f.slot.Crashed != 0 {
		crash := r
		crash.Outcome, crash.Error = alarm.OutcomeCrashed, ""
		alarm.AddRun(p, a.class, a.id, f.startedMs-1, crash)
	}
	alarm.AddRun(p, a.class, a.id, f.startedMs, r)
}

// claimed reports whether the alarm is claimed under the present lease.
func (a *actor) claimed() bool {
	return a.tenure != nil && a.slot.Set && a.slot.Claim == a.tenure.Holder
}

// mayFire reports whether the object's alarm is to run now. An alarm that sets
// itself again at once takes turns with the events that wait and with other
// replicas; one that is due runs before the lease is let go.
func (a *actor) mayFire() bool {
	t := a.tenure
	if t == nil || !a.slot.Set || !t.usable() {
		return false
	}
	if a.claimed() {
		return true
	}
	// An object without a log is an older host's, and a stopping replica begins
	// nothing.
	if !a.head.Exists() || a.rt.stopping() || a.fired && (a.othersWait() || t.mustYield()) {
		return false
	}
	return a.rt.leftBehind(a.slot.Claim) || a.slot.EpochMs <= a.rt.store.Clock().UnixMilli() && !clock.Now().Before(a.notDue)
}

// fire runs the object's alarm under the present lease.
func (a *actor) fire() {
	defer a.settleOffer()
	a.fired = true
	a.closeBatch()
	t := a.tenure
	if t == nil {
		return
	}
	t.setClaim(true) // it may be made though its answer is lost
	if !a.claimed() && !a.claim() {
		t.setClaim(false)
		return
	}
	f := &firing{slot: a.slot.Slot, startedMs: a.rt.store.Clock().UnixMilli()}
	if f.slot.RetryCount > a.rt.cfg.AlarmRetries {
		a.bury(f, fmt.Errorf("%d runs failed or ended with their replica", f.slot.RetryCount))
		return
	}
	ev := a.alarmEvent(f)
	if err := a.sync(ev); err != nil {
		ev.finish(err, nil)
		a.postpone(err)
		return
	}
	a.rt.touch(a)
	failpoint.Hit("object.alarm.before")
	a.dispatch(ev)
	failpoint.Hit("object.alarm.after")
	if ev.err == nil {
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelDebug, events.AlarmFireOK, a.attrs(slog.Duration(events.KeyTook, clock.Since(ev.arrived)), slog.Duration(events.KeyLate, time.Duration(f.startedMs-f.slot.Asked())*time.Millisecond))...)
		return
	}
	a.failed(f, ev.err)
}

// alarmEvent returns the event that runs the alarm. Nobody reads its output.
func (a *actor) alarmEvent(f *firing) *event {
	ev := newEvent(a.rt.ctx, lease.EventAlarm, a.rt.deafGate())
	ev.actor, ev.firing = a, f
	ev.take()
	info := durable.AlarmInfo{Due: time.UnixMilli(f.slot.Asked()), RetryCount: f.slot.RetryCount}
	ev.run = func(ctx context.Context, o durable.Object) error {
		al, ok := o.(durable.Alarmer)
		if !ok {
			return fmt.Errorf("objects of class %s have no alarm", a.class)
		}
		return al.Alarm(ctx, info)
	}
	return ev
}

// claim claims the due alarm under the present lease, which confirms it too.
func (a *actor) claim() bool {
	t, ids := a.tenure, a.rt.givenUpBy(a.class)
	failpoint.Hit("object.claim.before")
	err := a.settle(func(p *kv.Plan) { alarm.AddClaim(p, t.Held, ids) })
	failpoint.Hit("object.claim.after")
	switch {
	case err != nil:
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelWarn, events.AlarmFireLost, a.attrs(slog.Any(events.KeyError, err))...)
		a.letGo()
		return false
	case !a.claimed() && a.slot.Set:
		// This replica's idea of the primary's clock was ahead.
		a.notDue = clock.Now().Add(max(time.Duration(a.slot.EpochMs-a.slot.NowMs), 1) * time.Millisecond)
	}
	return a.claimed()
}

// settle changes the object's alarm under the present lease, which it extends.
// It is repeated as long as the lease is trusted: what it does is guarded by
// lease and claim.
func (a *actor) settle(add func(p *kv.Plan)) error {
	t := a.tenure
	for {
		if !t.usable() {
			return durable.ErrFenced
		}
		p := kv.NewPlan()
		t.Require(p)
		t.AddExtend(p, a.rt.cfg.LeaseTTL)
		add(p)
		show, slot := t.AddShow(p), alarm.AddShow(p, a.class, a.id)
		ctx, cancel := context.WithTimeout(t.ctx, a.rt.cfg.LeaseTTL)
		sent := clock.Now()
		v, err := a.rt.commits.Commit(ctx, p)
		cancel()
		switch {
		case err == nil && !v.OK:
			t.lose()
			return durable.ErrFenced
		case err == nil:
			if info, ok, err := lease.Read(a.class, a.id, v.Results[show]); err == nil && ok {
				t.saw(info, sent, true)
			}
			a.seeSlot(v.Results[slot])
			return nil
		case libsql.OutcomeOf(err) == libsql.Failed:
			return err
		}
		if !pause(t.ctx, rand.N(lastPause)) {
			return errors.Join(durable.ErrFenced, err)
		}
	}
}

// failed writes back an alarm whose run has failed, to be run again later, or
// gives it up. When the lease is gone there is nothing to write: the claim ends
// with it.
func (a *actor) failed(f *firing, why error) {
	if !a.claimed() || f.slot.Claim != a.tenure.Holder {
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelWarn, events.AlarmFireLost, a.attrs(slog.Any(events.KeyError, why))...)
		return
	}
	if f.slot.RetryCount >= a.rt.cfg.AlarmRetries {
		a.bury(f, why)
		return
	}
	wait := a.backoff(f.slot.RetryCount)
	a.back(events.AlarmFireRetry, why, wait, func(p *kv.Plan) {
		f.addHistory(p, a, alarm.OutcomeFailed, why.Error())
		alarm.AddRetry(p, a.tenure.Held, wait)
	})
}

// backoff is the wait before a retry.
func (a *actor) backoff(retries int) time.Duration {
	return min(a.rt.cfg.AlarmBackoff<<min(retries, 20), maxBackoff)
}

// maxBackoff bounds the wait before a retry.
const maxBackoff = 24 * time.Hour

// bury gives an alarm up: it goes to the dead letters.
func (a *actor) bury(f *firing, why error) {
	a.back(events.AlarmFireDead, why, 0, func(p *kv.Plan) {
		f.addHistory(p, a, alarm.OutcomeFailed, why.Error())
		alarm.AddDead(p, a.tenure.Held, why.Error())
	})
}

// postpone writes back an alarm that could not be run, uncounted.
func (a *actor) postpone(why error) {
	wait := a.rt.cfg.AlarmBackoff
	a.back(events.AlarmFireRetry, why, wait, func(p *kv.Plan) { alarm.AddHandBack(p, a.tenure.Held, wait) })
}

// back ends a run without a commit of the object.
func (a *actor) back(name string, why error, wait time.Duration, add func(p *kv.Plan)) {
	level := slog.LevelWarn
	if name == events.AlarmFireDead {
		level = slog.LevelError
	}
	err := a.settle(add)
	failpoint.Hit("object.alarm.settled")
	if err != nil {
		name, why = events.AlarmFireLost, errors.Join(why, err)
		a.letGo()
	} else {
		a.tenure.setClaim(false)
		if wake := a.rt.cfg.WakeAt; wake != nil && wait > 0 {
			wake(a.rt.store.Clock().Add(wait))
		}
	}
	a.rt.log.LogAttrs(a.rt.ctx, level, name, a.attrs(slog.Any(events.KeyError, why))...)
}
