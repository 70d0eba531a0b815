package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

// alarmShownJSON is the alarm of one object in full.
type alarmShownJSON struct {
	Class string `json:"class"`
	ID    string `json:"id"`
	// Exists is false for an object that has no log: its alarm is never run.
	Exists bool           `json:"exists"`
	Alarm  *alarmJSON     `json:"alarm"`
	Dead   *deadAlarmJSON `json:"dead"`
	Lease  *leaseJSON     `json:"lease"`
	Runs   []alarmRunJSON `json:"runs"`
	Now    int64          `json:"now"`
}

// alarmRunJSON is one run of an alarm.
type alarmRunJSON struct {
	StartedAt  int64  `json:"started_at"`
	FinishedAt *int64 `json:"finished_at"`
	Asked      int64  `json:"asked"`
	Replica    string `json:"replica"`
	Outcome    string `json:"outcome"`
	Error      string `json:"error,omitempty"`
}

func newAlarmShow(e *env) *cobra.Command {
	var o objectFlags
	cmd := &cobra.Command{
		Use:   "show CLASS ID",
		Short: "Show the alarm of one object and its last runs",
		Long: `Show the alarm of one object: when it is due and who runs it, the one that was
given up last, who holds the object's lease, and the last 20 runs of 7 days. Exits
3 when there is none of it.`,
		Example: `  dwk alarm show Counter --name front-page
  dwk alarm show Counter 0a -o json`,
	}
	o.register(e, cmd)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		return runAlarmShow(ctx, e, o)
	})
	return cmd
}

func runAlarmShow(ctx context.Context, e *env, o objectFlags) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	i, err := s.Alarm(ctx, o.class, o.id)
	if err != nil {
		return err
	}
	if e.term.JSON {
		return e.term.WriteJSON(alarmInfoAsJSON(o, i))
	}
	return showAlarm(e.term, o, i)
}

// claimer is the replica that runs the alarm.
func claimer(i objectops.AlarmInfo) string {
	if i.Held && i.Lease.Holder == i.Claim {
		return i.Lease.Replica
	}
	return ""
}

func alarmInfoAsJSON(o objectFlags, i objectops.AlarmInfo) alarmShownJSON {
	j := alarmShownJSON{Class: o.class, ID: o.id, Exists: i.Head.Exists(), Runs: []alarmRunJSON{}, Now: i.NowMs}
	if i.Set {
		a := alarmAsJSON(i.Slot, claimer(i), i.NowMs)
		j.Alarm = &a
	}
	if i.Dead != nil {
		d := deadAlarmAsJSON(*i.Dead)
		j.Dead = &d
	}
	if i.Held {
		l := leaseAsJSON(i.Lease)
		j.Lease = &l
	}
	for _, r := range i.Runs {
		j.Runs = append(j.Runs, alarmRunJSON{r.StartedMs, optional(r.FinishedAt), r.Due, r.Replica, r.Outcome, r.Error})
	}
	return j
}

func showAlarm(t *term.Term, o objectFlags, i objectops.AlarmInfo) error {
	tb := term.NewTable()
	tb.Row("object", o.class+"/"+o.id)
	if !i.Head.Exists() {
		tb.Row("note", term.Cell{Text: "there is no such object: its alarm is kept and never run", Tone: term.Warn})
	}
	showPending(tb, i.AlarmState, claimer(i), i.NowMs)
	if i.Held {
		tb.Row("lease", meaning(i.Lease))
	}
	if err := t.Table(tb); err != nil || len(i.Runs) == 0 {
		return err
	}
	runs := term.NewTable("BEGAN", "ASKED FOR", "LATE", "OUTCOME", "REPLICA", "ERROR")
	for _, r := range i.Runs {
		tone := term.Good
		if r.Outcome != "ok" {
			tone = term.Bad
		}
		runs.Row(instant(r.StartedMs), instant(r.Due), ageOf(r.StartedMs, r.Due), term.Cell{Text: r.Outcome, Tone: tone}, r.Replica, term.Cut(r.Error, tableValue))
	}
	return t.Table(runs)
}

// showPending adds an alarm and the one that was given up to a table.
func showPending(tb *term.Table, s objectops.AlarmState, replica string, nowMs int64) {
	if s.Set {
		j := alarmAsJSON(s.Slot, replica, nowMs)
		tb.Row("at", spaced(instant(j.At), dueText(j), ""))
		if j.Asked != j.At {
			tb.Row("asked for", instant(j.Asked))
		}
		if j.Retries > 0 {
			tb.Row("retries", j.Retries)
		}
		if j.Claim != "" {
			tb.Row("claimed by", claimText(j.Claim, replica))
		}
	} else {
		tb.Row("at", "no alarm")
	}
	if d := s.Dead; d != nil {
		tb.Row("given up", instant(d.DiedAt))
		tb.Row("of", instant(d.Due))
		tb.Row("retries", d.RetryCount)
		tb.Row("error", d.Error)
	}
}
