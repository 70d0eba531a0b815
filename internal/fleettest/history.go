package fleettest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxCalls bounds a history: its check takes more than linear time.
const maxCalls = 2000

// An op is what a call asks an object for. A counter can add and read, a note
// put and get.
type op struct {
	kind string // "add", "read", "put", "get"
	// id names the op of an add, and n is how much it adds.
	id string
	n  int64
	// body is what a put writes, when match is "" or the tag of what is there.
	body, match string
}

func (o op) writes() bool { return o.kind == "add" || o.kind == "put" }

// tag is the entity tag of what a put writes, as the note makes it.
func (o op) tag() string {
	sum := sha256.Sum256([]byte("application/octet-stream\x00" + o.body))
	return fmt.Sprintf(`"%x"`, sum[:16])
}

// A call is one request and what became of it.
type call struct {
	client   int
	op       op
	from, to time.Duration // since the history began
	answer   Answer
	// during is the fault that there was when it was answered.
	during string
}

// done reports whether the answer says what the call has done or seen: also
// that there is no note, or that its tag is another one.
func (c call) done() bool {
	switch c.answer.Status {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return true
	case http.StatusNotFound:
		return c.op.kind == "get"
	case http.StatusPreconditionFailed:
		return c.op.match != ""
	}
	return false
}

// acknowledged reports whether the caller was told that it has written.
func (c call) acknowledged() bool {
	return c.op.writes() && c.done() && c.answer.Status != http.StatusPreconditionFailed
}

// unknown reports whether the call may or may not have been applied.
func (c call) unknown() bool { return c.answer.Unknown() || c.answer.Status == 0 }

// value is the counter's value that the answer shows, -1 for none.
func (c call) value() int64 {
	v := struct{ Value int64 }{-1}
	if json.Unmarshal([]byte(c.answer.Body), &v) != nil {
		return -1
	}
	return v.Value
}

// A History is what was asked of one object, a counter or a note, and what it
// answered.
type History struct {
	Name string

	begun time.Time
	mu    sync.Mutex
	begin int // calls that have begun
	calls []call
	// list are the ops that a counter has counted, read at the end.
	list []listed
}

// A listed op is one that the counter has counted.
type listed struct {
	Op       string
	N, Value int64
}

// NewHistory begins the history of an object that does not exist yet. Its kind
// is "counter" or "note".
func NewHistory(kind, name string) *History {
	return &History{Name: kind + "/" + name, begun: time.Now()}
}

// Do makes a call through a replica for a client that has no other under way.
// It reports false, and does nothing, when the history is full.
func (h *History) Do(r *Replica, client int, o op, during func() string) (Answer, bool) {
	h.mu.Lock()
	h.begin++
	full := h.begin > maxCalls
	h.mu.Unlock()
	if full {
		return Answer{}, false
	}
	c := call{client: client, op: o, from: time.Since(h.begun)}
	switch o.kind {
	case "add":
		c.answer = r.Post(fmt.Sprintf("%s/add?n=%d&op=%s", h.Name, o.n, o.id), "")
	case "put":
		var headers []string
		if o.match != "" {
			headers = []string{"If-Match", o.match}
		}
		c.answer = r.Do(http.MethodPut, h.Name, o.body, headers...)
	default:
		c.answer = r.Get(h.Name)
	}
	c.to, c.during = time.Since(h.begun), during()
	h.record(c)
	return c.answer, true
}

func (h *History) record(c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// Settle reads the object as it is after all calls.
func (h *History) Settle(r *Replica, client int) error {
	c := call{client: client, op: op{kind: "read"}, from: time.Since(h.begun)}
	if h.isNote() {
		c.op.kind = "get"
	} else {
		a := r.Get(h.Name + "/ops")
		var list struct{ Ops []listed }
		if a.Status != http.StatusOK {
			return fmt.Errorf("ops of %s: %v", h.Name, a)
		}
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
			return fmt.Errorf("ops of %s: %w", h.Name, err)
		}
		h.list = list.Ops
	}
	c.answer = r.Get(h.Name)
	if c.to = time.Since(h.begun); !c.done() {
		return fmt.Errorf("%s: %v", h.Name, c.answer)
	}
	h.record(c)
	return nil
}

func (h *History) isNote() bool { kind, _ := split(h.Name); return kind == "note" }

// split returns the kind and the name of an object from their path.
func split(path string) (kind, name string) {
	kind, name, _ = strings.Cut(path, "/")
	return kind, name
}
