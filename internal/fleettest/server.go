package fleettest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// A Server is a libSQL server in the process of the test, on a loopback address.
type Server struct {
	URL string

	t   testing.TB
	cfg hrana.Config
	web *httptest.Server

	// up is held by requests, and taken while the server is down.
	up   sync.RWMutex
	h    *hrana.Server // nil while it is down
	hook func(context.Context, hrana.Request) hrana.Fault

	mu    sync.Mutex
	links []*Link
	hold  func(body string) bool
	held  chan *Late
}

// StartServer starts a server, which ends with the test.
func StartServer(t testing.TB, cfg hrana.Config) *Server {
	t.Helper()
	return startServer(t, cfg)
}

func startServer(t testing.TB, cfg hrana.Config) *Server {
	t.Helper()
	cfg.WriteLimit = time.Minute
	s := &Server{t: t, cfg: cfg}
	s.start()
	s.web = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.web.URL
	t.Cleanup(func() {
		s.web.Close()
		s.stop()
	})
	return s
}

func (s *Server) start() {
	h, err := hrana.New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.up.Lock()
	defer s.up.Unlock()
	s.h = h
	h.SetHook(s.hook)
}

// stop waits for the requests that are executed.
func (s *Server) stop() {
	s.up.Lock()
	defer s.up.Unlock()
	if err := s.h.Close(); err != nil {
		s.t.Errorf("close the server: %v", err)
	}
	s.h = nil
}

// Restart cuts all connections, and is down for a while. Streams are gone then.
func (s *Server) Restart(down time.Duration) {
	s.web.CloseClientConnections()
	s.mu.Lock()
	for _, l := range s.links {
		l.web.CloseClientConnections()
	}
	s.mu.Unlock()
	s.stop()
	time.Sleep(down)
	s.start()
}

// Reconfigure restarts the server with another configuration.
func (s *Server) Reconfigure(change func(*hrana.Config)) {
	s.stop()
	change(&s.cfg)
	s.start()
}

// LoseStreams ends all streams that no request uses, and forgets them. It is for
// hooks, while the server is up.
func (s *Server) LoseStreams() { s.h.ForgetStreams() }

// SetHook makes all later requests pass through hook; nil ends that.
func (s *Server) SetHook(hook func(context.Context, hrana.Request) hrana.Fault) {
	s.up.Lock()
	defer s.up.Unlock()
	s.hook = hook
	s.h.SetHook(hook)
}

// ServeHTTP serves a request, and cuts its connection while the server is down.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.up.RLock()
	defer s.up.RUnlock()
	if s.h == nil {
		panic(http.ErrAbortHandler)
	}
	s.h.ServeHTTP(w, r)
}

// A Link is one replica's way to the server.
type Link struct {
	URL string
	cut atomic.Bool
	web *httptest.Server
}

// NewLink returns a way to the server that can be cut.
func (s *Server) NewLink() *Link {
	l := &Link{}
	l.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		s.serve(w, r)
	}))
	l.URL = l.web.URL
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	s.t.Cleanup(l.web.Close)
	return l
}

// Cut cuts the link, also under requests that are being executed.
func (l *Link) Cut() {
	l.cut.Store(true)
	l.web.CloseClientConnections()
}

// Mend ends a cut.
func (l *Link) Mend() { l.cut.Store(false) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold == nil {
		s.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	if s.hold != nil && s.hold(string(body)) {
		s.hold = nil
		s.held <- &Late{server: s, path: r.URL.Path, body: body}
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.ServeHTTP(w, r)
}

// Hold keeps the next request with SQL text that matches: its sender is cut
// off, and the request comes later.
func (s *Server) Hold(match func(sql string) bool) <-chan *Late {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.held = match, make(chan *Late, 1)
	return s.held
}

// A Late request is on its way to the server.
type Late struct {
	server *Server
	path   string
	body   []byte
}

// Deliver has the server execute the request, and returns its answer, which
// nobody else gets.
func (l *Late) Deliver() (status int, body string) {
	w := httptest.NewRecorder()
	l.server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, l.path, bytes.NewReader(l.body)))
	return w.Code, w.Body.String()
}

// The requests of the object runtime, told apart by their statements.
func isAcquire(sql string) bool { return strings.Contains(sql, "$.acquired_at") }
func isCommit(sql string) bool  { return strings.Contains(sql, "INSERT INTO obj_log") }
func isRelease(sql string) bool {
	return strings.Contains(sql, "DELETE FROM kv") && strings.Contains(sql, "$.holder") && strings.Contains(sql, "RETURNING 1")
}
