package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
)

const (
	defaultHeaderTimeout = 10 * time.Second
	defaultIdleTimeout   = 2 * time.Minute
	defaultHeaderBytes   = 64 << 10
	// closeWait is how long Close waits for handlers whose contexts it ended.
	closeWait = 5 * time.Second
)

// Config describes one listening address.
type Config struct {
	// Name is what errors call the listener: "public" or "admin".
	Name string
	// Addr is host:port; port 0 takes a free one.
	Addr string
	// Cert and Key are PEM files; both or none. With them the listener speaks
	// TLS.
	Cert, Key string
	// HeaderTimeout bounds the reading of a request's header (0: 10 s),
	// IdleTimeout the pause between requests of a connection (0: 2 min).
	HeaderTimeout, IdleTimeout time.Duration
	// Pace bounds slow bodies and slow readers of answers.
	Pace Pace
	// HeaderBytes bounds a request's header; 0 means 64 KiB.
	HeaderBytes int
	Logger      *slog.Logger
}

// A Server owns one listening address and its connections.
type Server struct {
	name   string
	ln     net.Listener
	http   *http.Server
	cancel context.CancelFunc
	active atomic.Int64 // handlers that run
	pace   Pace
	waits  clientWaits
	// leaving has clients that come again use another connection.
	leaving atomic.Bool
}

// Listen takes the address, so that a port in use is known at start. Connections
// wait until Serve is called.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	var tlsConfig *tls.Config
	if cfg.Cert != "" || cfg.Key != "" {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("%s listener: load certificate %q and its key: %w", cfg.Name, cfg.Cert, err)
		}
		tlsConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", cfg.Name, err)
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{name: cfg.Name, ln: ln, cancel: cancel, pace: cfg.Pace}
	s.http = &http.Server{
		ReadHeaderTimeout: orDefault(cfg.HeaderTimeout, defaultHeaderTimeout),
		IdleTimeout:       orDefault(cfg.IdleTimeout, defaultIdleTimeout),
		MaxHeaderBytes:    orDefault(cfg.HeaderBytes, defaultHeaderBytes),
		TLSConfig:         tlsConfig,
		ErrorLog:          log.New(errorLog{orDiscard(cfg.Logger), cfg.Name}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	return s, nil
}

func orDefault[T time.Duration | int](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Addr is the address that was taken.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Loopback reports whether only the machine itself can reach the listener.
func (s *Server) Loopback() bool {
	a, ok := s.ln.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Active is how many requests run.
func (s *Server) Active() int { return int(s.active.Load()) }

// Leave has every answer from now on close its connection, or its HTTP/2 session,
// so that clients that keep connections for long come back to another replica
// before this one stops accepting. Stay ends that.
func (s *Server) Leave() { s.leaving.Store(true) }

// Stay ends what Leave began.
func (s *Server) Stay() { s.leaving.Store(false) }

// Serve answers requests until Shutdown or Close, and then returns nil at once;
// requests may still be running.
func (s *Server) Serve(h http.Handler) error {
	h = s.paced(h)
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		defer s.active.Add(-1)
		h.ServeHTTP(w, r)
	})
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(s.ln, "", "")
	} else {
		err = s.http.Serve(s.ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("%s listener: %w", s.name, err)
}

// Shutdown stops accepting, and waits for the running requests until the
// context ends; it then tells how many are left, and Close ends those.
// Hijacked connections are their owner's.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.closeListener()
	if err != nil {
		return fmt.Errorf("%s listener: stop with %s: %w", s.name, s.running(), err)
	}
	defer s.cancel()
	return s.wait(ctx)
}

// running says what runs, and what of it waits for clients only.
func (s *Server) running() string {
	return fmt.Sprintf("%d requests running%s", s.active.Load(), &s.waits)
}

// Close ends the contexts of all requests, closes their connections, and waits
// for their handlers, which have five seconds to notice.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	s.closeListener()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%s listener: close: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	return s.wait(ctx)
}

// closeListener is for a listener that Serve never took.
func (s *Server) closeListener() {
	s.ln.Close() //nolint:errcheck // usually closed already
}

// wait polls, as [http.Server.Shutdown] does: a wait group may not be waited
// for while a late connection adds to it.
func (s *Server) wait(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.active.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s listener: %s did not end: %w", s.name, s.running(), ctx.Err())
		}
	}
	return nil
}

// An errorLog takes the lines that net/http logs about connections.
type errorLog struct {
	log      *slog.Logger
	listener string
}

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Warn(event.HTTPError, "listener", l.listener, event.KeyError, cut(strings.TrimSpace(string(line))))
	return len(line), nil
}
