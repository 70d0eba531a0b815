package cron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv"
)

const (
	// maxRuns bounds the runs of a replica at the same time, and maxOverlap those
	// of one schedule whose runs may overlap.
	maxRuns    = 64
	maxOverlap = 16
	// lostFor is how long a replica looks for what a proposal has won whose
	// answer was lost.
	lostFor = 10 * time.Minute
)

// Options say how a schedule is run.
type Options struct {
	// Schedule is the expression, and Zone that of its five fields.
	Schedule, Zone string
	// Paused has this replica run it on request only.
	Paused bool
	// Allow lets runs overlap; else an occurrence waits inside its window until
	// the run before has ended.
	Allow bool
	// CatchUp is how long a missed occurrence is made up for, at least until the
	// next one.
	CatchUp time.Duration
	// AtMostOnce has a run that was cut off not repeated.
	AtMostOnce bool
	// Timeout bounds a run.
	Timeout time.Duration
}

// A Config is what a Runner needs of a replica.
type Config struct {
	Replica string
	Store   *kv.Store
	Commits Committer
	// TTL is how long a claim on a run lasts unless it is renewed.
	TTL time.Duration
	// Wake asks for a poll at once, and WakeAt for one at a time by the fleet's
	// clock at the latest.
	Wake   func()
	WakeAt func(time.Time)
}

// A Runner runs the schedules of a replica. It claims occurrences in the
// replica's poll and runs each in a goroutine of its own.
type Runner struct {
	cfg Config
	log *slog.Logger
	// ctx ends when a stop can wait no longer.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	// gone is closed when a stop has ended: nobody waits for the rest.
	gone chan struct{}
	once sync.Once

	mu       sync.Mutex
	jobs     []*job
	turn     int
	asked    *asked // the poll that is under way
	lost     []lostTake
	runs     int
	cut      bool // the last poll left something
	stopping bool
}

// A job is a schedule that this replica runs. The mutex of its Runner guards it.
type job struct {
	name     string
	schedule Schedule
	opts     Options
	env      durable.Env
	fn       func(context.Context, durable.Env, durable.Occurrence) error

	looked bool // seen is of the store
	seen   seen
	// overdue is how long ago the first occurrence was due that nobody has won.
	overdue time.Duration
	// runs are those under way here, by holder; stuck ones do not end.
	runs  map[string]bool
	stuck int
}

// A lostTake is a proposal whose answer was lost.
type lostTake struct {
	take
	at time.Time
}

// NewRunner returns a runner of no schedule.
func NewRunner(cfg Config, log *slog.Logger) *Runner {
	c := &Runner{cfg: cfg, log: log, gone: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Add has fn run at the occurrences of a schedule. It must come before the
// first poll.
func (c *Runner) Add(name string, o Options, env durable.Env, fn func(context.Context, durable.Env, durable.Occurrence) error) error {
	s, err := Parse(o.Schedule, o.Zone)
	err = errors.Join(err, CheckName(name))
	if o.CatchUp < 0 || o.Timeout <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: %+v", durable.ErrInvalid, o))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.name == name {
			err = errors.Join(err, errors.New("there is one with that name already"))
		}
	}
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	c.jobs = append(c.jobs, &job{name: name, schedule: s, opts: o, env: env, fn: fn, runs: map[string]bool{}})
	return nil
}

// window is how long an occurrence may be begun, and life how long its entry is
// kept: nothing that is late may win it again.
func (j *job) window(at time.Time) (window, life time.Duration) {
	window = max(j.opts.CatchUp, MinEvery)
	if next := j.schedule.Next(at); !next.IsZero() {
		window = max(window, next.Sub(at))
	}
	return window, 2 * window
}

// A Status is what a replica knows of a schedule, as it was last seen.
type Status struct {
	Name string
	// Started and Finished are of the newest occurrence that was run anywhere;
	// zero when there was none, or it has not finished. Failed says that it did.
	Started, Finished time.Time
	Failed            bool
	// Overdue is how long ago the first occurrence was due of those that nobody has
	// begun.
	Overdue time.Duration
	// Running are the runs of this replica.
	Running int
}

// Statuses returns the schedules in the order in which they were added.
func (c *Runner) Statuses() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Status, len(c.jobs))
	for i, j := range c.jobs {
		out[i] = Status{Name: j.name, Overdue: j.overdue, Running: len(j.runs)}
		if l := j.seen.last; l != nil && l.StartedAt > 0 {
			out[i].Started = time.UnixMilli(l.StartedAt)
			if l.FinishedAt > 0 {
				out[i].Finished, out[i].Failed = time.UnixMilli(l.FinishedAt), l.Outcome != OK
			}
		}
	}
	return out
}

// stopGrace is how long a stop waits for runs that it has cancelled.
const stopGrace = 3 * time.Second

// Stop begins no run any more and waits for those under way. When ctx ends it
// cancels them, and others repeat them; its error names what has not ended even
// so, whose claims end by themselves. What was won and has not begun is handed
// back. It comes after the last poll.
func (c *Runner) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); c.wg.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	c.cancel(durable.ErrDraining)
	var left error
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		for _, s := range c.Statuses() {
			if s.Running > 0 {
				left = errors.Join(left, fmt.Errorf("schedule %s: %d runs have not ended", s.Name, s.Running))
			}
		}
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := c.handBack(call)
	c.once.Do(func() { close(c.gone) })
	return errors.Join(left, err)
}

// handBack lets other replicas begin what proposals without an answer have won.
func (c *Runner) handBack(ctx context.Context) error {
	c.mu.Lock()
	c.lose(clock.Now())
	lost := c.lost
	c.lost = nil
	c.mu.Unlock()
	var failed error
	for _, t := range lost {
		if _, err := c.cfg.Commits.Commit(ctx, t.claim().ending(result{})); err != nil {
			failed = errors.Join(failed, fmt.Errorf("hand back schedule %s: %w", t.name, err))
		}
	}
	return failed
}
