package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/term"
)

type leaseInspectOptions struct {
	objectFlags
	watch    bool
	interval time.Duration
}

// inspected is what inspect writes: the lease, if there is one, and what it
// means.
type inspected struct {
	Held bool `json:"held"`
	leaseJSON
	Meaning string `json:"meaning"`
}

// free is what inspect --watch writes while there is no lease.
type free struct {
	Held    bool   `json:"held"`
	Class   string `json:"class"`
	ID      string `json:"id"`
	Meaning string `json:"meaning"`
}

func newLeaseInspect(e *env) *cobra.Command {
	var o leaseInspectOptions
	cmd := &cobra.Command{
		Use:   "inspect CLASS ID",
		Short: "Show one lease and what it means",
		Long: `Show one lease in full and what it means. Exits 3 when there is none: then no
replica runs the object's events, and the next event takes a lease.

--watch goes on until it is interrupted or --timeout is over: it shows the lease
again every interval, as a line of JSON under -o json.`,
		Example: `  dwk lease inspect Counter --name front-page
  dwk lease inspect Counter 0a --watch`,
	}
	o.register(e, cmd)
	cmd.Flags().BoolVar(&o.watch, "watch", false, "show it again and again")
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "time between two looks of --watch")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		if o.interval < 10*time.Millisecond {
			return usagef("--interval must be at least 10ms")
		}
		return runLeaseInspect(ctx, e, o)
	})
	return cmd
}

func runLeaseInspect(ctx context.Context, e *env, o leaseInspectOptions) error {
	bound := e.bound
	if o.watch {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	i, held, err := lease.Inspect(ctx, s.KV, o.class, o.id)
	switch {
	case err != nil:
		return err
	case o.watch:
		return watchLease(ctx, e, s, o, i, held)
	case !held:
		return o.noLease(s.DB.String())
	case e.term.JSON:
		return e.term.WriteJSON(inspected{true, leaseAsJSON(i), meaning(i)})
	}
	return showInspected(e.term, i)
}

func showInspected(t *term.Term, i lease.Info) error {
	tb := term.NewTable()
	showLease(tb, i)
	tb.Row("meaning", meaning(i))
	return t.Table(tb)
}

// watchLease shows a lease until ctx ends. A look that fails is noted, and the
// next one is taken.
func watchLease(ctx context.Context, e *env, s *host.Stores, o leaseInspectOptions, i lease.Info, held bool) error {
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	var err error
	for {
		switch {
		case ctx.Err() != nil: // what was last asked has no answer
		case err != nil:
			e.term.Notef("%s", oneLine(err.Error()))
		default:
			if err := showLook(e.term, o, i, held); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil // as long as it was asked to
			}
			return ctx.Err()
		case <-ticker.C:
		}
		i, held, err = lease.Inspect(ctx, s.KV, o.class, o.id)
	}
}

func showLook(t *term.Term, o leaseInspectOptions, i lease.Info, held bool) error {
	const none = "no replica runs its events at this moment"
	switch {
	case t.JSON && held:
		return t.WriteLine(inspected{true, leaseAsJSON(i), meaning(i)})
	case t.JSON:
		return t.WriteLine(free{false, o.class, o.id, none})
	}
	t.Clear()
	if held {
		return showInspected(t, i)
	}
	tb := term.NewTable()
	tb.Row("class", o.class)
	tb.Row("id", o.id)
	tb.Row("meaning", none)
	return t.Table(tb)
}
