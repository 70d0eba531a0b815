package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/term"
)

func newObjectHistory(e *env) *cobra.Command {
	var o objectFlags
	limit := defaultListLimit
	cmd := &cobra.Command{
		Use:   "history CLASS ID",
		Short: "List the states that an object can be brought back to",
		Long: `List the commits whose state is kept, the newest first: when each was made, and
how much it has written, or where its own entry is gone, the commits that were
merged with it. Retention keeps every commit for a while, then one an hour.`,
		Example: `  dwk object history Counter --name front-page
  dwk object history Counter 0a --limit 0 -o json`,
	}
	o.register(e, cmd)
	cmd.Flags().IntVar(&limit, "limit", defaultListLimit, "at most `N` commits; 0 is all")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		if limit < 0 {
			return usagef("--limit must not be negative")
		}
		return runObjectHistory(ctx, e, o, limit)
	})
	return cmd
}

func runObjectHistory(ctx context.Context, e *env, o objectFlags, limit int) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	positions, more, err := s.History(ctx, o.class, o.id, limit)
	if err != nil {
		return err
	}
	now, err := s.KV.Now(ctx)
	if err != nil {
		return err
	}
	out := e.term.Array()
	tb := term.NewTable("COMMIT", "TIME", "AGE", "SIZE")
	for _, p := range positions {
		tb.Row(int64(p.TXID), instant(p.At), ageOf(now.UnixMilli(), p.At), p.Size)
		if e.term.JSON {
			if err := out.Add(positionAsJSON(p)); err != nil {
				return err
			}
		}
	}
	if more {
		e.term.Notef("there are more commits than %d: see --limit", limit)
	}
	if e.term.JSON {
		return out.Close()
	}
	return e.term.Table(tb)
}
