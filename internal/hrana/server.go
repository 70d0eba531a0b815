// Package hrana serves a SQLite file over HTTP as sqld (libsql-server) does: the
// JSON forms of Hrana 2 and 3, with pipelines and cursors. The messages are
// those of docs/HRANA_3_SPEC.md and docs/HTTP_V2_SPEC.md in the repository
// tursodatabase/libsql; where sqld is stricter than these, so is this server.
//
// It has no WebSocket and no protobuf encoding.
package hrana

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// A Config describes a server; zero values mean the defaults.
type Config struct {
	// Path is the database file, that of the namespace "default"; the folders
	// above it are created.
	Path string
	// Namespaces, if not "", is the folder of further databases, one file a
	// namespace. A request names one in its path (/dev/NAME/v2/pipeline), in the
	// headers x-namespace-bin (base64) or x-namespace, or by the first label of
	// its host. CreateNamespace makes one.
	Namespaces string
	// Token, if not "", is the bearer token that pipelines and cursors need.
	Token string
	// ReadToken, if not "", is a bearer token with which statements that write are
	// refused.
	ReadToken string
	// Strict refuses the statements that sqld refuses: most settings by PRAGMA,
	// VACUUM, ANALYZE, ATTACH and what is TEMP.
	Strict bool
	// Expiry is how long a stream may be idle; 10 s.
	Expiry time.Duration
	// WriteLimit is how long a transaction may write while others wait for it to
	// end; then it is rolled back. 5 s.
	WriteLimit time.Duration
	// BusyTimeout is how long a statement waits for the write lock; 5 s.
	BusyTimeout time.Duration
	// MaxBody bounds a request's body; 32 MiB.
	MaxBody int64
	// MaxResponse bounds the values in an answer to a pipeline, in bytes of
	// JSON; 10,000,000.
	MaxResponse int
}

// A Server is an http.Handler. Close it after the http.Server that runs it.
type Server struct {
	cfg        Config
	namespaces *namespaces
	streams    *streams
	hook       atomic.Pointer[func(context.Context, Request) Fault]
}

// New opens the database file and starts the sweeper of idle streams.
func New(cfg Config) (*Server, error) {
	if cfg.Path == "" {
		return nil, errors.New("hrana: no path of a database file")
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o777); err != nil {
		return nil, fmt.Errorf("hrana: %w", err)
	}
	setDefault(&cfg.Expiry, 10*time.Second)
	setDefault(&cfg.BusyTimeout, 5*time.Second)
	setDefault(&cfg.WriteLimit, 5*time.Second)
	setDefault(&cfg.MaxBody, 32<<20)
	setDefault(&cfg.MaxResponse, 10_000_000)
	s := &Server{cfg: cfg, streams: newStreams(cfg.Expiry)}
	open := func(path string) *database { return newDatabase(path, cfg, s.streams) }
	s.namespaces = &namespaces{dir: cfg.Namespaces, open: open, byName: map[string]*database{defaultNamespace: open(cfg.Path)}}
	err := s.namespaces.get(defaultNamespace).check()
	if err != nil {
		err = fmt.Errorf("hrana: opening %s: %w", cfg.Path, err)
	} else if err = s.namespaces.load(); err != nil {
		err = fmt.Errorf("hrana: %w", err)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Close ends all streams and closes the file. No request may be under way.
func (s *Server) Close() error {
	s.streams.close()
	return s.namespaces.close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, route := "", r.URL.Path
	if rest, ok := strings.CutPrefix(route, "/dev/"); ok && s.cfg.Namespaces != "" {
		if name, tail, ok := strings.Cut(rest, "/"); ok && name != "" {
			namespace, route = name, "/"+tail
		}
	}
	switch r.Method + " " + route {
	case "GET /v2", "GET /v3":
		sendText(w, http.StatusOK, "Hello, this is HTTP API v"+route[2:]+" (Hrana over HTTP)")
	case "GET /health":
		w.WriteHeader(http.StatusOK)
	case "GET /version":
		sendText(w, http.StatusOK, "dwk")
	case "POST /v2/pipeline", "POST /v3/pipeline", "POST /v3/cursor":
		if !s.authorized(w, r) {
			return
		}
		db, ok := s.database(w, r, namespace)
		switch {
		case !ok:
		case route == "/v3/cursor":
			s.serveCursor(w, r, db)
		default:
			s.servePipeline(w, r, db, int(route[2]-'0'))
		}
	default:
		http.NotFound(w, r)
	}
}

// bodies are those of requests that were read, for other requests.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Bodies up to firstBody are given their memory at once, and it is kept up to
// keptBody.
const (
	firstBody = 4 << 20
	keptBody  = 8 << 20
)

// readMessage reads the body; false after it has answered with an error.
func (s *Server) readMessage(w http.ResponseWriter, r *http.Request) (*proto.Message, bool) {
	body := bodies.Get().(*bytes.Buffer)
	defer func() {
		if body.Cap() <= keptBody {
			body.Reset()
			bodies.Put(body)
		}
	}()
	body.Grow(int(min(max(r.ContentLength, 0), firstBody)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			sendError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", s.cfg.MaxBody))
		} else {
			sendError(w, http.StatusBadRequest, "the request could not be read")
		}
		return nil, false
	}
	m, err := proto.ParseMessage(body.Bytes())
	if err != nil {
		sendText(w, http.StatusBadRequest, "Cannot deserialize client message from JSON: "+err.Error())
		return nil, false
	}
	return m, true
}

// A protocolError ends the request with status 400 and the stream with it.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func sendText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	io.WriteString(w, text)
}

func sendError(w http.ResponseWriter, status int, text string) {
	sendJSON(w, status, map[string]string{"error": text})
}

func sendJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of texts only
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}
