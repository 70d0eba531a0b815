package object

import (
	"context"
	"io"
	"net/http"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/queue"
)

// instanceEnv is an application's environment as one instance sees it: what
// leaves the object passes the output gate first.
type instanceEnv struct {
	durable.Env
	i *instance
}

// Namespace implements durable.Env.
func (e *instanceEnv) Namespace(class string) durable.Namespace {
	return e.i.a.rt.namespace(class, e.i)
}

// HTTPClient implements durable.Env.
func (e *instanceEnv) HTTPClient() *http.Client {
	c := *e.Env.HTTPClient()
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	c.Transport = gated{e.i, next}
	return &c
}

type gated struct {
	i    *instance
	next http.RoundTripper
}

func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := g.i.callOut(r.Context()); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// Background implements durable.Env: work that an event starts begins when the
// event has been committed.
func (e *instanceEnv) Background(work func(context.Context)) {
	e.i.mu.Lock()
	ev := e.i.ev
	if ev != nil {
		ev.after = append(ev.after, work)
	}
	e.i.mu.Unlock()
	if ev == nil {
		e.Env.Background(work)
	}
}

// Bucket implements durable.Env: each call is a call out.
func (e *instanceEnv) Bucket(name string) durable.Bucket {
	return gatedBucket{e.i, e.Env.Bucket(name)}
}

type gatedBucket struct {
	i    *instance
	next durable.Bucket
}

func (b gatedBucket) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if _, err := b.i.callOut(ctx); err != nil {
		return durable.ObjectInfo{}, err
	}
	return b.next.Put(ctx, key, body, opts)
}

func (b gatedBucket) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	if _, err := b.i.callOut(ctx); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	return b.next.Get(ctx, key, opts)
}

func (b gatedBucket) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	if _, err := b.i.callOut(ctx); err != nil {
		return durable.ObjectInfo{}, err
	}
	return b.next.Head(ctx, key)
}

func (b gatedBucket) Delete(ctx context.Context, key string) error {
	if _, err := b.i.callOut(ctx); err != nil {
		return err
	}
	return b.next.Delete(ctx, key)
}

func (b gatedBucket) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	if _, err := b.i.callOut(ctx); err != nil {
		return durable.Listing{}, err
	}
	return b.next.List(ctx, opts)
}

// Queue implements durable.Env: what an event sends is part of its commit.
func (e *instanceEnv) Queue(name string) durable.Queue {
	return eventQueue{e.i, name, e.Env.Queue(name)}
}

type eventQueue struct {
	i    *instance
	name string
	next durable.Queue
}

// Send implements durable.Queue.
func (q eventQueue) Send(ctx context.Context, body any, opts durable.SendOptions) error {
	return q.SendBatch(ctx, []any{body}, opts)
}

// SendBatch implements durable.Queue.
func (q eventQueue) SendBatch(ctx context.Context, bodies []any, opts durable.SendOptions) error {
	i := q.i
	i.calls.Lock()
	ev, err := i.caller(ctx)
	if ev == nil || err != nil {
		i.calls.Unlock()
		if err == nil {
			err = q.next.SendBatch(ctx, bodies, opts)
		}
		return err
	}
	defer i.calls.Unlock()
	msgs, err := queue.Encode(q.name, bodies, opts)
	if err != nil {
		return err
	}
	return ev.addSends(msgs)
}
