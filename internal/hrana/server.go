// Package hrana serves a SQLite file over HTTP as sqld (libsql-server) does: the
// JSON forms of Hrana 2 and 3, with pipelines and cursors. The messages are
// those of docs/HRANA_3_SPEC.md and docs/HTTP_V2_SPEC.md in the repository
// tursodatabase/libsql; where sqld is stricter than these, so is this server.
//
// It has no WebSocket and no protobuf encoding.
package hrana

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A Config describes a server; zero values mean the defaults.
type Config struct {
	// Path is the database file; the folders above it are created.
	Path string
	// Expiry is how long a stream may be idle; 10 s.
	Expiry time.Duration
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
	cfg     Config
	db      *database
	streams *streams
	hook    atomic.Pointer[func(context.Context, Request) Fault]
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
	setDefault(&cfg.MaxBody, 32<<20)
	setDefault(&cfg.MaxResponse, 10_000_000)
	s := &Server{cfg: cfg, db: newDatabase(cfg.Path, cfg.BusyTimeout)}
	if err := s.db.check(); err != nil {
		return nil, fmt.Errorf("hrana: opening %s: %w", cfg.Path, err)
	}
	s.streams = newStreams(cfg.Expiry)
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
	return s.db.close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /v2", "GET /v3":
		sendText(w, http.StatusOK, "Hello, this is HTTP API v"+r.URL.Path[2:]+" (Hrana over HTTP)")
	case "GET /health":
		w.WriteHeader(http.StatusOK)
	case "GET /version":
		sendText(w, http.StatusOK, "dwk")
	case "POST /v2/pipeline":
		s.servePipeline(w, r, 2)
	case "POST /v3/pipeline":
		s.servePipeline(w, r, 3)
	case "POST /v3/cursor":
		s.serveCursor(w, r)
	default:
		http.NotFound(w, r)
	}
}

// readBody decodes the JSON body; false after it has answered with an error.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			sendError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", s.cfg.MaxBody))
		} else {
			sendError(w, http.StatusBadRequest, "the request could not be read")
		}
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		sendText(w, http.StatusBadRequest, "Cannot deserialize client message from JSON: "+err.Error())
		return false
	}
	return true
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
