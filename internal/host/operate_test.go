package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/mode"
)

// webFinger is an application that serves a well-known name.
func webFinger(name string) durable.App {
	build := func(env durable.Env) (http.Handler, error) {
		if env.BaseURL().Host == "refused.example" {
			return nil, errors.New("canary")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name+" "+r.URL.Path) }), nil
	}
	return durable.App{
		Name: name, WellKnown: map[string]func(durable.Env) (http.Handler, error){"webfinger": build},
		New: func(durable.Env) (http.Handler, error) { return http.NotFoundHandler(), nil },
	}
}

func TestWellKnown(t *testing.T) {
	cfg := testConfig(t, nil)
	cfg.Mounts = append(cfg.Mounts, config.Mount{Path: "/a", App: "a"})
	public, _, stop := serve(t, cfg, webFinger("a"), webFinger("b")) // b is not mounted
	for path, want := range map[string]string{
		"/.well-known/webfinger": "a /.well-known/webfinger", "/.well-known/webfinger/x": "a /.well-known/webfinger/x",
		"/.well-known/other": "not found\n", "/a/.well-known/webfinger": "404 page not found\n",
	} {
		if _, body := get(t, public+path); body != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	start := func(want string, change func(*config.Config)) {
		t.Helper()
		cfg := testConfig(t, nil)
		cfg.Mounts = []config.Mount{{Path: "/a", App: "a"}}
		change(cfg)
		err := Serve(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{webFinger("a"), webFinger("b")}, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	start("two applications, a and b", func(c *config.Config) { c.Mounts = append(c.Mounts, config.Mount{Path: "/b", App: "b"}) })
	start("/.well-known/webfinger: canary", func(c *config.Config) { c.BaseURL = "https://refused.example" })
}

// operate runs work for the application echo.
func operate(t *testing.T, cfg *config.Config, app string, work func(context.Context, durable.Env) error) error {
	t.Helper()
	return Operate(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{echo}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test"}, app, work)
}

func callEcho(ctx context.Context, env durable.Env) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://echo/", nil)
	if err != nil {
		return err
	}
	ns := env.Namespace("Echo")
	resp, err := ns.Get(ns.ID("x")).Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// An operator's work calls objects beside a running replica and without one,
// and leaves no lease behind.
func TestOperate(t *testing.T) {
	cfg := testConfig(t, nil)
	if err := operate(t, cfg, "echo", callEcho); !errors.Is(err, ErrNoStore) {
		t.Errorf("before the first replica: %v", err)
	}
	public, _, stop := serve(t, cfg)
	if code, _ := get(t, public+"/echo/"); code != http.StatusOK {
		t.Errorf("replica: %d", code)
	}
	if err := operate(t, cfg, "echo", callEcho); err != nil {
		t.Errorf("beside a replica: %v", err)
	}
	if code, _ := get(t, public+"/echo/"); code != http.StatusOK { // at once: no lease is in the way
		t.Errorf("replica afterwards: %d", code)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := operate(t, cfg, "echo", callEcho); err != nil {
		t.Errorf("without a replica: %v", err)
	}
	if err := operate(t, cfg, "other", callEcho); !errors.Is(err, ErrNotMounted) {
		t.Errorf("an application that is not mounted: %v", err)
	}
	failed := errors.New("canary")
	background := false // Operate waits for it
	if err := operate(t, cfg, "echo", func(_ context.Context, env durable.Env) error {
		if !env.Loopback() || env.BaseURL().Path != "/echo" {
			t.Errorf("environment: %v %v", env.Loopback(), env.BaseURL())
		}
		env.Background(func(context.Context) { background = true })
		return failed
	}); !errors.Is(err, failed) {
		t.Errorf("failing work: %v", err)
	}
	if !background {
		t.Error("background work was not waited for")
	}
}

// TestOperateDuringMove: a move that begins while an operator's work runs is not
// worked against: no object is changed any more, and the error says why.
func TestOperateDuringMove(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, nil)
	_, _, stop := serve(t, cfg)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	err := operate(t, cfg, "echo", func(ctx context.Context, env durable.Env) error {
		if err := callEcho(ctx, env); err != nil {
			t.Errorf("before the move: %v", err)
		}
		s, err := OpenExisting(ctx, cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		// The lease of the call ends behind its answer.
		id, deadline := uuid.NewString(), time.Now().Add(time.Minute)
		for err = fleet.BeginMove(ctx, s.KV, id); errors.Is(err, fleet.ErrInUse) && time.Now().Before(deadline); err = fleet.BeginMove(ctx, s.KV, id) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("the move: %v", err)
		}
		err = callEcho(ctx, env)
		for i, lerr := range lease.List(ctx, s.KV, "") {
			t.Errorf("a lease is held during the move: %+v, %v", i, lerr)
		}
		return err
	})
	if !errors.Is(err, mode.ErrRefused) || !strings.Contains(err.Error(), "migration") {
		t.Errorf("during the move: %v", err)
	}
}

// Background work that does not end in time is told to, and makes the
// operator's work fail.
func TestOperateEndsBackgroundWork(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, nil)
	_, _, stop := serve(t, cfg)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Drain.Timeout = 100 * time.Millisecond
	err := operate(t, cfg, "echo", func(_ context.Context, env durable.Env) error {
		env.Background(func(ctx context.Context) { <-ctx.Done() })
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "background") {
		t.Errorf("%v, want that background work was still running", err)
	}
}
