package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func failing(state State) *Readiness {
	r := NewReadiness(nil, Check{Name: "db", Run: func(context.Context) error { return errors.New("dial 10.0.0.1: refused") }},
		Check{Name: "bucket", Run: func(context.Context) error { return nil }})
	r.SetState(state)
	return r
}

func newAdmin(t *testing.T, cfg AdminConfig) http.Handler {
	t.Helper()
	if cfg.Readiness == nil {
		cfg.Readiness = failing(StateReady)
	}
	cfg.Handlers = map[string]http.Handler{"/metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "metrics") })}
	h, err := NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAdminAccess(t *testing.T) {
	open, locked := newAdmin(t, AdminConfig{Pprof: true}), newAdmin(t, AdminConfig{Token: "tok"})
	for _, c := range []struct {
		name         string
		h            http.Handler
		method, path string
		host, auth   string
		origin       string
		status       int
	}{
		{"open", open, "GET", "/metrics", "localhost:9080", "", "", 200},
		{"open by address", open, "GET", "/metrics", "127.0.0.1:9080", "", "", 200},
		{"open by IPv6 address", open, "GET", "/metrics", "[::1]:9080", "", "", 200},
		{"rebinding", open, "GET", "/metrics", "evil.example:9080", "", "", 421},
		{"rebinding by look", open, "GET", "/metrics", "localhost.evil.example", "", "", 421},
		{"cross-origin post", open, "POST", "/metrics", "localhost:9080", "", "https://evil.example", 403},
		{"post by a script", open, "POST", "/metrics", "localhost:9080", "", "", 200},
		{"profile", open, "GET", "/debug/pprof/cmdline", "localhost", "", "", 200},
		{"no profile", locked, "GET", "/debug/pprof/cmdline", "x", "Bearer tok", "", 404},
		{"unknown", open, "GET", "/x", "localhost", "", "", 404},
		{"no token", locked, "GET", "/metrics", "localhost", "", "", 401},
		{"no token, unknown path", locked, "GET", "/x", "localhost", "", "", 401},
		{"wrong token", locked, "GET", "/metrics", "x", "Bearer tokk", "", 401},
		{"prefix of the token", locked, "GET", "/metrics", "x", "Bearer to", "", 401},
		{"empty token", locked, "GET", "/metrics", "x", "Bearer ", "", 401},
		{"other scheme", locked, "GET", "/metrics", "x", "Basic tok", "", 401},
		{"token", locked, "GET", "/metrics", "any.example", "bearer tok", "", 200},
		{"health without token", locked, "GET", "/healthz", "any.example", "", "", 200},
		{"ready without token", locked, "GET", "/readyz", "10.0.0.1", "", "", 503},
		{"health by post", open, "POST", "/healthz", "localhost", "", "", 405},
	} {
		w := send(c.h, c.method, c.path, func(r *http.Request) {
			r.Host = c.host
			if c.auth != "" {
				r.Header.Set("Authorization", c.auth)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
		})
		if w.Code != c.status {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.status)
		}
		if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
}

func TestReadyAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   AdminConfig
		auth  string
		want  string
		reads int
	}{
		{"starting", AdminConfig{Readiness: failing(StateStarting)}, "", `{"status":"starting","replica":"r1"}`, 503},
		{"draining", AdminConfig{Readiness: failing(StateDraining)}, "", `{"status":"draining","replica":"r1"}`, 503},
		{"stopping", AdminConfig{Readiness: failing(StateStopping)}, "", `{"status":"stopping","replica":"r1"}`, 503},
		{"failing", AdminConfig{}, "", `{"status":"failing","replica":"r1","failing":[{"store":"db","error":"dial 10.0.0.1: refused"}]}`, 503},
		{"stranger", AdminConfig{Token: "tok"}, "", `{"status":"failing","replica":"r1","failing":[{"store":"db"}]}`, 503},
		{"operator", AdminConfig{Token: "tok"}, "Bearer tok", `{"status":"failing","replica":"r1","failing":[{"store":"db","error":"dial 10.0.0.1: refused"}]}`, 503},
	} {
		c.cfg.Replica = "r1"
		w := send(newAdmin(t, c.cfg), "GET", "/readyz", func(r *http.Request) {
			r.Host = "localhost"
			r.Header.Set("Authorization", c.auth)
		})
		if got := strings.TrimSpace(w.Body.String()); w.Code != c.reads || got != c.want {
			t.Errorf("%s: %d %s", c.name, w.Code, got)
		}
	}
	ok := NewReadiness(nil)
	ok.SetState(StateReady)
	if w := send(NewHealth("r1", ok, nil), "GET", "/readyz"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"status":"ready","replica":"r1"}` {
		t.Errorf("ready: %d %s", w.Code, w.Body)
	}
}

func TestNewAdminRefuses(t *testing.T) {
	for _, path := range []string{"metrics", "/healthz", "/readyz", "/debug/pprof/x", "/{a}", "/a/"} {
		if _, err := NewAdmin(AdminConfig{Readiness: NewReadiness(nil), Handlers: map[string]http.Handler{path: http.NotFoundHandler()}}); err == nil {
			t.Errorf("handler at %q accepted", path)
		}
	}
	if _, err := NewAdmin(AdminConfig{}); err == nil {
		t.Error("no readiness accepted")
	}
}
