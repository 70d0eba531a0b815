package cli

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
)

type drainOptions struct {
	ids                       []string
	all                       bool
	allBut                    []string
	grace, limit              optionalDuration
	wait, cancel, dryRun, yes bool
	interval                  time.Duration
}

func newDrain(e *env) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain [REPLICA...]",
		Short: "Have replicas stop in order",
		Long: `Ask replicas to stop in order, through the store: no way to their machines is
needed. A replica sees it within two polls, fails readiness, goes on serving for
the grace, finishes what it began, leaves nothing behind and exits 0. A request
that is not seen within an hour is forgotten; a new one replaces the one before.

--wait follows them to their ends. It exits 0 when all are gone and had finished,
and 1 when one had not in time, or died, and names it.

--cancel withdraws requests, and waits until the replicas serve again. It is refused,
with exit 1, from when a replica is stopping: its listener may be closed.

Exits 3 when a replica is not registered; then none is asked.`,
		Example: `  dwk drain 4f1c0a5be2d97733 --wait --yes
  dwk drain --all-but 4f1c0a5be2d97733 --grace 30s
  dwk drain --all --cancel --yes`,
		Args:              arguments("[REPLICA...]"),
		ValidArgsFunction: e.replicas(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all replicas")
	f.StringSliceVar(&o.allBut, "all-but", nil, "all replicas but this `REPLICA`; may be repeated")
	f.Var(&o.grace, "grace", "how long they go on serving (default drain.grace of each)")
	f.Var(&o.limit, "drain-timeout", "bound of each drain, after which a replica gives up what is left (default drain.timeout of each)")
	f.BoolVar(&o.wait, "wait", false, "follow them to their ends")
	f.BoolVar(&o.cancel, "cancel", false, "withdraw the requests instead")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say which ones")
	f.DurationVar(&o.interval, "interval", 500*time.Millisecond, "time between two looks")
	yesFlag(cmd, &o.yes)
	must(cmd.RegisterFlagCompletionFunc("all-but", e.replicas()))
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.ids = slices.Compact(slices.Sorted(slices.Values(args)))
		if err := o.check(); err != nil {
			return err
		}
		return runDrain(ctx, e, o)
	})
	return cmd
}

func (o drainOptions) check() error {
	ways := 0
	for _, given := range []bool{len(o.ids) > 0, o.all, len(o.allBut) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usagef("which replicas: REPLICA..., --all, or --all-but REPLICA")
	case o.cancel && (o.wait || o.grace.set || o.limit.set):
		return usagef("--cancel does not go with --wait, --grace and --drain-timeout")
	case o.interval < minInterval:
		return usagef("--interval must be at least %v", minInterval)
	case o.limit.set && o.limit.d <= 0:
		return usagef("--drain-timeout must be longer than 0")
	case max(o.limit.d, o.grace.d) >= fleet.DrainTTL:
		return usagef("a drain is bounded by %v", fleet.DrainTTL)
	case o.limit.set && o.grace.set && o.grace.d >= o.limit.d:
		return usagef("--drain-timeout must be longer than --grace, which is a part of it")
	}
	return nil
}

// request is what the flags ask for.
func (o drainOptions) request() fleet.DrainRequest {
	d := fleet.DrainRequest{By: who(), TimeoutMs: o.limit.d.Milliseconds()}
	if o.grace.set {
		ms := o.grace.d.Milliseconds()
		d.GraceMs = &ms
	}
	return d
}

// who is the person that runs the command, as user@host.
func who() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

func runDrain(ctx context.Context, e *env, o drainOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := fleet.Drainees(call, s.KV)
	if err != nil {
		return err
	}
	if o.ids, err = o.choose(found); err != nil {
		return err
	}
	f := &following{env: e, store: s.KV, options: o, outcomes: map[string]*drainOutcome{}}
	for _, id := range o.ids {
		f.outcomes[id] = &drainOutcome{ID: id, State: found[id].Live.State, Outcome: "would be " + map[bool]string{false: "asked", true: "withdrawn"}[o.cancel]}
	}
	if o.dryRun || len(o.ids) == 0 {
		return f.show()
	}
	if err := e.confirm(ctx, o.yes, "%s?", o.question(found)); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	if o.cancel {
		return f.cancel(call)
	}
	if err := f.ask(call); err != nil || !o.wait {
		return err
	}
	long, cancel := e.boundIfAsked(ctx)
	defer cancel()
	return f.follow(long, s.Config.Drain, s.Config.LibSQL.Timeout, s.Config.Fleet.HeartbeatTTL)
}

// choose returns the replicas that are meant, all of them registered.
func (o drainOptions) choose(found map[string]fleet.Drainee) ([]string, error) {
	for _, id := range append(slices.Clone(o.ids), o.allBut...) {
		if found[id].Live == nil {
			return nil, withHint(notFoundf("no replica %s is registered; nothing was done", id), "see: dwk fleet status")
		}
	}
	if len(o.ids) > 0 {
		return o.ids, nil
	}
	ids := []string{}
	for id, d := range found {
		if d.Live != nil && !slices.Contains(o.allBut, id) && (d.Request != nil || !o.cancel) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (o drainOptions) question(found map[string]fleet.Drainee) string {
	list := plural(len(o.ids), "replica") + ": " + strings.Join(o.ids[:min(len(o.ids), 5)], ", ")
	if len(o.ids) > 5 {
		list += ", ..."
	}
	if o.cancel {
		return "Withdraw the request to stop of " + list
	}
	others := 0
	for id, d := range found {
		if d.Live != nil && d.Live.State == fleet.Ready && !slices.Contains(o.ids, id) {
			others++
		}
	}
	return "Stop " + list + " (" + plural(others, "other replica") + " ready)"
}

// replicaNames are the replicas that are not among args, each with a word about it.
func replicaNames(ctx context.Context, s *kv.Store, args []string) (names []string) {
	found, err := fleet.Drainees(ctx, s)
	if err != nil {
		return nil
	}
	for id, d := range found {
		if d.Live != nil && !slices.Contains(args, id) {
			names = append(names, cobra.CompletionWithDesc(id, string(d.Live.State)+" on "+d.Live.Host))
		}
	}
	slices.Sort(names)
	return names
}
