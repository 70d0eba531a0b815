package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/term"
)

type alarmListOptions struct {
	class string
	dead  bool
	limit int
}

// alarmOfJSON is a pending alarm of a list, and deadAlarmOfJSON one that was
// given up.
type (
	alarmOfJSON struct {
		Class string `json:"class"`
		ID    string `json:"id"`
		alarmJSON
	}
	deadAlarmOfJSON struct {
		Class string `json:"class"`
		ID    string `json:"id"`
		deadAlarmJSON
	}
)

func newAlarmList(e *env) *cobra.Command {
	var o alarmListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List pending alarms, or those that were given up",
		Long: `List pending alarms by class, what is due first before what is due later: when it
is due, how often it was tried, and who runs it. With --dead list those that were
given up, and why. Times are by the primary's clock.`,
		Example: `  dwk alarm list
  dwk alarm list --class Counter --limit 0 -o json
  dwk alarm list --dead`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.StringVar(&o.class, "class", "", "only alarms of objects of this `CLASS`")
	f.BoolVar(&o.dead, "dead", false, "those that were given up instead")
	f.IntVar(&o.limit, "limit", defaultListLimit, "at most `N` alarms; 0 is all")
	must(cmd.RegisterFlagCompletionFunc("class", e.classes(true)))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		if o.limit < 0 {
			return usagef("--limit must not be negative")
		}
		return runAlarmList(ctx, e, o)
	})
	return cmd
}

func runAlarmList(ctx context.Context, e *env, o alarmListOptions) error {
	bound := e.bound
	if o.limit == 0 {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	l := alarmLister{e: e, out: e.term.Array(), limit: o.limit}
	if o.dead {
		err = l.dead(ctx, s, o.class)
	} else {
		err = l.pending(ctx, s, o.class)
	}
	if err != nil {
		return err
	}
	if e.term.JSON {
		return l.out.Close()
	}
	return e.term.Table(l.tb)
}

// An alarmLister writes a list of alarms.
type alarmLister struct {
	e        *env
	tb       *term.Table
	out      *term.Array
	limit, n int
}

// more counts one alarm, and reports whether it is to be shown.
func (l *alarmLister) more() bool {
	if l.n++; l.limit > 0 && l.n > l.limit {
		l.e.term.Notef("there are more alarms than %d: see --limit", l.limit)
		return false
	}
	return true
}

// read is how many alarms to read, to tell whether there are more.
func (l *alarmLister) read() int {
	if l.limit == 0 {
		return 0
	}
	return l.limit + 1
}

func (l *alarmLister) pending(ctx context.Context, s *objectStores, class string) error {
	l.tb = term.NewTable("CLASS", "ID", "AT", "DUE", "RETRIES", "CLAIMED BY")
	for a, err := range s.Alarms(ctx, class, l.read()) {
		if err != nil {
			return err
		}
		if !l.more() {
			break
		}
		j := alarmAsJSON(a.Slot, a.Replica, a.NowMs)
		if l.e.term.JSON {
			if err := l.out.Add(alarmOfJSON{a.Class, a.ID, j}); err != nil {
				return err
			}
			continue
		}
		l.tb.Row(a.Class, a.ID, instant(a.EpochMs), dueText(j), a.RetryCount, claimText(a.Claim, a.Replica))
	}
	return nil
}

func (l *alarmLister) dead(ctx context.Context, s *objectStores, class string) error {
	l.tb = term.NewTable("CLASS", "ID", "ASKED FOR", "GIVEN UP", "RETRIES", "ERROR")
	for d, err := range s.DeadAlarms(ctx, class, l.read()) {
		if err != nil {
			return err
		}
		if !l.more() {
			break
		}
		if l.e.term.JSON {
			if err := l.out.Add(deadAlarmOfJSON{d.Class, d.ID, deadAlarmAsJSON(d.Dead)}); err != nil {
				return err
			}
			continue
		}
		l.tb.Row(d.Class, d.ID, instant(d.Due), instant(d.DiedAt), d.RetryCount, term.Cut(d.Error, tableValue))
	}
	return nil
}
