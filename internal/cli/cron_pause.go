package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/host"
)

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

func runCronPause(ctx context.Context, e *env, name string, paused, yes bool) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookCron(call, name)
	if err != nil {
		return err
	}
	defer s.Close()
	p := pausing{
		cronKind(e), name, paused, fmt.Sprintf("Stop schedule %s?", name),
		func(ctx context.Context, s *host.Stores) (bool, error) {
			return true, cron.Pause(ctx, s.KV, name, e.user())
		},
	}
	if !paused {
		p.question = fmt.Sprintf("Go on with schedule %s, paused %s?", name, cronPaused(i))
		p.change = func(ctx context.Context, s *host.Stores) (bool, error) { return cron.Resume(ctx, s.KV, name) }
	}
	return p.run(ctx, e, s, i.Paused, yes)
}
