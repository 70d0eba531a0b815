package fleettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gorilla/websocket"
)

// A soakLoad is a steady load of everything that the lab has, on a bounded set of
// names, on all replicas in turn.
type soakLoad struct {
	t        *testing.T
	replicas []*Replica
	kept     *http.Client  // whose connections are kept
	large    func() string // a body that is larger than an entry of a log may be
	problems problems
	wg       sync.WaitGroup
	slots    chan struct{}

	ok, refused, failed atomic.Int64

	mu   sync.Mutex
	took *hdrhistogram.Histogram // since the last sample, in microseconds
}

func newSoakLoad(t *testing.T, replicas []*Replica) *soakLoad {
	l := &soakLoad{
		t: t, replicas: replicas, slots: make(chan struct{}, 64),
		large: func() string { return string(randomBytes(300 << 10)) },
		kept:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}, Timeout: time.Minute},
		took:  hdrhistogram.New(1, 600e6, 3),
	}
	t.Cleanup(l.kept.CloseIdleConnections)
	return l
}

// A soakTask is sent so often a second, to one replica after the other.
type soakTask struct {
	rate float64
	do   func(ctx context.Context, r *Replica, n int)
}

func (l *soakLoad) tasks() []soakTask {
	lab := func(method string, path func(n int) (path, body string), headers ...string) func(context.Context, *Replica, int) {
		return func(ctx context.Context, r *Replica, n int) {
			p, body := path(n)
			l.send(ctx, r, method, p, body, n%2 == 0, headers...)
		}
	}
	named := func(format string, names int, body func() string) func(int) (string, string) {
		return func(int) (string, string) { return fmt.Sprintf(format, rand.IntN(names)), body() }
	}
	none := func() string { return "" }
	text := func() string { return strings.Repeat(fmt.Sprint(rand.Int()), 10) }
	return []soakTask{
		{30, lab(http.MethodPost, named("counter/c%d/add", 40, none))},
		{15, lab(http.MethodGet, named("counter/c%d", 40, none))},
		{8, lab(http.MethodPut, named("note/n%d", 20, text))},
		{0.5, lab(http.MethodPut, named("note/large%d", 4, l.large))},
		{2, lab(http.MethodGet, named("note/large%d", 4, none))},
		{3, lab(http.MethodPost, named("alarm/a%d?in=700ms", 20, none))},
		{1, lab(http.MethodPost, named("alarm/retry%d?in=100ms&fail=1", 5, none))},
		{2, lab(http.MethodPost, func(n int) (string, string) { return "queue/default/send", fmt.Sprintf(`{"fail":%d}`, n/3%2) })},
		{3, lab(http.MethodPost, func(n int) (string, string) {
			return "sql", fmt.Sprintf(`[{"sql":"CREATE TABLE IF NOT EXISTS soak(n INTEGER PRIMARY KEY, v)"},{"sql":"INSERT OR REPLACE INTO soak VALUES(%d, 'v')"}]`, n%100)
		})},
		{2, lab(http.MethodPut, named("bucket/b%d", 10, l.large))},
		{2, lab(http.MethodGet, named("bucket/b%d", 10, none))},
		{1, lab(http.MethodDelete, named("bucket/b%d", 10, none))},
		{1, lab(http.MethodPost, named("room/r%d/messages", 4, text))},
		{2, l.impatient},
	}
}

// run sends until ctx ends, and waits for all answers.
func (l *soakLoad) run(ctx context.Context) {
	for i, task := range l.tasks() {
		l.wg.Go(func() {
			tick := time.NewTicker(time.Duration(float64(time.Second) / task.rate))
			defer tick.Stop()
			for n := i; ; n++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				select {
				case l.slots <- struct{}{}:
				default:
					continue // as many as there may be are under way
				}
				l.wg.Go(func() {
					defer func() { <-l.slots }()
					task.do(l.t.Context(), l.replicas[n%len(l.replicas)], n)
				})
			}
		})
	}
	for i := range 24 {
		l.wg.Go(func() { l.listen(ctx, i) })
	}
	l.wg.Wait()
}

