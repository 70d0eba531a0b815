package audit

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// schedules looks at each schedule that was ever seen, and at its history.
func (a *auditor) schedules(ctx context.Context) error {
	if a.Class != "" {
		return nil // schedules belong to no class
	}
	t := twice[string]{a: a, look: a.lookSchedules}
	err := a.eachName(ctx, cron.PrefixLast, func(name string) error {
		a.sum.Schedules++
		if err := t.first(ctx, []string{name}); err != nil {
			return err
		}
		return a.scheduleRuns(ctx, name)
	})
	if err != nil {
		return err
	}
	return t.flush(ctx)
}

func (a *auditor) lookSchedules(ctx context.Context, names []string) ([][]Finding, error) {
	found := make([][]Finding, len(names))
	for i, name := range names {
		x, ok, err := cron.Examine(ctx, a.Store, name)
		if err != nil {
			return nil, err
		}
		if ok {
			found[i] = a.judgeSchedule(x)
		}
	}
	return found, nil
}

// options are those of a schedule that replicas are configured with, or nil.
func (a *auditor) options(name string) *cron.Options {
	if o, ok := a.Schedules[name]; ok {
		return &o
	}
	return nil
}

func (a *auditor) judgeSchedule(x cron.Examined) (out []Finding) {
	add := func(check string, at int64, format string, args ...any) *Finding {
		out = append(out, Finding{Check: check, Schedule: x.Name, Message: fmt.Sprintf(format, args...), same: fmt.Sprint(at)})
		return &out[len(out)-1]
	}
	o, late := a.options(x.Name), a.Overdue.Milliseconds()
	if at := x.Overdue(x.NowMs, o); at > 0 && x.NowMs-at > late {
		if o == nil {
			add(ScheduleUnknown, at, "the occurrence of %s and those behind it were not begun, and this configuration has no such schedule", instant(at))
		} else {
			add(ScheduleOverdue, at, "the occurrence of %s and those behind it were not begun", instant(at)).Reason = a.whyNotBegun()
		}
	}
	now := 0
	for _, c := range x.Claims {
		switch {
		case c.Until > x.NowMs:
			now++
		case !c.Listed:
			add(ScheduleClaim, c.At, "the run of %s by replica %s was cut off %s ago, and no replica can find it: it is not repeated", instant(c.At), c.Replica, span(x.NowMs-c.Until))
		}
	}
	for _, c := range x.CutOff(x.NowMs - late) {
		if c.Listed && o != nil {
			add(ScheduleClaim, c.At, "the run of %s by replica %s was cut off %s ago, and nobody repeated or closed it", instant(c.At), c.Replica, span(x.NowMs-c.Until)).Reason = a.whyNotBegun()
		}
	}
	if now > 1 && o != nil && !o.Allow {
		add(ScheduleOverlap, 0, "%d runs are under way, and they must not overlap", now)
	}
	if first, n := x.Holes(); n > 0 {
		f := add(ScheduleHistory, first, "the history tells nothing of %d occurrences since %s", n, instant(first))
		f.Count, f.Key = int64(n), tuple.Key{cron.PrefixRun, x.Name, tuple.Millis(first)}
	}
	return out
}

// whyNotBegun says what the stores tell about an occurrence that was not begun.
func (a *auditor) whyNotBegun() string {
	if a.replicas == 0 {
		return "no replica is registered"
	}
	return fmt.Sprintf("replicas are registered: %d; whether one of them has the schedule, the stores do not tell", a.replicas)
}

// scheduleRuns judges how late the runs of a schedule began. Those on request
// have no time at which they were due.
func (a *auditor) scheduleRuns(ctx context.Context, name string) error {
	if a.sinceMs == 0 {
		return nil
	}
	p := punctuality{}
	missed := int64(0)
	for r, err := range cron.Runs(ctx, a.Store, name, cron.History) {
		if err != nil {
			return err
		}
		switch {
		case r.At < a.sinceMs || r.Request:
			continue
		case r.Outcome == cron.Missed:
			missed++
		case r.Outcome == cron.Failed:
			p.failed++
		case r.Outcome == cron.Interrupted:
			p.crashed++
		}
		if r.Attempt == 0 {
			continue
		}
		a.sum.Runs++
		p.runs++
		if r.Attempt > 1 {
			continue // it was due when the one before was cut off
		}
		if late := p.add(r.StartedAt-r.At, a.Overdue); late > 0 {
			err := a.report.add(Finding{
				Check: ScheduleLate, Schedule: name, Message: fmt.Sprintf("the occurrence of %s began %s late", instant(r.At), span(late.Milliseconds())),
				Reason: "replica " + r.Replica + " ran it, outcome " + r.Outcome,
			})
			if err != nil {
				return err
			}
		}
	}
	if p.runs+missed == 0 {
		return nil
	}
	text := fmt.Sprintf("%s, %d missed", p.text(a.sinceMs, "interrupted"), missed)
	return a.report.add(Finding{Check: ScheduleRuns, Schedule: name, Count: p.runs, Message: text})
}
