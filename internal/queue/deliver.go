package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

const (
	// settleTimeout bounds one try to settle a batch.
	settleTimeout = 30 * time.Second
	// maxBackoff bounds the wait between two deliveries.
	maxBackoff = time.Hour
)

var (
	errClaimLost = errors.New("the claim on the messages was lost")
	errNotBegun  = errors.New("not begun")
)

// deliver runs the consumer on a batch and settles what comes of it.
func (c *Consumers) deliver(q *consumer, b *batch) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	renewed := make(chan struct{})
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(renewed)
		c.renew(renewing, cancel, q, b)
	}()
	begin := clock.Now()
	err := c.call(ctx, q, b)
	b.end()
	if err == nil {
		c.log.Debug(event.QueueBatchOK, event.KeyQueue, q.name, event.KeyCount, len(b.messages), event.KeyTook, clock.Since(begin))
	} else {
		c.log.Warn(event.QueueBatchFailed, event.KeyQueue, q.name, event.KeyCount, len(b.messages), event.KeyTook, clock.Since(begin), event.KeyError, err)
	}
	stop()
	<-renewed
	if c.ctx.Err() != nil {
		err = errNotBegun // it was told to end: that is no fault of the messages
	}
	cancel(nil)
	c.settle(q, b, err)
}

// call runs the consumer; a panic is an error.
func (c *Consumers) call(ctx context.Context, q *consumer, b *batch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error(event.QueueBatchFailed, event.KeyQueue, q.name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	failpoint.Hit("queue.consume.before")
	return q.fn(ctx, q.env, b)
}

// renew extends the claim, a third of the visibility after it was last known
// to be extended, until ctx ends. When the claim is over, lost is called.
func (c *Consumers) renew(ctx context.Context, lost context.CancelCauseFunc, q *consumer, b *batch) {
	every := q.cfg.Visibility / 3
	wait := min(every, b.left()/3)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		sent := clock.Now()
		call, cancel := context.WithTimeout(ctx, b.left())
		err := c.extend(call, q, b, sent)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errClaimLost), b.left() <= 0:
			c.log.Warn(event.QueueClaimLost, event.KeyQueue, q.name, "messages", len(b.messages), event.KeyError, err)
			lost(errClaimLost)
			return
		case err != nil:
			wait = every / 10
		default:
			wait = every
		}
	}
}

// extend renews the claim once.
func (c *Consumers) extend(ctx context.Context, q *consumer, b *batch, sent time.Time) error {
	p := kv.NewPlan()
	keys := b.keys()
	n := addRenew(p, q.name, b.claim, keys, q.cfg.Visibility)
	v, err := c.cfg.Commits.Commit(ctx, p)
	if err != nil {
		return err
	}
	list, err := readHeld(q.name, v.Results[n])
	if err != nil {
		return err
	}
	if len(list) < len(keys) { // a renewal whose answer was lost has moved them, or they are gone
		if list, err = c.locate(ctx, q, b); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return errClaimLost
	}
	b.moved(list, sent)
	return nil
}

// locate reads where the messages of a batch are.
func (c *Consumers) locate(ctx context.Context, q *consumer, b *batch) ([]held, error) {
	res, err := c.cfg.Store.Decide(ctx, locate(q.name, b.claim, q.cfg.Visibility))
	if err != nil {
		return nil, err
	}
	return readHeld(q.name, res[0])
}

// settle does what the consumer decided, and counts what it did not decide as
// a failed delivery with this error, until the outcome is known or the claim
// has ended.
func (c *Consumers) settle(q *consumer, b *batch, failure error) {
	doubt := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		s := c.settlement(q, b, failure)
		if s.empty() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		err := c.try(ctx, q, b, s, doubt)
		cancel()
		switch {
		case err == nil && len(b.keys()) == 0:
			return
		case err != nil:
			doubt = doubt || libsql.OutcomeOf(err) == libsql.Unknown
			c.log.Warn(event.QueueSettleFailed, event.KeyQueue, q.name, "messages", len(b.messages), event.KeyError, err)
			if b.left() <= 0 {
				return // they are delivered again
			}
		}
		select {
		case <-time.After(wait):
		case <-c.gone:
			return
		}
	}
}

// try settles once. What turns out to be elsewhere is noted for the next try.
func (c *Consumers) try(ctx context.Context, q *consumer, b *batch, s settlement, doubt bool) error {
	p := kv.NewPlan()
	results := s.add(p)
	v, err := c.cfg.Commits.Commit(ctx, p)
	if err != nil {
		return err
	}
	var names []string
	for _, i := range results {
		for _, row := range v.Results[i].Rows {
			name, _ := row[0].([]byte)
			names = append(names, string(name))
		}
	}
	c.count(q, b.settled(names))
	if len(b.keys()) == 0 {
		return nil
	}
	list, err := c.locate(ctx, q, b)
	if err != nil {
		return err
	}
	lost := b.found(list)
	if lost > 0 && !doubt {
		c.log.Warn(event.QueueClaimLost, event.KeyQueue, q.name, "messages", lost)
		c.mu.Lock()
		q.stats.Lost += int64(lost)
		c.mu.Unlock()
	}
	return nil
}

// count notes what has been settled.
func (c *Consumers) count(q *consumer, list []*message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range list {
		switch m.fate {
		case fateAcked:
			q.stats.Acked++
		case fateAgain:
			q.stats.Retried++
		case fateDead:
			q.stats.Dead++
			c.log.Error(event.QueueMessageDead, event.KeyQueue, q.name, "message", m.id, "attempts", m.Attempts(), event.KeyError, m.text)
		}
	}
}

// settlement is what is to be done about the messages that are not settled.
func (c *Consumers) settlement(q *consumer, b *batch, failure error) settlement {
	s := settlement{queue: q.name, claim: b.claim, retention: q.cfg.DeadRetention}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if m.settled {
			continue
		}
		m.text = reason(m.decision, failure)
		switch {
		case m.decision == acked:
			m.fate = fateAcked
			s.acks = append(s.acks, m.key)
		case m.decision == undecided && errors.Is(failure, errNotBegun):
			m.fate = fateBack
			s.again = append(s.again, move{key: m.key})
		case m.Attempts() >= q.cfg.MaxAttempts:
			m.fate = fateDead
			s.dead = append(s.dead, move{key: m.key, counted: true, err: m.text})
		default:
			m.fate = fateAgain
			delay := m.after
			if m.decision == undecided {
				delay = backoff(q.cfg.Backoff, m.stored.Attempts)
			}
			s.again = append(s.again, move{key: m.key, delay: delay, counted: true, err: m.text})
		}
	}
	return s
}

// backoff is the wait after a failed delivery that so many failed before.
func backoff(first time.Duration, failed int) time.Duration {
	d := min(first, maxBackoff)
	for range min(failed, 64) {
		d = min(2*d, maxBackoff)
	}
	return d
}

// reason is the error that is kept of a message that was not acknowledged.
func reason(decision int, failure error) string {
	switch {
	case failure != nil:
		return cut(failure.Error(), maxError)
	case decision == retried:
		return "the consumer asked for a retry"
	default:
		return "the consumer did not acknowledge it"
	}
}

// cut returns at most n bytes of text as UTF-8.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}
