package object

import (
	"context"
	"net/http"

	"github.com/davidwkeith/dwk/durable"
)

// instanceEnv is an application's environment as one instance sees it: what
// leaves the object passes the output gate first.
type instanceEnv struct {
	durable.Env
	i *instance
}

// Namespace implements durable.Env.
func (e *instanceEnv) Namespace(class string) durable.Namespace {
	return e.i.a.rt.namespace(class, e.i.callOut)
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
