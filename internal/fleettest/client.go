package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// client sends a request once. Over a connection that was used before,
// net/http would send some again.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
}

// An Answer is what became of a request.
type Answer struct {
	// Status is 0 when there was no answer, or only a part of one; then Err says
	// why.
	Status int
	Header http.Header
	Body   string
	Err    error
}

func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %s", a.Status, strings.TrimSpace(a.Body))
}

// Replica is the id of the replica that answered, Txid the object's position,
// and Epoch the stamp of the lease under which the event ran, 0 without one.
func (a Answer) Replica() string { return a.Header.Get("Dwk-Replica") }
func (a Answer) Txid() int64     { return a.number("Dwk-Txid") }
func (a Answer) Epoch() int64    { return a.number("Dwk-Epoch") }

func (a Answer) number(header string) int64 {
	n, _ := strconv.ParseInt(a.Header.Get(header), 10, 64)
	return n
}

// Refused reports whether the answer promises that nothing was applied, and
// that the request may be repeated.
func (a Answer) Refused() bool {
	return a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != ""
}

// Unknown reports whether the answer says that the outcome could not be found
// out.
func (a Answer) Unknown() bool {
	return a.Status == http.StatusGatewayTimeout && a.Header.Get("Dwk-Outcome") == "unknown"
}

// Decode decodes the JSON of an answer that must be 200.
func (a Answer) Decode(t testing.TB, into any) {
	t.Helper()
	if a.Status != http.StatusOK {
		t.Fatalf("answer %v, want 200", a)
	}
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		t.Fatalf("%v in %s", err, a.Body)
	}
}

// send sends a request with headers, each a name and its value.
func send(ctx context.Context, method, url, body string, headers ...string) Answer {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{Err: fmt.Errorf("answer %d was cut off: %w", resp.StatusCode, err)}
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b)}
}

// Do sends one request to a path of the lab.
func (r *Replica) Do(method, path, body string, headers ...string) Answer {
	return r.DoContext(r.t.Context(), method, path, body, headers...)
}

// DoContext is Do for a client that goes away with ctx.
func (r *Replica) DoContext(ctx context.Context, method, path, body string, headers ...string) Answer {
	return send(ctx, method, r.Public+"/lab/"+path, body, headers...)
}

// Get and Post send one request to a path of the lab.
func (r *Replica) Get(path string) Answer        { return r.Do(http.MethodGet, path, "") }
func (r *Replica) Post(path, body string) Answer { return r.Do(http.MethodPost, path, body) }

// figure is the value of a metric of the replica, without labels.
func (r *Replica) figure(name string) float64 {
	r.t.Helper()
	a := send(r.t.Context(), http.MethodGet, r.Admin+"/metrics", "")
	for line := range strings.Lines(a.Body) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				r.t.Errorf("%s of %s: %v", name, r.Name, err)
			}
			return v
		}
	}
	r.t.Errorf("%s has no %s: %v", r.Name, name, a.Err)
	return 0
}

// Go sends one request and returns at once.
func (r *Replica) Go(method, path, body string) <-chan Answer {
	c := make(chan Answer, 1)
	go func() { c <- r.Do(method, path, body) }()
	return c
}

// runBefore is hit when the handler of an event is about to run. Tracked is for
// the environment of a replica whose test waits for that.
const (
	runBefore = "object.run.before"
	Tracked   = "DWK_FAILPOINTS=" + runBefore + "=sleep:0s"
)

// Sleep sends an event to a note that writes, waits and writes again, and
// returns when it runs. The replica must be Tracked and do nothing else.
func (r *Replica) Sleep(name string, d time.Duration) <-chan Answer {
	r.t.Helper()
	n := r.Hits(runBefore)
	c := r.Go(http.MethodPost, fmt.Sprintf("note/%s/sleep?ms=%d", name, d.Milliseconds()), "")
	r.WaitHit(runBefore, n+1)
	return c
}