// pause waits until nothing is under way and lets nothing begin until resume, so
// that a sample is not of what happens to run.
func (l *soakLoad) pause() (resume func()) {
	for range cap(l.slots) {
		l.slots <- struct{}{}
	}
	return func() {
		for range cap(l.slots) {
			<-l.slots
		}
	}
}

func randomBytes(n int) []byte {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Int())
	}
	b := make([]byte, n)
	rand.NewChaCha8(seed).Read(b) //nolint:errcheck // it returns none
	return b
}

// send sends a request over a connection that is kept, or one of its own. 404 and
// 503 are answers as they should be.
func (l *soakLoad) send(ctx context.Context, r *Replica, method, path, body string, kept bool, headers ...string) {
	c := client
	if kept {
		c = l.kept
	}
	req, err := http.NewRequestWithContext(ctx, method, r.Public+"/lab/"+path, strings.NewReader(body))
	if err != nil {
		l.t.Error(err)
		return
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	began := time.Now()
	resp, err := c.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.failed.Add(1)
		l.problems.add("%s %s: %v", method, path, err)
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		l.refused.Add(1)
	case resp.StatusCode == http.StatusGatewayTimeout && resp.Header.Get("Dwk-Outcome") == "unknown":
		l.failed.Add(1) // some are allowed: the machine may have stood still
	case resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotFound:
		l.failed.Add(1)
		l.problems.add("%s %s: %s", method, path, resp.Status)
	default:
		l.ok.Add(1)
		l.mu.Lock()
		l.took.RecordValue(time.Since(began).Microseconds()) //nolint:errcheck // ten minutes are the most
		l.mu.Unlock()
	}
}

// impatient is a client that goes away before it has an answer, or has sent all.
func (l *soakLoad) impatient(ctx context.Context, r *Replica, n int) {
	ctx, cancel := context.WithTimeout(ctx, rand.N(8*time.Millisecond))
	defer cancel()
	if n%2 == 0 {
		l.send(ctx, r, http.MethodPut, fmt.Sprintf("note/large%d", n%4), l.large(), false)
	} else {
		l.send(ctx, r, http.MethodPost, fmt.Sprintf("counter/c%d/add", n%40), "", false)
	}
}

// listen keeps a socket open for some seconds at a time, and says something now
// and then. Half of the sockets end without a close.
func (l *soakLoad) listen(ctx context.Context, i int) {
	for n := i; ctx.Err() == nil; n++ {
		r := l.replicas[n%len(l.replicas)]
		conn, _, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(r.Public, "http")+fmt.Sprintf("/lab/room/r%d/socket", i%4), nil)
		if err != nil {
			select { // it was refused
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					if c := (*websocket.CloseError)(nil); errors.As(err, &c) && c.Code == websocket.CloseInternalServerErr {
						l.problems.add("a socket: %v", err)
					}
					return
				}
			}
		}()
		end := time.NewTimer(10*time.Second + rand.N(20*time.Second))
		say := time.NewTicker(7 * time.Second)
		for open := true; open; {
			select {
			case <-say.C:
				conn.SetWriteDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // the write tells
				open = conn.WriteMessage(websocket.TextMessage, []byte("hi")) == nil
			case <-heard:
				open = false
			case <-end.C:
				open = false
			case <-ctx.Done():
				open = false
			}
		}
		end.Stop()
		say.Stop()
		if n%2 == 0 {
			conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second)) //nolint:errcheck // it may have ended
		}
		conn.Close()
		<-heard
	}
}

// latencies are those since the last sample.
func (l *soakLoad) latencies() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(q float64) float64 { return float64(l.took.ValueAtQuantile(q)) / 1000 }
	v := map[string]float64{"latency p50, ms": at(50), "latency p99, ms": at(99), "answers": float64(l.took.TotalCount())}
	l.took.Reset()
	return v
}
