package host

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/queue"
)

// A mill is an application that sends what it is asked to, from its front door
// or from an object, and notes what it consumes.
type mill struct {
	mu   sync.Mutex
	got  []string
	hold chan struct{} // consumers wait for it, unless it is nil
}

func (m *mill) app() durable.App {
	return durable.App{
		Name:     "echo",
		Requires: durable.Requirements{Queues: []string{"out"}},
		New: func(env durable.Env) (http.Handler, error) {
			ns := env.Namespace("Sender")
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/object" {
					ns.Get(ns.ID("x")).ServeHTTP(w, r)
					return
				}
				if err := env.Queue("in").Send(r.Context(), "front", durable.SendOptions{}); err != nil {
					http.Error(w, err.Error(), 500)
				}
			}), nil
		},
		Classes: map[string]durable.Class{"Sender": func(_ durable.State, env durable.Env) (durable.Object, error) {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for _, q := range []string{"in", "out"} {
					if err := env.Queue(q).Send(r.Context(), "object", durable.SendOptions{}); err != nil {
						panic(err)
					}
				}
			}), nil
		}},
		Consumers: map[string]durable.Consumer{"in": func(_ context.Context, _ durable.Env, b durable.Batch) error {
			m.mu.Lock()
			hold := m.hold
			m.mu.Unlock()
			if hold != nil {
				<-hold
			}
			for _, msg := range b.Messages() {
				m.mu.Lock()
				m.got = append(m.got, string(msg.Body()))
				m.mu.Unlock()
				msg.Ack()
			}
			return nil
		}},
	}
}

func (m *mill) count(body string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.got {
		if b == body {
			n++
		}
	}
	return n
}

func millConfig(t *testing.T) *config.Config {
	cfg := testConfig(t, map[string]any{"fleet.poll_interval": "1h", "fleet.heartbeat_ttl": "4h"}) // deliveries don't wait for it
	in, out := cfg.Queues[0], cfg.Queues[0]
	in.Name, out.Name = "in", "out"
	cfg.Queues = []config.Queue{in, out}
	return cfg
}

func TestQueuesAreServed(t *testing.T) {
	m, cfg := &mill{}, millConfig(t)
	public, _, stop := serve(t, cfg, m.app())
	for _, path := range []string{"/echo/", "/echo/object"} {
		if code, body := get(t, public+path); code != 200 {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	for deadline := time.After(time.Minute); m.count(`"front"`) != 1 || m.count(`"object"`) != 1; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("got %v", m.got)
		}
	}
	// A consumer that runs when the replica stops is waited for.
	hold := make(chan struct{})
	m.mu.Lock()
	m.hold = hold
	m.mu.Unlock()
	get(t, public+"/echo/")
	time.AfterFunc(200*time.Millisecond, func() { close(hold) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s, err := OpenExisting(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, err := queue.Inspect(t.Context(), s.KV, "in")
	if err != nil || in.Claimed != 0 || int(in.Due)+m.count(`"front"`) != 2 {
		t.Errorf("%+v %v, %v", in, err, m.got)
	}
	for p, err := range queue.Peek(t.Context(), s.KV, "in", false, 0) {
		if err != nil || p.Attempts != 0 {
			t.Errorf("%+v %v", p, err)
		}
	}
	if out, err := queue.Inspect(t.Context(), s.KV, "out"); err != nil || out.Due != 1 {
		t.Errorf("%+v %v", out, err)
	}
}

func TestQueuesMustBeConfigured(t *testing.T) {
	cfg := testConfig(t, nil)
	err := Serve(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{(&mill{}).app()}, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "queue in, queue out") {
		t.Error(err)
	}
}
