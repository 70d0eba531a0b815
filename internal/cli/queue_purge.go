package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/queue"
)

type queuePurgeOptions struct {
	queue             string
	dead, dryRun, yes bool
}

// purged is what purge writes.
type purged struct {
	Queue  string `json:"queue"`
	Dead   bool   `json:"dead"`
	DryRun bool   `json:"dry_run"`
	Purged int64  `json:"purged"`
}

func newQueuePurge(e *env) *cobra.Command {
	var o queuePurgeOptions
	cmd := queueCommand(e, &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove all messages of a queue",
		Long: `Remove all messages of a queue: those that are due, that wait for their time, and
that are being delivered, whose consumers finish but can't acknowledge them any
more. The dead letters stay, unless they are what is to be removed: --dead. What is
removed is gone; dwk queue peek QUEUE --limit 0 -o json keeps a copy.`,
		Example: `  dwk queue purge default --dry-run
  dwk queue purge default --dead --yes`,
	})
	f := cmd.Flags()
	f.BoolVar(&o.dead, "dead", false, "the dead letters, and nothing else")
	f.BoolVar(&o.dryRun, "dry-run", false, "only count them")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error {
		o.queue = name
		return runQueuePurge(ctx, e, o)
	})
	return cmd
}

func runQueuePurge(ctx context.Context, e *env, o queuePurgeOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookQueue(call, o.queue)
	if err != nil {
		return err
	}
	defer s.Close()
	r := purged{Queue: o.queue, Dead: o.dead, DryRun: o.dryRun, Purged: i.Due + i.Delayed + i.Claimed}
	what := "messages"
	if o.dead {
		r.Purged, what = i.Dead, "dead letters"
	}
	if !o.dryRun {
		if err := e.confirm(ctx, o.yes, "Remove %d %s of queue %s for good?", r.Purged, what, o.queue); err != nil {
			return err
		}
		long, cancel := e.boundIfAsked(ctx)
		defer cancel()
		n, err := queue.Purge(long, s.KV, o.queue, o.dead)
		switch {
		case err != nil && n > 0:
			return partlyError{fmt.Sprintf("removed %d %s", n, what), err}
		case err != nil:
			return err
		}
		r.Purged = int64(n)
	}
	return showCount(e.term, r, "purged", r.Purged, o.dryRun)
}

// deadLetter finds one by its id.
func deadLetter(ctx context.Context, s *kv.Store, name, id string) (queue.Seen, error) {
	for m, err := range queue.Peek(ctx, s, name, true, 0) {
		if err != nil || m.ID == id {
			return m, err
		}
	}
	return queue.Seen{}, notFoundf("queue %s has no dead letter %s", name, id)
}
