package durabletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// Suite checks the contract, one sentence a test, on hosts with the options
// that setup returns. It is run on each kind of store.
func Suite(t *testing.T, setup func(t *testing.T) Options) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"Events", testEvents},
		{"Failures", testFailures},
		{"Cancellation", testCancellation},
		{"Gate", testGate},
		{"Calls", testCalls},
		{"SQL", testSQL},
		{"Alarms", testAlarms},
		{"Queues", testQueues},
		{"Crons", testCrons},
		{"Database", testDatabase},
		{"Bindings", testBindings},
		{"Sockets", testSockets},
		{"Closes", testCloses},
		{"Limits", testLimits},
		{"Streams", testStreams},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSuite(t, setup(t))
			s.setup = setup
			c.run(t, s)
		})
	}
}

// A suite is a host with an application whose handlers the tests choose.
type suite struct {
	*Host
	setup     func(*testing.T) Options
	mu        sync.Mutex
	handlers  map[string]func(*probe, http.ResponseWriter, *http.Request)
	alarm     func(context.Context, *probe, durable.AlarmInfo) error
	message   func(context.Context, *probe, durable.Socket, durable.SocketMessage) error
	closed    func(context.Context, *probe, durable.Socket, int) error
	wake      func(context.Context, *probe) error
	consumer  durable.Consumer
	cron      func(context.Context, durable.Env, durable.Occurrence) error
	instances int
}

// A probe is an object of the suite. It has a table t(v).
type probe struct {
	s     *suite
	state durable.State
	env   durable.Env
	// fields are what an instance keeps in memory.
	fields int
}

type settings struct {
	Greeting string `json:"greeting"`
	Size     int    `json:"size"`
}

const class = "Probe"

func newSuite(t *testing.T, o Options) *suite {
	t.Helper()
	s := &suite{handlers: map[string]func(*probe, http.ResponseWriter, *http.Request){}}
	s.on("/add", func(p *probe, w http.ResponseWriter, r *http.Request) {
		p.insert(r.Context(), r.URL.Query().Get("v"))
	})
	s.on("/all", func(p *probe, w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, p.all(r.Context())) })
	o.Settings = map[string]any{"greeting": "hello"}
	o.Config = merged(map[string]string{"alarms.retries": "2", "alarms.backoff": "50ms"}, o.Config)
	s.Host = New(t, o, s.app())
	return s
}

// with is another suite, on stores of its own and with other settings.
func (s *suite) with(t *testing.T, config map[string]string) *suite {
	t.Helper()
	o := s.setup(t)
	o.Config = merged(config, o.Config)
	return newSuite(t, o)
}

func merged(a, b map[string]string) map[string]string {
	maps.Copy(a, b)
	return a
}

func (s *suite) app() durable.App {
	return durable.App{
		Name:     "suite",
		Settings: &settings{Greeting: "none", Size: 7},
		Requires: durable.Requirements{Databases: []string{"DB"}, Buckets: []string{"FILES"}, Caches: []string{"CACHE"}, Secrets: []string{"KEY"}, Queues: []string{"work"}},
		Classes: map[string]durable.Class{class: func(state durable.State, env durable.Env) (durable.Object, error) {
			s.mu.Lock()
			s.instances++
			s.mu.Unlock()
			_, err := state.SQL().Exec(context.Background(), `CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)`)
			return &probe{s: s, state: state, env: env}, err
		}},
		Consumers: map[string]durable.Consumer{"work": func(ctx context.Context, env durable.Env, b durable.Batch) error {
			s.mu.Lock()
			f := s.consumer
			s.mu.Unlock()
			return f(ctx, env, b)
		}},
		Crons: []durable.Cron{{Name: "tick", Schedule: "@hourly", Run: func(ctx context.Context, env durable.Env, o durable.Occurrence) error {
			s.mu.Lock()
			f := s.cron
			s.mu.Unlock()
			return f(ctx, env, o)
		}}},
		New: func(env durable.Env) (http.Handler, error) {
			ns := env.Namespace(class)
			mux := http.NewServeMux()
			mux.HandleFunc("/{name}/{path...}", func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = "/" + r.PathValue("path")
				ns.Get(ns.ID(r.PathValue("name"))).ServeHTTP(w, r)
			})
			return mux, nil
		},
	}
}

// on sets the handler of a path.
func (s *suite) on(path string, h func(*probe, http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[path] = h
}

// set changes the other handlers.
func (s *suite) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.s.mu.Lock()
	h := p.s.handlers[r.URL.Path]
	p.s.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h(p, w, r)
}

func (p *probe) Alarm(ctx context.Context, info durable.AlarmInfo) error {
	p.s.mu.Lock()
	f := p.s.alarm
	p.s.mu.Unlock()
	return f(ctx, p, info)
}

func (p *probe) SocketMessage(ctx context.Context, s durable.Socket, m durable.SocketMessage) error {
	p.s.mu.Lock()
	f := p.s.message
	p.s.mu.Unlock()
	return f(ctx, p, s, m)
}

func (p *probe) SocketClose(ctx context.Context, s durable.Socket, code int, _ string) error {
	p.s.mu.Lock()
	f := p.s.closed
	p.s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, p, s, code)
}

func (p *probe) SocketWake(ctx context.Context) error {
	p.s.mu.Lock()
	f := p.s.wake
	p.s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, p)
}

// insert stores a value, or panics.
func (p *probe) insert(ctx context.Context, v any) {
	if _, err := p.state.SQL().Exec(ctx, `INSERT INTO t(v) VALUES (?)`, v); err != nil {
		panic(err)
	}
}

// all are the values that the object has, in their order.
func (p *probe) all(ctx context.Context) string {
	var out []string
	for row, err := range p.state.SQL().Query(ctx, `SELECT v FROM t ORDER BY id`) {
		if err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprint(row.Values[0]))
	}
	return strings.Join(out, " ")
}

// call returns another object's answer to a request within an event.
func (p *probe) call(ctx context.Context, name, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://suite"+path, nil)
	if err != nil {
		return "", err
	}
	ns := p.env.Namespace(class)
	resp, err := ns.Get(ns.ID(name)).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from
	b, err := io.ReadAll(resp.Body)
	return strconv.Itoa(resp.StatusCode) + " " + string(b), err
}

// do sends a request to an object and returns the answer.
func (s *suite) do(name, path string) Answer {
	s.t.Helper()
	return s.Do(http.MethodPost, "/"+name+path, "")
}

// run has an object run a handler once.
func (s *suite) run(name string, h func(*probe, http.ResponseWriter, *http.Request)) Answer {
	s.t.Helper()
	s.on("/run", h)
	return s.do(name, "/run")
}

// has fails the test unless an object has these values.
func (s *suite) has(t *testing.T, name, want string) {
	t.Helper()
	if a := s.do(name, "/all"); a.Status != http.StatusOK || a.Body != want {
		t.Errorf("%s has %q (%d), want %q", name, a.Body, a.Status, want)
	}
}

// logged fails the test unless a line of the log has all the texts.
func (s *suite) logged(t *testing.T, texts ...string) {
	t.Helper()
	s.eventually(fmt.Sprintf("a line with %q in the log", texts), func() bool {
	lines:
		for line := range strings.Lines(s.Log()) {
			for _, text := range texts {
				if !strings.Contains(line, text) {
					continue lines
				}
			}
			return true
		}
		return false
	})
}

// is fails the test unless an error is another one.
func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// must panics on an error, which fails the event.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// wait waits for a channel, for a while.
func wait(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}
