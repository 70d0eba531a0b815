// Package fleet is what a replica does at regular times, and how replicas know
// of each other: one poll for all that may have become due, the sweep of what
// has expired, and the registry of replicas.
package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Part contributes statements to every poll. All parts share one transaction
// and one round trip.
//
// The poller calls a part's methods one at a time, on its own goroutine. No
// statement may write when there is nothing to do, and none may rest on the
// verdict of a kv.Plan, which is not there: a part that wants kv_meta.ok sets it
// itself, and back to 1 at its end.
type Part interface {
	// Name is for logs and metrics.
	Name() string
	// Poll returns the statements for the next poll, none when the part wants
	// nothing. Bytes is its share of what the answer may hold.
	Poll(bytes int) []libsql.Statement
	// Polled takes one result a statement, or the poll's error, whose
	// libsql.OutcomeOf tells whether the statements may have been applied. Sent is
	// when they were sent. It must not wait. It is not called for a poll to which
	// the part contributed nothing. Again asks for a further poll at once: a pass
	// was cut, or more is due.
	Polled(res []libsql.Result, err error, sent time.Time) (again bool)
}

// Store is what the poller needs of the coordination store; a kv.Store.
type Store interface {
	// Write runs statements in one transaction and returns the primary's time.
	Write(ctx context.Context, stmts ...libsql.Statement) ([]libsql.Result, time.Time, error)
	// Clock estimates the primary's time.
	Clock() time.Time
}

// Config says how often a [Poller] polls. Zero means the default.
type Config struct {
	// Interval is the time between two polls, to which up to a fifth is added at
	// random.
	Interval time.Duration
	// MaxBackoff bounds the time between two polls while the store is down.
	MaxBackoff time.Duration
	// Budget is what the answer of a poll may hold, in bytes.
	Budget int
	// Observed, if not nil, is called after every poll with the state of the
	// store: nil, or why it cannot be used. It must not wait.
	Observed func(error)
}

// Defaults of Config.
const (
	DefaultInterval   = time.Second
	DefaultMaxBackoff = 10 * time.Second
	DefaultBudget     = 4 << 20
)

func (c Config) withDefaults() Config {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = DefaultMaxBackoff
	}
	c.MaxBackoff = max(c.MaxBackoff, c.Interval)
	if c.Budget <= 0 {
		c.Budget = DefaultBudget
	}
	if c.Observed == nil {
		c.Observed = func(error) {}
	}
	return c
}

// A Poller polls for all its parts, one poll after the other. Parts are added
// before it starts; the methods that wake it may be called at any time.
type Poller struct {
	cfg   Config
	store Store
	log   *slog.Logger

	quit   chan struct{} // closed when it is to stop
	kick   chan struct{} // holds a token when the time of the next poll changed
	done   chan struct{} // closed when it has stopped
	cancel context.CancelFunc

	// Of the polling goroutine alone.
	parts     []*seat
	failures  int       // polls in a row that failed
	failing   time.Time // since when
	immediate int       // polls in a row that came at once and changed nothing

	passing chan struct{} // holds a token during a pass

	mu       sync.Mutex
	started  bool
	stopping bool
	quiet    bool // only lasting parts are polled
	woken    bool
	alarms   alarms
	lastOK   time.Time
}

// New returns a poller that polls when it is started.
func New(cfg Config, store Store, log *slog.Logger) *Poller {
	return &Poller{
		cfg: cfg.withDefaults(), store: store, log: log,
		passing: make(chan struct{}, 1), quit: make(chan struct{}), kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Add adds parts, which are polled until [Poller.Quiesce].
func (p *Poller) Add(parts ...Part) { p.add(false, parts) }

// AddLasting adds parts that are polled until [Poller.Stop].
func (p *Poller) AddLasting(parts ...Part) { p.add(true, parts) }

func (p *Poller) add(lasting bool, parts []Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		panic("fleet: a part is added to a poller that runs")
	}
	for _, part := range parts {
		p.parts = append(p.parts, &seat{Part: part, lasting: lasting})
	}
}

// Start begins to poll in the background, the first time at once.
func (p *Poller) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.stopping {
		return nil
	}
	p.started = true
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		defer cancel()
		p.run(ctx)
	}()
	return nil
}

// Quiesce has the poll under way finish, and no part polled any more but the
// lasting ones.
func (p *Poller) Quiesce(ctx context.Context) error {
	p.mu.Lock()
	p.quiet = true
	p.mu.Unlock()
	select {
	case p.passing <- struct{}{}:
		<-p.passing
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop has the poll under way finish and ends polling. When ctx ends first, the
// poll is broken off. It may be called again.
func (p *Poller) Stop(ctx context.Context) error {
	p.mu.Lock()
	started := p.started
	if !p.stopping {
		p.stopping = true
		close(p.quit)
	}
	p.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.cancel()
		<-p.done
		return context.Cause(ctx)
	}
}

// LastOK is when the last poll that succeeded was sent, or zero.
func (p *Poller) LastOK() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastOK
}

func (p *Poller) run(ctx context.Context) {
	for {
		again := p.pass(ctx)
		if !p.rest(again) {
			return
		}
	}
}
