package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/term"
)

type fleetFenceOptions struct{ force, dryRun, yes bool }

// fenced is what fence writes.
type fenced struct {
	Fenced bool   `json:"fenced"`
	DryRun bool   `json:"dry_run"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Leases were ended, or would be.
	Leases   int `json:"leases"`
	Replicas int `json:"replicas"`
}

func newFleetFence(e *env) *cobra.Command {
	var o fleetFenceOptions
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "Shut out all former holders, after the primary was restored",
		Long: `Raise the versionstamps by 4,294,967,296 and end all leases, in one commit. Run it
when the primary has lost commits, by a restored backup or a crash without full
sync, and before replicas start again: it would give stamps again that it has
already given, and who got them before could pass for a holder of today.

It refuses while replicas are registered, unless --force. What runs then gets
503, which callers may repeat; nothing stored is lost. Stamps never go down, and
fencing once more than needed does no harm.`,
		Example: `  dwk fleet fence --dry-run
  dwk fleet fence --yes`,
		Args: arguments(),
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "also while replicas live")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what it would do")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runFleetFence(ctx, e, o) })
	return cmd
}

func runFleetFence(ctx context.Context, e *env, o fleetFenceOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := fleet.Look(call, s.KV, nil)
	if err == nil && !st.New() {
		err = mode.Check(st.Mode, st.Store)
	}
	switch {
	case err != nil:
		return err
	case st.New():
		return fmt.Errorf("%w (%s)", host.ErrNoStore, s.DB)
	case len(st.Replicas) > 0 && !o.force:
		return withHint(fleet.ErrInUse, "%d replicas are registered: stop them, and wait with: dwk fleet wait --none; --force fences them as well", len(st.Replicas))
	case o.dryRun:
		return showFenced(e.term, fenced{DryRun: true, Leases: int(st.Leases), Replicas: len(st.Replicas)})
	}
	if err := e.confirm(ctx, o.yes, "Fence store set %s? %d leases end, %d replicas are registered.", st.Store.ID, st.Leases, len(st.Replicas)); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	f, err := fleet.Fence(call, s.KV, o.force)
	switch {
	case errors.Is(err, fleet.ErrInUse):
		return err
	case err != nil:
		return withHint(err, "whether it was done is not known; run it again, which does no harm")
	}
	return showFenced(e.term, fenced{Fenced: true, Before: f.Before.String(), After: f.After.String(), Leases: f.Leases, Replicas: len(st.Replicas)})
}

func showFenced(t *term.Term, f fenced) error {
	if t.JSON {
		return t.WriteJSON(f)
	}
	tb := term.NewTable()
	if f.DryRun {
		tb.Row("leases that would end", f.Leases)
	} else {
		tb.Row("last stamp before", f.Before)
		tb.Row("last stamp now", f.After)
		tb.Row("leases ended", f.Leases)
	}
	tb.Row("replicas", f.Replicas)
	return t.Table(tb)
}
