package host

import (
	"context"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/queue"
)

// drainReserve is what a stop keeps of its time for the events, when consumers
// take long.
const drainReserve = 5 * time.Second

// openQueues makes the consumers, of no queue yet.
func (r *replica) openQueues() {
	r.consumers = queue.NewConsumers(queue.Config{
		Replica: r.id, Store: r.stores.KV, Commits: r.objects.Commits(), Wake: r.poller.Wake, WakeAt: r.poller.WakeAt,
	}, r.log)
	r.undo = append(r.undo, func() error {
		// After an orderly stop there is nothing left to wait for.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.consumers.Stop(ctx)
	})
}

// stopConsumers waits for the consumers that run, but leaves the events some of
// the time that is left.
func (r *replica) stopConsumers(ctx context.Context, left time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, left-min(drainReserve, left/4))
	defer cancel()
	return r.consumers.Stop(ctx)
}

// consume starts nothing yet: it has the application's consumers get the
// messages of their queues when the replica polls.
func (r *replica) consume(e *env) error {
	for name, fn := range e.app.Consumers {
		q, _ := r.queue(name)
		err := r.consumers.Consume(name, queue.QueueConfig{
			Batch: q.Batch, Concurrency: q.Concurrency, Visibility: q.Visibility, MaxAttempts: q.MaxAttempts,
			Backoff: q.Backoff, DeadRetention: q.DeadRetention,
		}, e, fn)
		if err != nil {
			return err
		}
	}
	return nil
}

// queue is the configuration of a queue.
func (r *replica) queue(name string) (config.Queue, bool) {
	i := slices.IndexFunc(r.cfg.Queues, func(q config.Queue) bool { return q.Name == name })
	if i < 0 {
		return config.Queue{}, false
	}
	return r.cfg.Queues[i], true
}

// usedQueues are the queues that an application sends to or consumes.
func usedQueues(app durable.App) []string {
	names := slices.Clone(app.Requires.Queues)
	for name := range app.Consumers {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Queue implements durable.Env.
func (e *env) Queue(name string) durable.Queue {
	if _, ok := e.r.queue(name); ok && slices.Contains(usedQueues(e.app), name) {
		return &queue.Binding{Name: name, Commits: e.r.objects.Commits(), Sent: e.r.consumers.Sent}
	}
	panic(e.missing("queue", name))
}
