package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
)

const (
	maxRequestID = 128 // bytes
	maxLogged    = 512 // bytes of a path or a panic's value
)

// An Access is what is known about a request when it is over.
type Access struct {
	Method string
	// Mount is the path of the mount that took the request, or one of
	// "well-known", "health", "static", "admin" and "".
	Mount    string
	Status   int
	Bytes    int64
	Duration time.Duration
}

// A shell is what every request goes through, whatever serves it.
type shell struct {
	replica  string
	log      *slog.Logger
	defaults http.Header
	done     func(Access) // may be nil
}

type requestIDKey struct{}

// RequestID returns the id of the request whose context this is, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// serve runs next for one request: it gives the request its id, completes the
// headers, turns a panic into a 500, and logs.
func (s *shell) serve(rw http.ResponseWriter, r *http.Request, next func(*response, *http.Request)) {
	start := clock.Now()
	id := r.Header.Get("X-Request-Id")
	if !validRequestID(id) {
		id = rand.Text()
	}
	path, method := r.URL.EscapedPath(), r.Method
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
	r.Header = maps.Clone(r.Header)
	r.Header.Set("X-Request-Id", id)

	w := &response{ResponseWriter: rw, defaults: s.defaults, fixed: http.Header{"X-Request-Id": {id}}}
	if s.replica != "" {
		w.fixed["Dwk-Replica"] = []string{s.replica}
	}
	maps.Copy(rw.Header(), w.fixed) // for who takes the connection over
	abort := s.run(w, r, next)

	a := Access{Method: method, Mount: w.mount, Status: w.status, Bytes: w.bytes, Duration: clock.Since(start)}
	if s.done != nil {
		s.done(a)
	}
	s.access(r.Context(), w, a, path, abort)
	if abort {
		// The server cuts the connection: a body that is not whole must not look
		// like one.
		panic(http.ErrAbortHandler)
	}
}

func (s *shell) run(w *response, r *http.Request, next func(*response, *http.Request)) (abort bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			abort = true
			return
		}
		s.log.ErrorContext(r.Context(), event.HTTPPanicked, "request_id", RequestID(r.Context()), "mount", w.mount,
			"panic", cut(fmt.Sprint(v)), "stack", string(debug.Stack()))
		if w.status != 0 || w.hijacked {
			abort = true
			return
		}
		clear(w.Header())
		fail(w, http.StatusInternalServerError, "internal error, request "+RequestID(r.Context()))
	}()
	next(w, r)
	w.begin()
	return false
}

func (s *shell) access(ctx context.Context, w *response, a Access, path string, abort bool) {
	level := slog.LevelInfo
	if w.quiet {
		level = slog.LevelDebug
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", cut(a.Method)), slog.String("mount", a.Mount), slog.String("path", cut(path)),
		slog.Int("status", a.Status), slog.Int64("bytes", a.Bytes), slog.Duration(event.KeyTook, a.Duration),
		slog.String("request_id", RequestID(ctx)),
	}
	if txid := w.Header().Get("Dwk-Txid"); txid != "" {
		attrs = append(attrs, slog.String("txid", txid))
	}
	if abort {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	s.log.LogAttrs(ctx, level, event.HTTPRequest, attrs...)
}

func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func cut(s string) string {
	if len(s) > maxLogged {
		return s[:maxLogged] + "..."
	}
	return s
}
