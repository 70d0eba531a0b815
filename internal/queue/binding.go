package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of one commit of [Send].
const (
	commitMessages = 1000
	commitBytes    = 1 << 20
)

// A Committer runs plans: a kv.Store, or a kv.Group on it.
type Committer interface {
	Commit(ctx context.Context, p *kv.Plan) (kv.Verdict, error)
}

// Send commits messages, at most 1,000 and 1 MiB of bodies in one commit. It
// returns how many were surely sent; when it fails, an error that is not
// refused or failed (see [libsql.OutcomeOf]) leaves those of one more commit in
// doubt.
func Send(ctx context.Context, c Committer, msgs []Outgoing) (sent int, err error) {
	for len(msgs) > 0 {
		n := portion(msgs)
		p := kv.NewPlan()
		AddSend(p, msgs[:n])
		if v, err := c.Commit(ctx, p); err != nil {
			return sent, err
		} else if !v.OK {
			return sent, fmt.Errorf("%w: the store takes no messages", durable.ErrUnavailable)
		}
		sent += n
		msgs = msgs[n:]
	}
	return sent, nil
}

// portion is how many of the messages go into one commit.
func portion(msgs []Outgoing) (n int) {
	for size := 0; n < len(msgs) && n < commitMessages; n++ {
		if size += len(msgs[n].Body); n > 0 && size > commitBytes {
			break
		}
	}
	return n
}

// A Binding is a queue as an application sends to it outside of the events of
// objects.
type Binding struct {
	Name    string
	Commits Committer
	// Sent, when not nil, is told of messages that were sent, for a poll at the
	// time that they are due.
	Sent func(queue string, delay time.Duration)
}

var _ durable.Queue = (*Binding)(nil)

// Send implements [durable.Queue].
func (b *Binding) Send(ctx context.Context, body any, opts durable.SendOptions) error {
	return b.SendBatch(ctx, []any{body}, opts)
}

// SendBatch implements [durable.Queue].
func (b *Binding) SendBatch(ctx context.Context, bodies []any, opts durable.SendOptions) error {
	msgs, err := Encode(b.Name, bodies, opts)
	if err != nil {
		return err
	}
	sent, err := Send(ctx, b.Commits, msgs)
	if (sent > 0 || err != nil) && b.Sent != nil {
		b.Sent(b.Name, opts.Delay)
	}
	if err == nil {
		return nil
	}
	kind := durable.ErrUnavailable
	if sent > 0 || libsql.OutcomeOf(err) == libsql.Unknown { // what is half sent must not pass for not sent
		kind = durable.ErrUnknownOutcome
	}
	return fmt.Errorf("send to queue %s: %w: %d of %d messages were surely sent: %w", b.Name, kind, sent, len(msgs), err)
}
