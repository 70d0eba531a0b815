// Package durabletest runs applications in unit tests: a replica of their own
// in the test's process, on stores in a temporary directory that go with the
// test. It is the host that serves in earnest, so that what holds in a test
// holds there; only its work without a request is in the test's hands: schedules
// run when [Host.RunCron] says so, and alarms and delayed messages at their
// times or, with [Host.RunAlarm] and [Host.Deliver], before.
//
// [Suite] is the contract between hosts and applications as a list of tests.
package durabletest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
)

// Options say what a host has beside the applications. The bindings that they
// require are there without being named; the zero Options are good for most
// tests.
type Options struct {
	// Settings are the settings of the first application, as its mount would have
	// them: anything that is a JSON object, or nil.
	Settings any
	// Secrets are the values of secrets; one that is required and not here has
	// its own name as its value.
	Secrets map[string]string
	// Databases are the URLs of SQL databases that are not in the test's directory.
	Databases map[string]string
	// Config are other settings of the host by their dotted names, such as
	// "event.timeout": "2s". See docs/configuration.md.
	Config map[string]string
}

// A Host is a replica that runs in the test's process, until the test ends.
type Host struct {
	t     testing.TB
	cfg   *config.Config
	apps  []durable.App
	log   *record
	store *host.Stores // for what an operator does

	mu     sync.Mutex
	envs   map[string]durable.Env
	addr   string
	cancel context.CancelFunc
	done   chan error
}

// New starts a host with applications, each mounted at the path of its name. It
// fails the test when one cannot be started.
func New(t testing.TB, o Options, apps ...durable.App) *Host {
	t.Helper()
	if len(apps) == 0 {
		t.Fatal("durabletest: no application")
	}
	cfg, err := configure(t.TempDir(), o, apps)
	if err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	return open(t, cfg, apps)
}

// Join starts another replica on the stores of this one, as a fleet has several.
func (h *Host) Join() *Host {
	h.t.Helper()
	return open(h.t, h.cfg, h.apps)
}

func open(t testing.TB, cfg *config.Config, apps []durable.App) *Host {
	t.Helper()
	h := &Host{t: t, cfg: cfg, apps: apps, log: &record{out: t.Output()}}
	t.Cleanup(func() { h.close() })
	h.start()
	var err error
	if h.store, err = host.OpenExisting(t.Context(), cfg); err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	return h
}

// close ends the replica and what the host has opened.
func (h *Host) close() {
	h.Stop()
	if h.store == nil {
		return
	}
	if err := h.store.Close(); err != nil {
		h.t.Errorf("durabletest: %v", err)
	}
}

// start runs a replica and waits until it serves.
func (h *Host) start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel, h.done, h.envs = cancel, make(chan error, 1), map[string]durable.Env{}
	started := make(chan string, 1)
	go func() {
		h.done <- host.Serve(ctx, host.ServeOptions{
			Config: h.cfg, Apps: h.captured(), Log: slog.New(slog.NewTextHandler(h.log, nil)), Version: "test",
			Started: func(public, _ string) { started <- public },
		})
	}()
	select {
	case h.addr = <-started:
	case err := <-h.done:
		h.done <- nil // it has ended
		h.t.Fatalf("durabletest: start: %v", err)
	}
}

// captured are the applications, which hand over what they were given.
func (h *Host) captured() []durable.App {
	apps := slices.Clone(h.apps)
	for i, app := range apps {
		apps[i].New = func(env durable.Env) (http.Handler, error) {
			h.mu.Lock()
			h.envs[app.Name] = env
			h.mu.Unlock()
			return app.New(env)
		}
	}
	return apps
}

// Stop ends the replica in order, as a signal does, and fails the test when
// something did not end. Stopping again does nothing.
func (h *Host) Stop() {
	h.t.Helper()
	if h.cancel == nil {
		return
	}
	h.cancel()
	if err := <-h.done; err != nil {
		h.t.Errorf("durabletest: stop: %v", err)
	}
	h.cancel = nil
}

// Restart stops the replica and starts another one on the same stores: nothing
// is in memory any more. The address changes.
func (h *Host) Restart() {
	h.t.Helper()
	h.Stop()
	h.start()
}

// URL is where the first application answers, without a slash at its end.
func (h *Host) URL() string { return "http://" + h.addr + "/" + h.apps[0].Name }

// Env is what the first application got from the host, for tests that look at its
// bindings and call its objects.
func (h *Host) Env() durable.Env { return h.EnvOf(h.apps[0].Name) }

// EnvOf is Env of an application by name.
func (h *Host) EnvOf(app string) durable.Env {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	env := h.envs[app]
	if env == nil {
		h.t.Fatalf("durabletest: there is no application %s", app)
	}
	return env
}

// Log returns what the host and the applications have logged, one line an event.
func (h *Host) Log() string { return h.log.String() }

// A record keeps a log and shows it with the test's output.
type record struct {
	out  interface{ Write([]byte) (int, error) }
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.text.Write(p)
	r.mu.Unlock()
	return r.out.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// patience bounds every wait for the host, on a machine that has much to do.
const patience = time.Minute

// eventually waits until ok, and fails the test when that takes too long.
func (h *Host) eventually(what string, ok func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("durabletest: %s: not within %v", what, patience)
		}
	}
}

type object = map[string]any

// configure makes the configuration of a host in a directory.
func configure(dir string, o Options, apps []durable.App) (*config.Config, error) {
	lists := map[string][]object{"mounts": {}, "queues": {}, "databases": {}, "buckets": {}, "caches": {}, "secrets": {}, "crons": {}}
	named := func(list string, more object, names ...string) {
		for _, name := range names {
			if slices.ContainsFunc(lists[list], func(e object) bool { return e["name"] == name }) {
				continue
			}
			e := object{"name": name}
			maps.Copy(e, more)
			lists[list] = append(lists[list], e)
		}
	}
	for i, app := range apps {
		m := object{"path": "/" + app.Name, "app": app.Name}
		if i == 0 && o.Settings != nil {
			m["settings"] = o.Settings
		}
		lists["mounts"] = append(lists["mounts"], m)
		named("queues", nil, app.Requires.Queues...)
		named("queues", nil, slices.Sorted(maps.Keys(app.Consumers))...)
		for _, name := range app.Requires.Databases {
			named("databases", object{"url": o.Databases[name]}, name)
		}
		named("buckets", nil, app.Requires.Buckets...)
		named("caches", nil, app.Requires.Caches...)
		for _, name := range app.Requires.Secrets {
			value, ok := o.Secrets[name]
			if !ok {
				value = name
			}
			named("secrets", object{"from": value}, name)
		}
		for _, c := range app.Crons {
			named("crons", object{"app": app.Name, "paused": true}, c.Name)
		}
	}
	text, err := json.Marshal(lists)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "dwk.yaml") // JSON is YAML
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	flags := map[string]any{
		"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "drain.grace": "0s", "base_url": "http://localhost",
		"data_dir": filepath.Join(dir, "data"), "replica_dir": filepath.Join(dir, "replicas"), "fleet.poll_interval": "100ms",
	}
	for k, v := range o.Config {
		flags[k] = v
	}
	cfg, err := config.Load(config.Options{File: file, WorkDir: dir, Environ: []string{}, Flags: flags})
	if e, ok := errors.AsType[*config.Error](err); ok {
		return nil, e
	}
	return cfg, err
}
