package queue

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/libsql"
)

const (
	// pollQueues bounds the queues of one poll. They take turns.
	pollQueues = 32
	// A claim that was given up is remembered for givenUpFor, or three times the
	// visibility when that is longer. What it took later than that counts as a
	// crash.
	givenUpFor = time.Hour
	maxGivenUp = 100
)

// asked is one statement of a poll.
type asked struct {
	q    *consumer
	what string // bury, take or locate
}

// Name names the part of the poll.
func (c *Consumers) Name() string { return "queues" }

// Poll returns the statements of the next poll; what they return is at most
// about bytes, but for one message.
func (c *Consumers) Poll(bytes int) (stmts []libsql.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose() // a poll that was never answered
	if c.stopping {
		return nil
	}
	ask := func(q *consumer, what string, s libsql.Statement) {
		c.asked = append(c.asked, asked{q, what})
		stmts = append(stmts, s)
	}
	n := min(len(c.queues), pollQueues, max(1, bytes/maxRow))
	for i := range n {
		q := c.queues[(c.turn+i)%len(c.queues)]
		switch {
		case q.lost:
			ask(q, "locate", locate(q.name, q.pending.id, q.cfg.Visibility))
		case q.busy < q.cfg.Concurrency:
			q.begin(c.cfg.Replica, bytes/n)
			ask(q, "bury", q.pending.bury())
			ask(q, "take", q.pending.take())
		default:
			q.more = true // perhaps: the worker that is free next asks again
		}
	}
	if len(c.queues) > 0 {
		c.turn = (c.turn + n) % len(c.queues)
	}
	return stmts
}

// begin makes the next claim, for all workers that are free.
func (q *consumer) begin(replica string, bytes int) {
	now := clock.Now()
	for len(q.givenUp) > maxGivenUp || len(q.givenUp) > 0 && now.Sub(q.givenUp[0].at) > max(givenUpFor, 3*q.cfg.Visibility) {
		q.givenUp = q.givenUp[1:]
	}
	q.slots = q.cfg.Concurrency - q.busy
	q.busy += q.slots
	q.more = false
	q.pending = &claim{
		queue: q.name, id: uuid.NewString(), replica: replica, visibility: q.cfg.Visibility, maxAttempts: q.cfg.MaxAttempts,
		retention: q.cfg.DeadRetention, limit: min(q.slots*q.cfg.Batch, scanned), bytes: bytes, suspect: !q.suspect,
	}
	for _, g := range q.givenUp {
		q.pending.givenUp = append(q.pending.givenUp, g.id)
	}
}

// lose notes that the poll under way has no answer.
func (c *Consumers) lose() {
	for _, a := range c.asked {
		if a.what == "take" {
			a.q.lost = true
		}
	}
	c.asked = nil
}

// Polled takes the results of a poll, or its error, and starts the batches.
func (c *Consumers) Polled(res []libsql.Result, err error, sent time.Time) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && len(res) != len(c.asked) {
		err = errors.New("a poll with another number of results")
	}
	if err != nil {
		if libsql.OutcomeOf(err) == libsql.Unknown {
			c.lose()
		}
		for _, a := range c.asked {
			if a.what == "take" {
				a.q.finish()
			}
		}
		c.asked = nil
		return false
	}
	list := c.asked
	c.asked = nil
	for i, a := range list {
		switch q := a.q; a.what {
		case "bury":
			c.buried(q, res[i])
			q.more = len(res[i].Rows) == q.pending.limit
		case "locate":
			if len(res[i].Rows) == 0 { // else it has arrived, and cannot do so later
				q.givenUp = append(q.givenUp, givenUp{q.pending.id, clock.Now()})
			}
			c.took(q, res[i], sent)
		case "take":
			c.took(q, res[i], sent)
		}
		again = again || a.q.more && a.q.busy < a.q.cfg.Concurrency
	}
	return again && !c.stopping
}

// finish ends the pending claim: its workers are free.
func (q *consumer) finish() {
	q.busy -= q.slots
	q.pending, q.lost, q.slots = nil, false, 0
}

func (c *Consumers) buried(q *consumer, r libsql.Result) {
	for _, row := range r.Rows {
		key, _ := row[0].([]byte)
		_, id := split(key, len(deadKey(q.name)))
		c.log.Error(event.QueueMessageDead, event.KeyQueue, q.name, "message", id, "attempts", row[1], event.KeyError, row[2])
		q.stats.Dead++
	}
}

// took starts what the pending claim took.
func (c *Consumers) took(q *consumer, r libsql.Result, sent time.Time) {
	claim := q.pending
	q.finish()
	list, err := readHeld(q.name, r)
	if err != nil { // its claim ends by itself
		c.log.Warn(event.QueueClaimLost, event.KeyQueue, q.name, event.KeyError, err)
	}
	bytes := 0
	for _, h := range list {
		bytes += len(h.Body)
	}
	suspect := len(list) == 1 && list[0].Crashes >= claim.suspectAt()
	q.more = q.more || suspect || len(list) >= claim.limit || bytes > claim.bytes-maxRow
	for len(list) > 0 {
		n := min(len(list), q.cfg.Batch)
		b := newBatch(q.name, claim.id, list[:n], sent)
		list = list[n:]
		// What has little of its claim left, after an outage, would be cut off.
		if c.stopping || b.left() < q.cfg.Visibility/3 {
			c.wg.Go(func() { c.settle(q, b, errNotBegun) })
			continue
		}
		q.busy++
		q.stats.Running++
		q.stats.Claimed += n
		q.suspect = q.suspect || suspect
		c.wg.Go(func() { c.work(q, b, suspect) })
	}
}

// work delivers one batch.
func (c *Consumers) work(q *consumer, b *batch, suspect bool) {
	c.deliver(q, b)
	c.mu.Lock()
	q.busy--
	q.stats.Running--
	q.stats.Claimed -= len(b.messages)
	q.stats.Batches++
	if suspect {
		q.suspect = false
	}
	wake := (q.more || suspect) && !c.stopping
	c.mu.Unlock()
	if wake {
		c.cfg.Wake()
	}
}
