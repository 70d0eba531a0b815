package bench

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// A Wire is a libSQL server on a loopback port of this process, at a distance.
type Wire struct {
	URL string

	db     *hrana.Server
	server http.Server
	delay  time.Duration
	trips  atomic.Int64
	served chan error
}

// OpenWire starts a server on a database file in dir. Every request takes
// longer by delay.
func OpenWire(ctx context.Context, dir string, delay time.Duration) (*Wire, error) {
	db, err := hrana.New(hrana.Config{Path: filepath.Join(dir, "wire.sqlite")})
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	w := &Wire{URL: "http://" + l.Addr().String(), db: db, delay: delay, served: make(chan error, 1)}
	w.server.Handler = w
	go func() { w.served <- w.server.Serve(l) }()
	return w, nil
}

// ServeHTTP implements http.Handler.
func (w *Wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.trips.Add(1)
	if wait(r.Context(), w.delay) {
		w.db.ServeHTTP(rw, r)
	}
}

// Trips returns the number of requests so far.
func (w *Wire) Trips() int64 { return w.trips.Load() }

// Close ends the server at once.
func (w *Wire) Close() error {
	err := w.server.Close()
	if served := <-w.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, w.db.Close())
}
