// Package room is an example application: chat rooms with history, presence,
// files and search, on the package durable alone. Each room is an object.
package room

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// App is the application. Its page is at ROOM/ below the mount.
var App = durable.App{
	Name:     "room",
	Summary:  "chat rooms",
	New:      newFront,
	Classes:  map[string]durable.Class{"ChatRoom": newRoom},
	Requires: durable.Requirements{Buckets: []string{"ROOM_FILES"}},
	Settings: &Settings{PresenceSeconds: 30, MaxFile: 16 << 20},
}

// Settings are what a mount may set.
type Settings struct {
	// PresenceSeconds is how long a member is shown after the last sign of life.
	PresenceSeconds int `json:"presence_seconds"`
	// MaxFile bounds a file, in bytes.
	MaxFile int64 `json:"max_file"`
}

//go:embed page.html
var page []byte

//go:embed page.js
var script []byte

// A front is the stateless front door: it serves the page and the files, and
// hands everything else to the room.
type front struct {
	rooms durable.Namespace
	files durable.Bucket
	max   int64
}

func newFront(env durable.Env) (http.Handler, error) {
	f := &front{env.Namespace("ChatRoom"), env.Bucket("ROOM_FILES"), env.Settings().(*Settings).MaxFile}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, env.BaseURL().JoinPath("lobby/").String(), http.StatusSeeOther)
	})
	mux.HandleFunc("GET /{room}/{$}", static("text/html; charset=utf-8", page))
	mux.HandleFunc("GET /{room}/page.js", static("text/javascript; charset=utf-8", script))
	mux.HandleFunc("PUT /{room}/files/{op}/{name}", f.put)
	mux.HandleFunc("GET /{room}/files/{op}/{name}", f.get)
	for _, pattern := range []string{"GET /{room}/socket", "GET /{room}/messages", "POST /{room}/messages", "GET /{room}/search"} {
		mux.HandleFunc(pattern, f.enter)
	}
	// A page of another site can neither write nor upload.
	return http.NewCrossOriginProtection().Handler(mux), nil
}

func static(kind string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src 'self'")
		w.Write(body) //nolint:errcheck // the client went away
	}
}

// enter hands a request to its room, whose paths are those below it.
func (f *front) enter(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("room")
	if len(name) > 64 {
		http.Error(w, "the name of a room has at most 64 bytes", http.StatusBadRequest)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxText+1<<10)
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/"+name)
	f.rooms.Get(f.rooms.ID(name)).ServeHTTP(w, r)
}

// key is where the bucket has a file. The operation id, which the client chose,
// makes an upload that is repeated the same one.
func key(r *http.Request) string {
	return path.Join(durable.IDFromName(r.PathValue("room")).String(), durable.IDFromName(r.PathValue("op")).String())
}

// put streams a file into the bucket. No room waits for it.
func (f *front) put(w http.ResponseWriter, r *http.Request) {
	body := http.MaxBytesReader(w, r.Body, f.max)
	_, err := f.files.Put(r.Context(), key(r), body, durable.PutOptions{IfAbsent: true})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("a file has at most %d bytes", f.max), http.StatusRequestEntityTooLarge)
	case err == nil, errors.Is(err, durable.ErrPrecondition): // or it is there already
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, err)
	}
}

// get streams a file out of the bucket, as a download: who uploaded it chose
// what it says.
func (f *front) get(w http.ResponseWriter, r *http.Request) {
	body, info, err := f.files.Get(r.Context(), key(r), durable.GetOptions{})
	if err != nil {
		fail(w, err)
		return
	}
	defer body.Close() //nolint:errcheck // only read from
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": r.PathValue("name")}))
	h.Set("Content-Length", fmt.Sprint(info.Size))
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
}

// fail answers for an error of the bucket.
func fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, durable.ErrNotFound):
		http.Error(w, "there is no such file", http.StatusNotFound)
	case errors.Is(err, durable.ErrUnavailable), errors.Is(err, durable.ErrUnknownOutcome):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not now: send it again", http.StatusServiceUnavailable)
	default:
		http.Error(w, "it failed", http.StatusInternalServerError)
	}
}
