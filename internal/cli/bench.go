package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/bench"
)

// Defaults of a load.
const (
	defaultBenchObjects  = 100
	defaultBenchClients  = 16
	defaultBenchDuration = 10 * time.Second
	defaultBenchWarmup   = time.Second
	maxBenchReplicas     = 64
)

// benchOptions are the flags of bench.
type benchOptions struct {
	load   bench.Load
	mix    string
	warmup time.Duration

	// One of these says what is loaded.
	targets          []string
	embedded, stores bool

	// How the embedded fleet is made.
	replicas  int
	store     string // file or wire
	latency   time.Duration
	inProcess bool
	dir       string

	disk       bool
	cpuprofile string
	yes, told  bool
}

func newBench(e *env) *cobra.Command {
	o := benchOptions{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a fleet or its store and measure what it does",
		Long: `Load the lab application, or the coordination store itself, and show throughput,
latencies, errors and round trips. One of three flags says what is loaded:

  --embedded    a fleet that is started for it on a new, temporary store set: one
                command gives a number. The configuration plays no part.
  --target URL  the lab of a fleet that runs, such as http://localhost:8080/lab
  --stores      the coordination store of the configuration: commits of one entry

The clients are a closed loop: each begins its next request when the last one was
answered. With --rate it is an open loop: requests are due at even intervals, and
their latency counts from then, so that a target that stalls cannot hide it. Nothing
is sent a second time. Only what was done counts for throughput and latency.

Objects are called bench-SEED-N. Those of an embedded fleet are removed with it;
those of a target stay, which is said. A store set that holds anything else is
refused unless both --yes and --i-know-this-store-has-data are given.`,
		Example: `  dwk bench --embedded
  dwk bench --embedded --store wire --latency 5ms --mix reads --objects 1
  dwk bench --embedded --replicas 2 --objects 1 --clients 8 -o json
  dwk bench --target http://localhost:8080/lab --rate 200 --duration 1m --yes
  dwk bench --stores --clients 4 --yes`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.embedded, "embedded", false, "start a fleet on a temporary store set and load that")
	f.StringArrayVar(&o.targets, "target", nil, "load the lab at `URL`; may be repeated, and the clients are dealt out in turn")
	f.BoolVar(&o.stores, "stores", false, "load the coordination store of the configuration")
	f.StringVar(&o.mix, "mix", string(bench.Counters), "`MIX` of requests: "+strings.Join(bench.Mixes(), ", "))
	f.IntVar(&o.load.Objects, "objects", defaultBenchObjects, "spread the requests over `N` objects, or entries")
	f.IntVar(&o.load.Clients, "clients", defaultBenchClients, "at most `N` requests at a time")
	f.DurationVar(&o.load.Duration, "duration", 0, "how long (default 10s, with --requests no bound)")
	f.Int64Var(&o.load.Requests, "requests", 0, "end after `N` requests")
	f.Float64Var(&o.load.Rate, "rate", 0, "open loop: begin `N` requests a second (default closed loop)")
	f.DurationVar(&o.warmup, "warmup", defaultBenchWarmup, "load it this long before the measurement")
	f.Uint64Var(&o.load.Seed, "seed", 1, "`N` decides the requests and the names of the objects")
	f.IntVar(&o.replicas, "replicas", 1, "embedded: start `N` replicas")
	f.StringVar(&o.store, "store", "file", "embedded: the coordination `STORE`: file, or wire, a server on a loopback port")
	f.DurationVar(&o.latency, "latency", 0, "embedded, wire: every round trip takes longer by this")
	f.BoolVar(&o.inProcess, "in-process", false, "embedded: replicas in this process, not one each; they share its memory and threads with the load")
	f.StringVar(&o.dir, "dir", "", "embedded: make the store set in `DIRECTORY` (default the system's for temporary files)")
	f.BoolVar(&o.disk, "disk-baseline", false, "measure sequential transactions of the same file system before and after (default with --embedded)")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "embedded: write the CPU profile of the measurement, of the first replica or, in process, of all, to `FILE`")
	f.BoolVar(&o.told, "i-know-this-store-has-data", false, "with --yes: load a store set that other objects live in, or may")
	yesFlag(cmd, &o.yes)
	must(cmd.RegisterFlagCompletionFunc("mix", fixed(bench.Mixes()...)))
	must(cmd.RegisterFlagCompletionFunc("store", fixed("file", "wire")))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		if err := o.check(cmd); err != nil {
			return usageError{err}
		}
		return runBench(ctx, e, o)
	})
	return cmd
}

