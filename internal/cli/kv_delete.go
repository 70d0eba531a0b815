package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/term"
)

type kvDeleteOptions struct {
	key       tuple.Key
	ifVersion stampFlag
	yes       bool
}

func newKVDelete(e *env) *cobra.Command {
	var o kvDeleteOptions
	cmd := &cobra.Command{
		Use:   "delete KEY",
		Short: "Remove one entry",
		Long: `Remove one entry, when it is still the one that was found: nothing is removed,
and the exit code is 1, when it changes meanwhile or has not the versionstamp of
--if-version. Exits 3 when there is none. The entry is shown as it was.`,
		Example: `  dwk kv delete '["greeting"]' --yes`,
		Args:    arguments("KEY"),
	}
	cmd.Flags().Var(&o.ifVersion, "if-version", "only when the entry has this versionstamp")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) (err error) {
		if o.key, err = parseKey("KEY", args[0]); err != nil {
			return err
		}
		return runKVDelete(ctx, e, o)
	})
	return cmd
}

func runKVDelete(ctx context.Context, e *env, o kvDeleteOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	shown, there, err := s.KV.Get(call, o.key)
	switch {
	case err != nil:
		return err
	case !there:
		return notFoundf("no entry %s in %s", o.key, s.DB)
	case o.ifVersion.set && o.ifVersion.stamp != shown.Stamp:
		return fmt.Errorf("%s has versionstamp %s, nothing was changed", o.key, shown.Stamp)
	}
	question := fmt.Sprintf("Delete %s = %s (versionstamp %s)?", o.key, term.Cut(string(shown.Value), tableValue), shown.Stamp)
	if isSystem(o.key) {
		question = "This key belongs to the fleet. " + question
	}
	if err := e.confirm(ctx, o.yes, "%s", question); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	plan := kv.NewPlan()
	if err := errors.Join(plan.CheckKey(o.key, shown.Stamp), plan.DeleteKey(o.key)); err != nil {
		return err
	}
	v, err := s.KV.Commit(call, plan)
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.key, err)
	}
	if !v.OK {
		return conflict(call, s.KV, o.key)
	}
	return showEntry(e.term, shown)
}
