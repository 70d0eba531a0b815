package dev

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync/atomic"
)

// A front passes requests to the ready replicas in turn. A replica that does not
// take a connection is passed over; what was sent is never sent again.
type front struct {
	ready     func() []string // host:port of each
	next      atomic.Uint64
	transport *http.Transport
}

// NewFront returns a handler that passes requests to the replicas that ready
// lists, by host:port, and what closes its idle connections.
func NewFront(ready func() []string) (http.Handler, func()) {
	f := &front{ready: ready, transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "replica", r.In.Host
			r.SetXForwarded()
		},
		Transport:     f,
		FlushInterval: -1, // what a replica flushes, clients get
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  failed,
	}, f.transport.CloseIdleConnections
}

var errNoReplica = errors.New("no replica is ready")

// RoundTrip implements http.RoundTripper.
func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	list := f.ready()
	if len(list) > 0 {
		// In turn, and from there on.
		i := int(f.next.Add(1) % uint64(len(list)))
		list = slices.Concat(list[i:], list[:i])
	}
	err := errNoReplica
	for _, address := range list {
		out := r.Clone(r.Context())
		out.URL.Host = address
		if r.Body != nil {
			out.Body = io.NopCloser(r.Body) // the next one needs it
		}
		var res *http.Response
		if res, err = f.transport.RoundTrip(out); !dialing(err) {
			return res, err
		}
	}
	return nil, err
}

// dialing reports whether a request failed before it was sent.
func dialing(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// failed answers a request that no replica has answered.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNoReplica) || dialing(err) && !errors.Is(err, context.Canceled):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "no replica is ready; nothing was done", http.StatusServiceUnavailable)
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	default:
		http.Error(w, "the replica did not answer; whether it has done what was asked is not known", http.StatusBadGateway)
	}
}
