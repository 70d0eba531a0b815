package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/fleet"
)

type fleetWaitOptions struct {
	ready    int
	version  string
	none     bool
	limit    optionalDuration
	interval time.Duration
}

// waited is what wait writes.
type waited struct {
	Met      bool   `json:"met"`
	Ready    int    `json:"ready"`
	Replicas int    `json:"replicas"`
	Meaning  string `json:"meaning"`
}

func newFleetWait(e *env) *cobra.Command {
	var o fleetWaitOptions
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait for replicas to come or go",
		Long: `Wait until N replicas are ready, until all replicas are of one version, or until
none is left. --ready and --version go together: N replicas of the version are
ready, and no other replica is there. --version alone asks for one at least.

Exits 1 when --for is over before. A store that stops answering meanwhile is waited
for like the rest. A replica that died counts until its entry has expired.`,
		Example: `  dwk fleet wait --ready 3 --for 2m
  dwk fleet wait --version 1.4.0 --ready 3 --for 10m
  dwk fleet wait --none --for 1m`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.IntVar(&o.ready, "ready", 0, "until at least `N` replicas are ready")
	f.StringVar(&o.version, "version", "", "until all replicas are of this `VERSION`")
	f.BoolVar(&o.none, "none", false, "until no replica is left")
	f.Var(&o.limit, "for", "give up after this time (default never)")
	f.DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	must(cmd.RegisterFlagCompletionFunc("version", e.versions()))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		asked := f.Changed("ready") || f.Changed("version")
		switch {
		case o.none == asked:
			return usagef("what to wait for: --ready N, --version VERSION, or --none")
		case f.Changed("ready") && o.ready < 1:
			return usagef("--ready must be at least 1; --none waits until no replica is left")
		case f.Changed("version") && o.version == "":
			return usagef("--version is empty")
		case o.interval < minInterval:
			return usagef("--interval must be at least %v", minInterval)
		}
		return runFleetWait(ctx, e, o)
	})
	return cmd
}

func runFleetWait(ctx context.Context, e *env, o fleetWaitOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	waiting := ctx
	if o.limit.set {
		var end context.CancelFunc
		waiting, end = context.WithTimeout(ctx, o.limit.d)
		defer end()
	}
	var last fleet.Status
	var failed error
	noted := ""
	err = again(waiting, o.interval, func() (bool, error) {
		st, err := fleet.Look(ctx, s.KV, nil)
		if ctx.Err() != nil {
			return false, ctx.Err() // it says nothing about the store
		}
		if err != nil {
			failed = err
			e.term.Detailf("%s", oneLine(err.Error()))
			return false, nil
		}
		last, failed = st, nil
		met, text := o.met(st)
		if text != noted {
			noted = text
			e.term.Notef("%s", text)
		}
		return met, nil
	})
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		_, text := o.met(last)
		if failed != nil {
			return failed
		}
		return fmt.Errorf("not in time: %s", text)
	}
	if err != nil {
		return err
	}
	_, text := o.met(last)
	if e.term.JSON {
		return e.term.WriteJSON(waited{true, last.Ready(o.version), len(last.Replicas), text})
	}
	return nil
}

// met judges a status, and says how far it is.
func (o fleetWaitOptions) met(st fleet.Status) (bool, string) {
	ready := st.Ready(o.version)
	switch {
	case o.none:
		return len(st.Replicas) == 0, fmt.Sprintf("%d replicas are left", len(st.Replicas))
	case o.version == "":
		return ready >= o.ready, fmt.Sprintf("%d of %d replicas ready", ready, o.ready)
	}
	others := 0
	for _, r := range st.Replicas {
		if r.Version != o.version {
			others++
		}
	}
	want := max(o.ready, 1)
	return ready >= want && others == 0, fmt.Sprintf("%d of %d replicas of version %s ready, %d of other versions", ready, want, o.version, others)
}
