package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/term"
)

type leaseReleaseOptions struct {
	objectFlags
	version stampFlag
	yes     bool
}

// released is what release writes.
type released struct {
	Released bool `json:"released"`
	leaseJSON
	Meaning string `json:"meaning"`
}

func newLeaseRelease(e *env) *cobra.Command {
	var o leaseReleaseOptions
	cmd := &cobra.Command{
		Use:   "release CLASS ID",
		Short: "End a lease",
		Long: `End the lease of an object, when it is still the one that is shown: nothing is
done, and the exit code is 1, when it changes meanwhile. Exits 3 when there is
no lease.

This is safe at any time. From then on the former holder can neither commit nor
answer anything that arrives later; what it was doing gets 503, which callers may
repeat. The next event takes a new lease, on any replica, at once.`,
		Example: `  dwk lease release Counter --name front-page
  dwk lease release Counter 0a --version 00000000000000000041 --yes`,
	}
	o.register(e, cmd)
	cmd.Flags().Var(&o.version, "version", "only the lease with this versionstamp")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		return runLeaseRelease(ctx, e, o)
	})
	return cmd
}

func runLeaseRelease(ctx context.Context, e *env, o leaseReleaseOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	i, held, err := lease.Inspect(call, s.KV, o.class, o.id)
	switch {
	case err != nil:
		return err
	case !held:
		return o.noLease(s.DB.String())
	case o.version.set && o.version.stamp != i.Stamp:
		return fmt.Errorf("the lease on %s/%s has versionstamp %s and not %s: nothing was released", o.class, o.id, i.Stamp, o.version.stamp)
	}
	if !o.yes && e.term.Interactive {
		tb := term.NewTable()
		showLease(tb, i)
		shown := *e.term
		shown.Out = e.term.Err // it is no answer yet
		shown.NoColor()
		if err := shown.Table(tb); err != nil {
			return err
		}
	}
	if err := e.confirm(ctx, o.yes, "Release it? The next event of the object then runs without its former holder."); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	ok, err := lease.Held{Class: i.Class, ID: i.ID, Holder: i.Holder, Stamp: i.Stamp}.Release(call, s.KV)
	if err != nil {
		return withHint(err, "whether it was released is not known; look with: dwk lease inspect %s %s", o.class, o.id)
	}
	if !ok {
		return changedMeanwhile(call, s, o)
	}
	return showReleased(e.term, i)
}

// changedMeanwhile says what became of a lease that was shown.
func changedMeanwhile(ctx context.Context, s *host.Stores, o leaseReleaseOptions) error {
	i, held, err := lease.Inspect(ctx, s.KV, o.class, o.id)
	text := "it has ended by itself"
	switch {
	case err != nil:
		text = "it is not the one that was shown any more"
	case held:
		text = fmt.Sprintf("%s holds it now, with versionstamp %s", holderName(i), i.Stamp)
	}
	return fmt.Errorf("the lease on %s/%s changed meanwhile, nothing was released: %s", o.class, o.id, text)
}

func showReleased(t *term.Term, i lease.Info) error {
	text := fmt.Sprintf("from now on %s can neither commit for this object nor answer what arrives later; the next event runs on any replica", holderName(i))
	if t.JSON {
		return t.WriteJSON(released{true, leaseAsJSON(i), text})
	}
	tb := term.NewTable()
	tb.Row("released", i.Class+"/"+i.ID)
	tb.Row("holder", i.Holder)
	tb.Row("replica", i.Replica)
	tb.Row("versionstamp", i.Stamp)
	tb.Row("meaning", text)
	return t.Table(tb)
}
