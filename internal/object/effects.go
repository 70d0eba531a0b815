package object

import (
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
)

// Effects are what an event asks for beside its writes. They become durable
// with them.
type effects struct {
	alarm *alarmChange
	sends []queue.Outgoing
	// sendBytes is the size of the bodies.
	sendBytes int
}

// What one event may send.
const (
	maxSends     = 1000
	maxSendBytes = 4 << 20
)

// addSends adds messages to what the event sends.
func (e *effects) addSends(msgs []queue.Outgoing) error {
	size := e.sendBytes
	for _, m := range msgs {
		size += len(m.Body)
	}
	if len(e.sends)+len(msgs) > maxSends || size > maxSendBytes {
		return fmt.Errorf("%w: an event sends at most %d messages and %d bytes", durable.ErrTooLarge, maxSends, maxSendBytes)
	}
	e.sends, e.sendBytes = append(e.sends, msgs...), size
	return nil
}

// An alarmChange is what an event does to its object's alarm.
type alarmChange struct {
	// at is the new time or, when relative, after the time from the commit; with
	// neither the alarm is deleted.
	at       time.Time
	after    time.Duration
	relative bool
}

func (c alarmChange) deletes() bool { return !c.relative && c.at.IsZero() }

// time is when the alarm will be due if the commit is made now.
func (c alarmChange) time(now time.Time) time.Time {
	if c.relative {
		return now.Add(c.after)
	}
	return c.at
}

func (c alarmChange) add(p *kv.Plan, class, id string) {
	switch {
	case c.deletes():
		alarm.AddClear(p, class, id)
	case c.relative:
		alarm.AddSetIn(p, class, id, c.after)
	default:
		alarm.AddSet(p, class, id, c.at)
	}
}

// changes reports whether the event has anything to commit beside its writes.
// The run of an alarm has: it ends the alarm.
func (e *event) changes() bool {
	return e.alarm != nil || len(e.sends) > 0 || e.firing != nil || e.hold || e.wake
}

// committed forgets what a flush has made durable. A running alarm is cleared or
// replaced by its last commit only.
func (e *event) committed() {
	e.sends, e.sendBytes = nil, 0
	if e.firing == nil {
		e.alarm = nil
	}
}

// changes reports whether the events have anything to commit beside their
// writes.
func (b batch) changes() bool {
	for _, ev := range b.events {
		if ev.changes() {
			return true
		}
	}
	return false
}

// flushes is changes for a flush, which does not end a running alarm.
func (b batch) flushes() bool {
	for _, ev := range b.events {
		if len(ev.sends) > 0 || ev.alarm != nil && ev.firing == nil || ev.hold || ev.wake {
			return true
		}
	}
	return false
}

// A sum is what a commit does beside its pages.
type sum struct {
	effects
	// fired is the run of an alarm that the commit ends.
	fired *firing
	// hold and wake are about sockets; see socketEffects. Accepts is set when a
	// socket's acceptance is among the reasons for hold.
	hold, wake, accepts bool
}

// sum adds up the effects of a batch, for its last commit or an earlier one.
func (b batch) sum(last bool) sum {
	var s sum
	for _, ev := range b.events {
		s.sends = append(s.sends, ev.sends...)
		s.hold, s.wake, s.accepts = s.hold || ev.hold, s.wake || ev.wake, s.accepts || ev.hold && ev.accepted
		switch {
		case ev.firing == nil && ev.alarm != nil:
			s.alarm = ev.alarm
		case ev.firing != nil && last:
			s.fired, s.alarm = ev.firing, ev.alarm
			if s.alarm == nil {
				s.alarm = &alarmChange{}
			}
		}
	}
	return s
}

// add adds the effects to a commit's plan and returns the result that shows the
// object's alarm after it, or -1.
func (s sum) add(p *kv.Plan, a *actor) int {
	queue.AddSend(p, s.sends)
	if s.hold {
		holders.AddHold(p, a.class, a.id, a.rt.cfg.Replica, a.socks.len(), a.rt.cfg.HoldTTL)
	}
	if s.wake {
		holders.AddMark(p, a.class, a.id, a.rt.cfg.Replica)
	}
	if s.fired != nil {
		s.fired.addHistory(p, a, alarm.OutcomeOK, "")
	}
	if s.alarm == nil {
		return -1
	}
	s.alarm.add(p, a.class, a.id)
	return alarm.AddShow(p, a.class, a.id)
}