// check completes the options and names what is wrong with them.
func (o *benchOptions) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if err := exclusive(cmd, "embedded", "target", "stores"); err != nil {
		return err
	}
	if !o.embedded && !o.stores && len(o.targets) == 0 {
		return errors.New("what to load is missing: --embedded, --target URL or --stores")
	}
	o.load.Mix = bench.Mix(o.mix)
	if o.stores {
		if changed("mix") {
			return errors.New("--mix does not go with --stores, which makes commits only")
		}
		o.load.Mix = bench.Commits
	} else if o.load.Mix == bench.Commits {
		o.load.Mix = "" // that is no mix of the lab
	}
	if !changed("duration") && !changed("requests") {
		o.load.Duration = defaultBenchDuration
	}
	if !changed("disk-baseline") {
		o.disk = o.embedded
	}
	if changed("requests") && o.load.Requests < 1 {
		return errors.New("--requests must be at least 1")
	}
	if changed("rate") && !(o.load.Rate >= 1) {
		return errors.New("--rate must be at least 1")
	}
	if !o.embedded {
		for _, name := range []string{"replicas", "store", "latency", "in-process", "dir", "cpuprofile"} {
			if changed(name) {
				return fmt.Errorf("--%s goes with --embedded only", name)
			}
		}
	}
	switch {
	case len(o.targets) > 0 && o.disk:
		return errors.New("--disk-baseline does not go with --target, whose disk is not known")
	case o.warmup < 0 || o.latency < 0:
		return errors.New("--warmup and --latency must not be negative")
	case o.replicas < 1 || o.replicas > maxBenchReplicas:
		return fmt.Errorf("--replicas must be from 1 to %d", maxBenchReplicas)
	case o.store != "file" && o.store != "wire":
		return errors.New("--store must be file or wire")
	case o.latency > 0 && o.store != "wire":
		return errors.New("--latency goes with --store wire only")
	case o.cpuprofile != "" && !o.inProcess && (o.load.Duration == 0 || o.load.Requests > 0):
		return errors.New("--cpuprofile of a process needs --duration and no --requests, or use --in-process")
	}
	return o.load.Check()
}

func runBench(ctx context.Context, e *env, o benchOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	var (
		r   *benchReport
		err error
	)
	switch {
	case o.embedded:
		r, err = benchEmbedded(ctx, e, o)
	case o.stores:
		r, err = benchStores(ctx, e, o)
	default:
		r, err = benchTargets(ctx, e, o)
	}
	if err != nil {
		return err
	}
	if err := r.show(e.term); err != nil {
		return err
	}
	if r.OK == 0 {
		return errors.New("no request was done")
	}
	return nil
}

// A benchSubject is what is loaded and what can be measured of it.
type benchSubject struct {
	target bench.Target
	// trips counts round trips to the store; nil when nobody counts them.
	trips func(ctx context.Context) (int64, error)
	// disk is a directory of the file system to compare with, or "".
	disk string
	// profile begins a profile of the measurement and returns its end; nil for
	// none.
	profile func(ctx context.Context) (end func() error, err error)
}

// diskTime is how long the disk is measured, before and after the load each.
const diskTime = time.Second

// measure runs a load: objects are created, it warms up, and then it counts.
func (o benchOptions) measure(ctx context.Context, e *env, s benchSubject) (*benchReport, error) {
	var disk bench.Disk
	measureDisk := func() error {
		if s.disk == "" || !o.disk {
			return nil
		}
		d, err := bench.MeasureDisk(ctx, s.disk, diskTime)
		disk = disk.Add(d)
		return err
	}
	if err := measureDisk(); err != nil {
		return nil, err
	}
	e.term.Detailf("creating %d objects", o.load.Objects)
	if err := bench.Populate(ctx, o.load, s.target); err != nil {
		return nil, err
	}
	if o.warmup > 0 {
		warm := o.load
		warm.Duration, warm.Requests = o.warmup, 0
		if _, err := bench.Run(ctx, warm, s.target); err != nil {
			return nil, err
		}
	}
	end := func() error { return nil }
	if s.profile != nil {
		var err error
		if end, err = s.profile(ctx); err != nil {
			return nil, err
		}
	}
	count := s.trips
	if count == nil {
		count = func(context.Context) (int64, error) { return 0, nil }
	}
	before, err := count(ctx)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	result, err := bench.Run(ctx, o.load, s.target)
	after, counted := count(ctx)
	if err := errors.Join(err, counted, end()); err != nil {
		return nil, err
	}
	if err := measureDisk(); err != nil {
		return nil, err
	}
	r := o.report(result, disk)
	if s.trips != nil {
		r.setTrips(after - before)
	}
	return r, nil
}

// tempDir makes the directory of an embedded fleet.
func (o benchOptions) tempDir() (string, error) {
	dir, err := os.MkdirTemp(o.dir, "dwk-bench-")
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return dir, nil
}
