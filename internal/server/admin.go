package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"strings"
)

// AdminConfig says what the admin listener serves.
type AdminConfig struct {
	Readiness *Readiness
	// Token, when set, must come as "Authorization: Bearer" with every request
	// but those of the health paths. Without it the handler answers only to
	// loopback host names, so that no web page can reach it under a name of its
	// own; it is then meant for a loopback listener.
	Token string
	// Pprof serves profiles at /debug/pprof/.
	Pprof bool
	// Handlers are what the host adds, by path, such as "/metrics".
	Handlers map[string]http.Handler
	// Replica is told in the Dwk-Replica header of every answer.
	Replica string
	Logger  *slog.Logger
}

type admin struct {
	shell  shell
	token  string
	health http.Handler
	mux    *http.ServeMux
	origin *http.CrossOriginProtection
}

// NewAdmin returns the handler of the admin listener.
func NewAdmin(cfg AdminConfig) (http.Handler, error) {
	if cfg.Readiness == nil {
		return nil, errors.New("admin: no readiness")
	}
	a := &admin{
		shell: shell{replica: cfg.Replica, log: orDiscard(cfg.Logger), defaults: http.Header{
			"X-Content-Type-Options":  {"nosniff"},
			"Content-Security-Policy": {"frame-ancestors 'none'"},
			"Referrer-Policy":         {"no-referrer"},
		}},
		token: cfg.Token, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
	}
	a.health = NewHealth(cfg.Replica, cfg.Readiness, func(r *http.Request) bool { return a.refusal(r) == 0 })
	for path, h := range cfg.Handlers {
		if _, err := splitFixed(path); err != nil || h == nil || path == HealthPath || path == ReadyPath ||
			strings.ContainsAny(path, "{} ") || strings.HasPrefix(path, "/debug/pprof") {
			return nil, fmt.Errorf("admin: no handler can be added at %q", path)
		}
		a.mux.Handle(path, h)
	}
	if cfg.Pprof {
		a.mux.HandleFunc("/debug/pprof/", pprof.Index)
		a.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		a.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		a.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		a.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return a, nil
}

func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.shell.serve(w, r, a.route)
}

func (a *admin) route(w *response, r *http.Request) {
	w.mount, w.quiet = "admin", true
	if r.URL.Path == HealthPath || r.URL.Path == ReadyPath {
		w.mount = "health"
		a.health.ServeHTTP(w, r)
		return
	}
	switch status := a.refusal(r); status {
	case 0:
		a.mux.ServeHTTP(w, r)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="dwk admin"`)
		fail(w, status, "a valid bearer token is required")
	case http.StatusMisdirectedRequest:
		fail(w, status, "without a token the admin listener answers to loopback names only")
	default:
		fail(w, status, "cross-origin request refused")
	}
}

// refusal returns the status with which a request is refused, or 0.
func (a *admin) refusal(r *http.Request) int {
	if a.token != "" && !a.authorized(r) {
		return http.StatusUnauthorized
	}
	if a.token == "" && !loopbackHost(r.Host) {
		return http.StatusMisdirectedRequest
	}
	if a.origin.Check(r) != nil {
		return http.StatusForbidden
	}
	return 0
}

// authorized compares in constant time; hashing makes the lengths equal.
func (a *admin) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(a.token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// loopbackHost reports whether a Host header names the machine itself.
func loopbackHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
