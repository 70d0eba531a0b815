package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

// alarmChangedJSON is what set, cancel and retry write.
type alarmChangedJSON struct {
	// Changed is "set", "cancelled" or "retried".
	Changed string         `json:"changed"`
	Class   string         `json:"class"`
	ID      string         `json:"id"`
	Before  *alarmJSON     `json:"before"`
	Alarm   *alarmJSON     `json:"alarm"`
	Dead    *deadAlarmJSON `json:"dead"`
}

// An alarmChange is a command that changes the alarm of an object.
type alarmChange struct {
	objectFlags
	yes  bool
	wait optionalDuration
	// done says what was done, and question asks for it.
	done     string
	question func(objectops.AlarmState) string
	do       func(context.Context, *objectops.Ops, objectops.AlarmChange) (objectops.AlarmChanged, error)
}

func (o *alarmChange) register(e *env, cmd *cobra.Command, check func() error) *cobra.Command {
	o.objectFlags.register(e, cmd)
	waitFlag(cmd, &o.wait)
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		return o.run(ctx, e)
	})
	return cmd
}

func newAlarmSet(e *env) *cobra.Command {
	var at timeFlag
	var in optionalDuration
	o := &alarmChange{done: "set"}
	cmd := &cobra.Command{
		Use:   "set CLASS ID",
		Short: "Set the alarm of an object",
		Long: `Set the alarm of an object to a time, or so long from now by the primary's clock,
in place of the one that is pending. Exits 3 when there is no such object: nobody
would run its alarm.`,
		Example: `  dwk alarm set Counter --name front-page --in 10m
  dwk alarm set Counter 0a --at 2006-01-02T15:04:05Z --yes`,
	}
	cmd.Flags().Var(&at, "at", "a time such as 2006-01-02T15:04:05Z")
	cmd.Flags().Var(&in, "in", "so long from now")
	o.question = func(s objectops.AlarmState) string {
		when := "in " + in.d.String()
		if at.set {
			when = "at " + instant(at.at.UnixMilli())
		}
		return fmt.Sprintf("Set the alarm of %s/%s %s? %s", o.class, o.id, when, isNow(s))
	}
	o.do = func(ctx context.Context, ops *objectops.Ops, c objectops.AlarmChange) (objectops.AlarmChanged, error) {
		if at.set {
			return ops.SetAlarm(ctx, c, at.at)
		}
		return ops.SetAlarmIn(ctx, c, in.d)
	}
	return o.register(e, cmd, func() error {
		if at.set == in.set {
			return usagef("one of --at and --in is needed")
		}
		return nil
	})
}

func newAlarmCancel(e *env) *cobra.Command {
	o := &alarmChange{done: "cancelled"}
	cmd := &cobra.Command{
		Use:   "cancel CLASS ID",
		Short: "Remove the pending alarm of an object",
		Long: `Remove the pending alarm of an object. One that was given up stays where it is.
Exits 3 when there is none.`,
		Example: `  dwk alarm cancel Counter 0a --yes`,
	}
	o.question = func(s objectops.AlarmState) string {
		return fmt.Sprintf("Remove the alarm of %s/%s? %s", o.class, o.id, isNow(s))
	}
	o.do = func(ctx context.Context, ops *objectops.Ops, c objectops.AlarmChange) (objectops.AlarmChanged, error) {
		return ops.CancelAlarm(ctx, c)
	}
	return o.register(e, cmd, func() error { return nil })
}

func newAlarmRetry(e *env) *cobra.Command {
	o := &alarmChange{done: "retried"}
	cmd := &cobra.Command{
		Use:   "retry CLASS ID",
		Short: "Have the alarm of an object run now",
		Long: `Have the alarm of an object run now, with all its retries before it: the pending
one, or else the one that was given up, whose dead letter is removed. Its handler
sees the time that was asked for. Exits 3 when there is none.`,
		Example: `  dwk alarm list --dead
  dwk alarm retry Counter 0a --yes`,
	}
	o.question = func(s objectops.AlarmState) string {
		return fmt.Sprintf("Have the alarm of %s/%s run now? %s", o.class, o.id, isNow(s))
	}
	o.do = func(ctx context.Context, ops *objectops.Ops, c objectops.AlarmChange) (objectops.AlarmChanged, error) {
		return ops.RetryAlarm(ctx, c)
	}
	return o.register(e, cmd, func() error { return nil })
}

// isNow says what there is before a change.
func isNow(s objectops.AlarmState) string {
	switch {
	case s.Set:
		return "It is at " + instant(s.EpochMs) + "."
	case s.Dead != nil:
		return "It was given up at " + instant(s.Dead.DiedAt) + ": " + term.Cut(s.Dead.Error, tableValue)
	}
	return "There is none."
}

func (o *alarmChange) run(ctx context.Context, e *env) error {
	call, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(call, true)
	if err != nil {
		return err
	}
	defer s.Close()
	change := objectops.AlarmChange{Class: o.class, ID: o.id, Wait: o.wait.d}
	if !o.yes {
		now, err := s.AlarmState(call, o.class, o.id)
		if err != nil {
			return err
		}
		change.Expect = &now
		if err := e.confirm(ctx, false, "%s", o.question(now)); err != nil {
			return err
		}
	}
	call, cancel = e.boundIfAsked(ctx)
	defer cancel()
	out, err := o.do(call, s.Ops, change)
	if err != nil {
		return alarmHint(err, o.objectFlags)
	}
	return o.show(e.term, out)
}

func (o *alarmChange) show(t *term.Term, out objectops.AlarmChanged) error {
	if t.JSON {
		j := alarmChangedJSON{Changed: o.done, Class: o.class, ID: o.id}
		if out.Before.Set {
			a := alarmAsJSON(out.Before.Slot, "", out.Before.NowMs)
			j.Before = &a
		}
		if out.After.Set {
			a := alarmAsJSON(out.After.Slot, "", out.After.NowMs)
			j.Alarm = &a
		}
		if out.After.Dead != nil {
			d := deadAlarmAsJSON(*out.After.Dead)
			j.Dead = &d
		}
		return t.WriteJSON(j)
	}
	tb := term.NewTable()
	tb.Row(o.done, o.class+"/"+o.id)
	if out.Before.Set {
		tb.Row("before", instant(out.Before.EpochMs))
	}
	showPending(tb, out.After, "", out.After.NowMs)
	return t.Table(tb)
}

// timeFlag is a time on the command line.
type timeFlag struct {
	at  time.Time
	set bool
}

func (f *timeFlag) String() string {
	if f == nil || !f.set {
		return ""
	}
	return f.at.Format(time.RFC3339)
}

func (f *timeFlag) Set(text string) (err error) {
	if f.at, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("must be a time such as 2006-01-02T15:04:05Z")
	}
	f.set = true
	return nil
}

func (f *timeFlag) Type() string { return "TIME" }
