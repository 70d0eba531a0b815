package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/host"
)

func newCron(e *env) *cobra.Command {
	return group("cron", "Schedules and their runs", `Look at schedules and change them. Each occurrence of a schedule is run by one
replica of the fleet; one that a crash cut off is repeated once.`,
		newCronList(e), newCronHistory(e), newCronRun(e), newCronPause(e), newCronResume(e))
}

// cronCommand completes a command whose argument is a schedule.
func cronCommand(e *env, cmd *cobra.Command) *cobra.Command {
	cmd.Args = arguments("NAME")
	cmd.ValidArgsFunction = cronKind(e).complete(e)
	return cmd
}

// onCron is the RunE of a command about one schedule.
func (e *env) onCron(f func(ctx context.Context, name string) error) func(*cobra.Command, []string) error {
	return e.run(func(ctx context.Context, args []string) error {
		if err := cron.CheckName(args[0]); err != nil {
			return usageError{err}
		}
		return f(ctx, args[0])
	})
}

// A schedule is one that a replica with this configuration would run.
type schedule struct {
	name, app string
	options   cron.Options
}

// schedules are those of the mounted applications, and those of the
// configuration whose application this program does not have.
func (e *env) schedules(cfg *config.Config) (list []schedule) {
	for _, app := range e.opts.Apps {
		if !slices.ContainsFunc(cfg.Mounts, func(m config.Mount) bool { return m.App == app.Name }) {
			continue
		}
		for _, c := range app.Crons {
			list = append(list, schedule{c.Name, app.Name, host.ScheduleOptions(cfg, app.Name, c)})
		}
	}
	for _, c := range cfg.Crons {
		if !slices.Contains(scheduleNames(list), c.Name) {
			list = append(list, schedule{c.Name, c.App, cron.Options{Schedule: c.Schedule, Zone: c.Zone, Paused: c.Paused, Allow: c.Overlap == "allow"}})
		}
	}
	return list
}

// brought are the options of the schedules of mounted applications, by name.
func (e *env) brought(cfg *config.Config) map[string]cron.Options {
	out := map[string]cron.Options{}
	for _, s := range e.schedules(cfg) {
		out[s.name] = s.options
	}
	return out
}

func scheduleNames(list []schedule) (names []string) {
	for _, s := range list {
		names = append(names, s.name)
	}
	return names
}

func cronKind(e *env) kind {
	return kind{noun: "schedule", command: "cron", configured: func(cfg *config.Config) []string { return scheduleNames(e.schedules(cfg)) }, stored: cron.Names}
}

// lookCron opens the stores and looks at a schedule that is known.
func (e *env) lookCron(ctx context.Context, name string) (*host.Stores, cronInfo, error) {
	return lookAt(ctx, e, cronKind(e), name, func(ctx context.Context, s *host.Stores) (cronInfo, error) {
		return inspectCron(ctx, s, e.schedules(s.Config), name)
	})
}
