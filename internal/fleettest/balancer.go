package fleettest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// checkInterval is how often a balancer looks whether a replica is ready.
const checkInterval = 500 * time.Millisecond

// A Balancer hands requests to ready replicas, one after the other, and repeats
// none: a replica that it believes ready and that is not fails the request.
type Balancer struct {
	URL string

	mu       sync.Mutex
	backends []*backend
	next     int
}

type backend struct {
	replica *Replica
	proxy   *httputil.ReverseProxy
	ready   bool
}

// NewBalancer starts a balancer without replicas, which ends with the test.
func NewBalancer(t testing.TB) *Balancer {
	t.Helper()
	b := &Balancer{}
	s := httptest.NewServer(b)
	b.URL = s.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			b.check(ctx)
			select {
			case <-time.After(checkInterval):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		s.Close()
	})
	return b
}

// Add has the balancer use a replica from when it is ready.
func (b *Balancer) Add(r *Replica) {
	r.t.Helper()
	u, err := url.Parse(r.Public)
	if err != nil {
		r.t.Fatal(err)
	}
	p := &httputil.ReverseProxy{
		Rewrite:   func(req *httputil.ProxyRequest) { req.SetURL(u) },
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100, DialContext: dialSmall},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "balancer: "+err.Error(), http.StatusBadGateway)
		},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, &backend{replica: r, proxy: p})
}

// check asks all replicas. Somebody else may have got the port of one that is
// gone: it does not answer in its name.
func (b *Balancer) check(ctx context.Context) {
	b.mu.Lock()
	list := append([]*backend{}, b.backends...)
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, e := range list {
		wg.Go(func() {
			a := send(ctx, http.MethodGet, e.replica.Admin+"/readyz", "")
			b.mu.Lock()
			defer b.mu.Unlock()
			e.ready = a.Status == http.StatusOK && a.Replica() == e.replica.ID
		})
	}
	wg.Wait()
}

func (b *Balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	var to *backend
	for range b.backends {
		b.next = (b.next + 1) % len(b.backends)
		if e := b.backends[b.next]; e.ready {
			to = e
			break
		}
	}
	b.mu.Unlock()
	if to == nil {
		http.Error(w, "balancer: no replica is ready", http.StatusBadGateway)
		return
	}
	to.proxy.ServeHTTP(w, r)
}

// Ready is how many replicas get requests.
func (b *Balancer) Ready() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.backends {
		if e.ready {
			n++
		}
	}
	return n
}
