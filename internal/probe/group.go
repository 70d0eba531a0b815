package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A group is checks of one store that build on each other: after one that
// failed the rest is skipped.
type group struct {
	ctx     context.Context
	options Options
	store   string
	address string
	run     func(*group) error
	checks  []check
	calls   *atomic.Int64 // more round trips, or nil
	failed  string        // name of the check that failed
	reason  string        // why all of it was skipped
}

type check struct {
	name    string
	trips   int // of the first repetition
	samples []time.Duration
	err     error
	note    string
	warn    bool
	skipped string // why it was not made
}

func (p *prober) group(ctx context.Context, store string, run func(*group) error, checks ...string) *group {
	g := &group{ctx: ctx, options: p.Options, store: store, address: p.DB.String(), run: run}
	for _, name := range checks {
		g.checks = append(g.checks, check{name: name})
	}
	return g
}

func (g *group) skip(reason string) { g.reason = reason }

// measure makes the checks as often as they are to be repeated.
func (g *group) measure() {
	for range g.options.Repeat {
		if err := g.run(g); err != nil {
			break
		}
	}
	if g.options.Budget <= 0 {
		return
	}
	for i := range g.checks {
		c := &g.checks[i]
		if median := percentile(c.samples, 50); c.err == nil && median > g.options.Budget {
			c.err = fmt.Errorf("the median round trip took %s, more than the budget of %s", round(median), g.options.Budget)
		}
	}
}

// step makes one check: call, which is measured and whose round trips are
// counted, and then judge, which may be nil.
func (g *group) step(name string, call func(context.Context) error, judge func() error) error {
	i := slices.IndexFunc(g.checks, func(c check) bool { return c.name == name })
	c := &g.checks[i]
	var trips atomic.Int64
	before := g.others()
	begin := clock.Now()
	err := call(libsql.CountTrips(g.ctx, &trips))
	took := clock.Since(begin)
	n := int(trips.Load() + g.others() - before)
	if len(c.samples) == 0 {
		c.trips = n
	}
	if n > 0 {
		c.samples = append(c.samples, took/time.Duration(n))
	}
	if err == nil && judge != nil {
		err = judge()
	}
	if err != nil {
		c.err, g.failed = err, name
	}
	return err
}

// others are the round trips that no context counts.
func (g *group) others() int64 {
	if g.calls == nil {
		return 0
	}
	return g.calls.Load()
}

// skipped says why one check was not made.
func (g *group) skipped(name, why string) {
	i := slices.IndexFunc(g.checks, func(c check) bool { return c.name == name })
	g.checks[i].skipped = why
}

// note adds a remark to a check.
func (g *group) note(name, text string, warn bool) {
	i := slices.IndexFunc(g.checks, func(c check) bool { return c.name == name })
	g.checks[i].note, g.checks[i].warn = text, warn
}

func (g *group) results() []Result {
	out := make([]Result, 0, len(g.checks))
	for _, c := range g.checks {
		r := Result{Store: g.store, Address: g.address, Check: c.name, Err: c.err, Note: c.note, Warn: c.warn, Trips: c.trips,
			P50: percentile(c.samples, 50), P95: percentile(c.samples, 95)}
		switch {
		case g.reason != "":
			r.Skipped = g.reason
		case c.skipped != "":
			r.Skipped = c.skipped
		case c.err == nil && len(c.samples) == 0:
			r.Skipped = g.failed + " failed"
		default:
			r.OK = c.err == nil
		}
		out = append(out, r)
	}
	return out
}

// percentile is the nearest rank, 0 without samples.
func percentile(samples []time.Duration, p int) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[(len(s)*p+99)/100-1]
}

// round keeps three digits or so of what is shown.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	default:
		return d.Round(time.Microsecond)
	}
}

var errWrong = errors.New("the store answered wrongly")

// wrong is the error of an answer that no correct store gives.
func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
}
