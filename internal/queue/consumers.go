package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
)

// A QueueConfig says how a queue is consumed.
type QueueConfig struct {
	// Batch bounds the messages of one delivery, and Concurrency the deliveries
	// of this replica at the same time.
	Batch, Concurrency int
	// Visibility is how long a claim lasts; it is renewed while the consumer
	// runs.
	Visibility time.Duration
	// MaxAttempts is the number of deliveries after which a message is dead.
	MaxAttempts int
	// Backoff is the wait after the first failed delivery. It doubles with each
	// further one, up to an hour.
	Backoff time.Duration
	// DeadRetention is how long dead letters are kept.
	DeadRetention time.Duration
}

func (c QueueConfig) check() error {
	if c.Batch < 1 || c.Concurrency < 1 || c.MaxAttempts < 1 || c.Visibility < time.Second || c.Backoff < 0 || c.DeadRetention <= 0 {
		return fmt.Errorf("%w: %+v", durable.ErrInvalid, c)
	}
	return nil
}

// A Config is what consumers need of a replica.
type Config struct {
	Replica string
	Store   *kv.Store
	Commits Committer
	// Wake asks for a poll at once, and WakeAt for one at a time by the fleet's
	// clock at the latest.
	Wake   func()
	WakeAt func(time.Time)
}

// Consumers deliver the messages of the queues that this replica consumes.
// They claim in the replica's poll, as many batches as have a free worker, and
// run each in a goroutine of its own.
type Consumers struct {
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
	queues   []*consumer
	turn     int
	asked    []asked // what the poll that is under way asks
	stopping bool
}

// A consumer is a queue that is consumed. The mutex of its Consumers guards it.
type consumer struct {
	name string
	cfg  QueueConfig
	env  durable.Env
	fn   durable.Consumer

	// busy workers run batches, or are kept for those of the pending claim.
	busy int
	// pending is the claim whose answer has not come, and lost says that it will
	// not: what it took must be read back.
	pending *claim
	lost    bool
	slots   int
	// suspect is set while a message runs that has brought down a process.
	suspect bool
	// more says that the last claim left something.
	more    bool
	givenUp []givenUp
	stats   Stats
}

type givenUp struct {
	id string
	at time.Time
}

// Stats are figures of one queue on this replica since it started.
type Stats struct {
	Queue string
	// Running are batches, and Claimed their messages, at this moment.
	Running, Claimed int
	// Batches were delivered; of their messages so many were acknowledged, are
	// to be delivered again, or died. Lost ones had gone when they were to be
	// settled, and are delivered again.
	Batches, Acked, Retried, Dead, Lost int64
}

// NewConsumers returns consumers of no queue.
func NewConsumers(cfg Config, log *slog.Logger) *Consumers {
	c := &Consumers{cfg: cfg, log: log, gone: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Consume has fn get the messages of a queue. It must come before the first
// poll.
func (c *Consumers) Consume(queue string, qc QueueConfig, env durable.Env, fn durable.Consumer) error {
	err := errors.Join(CheckName(queue), qc.check())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(queue) != nil {
		err = errors.New("it has a consumer already")
	}
	if err != nil {
		return fmt.Errorf("consume queue %s: %w", queue, err)
	}
	c.queues = append(c.queues, &consumer{name: queue, cfg: qc, env: env, fn: fn, stats: Stats{Queue: queue}})
	return nil
}

func (c *Consumers) find(queue string) *consumer {
	for _, q := range c.queues {
		if q.name == queue {
			return q
		}
	}
	return nil
}

// Sent is told of messages that this replica has sent, so that one that is
// consumed here does not wait for the next poll.
func (c *Consumers) Sent(queue string, delay time.Duration) {
	c.mu.Lock()
	q := c.find(queue)
	if q == nil || c.stopping {
		c.mu.Unlock()
		return
	}
	full := q.busy >= q.cfg.Concurrency
	if full && delay == 0 {
		q.more = true // the worker that is free next asks
	}
	c.mu.Unlock()
	switch {
	case delay > 0:
		c.cfg.WakeAt(c.cfg.Store.Clock().Add(delay))
	case !full:
		c.cfg.Wake()
	}
}

// Stats returns figures of all queues, in the order in which they were added.
func (c *Consumers) Stats() []Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Stats, len(c.queues))
	for i, q := range c.queues {
		out[i] = q.stats
	}
	return out
}

// stopGrace is how long a stop waits for consumers that it has cancelled.
const stopGrace = 3 * time.Second

// Stop claims nothing any more, waits for the consumers that run, and hands
// back what was claimed and has not begun. When ctx ends it cancels them, and
// hands back, uncounted, what they have not acknowledged; its error names what
// has not ended even so, whose claims end by themselves. It comes after the
// last poll. A second call does nothing.
func (c *Consumers) Stop(ctx context.Context) error {
	select {
	case <-c.gone:
		return nil
	default:
	}
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
	select {
	case <-done:
	case <-time.After(stopGrace):
		for _, s := range c.Stats() {
			if s.Running > 0 {
				left = errors.Join(left, fmt.Errorf("queue %s: %d consumers still run", s.Queue, s.Running))
			}
		}
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := c.handBack(call)
	c.once.Do(func() { close(c.gone) })
	return errors.Join(left, err)
}

// handBack makes what lost claims took due again, uncounted.
func (c *Consumers) handBack(ctx context.Context) error {
	p, empty := kv.NewPlan(), true
	c.mu.Lock()
	for _, q := range c.queues {
		var ids []string
		for _, g := range q.givenUp {
			ids = append(ids, g.id)
		}
		if q.pending != nil {
			ids = append(ids, q.pending.id)
		}
		if len(ids) > 0 {
			empty = false
			p.Add(`UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now)+` || `+rest(len(dueKey(q.name)))+` AS BLOB), v = json_remove(v, '$.claim', '$.claimed_by')
			WHERE k > CAST(`+at(kv.Now)+` AS BLOB) AND k <= CAST(`+at(kv.Now+` + ?2 + 1`)+` AS BLOB) AND `+claimOf+` IN (SELECT value FROM json_each(?3)) AND `+kv.OK,
				dueKey(q.name), q.cfg.Visibility.Milliseconds(), encoded(ids))
		}
	}
	c.mu.Unlock()
	if empty {
		return nil
	}
	if _, err := c.cfg.Commits.Commit(ctx, p); err != nil {
		return fmt.Errorf("hand back messages: %w", err)
	}
	return nil
}
