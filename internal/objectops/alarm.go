package objectops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// An AlarmState is an object's alarm as it is stored.
type AlarmState struct {
	alarm.Shown
	// Dead is the alarm that was given up last, or nil.
	Dead *alarm.Dead
}

// Nothing reports whether there is no alarm, neither pending nor given up.
func (s AlarmState) Nothing() bool { return !s.Set && s.Dead == nil }

// An AlarmChange is what an operator wants of the alarm of one object.
type AlarmChange struct {
	Class, ID string
	// Wait is how long to wait for the object's lease: for the end of what runs.
	Wait time.Duration
	// Expect, unless it is nil, is what the change was decided on: something else
	// is left alone.
	Expect *AlarmState
}

// An AlarmChanged is what there was before a change, and what there is now.
type AlarmChanged struct{ Before, After AlarmState }

// SetAlarm sets the alarm of an object to a time, as the object itself would,
// but under a lease of the operator's. It returns what was there.
//
// This and the other changes of alarms fail for an object that does not exist:
// nobody would run its alarm. When they fail nothing was changed, unless the
// error wraps [durable.ErrUnknownOutcome].
func (o *Ops) SetAlarm(ctx context.Context, c AlarmChange, at time.Time) (AlarmChanged, error) {
	if err := alarm.Check(at); err != nil {
		return AlarmChanged{}, err
	}
	return o.changeAlarm(ctx, c, func(AlarmState) (alarmEdit, error) {
		return alarmEdit{
			add: func(p *kv.Plan) { alarm.AddSet(p, c.Class, c.ID, at) },
			done: func(s AlarmState) bool {
				return s.Set && s.Asked() == at.UnixMilli() && s.RetryCount == 0 && s.Claim == ""
			},
		}, nil
	})
}

// SetAlarmIn sets the alarm of an object to a time from now, by the primary's
// clock.
func (o *Ops) SetAlarmIn(ctx context.Context, c AlarmChange, d time.Duration) (AlarmChanged, error) {
	now, err := o.Store.Now(ctx)
	if err != nil {
		return AlarmChanged{}, fmt.Errorf("set alarm of %s/%s: %w", c.Class, c.ID, err)
	}
	return o.SetAlarm(ctx, c, now.Add(d))
}

// CancelAlarm removes the pending alarm of an object. What was given up stays.
func (o *Ops) CancelAlarm(ctx context.Context, c AlarmChange) (AlarmChanged, error) {
	return o.changeAlarm(ctx, c, func(s AlarmState) (alarmEdit, error) {
		if !s.Set {
			return alarmEdit{}, notFound("object %s/%s has no alarm", c.Class, c.ID)
		}
		return alarmEdit{
			add:  func(p *kv.Plan) { alarm.AddClear(p, c.Class, c.ID) },
			done: func(s AlarmState) bool { return !s.Set },
		}, nil
	})
}

// RetryAlarm has the alarm of an object run now, as if it had not been run yet:
// the pending one, or else the one that was given up. Its dead letter is
// removed.
func (o *Ops) RetryAlarm(ctx context.Context, c AlarmChange) (AlarmChanged, error) {
	return o.changeAlarm(ctx, c, func(s AlarmState) (alarmEdit, error) {
		var asked int64
		switch {
		case s.Set:
			asked = s.Asked()
		case s.Dead != nil:
			asked = s.Dead.Due
		default:
			return alarmEdit{}, notFound("object %s/%s has no alarm, neither pending nor given up", c.Class, c.ID)
		}
		return alarmEdit{
			add: func(p *kv.Plan) {
				alarm.AddAgain(p, c.Class, c.ID, asked)
				p.Delete(alarm.DeadKey(c.Class, c.ID))
			},
			done: func(s AlarmState) bool { return s.Due() && s.Dead == nil && s.RetryCount == 0 && s.Claim == "" },
		}, nil
	})
}

// An alarmEdit is a change of an alarm: what it adds to a plan, and how it is
// told that it was made.
type alarmEdit struct {
	add  func(p *kv.Plan)
	done func(AlarmState) bool
}

