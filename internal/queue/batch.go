package queue

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
)

// A batch is one delivery. Its messages belong to one claim.
type batch struct {
	queue, claim string
	// mu guards everything below, and the messages.
	mu       sync.Mutex
	messages []*message
	// until is when the claim ends, by this machine's monotonic clock: not
	// later than by the primary's.
	until time.Time
	over  bool
}

var _ durable.Batch = (*batch)(nil)

// The decisions of a consumer about a message.
const (
	undecided = iota
	acked
	retried
)

// A message is one delivery of a stored message.
type message struct {
	b *batch
	held
	decision int
	after    time.Duration
	// settled is set when nothing is to be done about it any more; before, fate
	// and text are what is being tried.
	settled bool
	fate    int
	text    string
}

// What becomes of a message.
const (
	fateBack = iota
	fateAcked
	fateAgain
	fateDead
)

var _ durable.Message = (*message)(nil)

func newBatch(queue, claim string, list []held, sent time.Time) *batch {
	b := &batch{queue: queue, claim: claim, until: sent.Add(list[0].left)}
	for _, h := range list {
		b.messages = append(b.messages, &message{b: b, held: h})
		if end := sent.Add(h.left); end.Before(b.until) {
			b.until = end
		}
	}
	return b
}

// Queue implements [durable.Batch].
func (b *batch) Queue() string { return b.queue }

// Messages implements [durable.Batch].
func (b *batch) Messages() []durable.Message {
	out := make([]durable.Message, len(b.messages))
	for i, m := range b.messages {
		out[i] = m
	}
	return out
}

// end closes the batch to decisions: a consumer that goes on after it has
// returned decides nothing.
func (b *batch) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// left returns how long the claim lasts at least.
func (b *batch) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return -clock.Since(b.until)
}

// keys returns where the messages are stored that are not settled.
func (b *batch) keys() (keys [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if !m.settled {
			keys = append(keys, m.key)
		}
	}
	return keys
}

// moved notes where a renewal, sent at sent, has put messages.
func (b *batch) moved(list []held, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = sent.Add(list[0].left)
	b.place(list)
	for _, h := range list {
		if end := sent.Add(h.left); end.Before(b.until) {
			b.until = end
		}
	}
}

// place notes where messages are, and returns the names of those in the list.
func (b *batch) place(list []held) map[string]bool {
	at := map[string][]byte{}
	for _, h := range list {
		at[name(b.queue, h.key)] = h.key
	}
	in := map[string]bool{}
	for _, m := range b.messages {
		n := name(b.queue, m.key)
		if key, ok := at[n]; ok {
			m.key, in[n] = key, true
		}
	}
	return in
}

// found notes where messages are that the claim holds, and drops the others,
// which are lost. It returns how many it drops.
func (b *batch) found(list []held) (lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.place(list)
	for _, m := range b.messages {
		if !m.settled && !in[name(b.queue, m.key)] {
			m.settled = true
			lost++
		}
	}
	return lost
}

// settled notes which messages were settled, by the ends of their keys, and
// returns them.
func (b *batch) settled(names []string) (list []*message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if !m.settled && slices.Contains(names, name(b.queue, m.key)) {
			m.settled = true
			list = append(list, m)
		}
	}
	return list
}

// ID implements [durable.Message].
func (m *message) ID() string { return m.id }

// Body implements [durable.Message].
func (m *message) Body() json.RawMessage { return m.stored.Body }

// Attempts implements [durable.Message].
func (m *message) Attempts() int { return m.stored.Attempts + 1 }

// Timestamp implements [durable.Message].
func (m *message) Timestamp() time.Time {
	if m.SentAt == 0 {
		return time.Time{}
	}
	return time.UnixMilli(m.SentAt)
}

// Ack implements [durable.Message].
func (m *message) Ack() { m.decide(acked, 0) }

// Retry implements [durable.Message].
func (m *message) Retry(after time.Duration) { m.decide(retried, min(max(after, 0), MaxDelay)) }

func (m *message) decide(d int, after time.Duration) {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	if !m.b.over {
		m.decision, m.after = d, after
	}
}
