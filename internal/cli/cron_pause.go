package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/term"
)

// pausedCron is what pause and resume write.
type pausedCron struct {
	Schedule string `json:"schedule"`
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"`
}

func newCronPause(e *env) *cobra.Command {
	var yes bool
	cmd := cronCommand(e, &cobra.Command{
		Use:   "pause NAME",
		Short: "Stop a schedule in the whole fleet",
		Long: `Stop a schedule in the whole fleet, until dwk cron resume. A run that is under way
is finished. What occurs meanwhile is not run and not made up for later; dwk cron
run runs it nevertheless.`,
		Example: `  dwk cron pause every-five --yes`,
	})
	yesFlag(cmd, &yes)
	cmd.RunE = e.onCron(func(ctx context.Context, name string) error { return runCronPause(ctx, e, name, true, yes) })
	return cmd
}

func newCronResume(e *env) *cobra.Command {
	var yes bool
	cmd := cronCommand(e, &cobra.Command{
		Use:     "resume NAME",
		Short:   "Go on with a schedule",
		Long:    `Go on with a schedule that dwk cron pause has stopped, at its next occurrence.`,
		Example: `  dwk cron resume every-five --yes`,
	})
	yesFlag(cmd, &yes)
	cmd.RunE = e.onCron(func(ctx context.Context, name string) error { return runCronPause(ctx, e, name, false, yes) })
	return cmd
}

// runCronPause pauses or resumes a schedule.
func runCronPause(ctx context.Context, e *env, name string, paused, yes bool) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookCron(call, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if i.Paused == paused {
		return showCronPaused(e.term, pausedCron{name, paused, false})
	}
	if paused {
		err = e.confirm(ctx, yes, "Stop schedule %s?", name)
	} else {
		err = e.confirm(ctx, yes, "Go on with schedule %s, paused %s?", name, cronPaused(i))
	}
	if err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	changed := true
	if paused {
		err = cron.Pause(call, s.KV, name, e.user())
	} else {
		changed, err = cron.Resume(call, s.KV, name)
	}
	if err != nil {
		return err
	}
	return showCronPaused(e.term, pausedCron{name, paused, changed})
}

func showCronPaused(t *term.Term, p pausedCron) error {
	if t.JSON {
		return t.WriteJSON(p)
	}
	tb := term.NewTable()
	tb.Row("schedule", p.Schedule)
	switch {
	case p.Paused && p.Changed:
		tb.Row("paused", "yes, from now on")
	case p.Paused:
		tb.Row("paused", "yes, it was before")
	case p.Changed:
		tb.Row("paused", "no more")
	default:
		tb.Row("paused", "no, it was not")
	}
	return t.Table(tb)
}
