package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/term"
)

type queueRedriveOptions struct {
	queue, id   string
	dryRun, yes bool
}

// redriven is what redrive writes.
type redriven struct {
	Queue    string `json:"queue"`
	DryRun   bool   `json:"dry_run"`
	Redriven int64  `json:"redriven"`
}

func newQueueRedrive(e *env) *cobra.Command {
	var o queueRedriveOptions
	cmd := queueCommand(e, &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Send dead letters back to their queue",
		Long: `Send the dead letters of a queue back to it: they are due at once, with all their
deliveries before them, and keep their ids. Letters that die again while this runs
stay dead. With --id it is one of them; exits 3 when there is none with that id.`,
		Example: `  dwk queue redrive default --dry-run
  dwk queue redrive default --yes`,
	})
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "only the letter with this `ID`")
	f.BoolVar(&o.dryRun, "dry-run", false, "only count them")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error {
		if f.Changed("id") && o.id == "" {
			return usagef("--id is empty")
		}
		o.queue = name
		return runQueueRedrive(ctx, e, o)
	})
	return cmd
}

func runQueueRedrive(ctx context.Context, e *env, o queueRedriveOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookQueue(call, o.queue)
	if err != nil {
		return err
	}
	defer s.Close()
	r := redriven{Queue: o.queue, DryRun: o.dryRun, Redriven: i.Dead}
	question := fmt.Sprintf("Send %d dead letters back to queue %s?", i.Dead, o.queue)
	if o.id != "" {
		m, err := deadLetter(call, s.KV, o.queue, o.id)
		if err != nil {
			return err
		}
		r.Redriven = 1
		question = fmt.Sprintf("Send %s back to queue %s, which died of: %s?", term.Cut(string(m.Body), tableValue), o.queue, term.Cut(m.Error, tableValue))
	}
	if !o.dryRun {
		if err := e.confirm(ctx, o.yes, "%s", question); err != nil {
			return err
		}
		long, cancel := e.boundIfAsked(ctx)
		defer cancel()
		n, err := queue.Redrive(long, s.KV, o.queue, o.id)
		switch {
		case err != nil && n > 0:
			return partlyError{fmt.Sprintf("sent %d dead letters back", n), err}
		case err != nil:
			return err
		case o.id != "" && n == 0:
			return notFoundf("dead letter %s is gone from queue %s", o.id, o.queue)
		}
		r.Redriven = int64(n)
	}
	return showCount(e.term, r, "redriven", r.Redriven, o.dryRun)
}

// showCount writes what was done to how many.
func showCount(t *term.Term, json any, what string, n int64, dryRun bool) error {
	if t.JSON {
		return t.WriteJSON(json)
	}
	if dryRun {
		what = "would be " + what
	}
	tb := term.NewTable()
	tb.Row(what, n)
	return t.Table(tb)
}
