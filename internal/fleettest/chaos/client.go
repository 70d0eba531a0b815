package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// id is that of the object with a name.
func id(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// A caller sends requests to the replica that is in a slot. Nothing is sent
// twice: what net/http repeats by itself are reads, and what was not written to
// a connection.
type caller struct {
	w *world
	s *slot
}

func (w *world) caller(s *slot) caller { return caller{w, s} }

// A sight is what an answer says of an object's lease and position.
type sight struct {
	from, to    time.Time
	replica     string
	txid, epoch int64
	writes      bool
}

// sights are what answers have said, by object.
type sights struct {
	mu   sync.Mutex
	list map[string][]sight
	// answers counts answers by their status, calls by their kind.
	answers map[int]int
	calls   map[string]int
	total   atomic.Int64
}

// Do implements fleettest.Caller.
func (c caller) Do(method, path, body string, headers ...string) fleettest.Answer {
	r, _ := c.s.get()
	from := time.Now()
	var wrote atomic.Int64
	a := c.w.send(r, method, path, body, headers, &wrote)
	to := time.Now()
	if a.Status == http.StatusInternalServerError {
		c.w.Logf("%s %s of %s: %v", method, path, r.Name, a)
	}
	st := &c.w.seen
	st.mu.Lock()
	defer st.mu.Unlock()
	st.answers[a.Status]++
	kind, rest, _ := strings.Cut(path, "/")
	name, action, _ := strings.Cut(rest, "/")
	if kind == "counter" || kind == "note" || kind == "alarm" {
		name, _, _ = strings.Cut(name, "?")
		if a.Status >= 200 && a.Status < 300 && a.Txid() > 0 && a.Epoch() > 0 {
			key := kind + "/" + name
			writes := method != http.MethodGet && (action != "sql" || strings.Contains(body, "INSERT"))
			st.list[key] = append(st.list[key], sight{from, to, a.Replica(), a.Txid(), a.Epoch(), writes})
		}
	}
	if a.Status == 0 {
		c.w.drains.answerless(r, wrote.Load())
	}
	return a
}

// send sends a request to a replica.
func (w *world) send(r *fleettest.Replica, method, path, body string, headers []string, wrote *atomic.Int64) fleettest.Answer {
	ctx := httptrace.WithClientTrace(w.ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Store(time.Now().UnixNano()) }})
	return w.request(ctx, method, r.Public+"/lab/"+path, body, headers)
}

func (w *world) request(ctx context.Context, method, url, body string, headers []string) fleettest.Answer {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return fleettest.Answer{Err: err}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fleettest.Answer{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fleettest.Answer{Err: fmt.Errorf("answer %d was cut off: %w", resp.StatusCode, err)}
	}
	return fleettest.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b)}
}

// count counts a call of a client.
func (w *world) count(kind string) {
	w.seen.total.Add(1)
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.seen.calls[kind]++
}

// settled gets a path when all is quiet, from any replica that answers.
func (w *world) settled(path string) (a fleettest.Answer) {
	random := rand.New(rand.NewPCG(w.plan.Seed, 4))
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && w.ctx.Err() == nil; w.sleep(20 * time.Millisecond) {
		if a = w.caller(w.pick(random)).Do(http.MethodGet, path, ""); a.Status == http.StatusOK || a.Status == http.StatusNotFound {
			return a
		}
	}
	return a
}

// drains knows which replicas drain since when.
type drains struct {
	mu    sync.Mutex
	since map[*fleettest.Replica]int64
	bad   int
}

func (d *drains) begin(r *fleettest.Replica) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since[r] = time.Now().UnixNano()
}

// answerless notes that a replica did not answer a request that was written at
// that time, 0 when it was not.
func (d *drains) answerless(r *fleettest.Replica, wrote int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since, ok := d.since[r]; ok && wrote > 0 && wrote < since {
		d.bad++
	}
}

// checkOrder checks that positions and leases of each object never go back, and
// that each lease is one replica's.
func (w *world) checkOrder() {
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	for object, list := range w.seen.list {
		if problem := disorder(list); problem != "" {
			w.stale(object, "%s", problem)
		}
	}
	w.note(func(r *figures.Robustness) { r.Answers, r.Operations = w.seen.answers, w.seen.calls })
}
