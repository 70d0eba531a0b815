package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// Options are how a seed is run.
type Options struct {
	// Program is the binary, built with the tag "faults"; "" is that of the tree.
	Program string
	// Limit bounds the whole run of a seed: what is not over then is unclear.
	Limit time.Duration
	// Dir is where the stores and logs of the run are; they stay there when it did
	// not hold.
	Dir string
	// Commit is that of the program, for the record.
	Commit string
	// Out gets what happens.
	Out io.Writer
}

// DefaultLimit is that of a seed.
const DefaultLimit = 6 * time.Minute

// Run runs a plan.
func Run(ctx context.Context, p Plan, o Options) figures.Robustness {
	begun := time.Now()
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	rec := figures.Robustness{
		Seed: p.Seed, At: begun.UTC().Format(time.RFC3339), Operations: map[string]int{}, Answers: map[int]int{},
		Faults: map[string]int{}, Skipped: map[string]int{}, Acknowledged: map[string]int{}, Violations: []figures.Violation{},
		Conditions: figures.Conditions{
			Commit: o.Commit, CPUs: runtime.NumCPU(), Load: load(), Go: runtime.Version(), Replicas: slots, Clients: p.Clients,
			LeaseTTL: p.TTL.Milliseconds(), Focus: p.Focus, Stores: "libSQL server of the tests, versitygw",
		},
	}
	g := newGuard(ctx, o.Dir, o.Out)
	var w *world
	finished := false
	done := make(chan struct{})
	go func() { // it may end at any place, as a test may
		defer close(done)
		w = newWorld(g, p, o.Program, &rec)
		w.run()
		finished = true
	}()
	<-done
	if w != nil && !finished {
		cancel() // calls that wait for something
	}
	if w != nil {
		w.wg.Wait()
	}
	g.cleanup()
	rec.Elapsed = time.Since(begun).Milliseconds()
	switch {
	case len(rec.Violations) > 0:
		rec.Verdict = figures.Violated
	case g.Failed() || !finished || ctx.Err() != nil:
		rec.Verdict = figures.Unclear
		if rec.Trouble = g.trouble(); rec.Trouble == "" {
			rec.Trouble = fmt.Sprintf("not over within %v", o.Limit)
		}
	default:
		rec.Verdict = figures.Held
		os.RemoveAll(o.Dir) //nolint:errcheck // it is in the way at most
	}
	return rec
}

// load is the machine's load, 0 where that is not known.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	text, _, _ := strings.Cut(string(b), " ")
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// run starts the fleet, lets calls and faults befall it, waits until it is quiet,
// and checks what it did.
func (w *world) run() {
	w.Log(w.plan.String())
	if w.plan.disk >= 0 {
		w.smallDisk(w.slots[w.plan.disk])
	}
	var starts sync.WaitGroup
	for i, s := range w.slots {
		starts.Go(func() { w.join(s, w.plan.shifts[i]) })
	}
	starts.Wait()
	w.mustGoOn()
	begun := time.Now()
	w.stage.prepare()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for n := range w.plan.Clients {
		clients.Go(func() { w.stage.client(n, stop) })
	}
	w.befall()
	for w.ctx.Err() == nil && w.seen.total.Load() < int64(w.plan.Calls) && !w.Failed() {
		w.sleep(20 * time.Millisecond)
	}
	close(stop)
	clients.Wait()
	calls := w.seen.total.Load()
	w.Logf("%d calls in %v, %.0f a second", calls, time.Since(begun).Round(time.Millisecond), float64(calls)/time.Since(begun).Seconds())
	w.mustGoOn()
	w.check()
	w.finish()
	w.crashes()
}

// mustGoOn ends the run when the harness failed or the time is over.
func (w *world) mustGoOn() {
	if w.ctx.Err() != nil || w.Failed() {
		w.Fatalf("given up: %v", errors.Join(w.ctx.Err(), errors.New(w.trouble())))
	}
}

func (w *world) check() {
	begun := time.Now()
	w.crashes()
	w.quiet()
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"holds", w.checkHolds}, {"histories", w.checkHistories}, {"ledgers", w.checkLedgers}, {"sql", w.checkSQL}, {"files", w.checkFiles},
		{"messages", w.checkMessages}, {"alarms", w.checkAlarms}, {"occurrences", w.checkOccurrences}, {"stored", w.checkStored}, {"order", w.checkOrder},
	} {
		from := time.Now()
		c.do()
		w.Logf("checked %s in %v", c.what, time.Since(from).Round(time.Millisecond))
		w.mustGoOn()
	}
	w.drains.mu.Lock()
	bad := w.drains.bad
	w.drains.mu.Unlock()
	w.note(func(r *figures.Robustness) { r.DrainRequests = bad })
	w.Logf("checked all in %v", time.Since(begun).Round(time.Millisecond))
}
