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

type fleetAdoptOptions struct{ dryRun, yes bool }

// adopted is what adopt writes.
type adopted struct {
	// Adopted and Claimed say what was done, or on a dry run would be: the store
	// set taken over, and the object store claimed for it.
	Adopted bool   `json:"adopted"`
	Claimed bool   `json:"claimed"`
	DryRun  bool   `json:"dry_run"`
	Mode    string `json:"mode"`     // before
	StoreID string `json:"store_id"` // empty when it is to be made
	// Owner had claimed the object store before.
	Owner string `json:"object_store_owner,omitempty"`
	// Alarms have no object here and are not run until it is migrated; AlarmCount
	// counts those that are not listed as well.
	Alarms     []fleet.Orphan `json:"alarms_without_object"`
	AlarmCount int            `json:"alarms_without_object_count"`
}

func newFleetAdopt(e *env) *cobra.Command {
	var o fleetAdoptOptions
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over the stores of an older host, or an object store",
		Long: `Take over, on purpose, what replicas refuse to serve:

A store set of an older host (mode "central"), which keeps objects elsewhere and
fences nothing. Stop that host first: this refuses while a replica or a lease of it
lives. What it stored stays as it is. Alarms of objects that have no log here are
named; they are kept and not run until their objects are migrated.

An object store that another store set has claimed, as when this one was copied or
moved. From then on it is this one's: replicas of the other no longer start with
it, and files that only the other names may be removed. Give each store set an
object store of its own, or a prefix, when both are to live.`,
		Example: `  dwk fleet adopt --dry-run
  dwk fleet adopt --yes`,
		Args: arguments(),
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what it would do")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runFleetAdopt(ctx, e, o) })
	return cmd
}

func runFleetAdopt(ctx context.Context, e *env, o fleetAdoptOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	cfg, err := e.load(nil)
	if err != nil {
		return err
	}
	s, err := host.OpenOlder(call, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	v, a, err := surveyed(call, s)
	if err != nil {
		return err
	}
	if a.DryRun = o.dryRun; o.dryRun {
		return showAdopted(e.term, a)
	}
	if err := e.confirm(ctx, o.yes, "%s?", a.question(s)); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	if err := adopt(call, s, v, &a); err != nil {
		return err
	}
	return showAdopted(e.term, a)
}

// surveyed finds out what is to be adopted, or why nothing can be.
func surveyed(ctx context.Context, s *host.Stores) (fleet.Survey, adopted, error) {
	v, err := fleet.Inspect(ctx, s.KV)
	if err != nil {
		return v, adopted{}, err
	}
	a := adopted{Mode: v.Mode, StoreID: v.Store.ID, Alarms: append([]fleet.Orphan{}, v.Orphans...), AlarmCount: v.OrphanCount}
	owner, _, err := s.ObjectStoreOwner(ctx)
	if err != nil {
		return v, a, fmt.Errorf("object store %s: %w", s.Config.ObjectStoreURLOrDefault(), err)
	}
	a.Claimed = owner != "" && owner != v.Store.ID
	if a.Claimed {
		a.Owner = owner
	}
	err = v.Adoptable()
	a.Adopted = err == nil
	switch {
	case errors.Is(err, fleet.ErrNothingToAdopt) && a.Claimed && v.Store.ID != "":
		err = nil
		if len(v.Replicas) > 0 {
			err = fmt.Errorf("%w: replica %s is registered: stop all replicas first", fleet.ErrInUse, v.Replicas[0].ID)
		}
	case errors.Is(err, fleet.ErrInUse):
		err = withHint(err, "look at them with: dwk fleet status, dwk lease list")
	}
	return v, a, err
}

func (a adopted) question(s *host.Stores) string {
	text := ""
	if a.Adopted {
		text = fmt.Sprintf("Take over the store set %s of an older host (mode %q)", s.DB, a.Mode)
		if a.AlarmCount > 0 {
			text += fmt.Sprintf(", which has %d alarms of objects that are not here", a.AlarmCount)
		}
	}
	if a.Claimed {
		if a.Adopted {
			text += "; and take"
		} else {
			text = "Take"
		}
		text += fmt.Sprintf(" the object store %s from store set %s", s.Config.ObjectStoreURLOrDefault(), a.Owner)
	}
	return text
}

// adopt does what the survey says.
func adopt(ctx context.Context, s *host.Stores, v fleet.Survey, a *adopted) error {
	id := v.Store
	if a.Adopted {
		var err error
		if id, err = fleet.Adopt(ctx, s.KV, v); err != nil {
			return err
		}
		a.StoreID = id.ID
	}
	if !a.Claimed {
		return nil
	}
	if err := s.ClaimObjectStore(ctx, id.ID); err != nil {
		err = fmt.Errorf("claim the object store %s: %w", s.Config.ObjectStoreURLOrDefault(), err)
		if a.Adopted {
			return partlyError{"took over the store set", err}
		}
		return err
	}
	return nil
}

func showAdopted(t *term.Term, a adopted) error {
	if t.JSON {
		return t.WriteJSON(a)
	}
	tb := term.NewTable()
	done := map[bool]string{true: "would be taken over", false: "taken over"}[a.DryRun]
	if a.Adopted {
		tb.Row("store set", done+": mode "+a.Mode+" becomes "+mode.Marker)
	}
	if a.Claimed {
		tb.Row("object store", done+" from store set "+a.Owner)
	}
	if a.StoreID != "" {
		tb.Row("store set id", a.StoreID)
	}
	tb.Row("alarms not run", fmt.Sprintf("%d: their objects have no log here, until they are migrated", a.AlarmCount))
	for _, o := range a.Alarms[:min(len(a.Alarms), 20)] {
		tb.Row("", fmt.Sprintf("%s/%s, due %s", o.Class, o.ID, instant(o.DueAt)))
	}
	if n := a.AlarmCount - 20; n > 0 {
		tb.Row("", fmt.Sprintf("and %d more; -o json lists up to 1000", n))
	}
	return t.Table(tb)
}
