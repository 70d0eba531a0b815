package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/term"
)

// maxSweepBatch bounds how long one batch holds the write lock.
const maxSweepBatch = 100_000

type kvSweepOptions struct {
	batch, max int
	dryRun     bool
}

// swept is what a sweep did.
type swept struct {
	DryRun  bool  `json:"dry_run"`
	Removed int64 `json:"removed"`
	Batches int   `json:"batches"`
	// Left are the expired entries that are still there.
	Left int64 `json:"left"`
}

func newKVSweep(e *env) *cobra.Command {
	o := kvSweepOptions{}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Remove expired entries from the disk",
		Long: `Remove expired entries, in batches so that the write lock is never held for long,
and say how many. Nobody can read an expired entry, swept or not: a sweep frees
space and changes nothing else, so it does not ask.`,
		Example: `  dwk kv sweep --dry-run
  dwk kv sweep --batch 1000 --max 50000`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.IntVar(&o.batch, "batch", 0, "remove at most `N` entries in one transaction (default fleet.sweep_batch, 500)")
	f.IntVar(&o.max, "max", 0, "remove at most `N` entries in all (default all)")
	f.BoolVar(&o.dryRun, "dry-run", false, "only count them")
	f.BoolP("yes", "y", false, "accepted as everywhere; a sweep never asks")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		switch {
		case f.Changed("batch") && (o.batch < 1 || o.batch > maxSweepBatch):
			return usagef("--batch must be between 1 and %d", maxSweepBatch)
		case f.Changed("max") && o.max < 1:
			return usagef("--max must be at least 1")
		}
		return runKVSweep(ctx, e, o)
	})
	return cmd
}

func runKVSweep(ctx context.Context, e *env, o kvSweepOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.batch == 0 {
		o.batch = s.Config.Fleet.SweepBatch
	}
	result := swept{DryRun: o.dryRun}
	if !o.dryRun {
		if err := sweep(ctx, s.KV, o, &result); err != nil {
			if result.Removed > 0 {
				return partlyError{fmt.Sprintf("removed %d expired entries", result.Removed), err}
			}
			return err
		}
	}
	if result.Left, err = s.KV.CountExpired(ctx); err != nil {
		return err
	}
	return showSwept(e.term, result)
}

// sweep removes batch after batch until one is not full.
func sweep(ctx context.Context, s *kv.Store, o kvSweepOptions, result *swept) error {
	for {
		n := o.batch
		if o.max > 0 {
			n = min(n, o.max-int(result.Removed))
		}
		if n == 0 {
			return nil
		}
		removed, err := s.Sweep(ctx, n)
		if err != nil {
			return err
		}
		result.Batches++
		result.Removed += int64(removed)
		if removed < n {
			return nil
		}
	}
}

func showSwept(t *term.Term, r swept) error {
	if t.JSON {
		return t.WriteJSON(r)
	}
	tb := term.NewTable()
	if !r.DryRun {
		tb.Row("removed", r.Removed)
		tb.Row("batches", r.Batches)
	}
	tb.Row("expired and still there", r.Left)
	return t.Table(tb)
}
