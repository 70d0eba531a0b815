package host

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
)

func TestSecretsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "TOKEN")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("first-value\n")
		cfg := config.Default()
		cfg.SecretsDir = dir
		cfg.Secrets = []config.NamedSecret{{Name: "FIXED", From: config.NewSecret("fixed")}}
		var log bytes.Buffer
		s := newSecrets(slog.New(slog.NewTextHandler(&log, nil)))
		for _, name := range []string{"TOKEN", "FIXED"} {
			secret, ok, err := cfg.NamedSecret(name)
			if !ok || err != nil {
				t.Fatal(name, ok, err)
			}
			s.add(name, secret)
		}
		for _, name := range []string{"OTHER", "../TOKEN", "."} {
			if _, ok, err := cfg.NamedSecret(name); ok || err != nil {
				t.Errorf("%s: %v, %v", name, ok, err)
			}
		}
		want := func(value string) {
			t.Helper()
			time.Sleep(secretAge)
			if got, ok := s.get("TOKEN"); got != value || !ok {
				t.Errorf("got %q, want %q", got, value)
			}
			if got, _ := s.get("FIXED"); got != "fixed" {
				t.Errorf("got %q", got)
			}
		}
		want("first-value")
		write("second-value")
		want("second-value")
		os.Remove(path)
		want("second-value")
		want("second-value")
		write("")
		want("second-value")
		write("third-value")
		want("third-value")
		if n := strings.Count(log.String(), "secret.failed"); n != 1 || strings.Count(log.String(), "secret.changed") != 2 || strings.Contains(log.String(), "-value") {
			t.Errorf("logged\n%s", log.String())
		}
	})
}

// All that is missing, for all applications, is one message.
func TestRequirements(t *testing.T) {
	needy := durable.App{Name: "needy", New: func(durable.Env) (http.Handler, error) { return http.NotFoundHandler(), nil },
		Requires: durable.Requirements{Databases: []string{"NO_DB", "LAB_DB"}, Buckets: []string{"NO_BUCKET"}, Caches: []string{"NO_CACHE"}, Secrets: []string{"NO_SECRET"}}}
	other := durable.App{Name: "other", New: needy.New, Requires: durable.Requirements{Secrets: []string{"ANOTHER"}}}
	cfg := testConfig(t, nil)
	cfg.Mounts = []config.Mount{{Path: "/needy", App: "needy"}, {Path: "/other", App: "other"}}
	err := Serve(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{needy, other}, Log: slog.New(slog.DiscardHandler), Version: "test"})
	if err == nil {
		t.Fatal("it started")
	}
	for _, want := range []string{"needy requires SQL database NO_DB, bucket NO_BUCKET, cache NO_CACHE, secret NO_SECRET", "other requires secret ANOTHER"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
}

// An application uses all its bindings, and only those.
func TestBindings(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "KEY"), []byte("k"), 0o600); err != nil {
		t.Fatal(err)
	}
	var panics []any
	app := durable.App{Name: "all", Requires: durable.Requirements{Databases: []string{"LAB_DB"}, Buckets: []string{"LAB_FILES"}, Caches: []string{"LAB_CACHE"}, Secrets: []string{"KEY"}},
		New: func(env durable.Env) (http.Handler, error) {
			for _, call := range []func(){func() { env.Database("X") }, func() { env.Bucket("X") }, func() { env.Cache("X") }, func() { env.Secret("X") }} {
				func() {
					defer func() { panics = append(panics, recover()) }()
					call()
				}()
			}
			db := env.Database("LAB_DB")
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				env.Cache("LAB_CACHE").Set("a", 1, 0)
				v, _ := env.Cache("LAB_CACHE").Get("a")
				row, err := db.First(r.Context(), `SELECT 'x'`)
				if v != 1 || err != nil || env.Bucket("LAB_FILES") == nil {
					panic(err)
				}
				io.WriteString(w, env.Secret("KEY")+row.Values[0].(string))
			}), nil
		}}
	cfg := testConfig(t, map[string]any{"secrets_dir": dir})
	cfg.Mounts = []config.Mount{{Path: "/all", App: "all"}}
	public, admin, stop := serve(t, cfg, app)
	if code, body := get(t, public+"/all/"); code != 200 || body != "kx" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, admin+"/readyz"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for i, v := range panics {
		if v == nil {
			t.Errorf("call %d took a binding that was not required", i)
		}
	}
}
