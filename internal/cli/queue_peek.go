package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/term"
)

const defaultPeekLimit = 20

type queuePeekOptions struct {
	queue string
	dead  bool
	limit int
}

func newQueuePeek(e *env) *cobra.Command {
	var o queuePeekOptions
	cmd := queueCommand(e, &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Look at messages without claiming them",
		Long: `Look at messages of a queue in the order of the times at which they are due, or
at its dead letters in the order in which they died. Nothing is claimed and
nothing changes. For a message that is being delivered the time is when its claim
ends, and claimed_by the replica. The table cuts long bodies short; -o json shows
all of them.`,
		Example: `  dwk queue peek default
  dwk queue peek default --dead --limit 0 -o json`,
	})
	f := cmd.Flags()
	f.BoolVar(&o.dead, "dead", false, "the dead letters")
	f.IntVar(&o.limit, "limit", defaultPeekLimit, "at most `N` messages; 0 is all")
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error {
		if o.limit < 0 {
			return usagef("--limit must not be negative")
		}
		o.queue = name
		return runQueuePeek(ctx, e, o)
	})
	return cmd
}

func runQueuePeek(ctx context.Context, e *env, o queuePeekOptions) error {
	bound := e.bound
	if o.limit == 0 {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, _, err := e.lookQueue(ctx, o.queue)
	if err != nil {
		return err
	}
	defer s.Close()
	limit := 0
	if o.limit > 0 {
		limit = o.limit + 1 // tells whether there are more
	}
	var array *term.Array
	tb := term.NewTable("ID", "AT", "ATTEMPTS", "CLAIMED BY", "ERROR", "BODY")
	n := 0
	for m, err := range queue.Peek(ctx, s.KV, o.queue, o.dead, limit) {
		if err != nil {
			return err
		}
		if n++; o.limit > 0 && n > o.limit {
			e.term.Notef("there are more messages than %d: see --limit", o.limit)
			break
		}
		if !e.term.JSON {
			tb.Row(m.ID, instant(m.At), m.Attempts, m.ClaimedBy, term.Cut(m.Error, tableValue), term.Cut(string(m.Body), tableValue))
			continue
		}
		if array == nil { // so that a store that cannot be read is no beginning of a list
			array = e.term.Array()
		}
		if err := array.Add(m); err != nil {
			return err
		}
	}
	switch {
	case !e.term.JSON:
		return e.term.Table(tb)
	case array == nil:
		array = e.term.Array()
	}
	return array.Close()
}
