package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/term"
)

func newQueueList(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List queues and count their messages",
		Long: `List the queues that are configured or have messages, with the number of messages
that are due, wait for their time, are being delivered, and are dead, and how long
the oldest one has been due. Times are by the primary's clock.`,
		Example: `  dwk queue list
  dwk queue list -o json`,
		Args: arguments(),
	}
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runQueueList(ctx, e) })
	return cmd
}

func runQueueList(ctx context.Context, e *env) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	names, err := queueKind.names(ctx, s)
	if err != nil {
		return err
	}
	list := []queue.Info{}
	for _, name := range names {
		i, err := queue.Inspect(ctx, s.KV, name)
		if err != nil {
			return err
		}
		list = append(list, i)
	}
	if e.term.JSON {
		return e.term.WriteJSON(list)
	}
	tb := term.NewTable("QUEUE", "DUE", "DELAYED", "CLAIMED", "DEAD", "OLDEST DUE", "PAUSED")
	for _, i := range list {
		oldest := ""
		if i.OldestMs != nil {
			oldest = short(time.Duration(*i.OldestMs) * time.Millisecond)
		}
		tb.Row(i.Queue, i.Due, i.Delayed, i.Claimed, i.Dead, oldest, pausedText(i))
	}
	return e.term.Table(tb)
}

// pausedText says who paused a queue, and when.
func pausedText(i queue.Info) string {
	switch {
	case !i.Paused:
		return ""
	case i.PausedAt == 0:
		return "yes"
	default:
		return "by " + i.PausedBy + " at " + instant(i.PausedAt)
	}
}
