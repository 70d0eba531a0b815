package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

func newCronList(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List schedules with their next and last run",
		Long: `List the schedules of the mounted applications and those that are in the store,
with their next occurrence, their newest run and who ran it. Times are by the
primary's clock.`,
		Example: `  dwk cron list
  dwk cron list -o json`,
		Args: arguments(),
	}
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runCronList(ctx, e) })
	return cmd
}

// cronInfo is what list shows of a schedule.
type cronInfo struct {
	cron.Info
	// App is the application that brings it, "" when none of this program does.
	App string `json:"app,omitempty"`
	// Configured is true when this configuration says that it is paused.
	Configured bool `json:"paused_by_configuration,omitempty"`
}

func runCronList(ctx context.Context, e *env) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	names, err := cronKind(e).names(ctx, s)
	if err != nil {
		return err
	}
	known := e.schedules(s.Config)
	list := []cronInfo{}
	for _, name := range names {
		i, err := inspectCron(ctx, s, known, name)
		if err != nil {
			return err
		}
		list = append(list, i)
	}
	if e.term.JSON {
		return e.term.WriteJSON(list)
	}
	tb := term.NewTable("NAME", "SCHEDULE", "NEXT", "LAST", "OUTCOME", "BY", "RUNNING", "PAUSED")
	for _, i := range list {
		var last cron.Run
		if i.Last != nil {
			last = *i.Last
		}
		tb.Row(i.Name, scheduleText(i), instant(i.Next), instant(last.StartedAt), last.Outcome, last.Replica, len(i.Running), cronPaused(i))
	}
	return e.term.Table(tb)
}

// inspectCron looks at a schedule. Its next occurrence is that of the
// configuration, or else of the replica that ran it last.
func inspectCron(ctx context.Context, s *host.Stores, known []schedule, name string) (cronInfo, error) {
	info, err := cron.Inspect(ctx, s.KV, name)
	i := cronInfo{Info: info}
	if err != nil {
		return i, err
	}
	for _, k := range known {
		if k.name == name {
			i.App, i.Configured = k.app, k.options.Paused
			if k.options.Schedule != "" {
				i.Schedule, i.Zone = k.options.Schedule, k.options.Zone
			}
		}
	}
	parsed, err := cron.Parse(i.Schedule, i.Zone)
	if err == nil && !i.Paused && !i.Configured {
		if next := parsed.Next(time.UnixMilli(i.NowMs)); !next.IsZero() {
			i.Next = next.UnixMilli()
		}
	}
	return i, nil
}

// scheduleText is an expression, with its zone where that matters.
func scheduleText(i cronInfo) string {
	if i.Zone == "" || i.Zone == "UTC" || strings.HasPrefix(i.Schedule, "@every") {
		return i.Schedule
	}
	return i.Schedule + " " + i.Zone
}

// cronPaused says who paused a schedule, and when.
func cronPaused(i cronInfo) string {
	switch {
	case i.Paused && i.PausedAt != 0:
		return "by " + i.PausedBy + " at " + instant(i.PausedAt)
	case i.Paused:
		return "yes"
	case i.Configured:
		return "by configuration"
	default:
		return ""
	}
}