// changeAlarm makes a change under the object's lease.
func (o *Ops) changeAlarm(ctx context.Context, c AlarmChange, edit func(AlarmState) (alarmEdit, error)) (out AlarmChanged, err error) {
	t, err := o.take(ctx, c.Class, c.ID, c.Wait)
	if err != nil {
		return out, err
	}
	defer t.end()
	if !t.head.Exists() {
		return out, o.absent(c.Class, c.ID, t.head)
	}
	if out.Before, err = o.AlarmState(t.ctx, c.Class, c.ID); err != nil {
		return out, t.why(err)
	}
	if e := c.Expect; e != nil && !e.same(out.Before) {
		return out, fmt.Errorf("%w: the alarm of %s/%s", ErrChanged, c.Class, c.ID)
	}
	change, err := edit(out.Before)
	if err != nil {
		return out, err
	}
	out.After, err = t.changeAlarm(change, out.Before)
	return out, err
}

// same reports whether the alarm is what it was. The time of a claim moves.
func (s AlarmState) same(other AlarmState) bool {
	a, b := s.Slot, other.Slot
	if a.Claim != "" && a.Claim == b.Claim {
		a.EpochMs = b.EpochMs
	}
	return s.Set == other.Set && a.EpochMs == b.EpochMs && a.Asked() == b.Asked() && a.RetryCount == b.RetryCount && a.Claim == b.Claim &&
		(s.Dead == nil) == (other.Dead == nil) && (s.Dead == nil || *s.Dead == *other.Dead)
}

// changeAlarm commits a change. After a lost answer the lease is not used again:
// a new one fences whatever may still arrive, and the alarm tells whether the
// change was made.
func (t *tenure) changeAlarm(change alarmEdit, before AlarmState) (AlarmState, error) {
	what := func(err error) error { return fmt.Errorf("change alarm of %s/%s: %w", t.class, t.id, err) }
	if err := t.ctx.Err(); err != nil {
		return before, t.why(err)
	}
	p := kv.NewPlan()
	t.held.Require(p)
	change.add(p)
	show := addAlarmState(p, t.class, t.id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), callTime)
	defer cancel()
	v, err := t.o.Store.Commit(ctx, p)
	switch {
	case err == nil && v.OK:
		return readAlarmState(t.class, t.id, v.Results[show:])
	case err == nil:
		return before, what(durable.ErrFenced)
	case errors.Is(err, kv.ErrNoVerdict), libsql.OutcomeOf(err) != libsql.Unknown:
		return before, what(err)
	}
	after, found := t.alarmAgain()
	switch {
	case found && change.done(after):
		return after, nil
	case found && before.same(after):
		return before, what(fmt.Errorf("it was not made: %w", err))
	}
	return before, what(fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, err))
}

// alarmAgain gives the lease up, takes it anew and reads the alarm.
func (t *tenure) alarmAgain() (AlarmState, bool) {
	t.givenUp = append(t.givenUp, t.stop().Holder)
	ctx, cancel := context.WithTimeout(t.parent, resolveTime)
	defer cancel()
	for {
		if a, err := t.attempt(ctx, 0); err == nil && a.taken {
			if s, err := t.o.AlarmState(ctx, t.class, t.id); err == nil {
				return s, true
			}
		} else if err == nil && a.hasLive {
			return AlarmState{}, false // somebody works on the object: it may have run
		}
		if pause(ctx, lastPause) != nil {
			return AlarmState{}, false
		}
	}
}

// AlarmState reads the alarm of one object.
func (o *Ops) AlarmState(ctx context.Context, class, id string) (AlarmState, error) {
	res, err := o.Store.Decide(ctx, alarm.ShowStatement(class, id), deadStatement(class, id))
	if err != nil {
		return AlarmState{}, fmt.Errorf("read alarm of %s/%s: %w", class, id, err)
	}
	return readAlarmState(class, id, res)
}

func deadStatement(class, id string) libsql.Statement {
	return libsql.S(`SELECT v FROM kv WHERE k = ? AND `+kv.Live, alarm.DeadKey(class, id))
}

// addAlarmState adds the reading of an alarm to a plan, and returns the first of
// its results.
func addAlarmState(p *kv.Plan, class, id string) int {
	first := alarm.AddShow(p, class, id)
	dead := deadStatement(class, id)
	p.Add(dead.SQL, dead.Args...)
	return first
}

func readAlarmState(class, id string, res []libsql.Result) (s AlarmState, err error) {
	if s.Shown, err = alarm.Read(class, id, res[0]); err != nil {
		return s, err
	}
	if len(res[1].Rows) > 0 {
		text, _ := res[1].Rows[0][0].(string)
		s.Dead = &alarm.Dead{}
		if err := json.Unmarshal([]byte(text), s.Dead); err != nil {
			return s, fmt.Errorf("dead letter of %s/%s: %w", class, id, err)
		}
	}
	return s, nil
}
