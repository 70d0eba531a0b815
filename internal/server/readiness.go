package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
)

// A State is a phase of a replica's life.
type State string

// The states. Only in StateReady may a replica be ready.
const (
	StateStarting State = "starting"
	StateReady    State = "ready"
	StateDraining State = "draining"
	StateStopping State = "stopping"
)

// defaultCheckTimeout bounds a check that names no timeout.
const defaultCheckTimeout = 5 * time.Second

// A Check asks one store whether it works.
type Check struct {
	// Name is what reports call the store.
	Name string
	// MaxAge is how long a result is used before the store is asked again.
	MaxAge time.Duration
	// Timeout bounds one run; 0 means 5 s.
	Timeout time.Duration
	// Run honours its context. Its error holds no secrets.
	Run func(ctx context.Context) error
}

// Readiness tells whether a replica can do its work: its state, and the latest
// result of each check. A check runs when somebody asks and its result is too
// old, once for all who ask meanwhile.
type Readiness struct {
	log    *slog.Logger
	checks []*checked

	mu    sync.Mutex
	state State
}

// checked is a check with its latest result.
type checked struct {
	Check
	running chan struct{} // holds a token while the check runs

	mu  sync.Mutex
	at  time.Time // when the result was asked for; zero without one
	err error
}

// NewReadiness returns a Readiness in StateStarting.
func NewReadiness(log *slog.Logger, checks ...Check) *Readiness {
	r := &Readiness{log: orDiscard(log), state: StateStarting}
	for _, c := range checks {
		if c.Timeout <= 0 {
			c.Timeout = defaultCheckTimeout
		}
		r.checks = append(r.checks, &checked{Check: c, running: make(chan struct{}, 1)})
	}
	return r
}

// SetState changes the state.
func (r *Readiness) SetState(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
}

// State returns the state.
func (r *Readiness) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Observe takes the outcome of other work on a store as a result of its check,
// which then need not run for a while. A name without a check is ignored.
func (r *Readiness) Observe(name string, err error) {
	for _, c := range r.checks {
		if c.Name == name {
			r.record(c, clock.Now(), err)
		}
	}
}

// A Report is the answer to whether a replica is ready.
type Report struct {
	State State
	// Failing are the stores that do not work. They are looked at in StateReady
	// only.
	Failing []Failure
}

// Ready reports whether the replica can take requests.
func (r Report) Ready() bool { return r.State == StateReady && len(r.Failing) == 0 }

// A Failure names a store that does not work, and why.
type Failure struct {
	Store string
	Err   error
}

// Report runs the checks whose results are too old, all at once, and reports.
func (r *Readiness) Report(ctx context.Context) Report {
	if s := r.State(); s != StateReady {
		return Report{State: s}
	}
	errs := make([]error, len(r.checks))
	var wg sync.WaitGroup
	for i, c := range r.checks {
		wg.Go(func() { errs[i] = r.result(ctx, c) })
	}
	wg.Wait()
	report := Report{State: r.State()}
	for i, err := range errs {
		if err != nil {
			report.Failing = append(report.Failing, Failure{r.checks[i].Name, err})
		}
	}
	return report
}

// Latest is Report by the results as they are, however old: it runs no check.
func (r *Readiness) Latest() Report {
	report := Report{State: r.State()}
	if report.State != StateReady {
		return report
	}
	for _, c := range r.checks {
		c.mu.Lock()
		err := c.err
		c.mu.Unlock()
		if err != nil {
			report.Failing = append(report.Failing, Failure{c.Name, err})
		}
	}
	return report
}

// result returns the check's result, which it renews when that is too old.
func (r *Readiness) result(ctx context.Context, c *checked) error {
	if err, ok := c.fresh(); ok {
		return err
	}
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Another request may have run it while this one waited.
	if err, ok := c.fresh(); ok {
		return err
	}
	// The result is for everybody: it must not fail because the one request that
	// happens to run it went away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	defer cancel()
	at := clock.Now()
	err := c.run(ctx)
	r.record(c, at, err)
	return err
}

func (c *checked) run(ctx context.Context) error {
	err := c.Run(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", c.Timeout, err)
	}
	return err
}

func (c *checked) fresh() (error, bool) { //nolint:revive // the error is the value
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err, !c.at.IsZero() && clock.Since(c.at) < c.MaxAge
}

// record keeps a result unless a newer one is known, and logs a change.
func (r *Readiness) record(c *checked, at time.Time, err error) {
	c.mu.Lock()
	if at.Before(c.at) {
		c.mu.Unlock()
		return
	}
	was := c.err
	c.at, c.err = at, err
	c.mu.Unlock()
	switch {
	case was == nil && err != nil:
		r.log.Warn(event.ProbeStoreFailed, event.KeyStore, c.Name, event.KeyError, err)
	case was != nil && err == nil:
		r.log.Info(event.ProbeStoreRecovered, event.KeyStore, c.Name)
	}
}
