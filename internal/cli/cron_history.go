package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/term"
)

const defaultHistoryLimit = 20

func newCronHistory(e *env) *cobra.Command {
	var limit int
	cmd := cronCommand(e, &cobra.Command{
		Use:   "history NAME",
		Short: "List the runs of a schedule, newest first",
		Long: `List the runs of a schedule, newest occurrence first, and the occurrences that
were not run: skipped because the run before was under way, or missed because no
replica was there. The newest 1,000 are kept, for 30 days. An occurrence whose run
was interrupted has a second attempt.`,
		Example: `  dwk cron history every-five
  dwk cron history every-five --limit 0 -o json`,
	})
	cmd.Flags().IntVar(&limit, "limit", defaultHistoryLimit, "at most `N` runs; 0 is all")
	cmd.RunE = e.onCron(func(ctx context.Context, name string) error {
		if limit < 0 {
			return usagef("--limit must not be negative")
		}
		return runCronHistory(ctx, e, name, limit)
	})
	return cmd
}

func runCronHistory(ctx context.Context, e *env, name string, limit int) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, _, err := e.lookCron(ctx, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if limit == 0 || limit > cron.History {
		limit = cron.History
	}
	list := []cron.Run{}
	for r, err := range cron.Runs(ctx, s.KV, name, limit+1) { // one more tells whether there are more
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	if len(list) > limit {
		list = list[:limit]
		if limit < cron.History {
			e.term.Notef("there are more runs than %d: see --limit", limit)
		}
	}
	if e.term.JSON {
		return e.term.WriteJSON(list)
	}
	tb := term.NewTable("OCCURRENCE", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "BY", "ERROR")
	for _, r := range list {
		took := ""
		if r.StartedAt > 0 && r.FinishedAt > 0 {
			took = short(time.Duration(r.FinishedAt-r.StartedAt) * time.Millisecond)
		}
		tb.Row(instant(r.At), r.Attempt, r.Outcome, instant(r.StartedAt), took, r.Replica, term.Cut(r.Error, tableValue))
	}
	return e.term.Table(tb)
}