// firesBehind reports whether the object's alarm will be due behind a commit,
// and is to run under the same lease.
func (a *actor) firesBehind(s sum) bool {
	if a.rt.stopping() || a.fired && a.tenure.mustYield() {
		return false
	}
	now := a.rt.store.Clock()
	if s.alarm != nil {
		return !s.alarm.deletes() && !s.alarm.time(now).After(now)
	}
	return a.slot.Set && a.head.Exists() && (a.rt.leftBehind(a.slot.Claim) || a.slot.EpochMs <= now.UnixMilli())
}

// applied tells the poller what the commit has made to do.
func (s sum) applied(a *actor, began time.Time) {
	if s.hold {
		a.rt.holds.stored(a, began, !s.accepts)
	}
	if a.tenure != nil && s.fired != nil {
		a.tenure.setClaim(false)
	}
	wake := a.rt.cfg.WakeAt
	if wake == nil {
		return
	}
	now := a.rt.store.Clock()
	if s.alarm != nil && !s.alarm.deletes() {
		wake(s.alarm.time(now))
	}
	for _, m := range s.sends {
		wake(now.Add(time.Duration(m.DelayMs) * time.Millisecond))
	}
}

// seeSlot takes the object's alarm from a result.
func (a *actor) seeSlot(r libsql.Result) {
	if s, err := alarm.Read(a.class, a.id, r); err == nil {
		a.slot, a.notDue = s, time.Time{}
	}
}

// SetAlarm implements durable.State.
func (s *state) SetAlarm(t time.Time) error {
	if err := alarm.Check(t); err != nil {
		return err
	}
	if t.IsZero() {
		t = time.Unix(0, 0) // long ago, like any other time in the past
	}
	return s.changeAlarm(alarmChange{at: t})
}

// SetAlarmIn implements durable.State.
func (s *state) SetAlarmIn(d time.Duration) error {
	if err := alarm.Check(s.Now().Add(d)); err != nil {
		return err
	}
	return s.changeAlarm(alarmChange{after: max(0, d), relative: true})
}

// DeleteAlarm implements durable.State.
func (s *state) DeleteAlarm() error { return s.changeAlarm(alarmChange{}) }

func (s *state) changeAlarm(c alarmChange) error {
	s.i.calls.Lock()
	defer s.i.calls.Unlock()
	ev, err := s.i.running()
	if err != nil {
		return err
	}
	if _, ok := s.i.object.(durable.Alarmer); !ok && s.i.object != nil && !c.deletes() {
		return fmt.Errorf("objects of class %s have no alarm: %w", s.i.a.class, durable.ErrInvalid)
	}
	if _, set := s.i.a.alarmIn(ev); c.deletes() && !set && ev.alarm == nil && ev.firing == nil {
		return nil // there is nothing to commit
	}
	ev.alarm = &c
	return nil
}

// Alarm implements durable.State.
func (s *state) Alarm() (time.Time, bool) {
	s.i.calls.Lock()
	defer s.i.calls.Unlock()
	ev, err := s.i.running()
	if err != nil {
		return time.Time{}, false
	}
	return s.i.a.alarmIn(ev)
}

// alarmIn is the object's alarm as a running event sees it: with what it and the
// events of its batch have changed. Its own run is no alarm.
func (a *actor) alarmIn(ev *event) (time.Time, bool) {
	last := ev.alarm
	for i := len(a.batch.events) - 1; i >= 0 && last == nil; i-- {
		last = a.batch.events[i].alarm
	}
	switch {
	case last != nil && last.deletes(), last == nil && (ev.firing != nil || !a.slot.Set):
		return time.Time{}, false
	case last != nil:
		return last.time(a.rt.store.Clock()), true
	case a.slot.Claim == "" && a.slot.RetryCount > 0:
		return time.UnixMilli(a.slot.EpochMs), true
	}
	return time.UnixMilli(a.slot.Asked()), true
}
