package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/mode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is an application with one class, whose objects keep a number.
var echo = durable.App{
	Name: "echo",
	New: func(env durable.Env) (http.Handler, error) {
		ns := env.Namespace("Echo")
		env.Logger().Info("serve.stopped") // whatever it says, it is no event
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ns.Get(ns.ID("x")).ServeHTTP(w, r) }), nil
	},
	Classes: map[string]durable.Class{"Echo": func(s durable.State, e durable.Env) (durable.Object, error) {
		_, err := s.SQL().Exec(context.Background(), `CREATE TABLE IF NOT EXISTS t(a)`)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := s.SQL().Exec(r.Context(), `INSERT INTO t VALUES(1)`); err != nil {
				panic(err)
			}
			for row := range s.SQL().Query(r.Context(), `SELECT count(*) FROM t`) {
				_ = row
			}
			io.WriteString(w, e.Replica())
		}), err
	}},
}

// testConfig is a configuration in a directory of its own, on free ports.
func testConfig(t *testing.T, change map[string]any) *config.Config {
	t.Helper()
	flags := map[string]any{"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "drain.grace": "0s", "data_dir": filepath.Join(t.TempDir(), "data")}
	for k, v := range change {
		flags[k] = v
	}
	cfg, err := config.Load(config.Options{WorkDir: t.TempDir(), Environ: []string{}, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Mounts = []config.Mount{{Path: "/echo", App: "echo"}}
	cfg.Crons = nil
	return cfg
}

// serve starts a replica and returns its public and admin URLs and its end.
func serve(t *testing.T, cfg *config.Config, apps ...durable.App) (public, admin string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan [2]string, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, ServeOptions{Config: cfg, Apps: append([]durable.App{echo}, apps...), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test",
			Started: func(public, admin string) { started <- [2]string{"http://" + public, "http://" + admin} }})
	}()
	select {
	case a := <-started:
		return a[0], a[1], func() error { cancel(); return <-done }
	case err := <-done:
		cancel()
		t.Fatalf("serve: %v", err)
		return "", "", nil
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// A replica shows what it did, to those who may use the admin listener.
func TestServeShowsMetrics(t *testing.T) {
	public, admin, stop := serve(t, testConfig(t, map[string]any{"admin.token": "operator-token"}))
	defer stop() //nolint:errcheck
	if code, body := get(t, public+"/echo/"); code != 200 {
		t.Fatalf("echo: %d %q", code, body)
	}
	if code, _ := get(t, admin+"/metrics"); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := get(t, public+"/metrics"); code != http.StatusNotFound {
		t.Errorf("on the public listener: %d", code)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer operator-token")
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, err)
	}
	for _, want := range []string{
		`dwk_events_total{event="serve.started"} 1`,
		`dwk_events_total{event="serve.stopped"} 0`,
		`dwk_events_total{event="lease.acquire.ok"} 1`, // a debug event, which the log does not show
		`dwk_events_total{event="object.commit.ok"} 1`,
		`dwk_events_total{event="object.commit.unknown"} 0`,
		`dwk_event_duration_seconds_count{event="object.commit.ok"} 1`,
		`dwk_event_duration_seconds_count{event="lease.acquire.ok"} 1`,
		`dwk_event_duration_seconds_count{event="http.request"} `,
		`dwk_http_requests_total{mount="/echo",status="200"} 1`,
		`dwk_store_round_trips_total{outcome="ok",store="coordination"} `,
		`dwk_store_seconds_count{store="coordination"} `,
		`dwk_replica_state{state="ready"} 1`,
		"dwk_replica_ready 1",
		"dwk_objects_resident 1",
		"dwk_plans_waiting 0",
		"dwk_clock_skew_seconds ",
		`,version="test"} 1`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", b)
	}
}

func TestServeAndStopLeavesNothing(t *testing.T) {
	cfg := testConfig(t, nil)
	public, admin, stop := serve(t, cfg)
	if code, body := get(t, public+"/echo/"); code != 200 || len(body) != 16 {
		t.Fatalf("echo: %d %q", code, body)
	}
	if code, body := get(t, admin+"/readyz"); code != 200 {
		t.Fatalf("readyz: %d %q", code, body)
	}
	if err := stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	left, err := os.ReadDir(cfg.ReplicaDirOrDefault())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.IsDir() {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	s, err := OpenExisting(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := s.KV.CountExpired(t.Context()); err != nil || n != 0 {
		t.Errorf("expired rows: %d, %v", n, err)
	}
}

func TestServeRefusals(t *testing.T) {
	t.Run("local-mode stores", func(t *testing.T) {
		cfg := testConfig(t, nil)
		os.MkdirAll(filepath.Join(cfg.DataDir, "do", "Pod"), 0o700)
		os.WriteFile(filepath.Join(cfg.DataDir, "do", "Pod", "0a.sqlite"), nil, 0o600)
		refused(t, cfg, mode.ErrRefused, "local mode (do)")
	})
	t.Run("mode of an older host", func(t *testing.T) {
		cfg := testConfig(t, nil)
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.KV.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		for marker, text := range map[string]string{"central": "older host", "migrating:x": "migration", "central/9": "central/9"} {
			if _, err := s.KV.Set(t.Context(), mode.ModeKey, marker, 0); err != nil {
				t.Fatal(err)
			}
			refused(t, cfg, mode.ErrRefused, text)
		}
	})
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		refused(t, testConfig(t, map[string]any{"listen": l.Addr().String()}), nil, l.Addr().String())
	})
	t.Run("store unreachable", func(t *testing.T) {
		refused(t, testConfig(t, map[string]any{"libsql.url": "http://127.0.0.1:1"}), nil, "127.0.0.1:1")
	})
	t.Run("unknown application", func(t *testing.T) {
		cfg := testConfig(t, nil)
		cfg.Mounts[0].App = "nope"
		refused(t, cfg, nil, `"nope"`)
	})
	t.Run("unknown setting", func(t *testing.T) {
		cfg := testConfig(t, nil)
		cfg.Mounts[0].Settings = map[string]any{"x": 1}
		refused(t, cfg, nil, "settings")
	})
}

func refused(t *testing.T, cfg *config.Config, is error, text string) {
	t.Helper()
	err := Serve(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{echo}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test"})
	if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %v with %q", err, is, text)
	}
}

func TestReplicaDirsOfLivingProcessesStay(t *testing.T) {
	base := t.TempDir()
	a, err := openReplicaDir(base, "a")
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(a.path, "mirror"), nil, 0o600)
	b, err := openReplicaDir(base, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(a.path, "mirror")); err != nil {
		t.Fatalf("the second process wiped the first one's mirrors: %v", err)
	}
	a.lock.Close() // as when the process dies
	c, err := openReplicaDir(base, "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a dead process's mirrors are still there: %v", err)
	}
	if _, err := os.Stat(b.path); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*replicaDir{b, c} {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestBucketOfAnotherStoreSetIsRefused(t *testing.T) {
	first := testConfig(t, nil)
	_, _, stop := serve(t, first)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second := testConfig(t, map[string]any{"object_store.url": first.ObjectStoreURLOrDefault()})
	refused(t, second, mode.ErrRefused, "belongs to store set")
	// The first one's store set and bucket still go together.
	_, _, stop = serve(t, first)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
