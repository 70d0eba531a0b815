package fleettest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// A Server is a libSQL server in the process of the test, on a loopback address.
// The hooks of hrana.Server make it fail.
type Server struct {
	*hrana.Server
	URL string

	mu   sync.Mutex
	hold func(body string) bool
	held chan *Late
}

func startServer(t testing.TB, path string) *Server {
	t.Helper()
	h, err := hrana.New(hrana.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Server: h}
	web := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = web.URL
	t.Cleanup(func() {
		web.Close()
		if err := h.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}

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
