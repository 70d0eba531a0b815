package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/probe"
	"github.com/davidwkeith/dwk/internal/term"
)

const defaultRepeat = 5

func newProbe(e *env) *cobra.Command {
	var o probe.Options
	var budget optionalDuration
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check that the stores do what the fleet needs of them",
		Long: `Check the stores by using them: write, read, compare-and-set and delete an entry
of the coordination store; take the lease of a sentinel object, commit to its
log, rebuild it from there and delete it; read the mode marker; compare clocks;
write and read back a table of each SQL binding, and have a batch fail in it;
put, read, list and delete bodies in the object store and each bucket.
serve makes the same checks when it starts.

Shown are, for each check, how many round trips it takes and the median and
95th percentile of the time of one. Nothing is left behind, also when the probe
is interrupted. In a new store set the empty tables are created, as serve would.

Exits 1 when something is wrong, 5 when all that is wrong is that a store could
not be reached.

Names for --only: ` + strings.Join(probe.Names(), ", ") + `, and sql:NAME or bucket:NAME for one binding.`,
		Example: `  dwk probe
  dwk probe --repeat 20 --budget 10ms
  dwk probe --only clock -o json`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.IntVar(&o.Repeat, "repeat", defaultRepeat, "make each check `N` times")
	f.Var(&budget, "budget", "fail a check whose median round trip takes longer")
	f.StringSliceVar(&o.Only, "only", nil, "check only `NAME`; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("only", fixed(probe.Names()...)))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		o.Budget = budget.d
		if o.Repeat < 1 {
			return usagef("--repeat must be at least 1")
		}
		if err := o.Validate(); err != nil {
			return usageError{err}
		}
		return runProbe(ctx, e, o)
	})
	return cmd
}

func runProbe(ctx context.Context, e *env, o probe.Options) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	cfg, err := e.load(nil)
	if err != nil {
		return err
	}
	s, err := host.Open(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	databases, err := host.OpenDatabases(cfg, nil)
	if err != nil {
		return err
	}
	defer databases.Close()
	buckets, err := host.OpenBuckets(cfg, nil)
	if err != nil {
		return err
	}
	defer buckets.Close()
	results, err := probe.Run(ctx, probe.Target{DB: s.DB, KV: s.KV, Databases: databases.Targets(cfg), Buckets: buckets.Targets(cfg)}, o)
	if err != nil {
		return err
	}
	if err := showProbe(e.term, results); err != nil {
		return err
	}
	return probe.Summarize(results)
}

func showProbe(t *term.Term, results []probe.Result) error {
	if t.JSON {
		list := t.Array()
		for _, r := range results {
			if err := list.Add(r); err != nil {
				return err
			}
		}
		return list.Close()
	}
	tb := term.NewTable("STORE", "ADDRESS", "CHECK", "STATE", "TRIPS", "P50", "P95", "NOTE")
	for _, r := range results {
		var trips any = ""
		p50, p95 := "", ""
		if r.Trips > 0 {
			trips, p50, p95 = r.Trips, latency(r.P50), latency(r.P95)
		}
		state, note := term.Cell{Text: "ok", Tone: term.Good}, term.Cell{Text: r.Note}
		switch {
		case r.Err != nil:
			state, note.Text = term.Cell{Text: "failed", Tone: term.Bad}, oneLine(r.Reason())
		case r.Skipped != "":
			state, note.Text = term.Cell{Text: "skipped", Tone: term.Dim}, r.Skipped
		case r.Warn:
			note.Tone = term.Warn
		}
		tb.Row(r.Store, r.Address, r.Check, state, trips, p50, p95, note)
	}
	return t.Table(tb)
}

func latency(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/1e6, 'f', 2, 64) + "ms"
}
