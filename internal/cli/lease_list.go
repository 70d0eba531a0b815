package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/term"
)

type leaseListOptions struct {
	class, replica string
	olderThan      optionalDuration
}

func newLeaseList(e *env) *cobra.Command {
	var o leaseListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List live leases",
		Long: `List the live leases: which object, who holds it, for what kind of event, since
when and for how long. Ages and times are by the primary's clock.`,
		Example: `  dwk lease list
  dwk lease list --class Counter --older-than 1m`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.StringVar(&o.class, "class", "", "only objects of this `CLASS`")
	f.StringVar(&o.replica, "replica", "", "only leases of the replica with this `ID`")
	f.Var(&o.olderThan, "older-than", "only leases that were taken longer ago")
	must(cmd.RegisterFlagCompletionFunc("class", e.classes(true)))
	must(cmd.RegisterFlagCompletionFunc("replica", e.replicas()))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runLeaseList(ctx, e, o) })
	return cmd
}

func runLeaseList(ctx context.Context, e *env, o leaseListOptions) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.KV.Now(ctx); err != nil { // what ages are counted from
		return err
	}
	array, tb := e.term.Array(), term.NewTable("CLASS", "ID", "HOLDER", "REPLICA", "EVENT", "AGE", "EXPIRES IN")
	for i, err := range lease.List(ctx, s.KV, o.class) {
		if err != nil {
			return err
		}
		if o.replica != "" && i.Replica != o.replica || o.olderThan.set && i.NowMs-i.AcquiredAt < o.olderThan.d.Milliseconds() {
			continue
		}
		if !e.term.JSON {
			tb.Row(i.Class, i.ID, i.Holder, i.Replica, i.Event, age(i), short(i.Remaining()))
			continue
		}
		if err := array.Add(leaseAsJSON(i)); err != nil {
			return err
		}
	}
	if e.term.JSON {
		return array.Close()
	}
	return e.term.Table(tb)
}
