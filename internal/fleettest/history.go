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

// An Op is what a call asks an object for. A counter can add and read, a note
// put and get.
type Op struct {
	Kind string // "add", "read", "put", "get"
	// ID names the op of an add, and N is how much it adds.
	ID string
	N  int64
	// Body is what a put writes, when Match is "" or the tag of what is there.
	Body, Match string
}

// Writes reports whether it changes the object.
func (o Op) Writes() bool { return o.Kind == "add" || o.Kind == "put" }

// tag is the entity tag of what a put writes, as the note makes it.
func (o Op) tag() string {
	sum := sha256.Sum256([]byte("application/octet-stream\x00" + o.Body))
	return fmt.Sprintf(`"%x"`, sum[:16])
}

// A call is one request and what became of it.
type call struct {
	client   int
	op       Op
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
		return c.op.Kind == "get"
	case http.StatusPreconditionFailed:
		return c.op.Match != ""
	}
	return false
}

// acknowledged reports whether the caller was told that it has written.
func (c call) acknowledged() bool {
	return c.op.Writes() && c.done() && c.answer.Status != http.StatusPreconditionFailed
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

// A Caller sends one request to a path of the lab, and does not repeat it.
type Caller interface {
	Do(method, path, body string, headers ...string) Answer
}

// Do makes a call through a replica for a client that has no other under way.
// It reports false, and does nothing, when the history is full.
func (h *History) Do(r Caller, client int, o Op, during func() string) (Answer, bool) {
	h.mu.Lock()
	h.begin++
	full := h.begin > maxCalls
	h.mu.Unlock()
	if full {
		return Answer{}, false
	}
	c := call{client: client, op: o, from: time.Since(h.begun)}
	switch o.Kind {
	case "add":
		c.answer = r.Do(http.MethodPost, fmt.Sprintf("%s/add?n=%d&op=%s", h.Name, o.N, o.ID), "")
	case "put":
		var headers []string
		if o.Match != "" {
			headers = []string{"If-Match", o.Match}
		}
		c.answer = r.Do(http.MethodPut, h.Name, o.Body, headers...)
	default:
		c.answer = r.Do(http.MethodGet, h.Name, "")
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
func (h *History) Settle(r Caller, client int) error {
	c := call{client: client, op: Op{Kind: "read"}, from: time.Since(h.begun)}
	if h.isNote() {
		c.op.Kind = "get"
	} else {
		a := r.Do(http.MethodGet, h.Name+"/ops", "")
		var list struct{ Ops []listed }
		if a.Status != http.StatusOK {
			return fmt.Errorf("ops of %s: %v", h.Name, a)
		}
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
			return fmt.Errorf("ops of %s: %w", h.Name, err)
		}
		h.list = list.Ops
	}
	c.answer = r.Do(http.MethodGet, h.Name, "")
	if c.to = time.Since(h.begun); !c.done() {
		return fmt.Errorf("%s: %v", h.Name, c.answer)
	}
	h.record(c)
	return nil
}

func (h *History) isNote() bool { kind, _ := split(h.Name); return kind == "note" }

// Acknowledged counts the writes that were acknowledged, by the fault during
// which they were.
func (h *History) Acknowledged() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[string]int{}
	for _, c := range h.calls {
		if c.acknowledged() {
			n[c.during]++
		}
	}
	return n
}

// split returns the kind and the name of an object from their path.
func split(path string) (kind, name string) {
	kind, name, _ = strings.Cut(path, "/")
	return kind, name
}
