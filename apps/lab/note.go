package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const (
	maxNote     = 16 << 20 // bytes of a note's body
	maxSleep    = 10 * time.Minute
	maxTypeName = 256 // bytes of a content type
)

const noteSchema = `
CREATE TABLE IF NOT EXISTS lab_note (id INTEGER PRIMARY KEY CHECK (id = 0), body BLOB NOT NULL, type TEXT NOT NULL, etag TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS lab_sleeps (id INTEGER PRIMARY KEY, begun INTEGER, ms INTEGER NOT NULL, at INTEGER NOT NULL, replica TEXT NOT NULL) STRICT;`

// note keeps a body, and a database to try statements in.
type note struct {
	state durable.State
	env   durable.Env
}

func newNote(state durable.State, env durable.Env) (durable.Object, error) {
	if _, err := state.SQL().Exec(context.Background(), noteSchema); err != nil {
		return nil, fmt.Errorf("create note: %w", err)
	}
	return &note{state, env}, nil
}

func (n *note) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parseTarget(r)
	if !ok || t.kind != "note" {
		writeError(w, http.StatusNotFound, "no such path")
		return
	}
	if !t.allowed(w, r) {
		return
	}
	switch {
	case t.action == "sql":
		serveSQL(w, r, n.state.SQL())
	case t.action == "sleep":
		n.serveSleep(w, r, t.name)
	case t.action == "sleeps":
		n.serveSleeps(w, r, t.name)
	case r.Method == http.MethodPut:
		n.servePut(w, r)
	default:
		n.serveGet(w, r)
	}
}

func (n *note) serveGet(w http.ResponseWriter, r *http.Request) {
	var body []byte
	var contentType, tag string
	for row, err := range n.state.SQL().Query(r.Context(), `SELECT body, type, etag FROM lab_note`) {
		if err == nil {
			err = row.Scan(&body, &contentType, &tag)
		}
		if err != nil {
			panic(fmt.Errorf("read note: %w", err))
		}
	}
	if tag == "" {
		writeError(w, http.StatusNotFound, "no such note")
		return
	}
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "no-cache")
	if matches(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// A note is whatever somebody put there: it must not run as a page of ours.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	io.Copy(w, bytes.NewReader(body)) //nolint:errcheck // the client is gone
}

func (n *note) servePut(w http.ResponseWriter, r *http.Request) {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	if name, _, err := mime.ParseMediaType(contentType); err != nil || !strings.Contains(name, "/") || len(contentType) > maxTypeName {
		writeError(w, http.StatusBadRequest, "bad Content-Type")
		return
	}
	body, ok := readBody(w, r, maxNote)
	if !ok {
		return
	}
	ctx, db := r.Context(), n.state.SQL()
	var current string
	for row, err := range db.Query(ctx, `SELECT etag FROM lab_note`) {
		if err == nil {
			err = row.Scan(&current)
		}
		if err != nil {
			panic(fmt.Errorf("read note: %w", err))
		}
	}
	ifMatch, ifNoneMatch := r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	if (len(ifMatch) > 0 && !matches(ifMatch, current)) || matches(ifNoneMatch, current) {
		if current != "" {
			w.Header().Set("ETag", current)
		}
		writeError(w, http.StatusPreconditionFailed, "the note is not what the condition asks for")
		return
	}
	tag := etag(contentType, body)
	if _, err := db.Exec(ctx, `INSERT INTO lab_note VALUES (0, ?, ?, ?)
		ON CONFLICT DO UPDATE SET body = excluded.body, type = excluded.type, etag = excluded.etag`, body, contentType, tag); err != nil {
		panic(fmt.Errorf("write note: %w", err))
	}
	w.Header().Set("ETag", tag)
	if current == "" {
		w.WriteHeader(http.StatusCreated)
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
}

// readBody reads a bounded body, and answers when it cannot.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes", limit))
		return nil, false
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "the body could not be read")
		return nil, false
	}
	if body == nil {
		body = []byte{}
	}
	return body, true
}

// etag is the same for the same note, whichever replica made it and when.
func etag(contentType string, body []byte) string {
	h := sha256.New()
	io.WriteString(h, contentType+"\x00") //nolint:errcheck // a hash takes everything
	h.Write(body)                         //nolint:errcheck // likewise
	return fmt.Sprintf(`"%x"`, h.Sum(nil)[:16])
}

// matches reports whether a condition names the entity tag of something that
// exists.
func matches(condition []string, tag string) bool {
	if tag == "" {
		return false
	}
	return slices.ContainsFunc(strings.Split(strings.Join(condition, ","), ","), func(c string) bool {
		c = strings.TrimSpace(c)
		return c == "*" || strings.TrimPrefix(c, "W/") == tag
	})
}

func (n *note) serveSleep(w http.ResponseWriter, r *http.Request, name string) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, "the query cannot be read")
		return
	}
	ms, err := intParam(q, "ms", 0, 0, maxSleep.Milliseconds())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := n.sleep(r.Context(), ms); err != nil {
		panic(fmt.Errorf("sleep: %w", err))
	}
	writeJSON(w, http.StatusOK, struct {
		Name string `json:"name"`
		Ms   int64  `json:"ms"`
	}{name, ms})
}

// sleep writes a row, waits, and writes another that refers to it. Both are of
// one event: nobody ever sees one of them alone.
func (n *note) sleep(ctx context.Context, ms int64) error {
	const insert = `INSERT INTO lab_sleeps (begun, ms, at, replica) VALUES (?, ?, ?, ?)`
	db := n.state.SQL()
	begin, err := db.Exec(ctx, insert, nil, ms, n.state.Now().UnixMilli(), n.env.Replica())
	if err != nil {
		return err
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = db.Exec(ctx, insert, begin.LastRowID, ms, n.state.Now().UnixMilli(), n.env.Replica())
	return err
}

func (n *note) serveSleeps(w http.ResponseWriter, r *http.Request, name string) {
	type row struct {
		ID int64 `json:"id"`
		// Begun is the id of the first row of the pair, and absent in that one.
		Begun   *int64 `json:"begun,omitempty"`
		Ms      int64  `json:"ms"`
		At      int64  `json:"at"` // epoch milliseconds
		Replica string `json:"replica"`
	}
	list := newListWriter(w, name, "sleeps")
	for dbRow, err := range n.state.SQL().Query(r.Context(), `SELECT id, begun, ms, at, replica FROM lab_sleeps ORDER BY id`) {
		var s row
		var begun any
		if err == nil {
			err = dbRow.Scan(&s.ID, &begun, &s.Ms, &s.At, &s.Replica)
		}
		if err != nil {
			panic(fmt.Errorf("list sleeps: %w", err))
		}
		if id, ok := begun.(int64); ok {
			s.Begun = &id
		}
		list.add(s)
	}
	list.end()
}
