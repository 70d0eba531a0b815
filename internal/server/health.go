package server

import (
	"encoding/json"
	"net/http"
)

// The health paths.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// NewHealth serves [HealthPath], which is 200 as long as the process answers
// and touches no store, and [ReadyPath], which is 200 or, with the failing
// stores, 503. The reasons are told when detail, if not nil, allows it: an
// error names addresses that strangers have no need to know.
func NewHealth(replica string, ready *Readiness, detail func(*http.Request) bool) http.Handler {
	return &health{replica, ready, detail}
}

type health struct {
	replica string
	ready   *Readiness
	detail  func(*http.Request) bool
}

// healthAnswer is the JSON of both paths.
type healthAnswer struct {
	Status  string          `json:"status"` // "ok", "ready", "failing", or the state
	Replica string          `json:"replica"`
	Failing []failingAnswer `json:"failing,omitempty"`
}

type failingAnswer struct {
	Store string `json:"store"`
	Error string `json:"error,omitempty"`
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, "GET, HEAD")
		return
	}
	switch r.URL.Path {
	case HealthPath:
		writeJSON(w, http.StatusOK, healthAnswer{Status: "ok", Replica: h.replica})
	case ReadyPath:
		h.serveReady(w, r)
	default:
		fail(w, http.StatusNotFound, "not found")
	}
}

func (h *health) serveReady(w http.ResponseWriter, r *http.Request) {
	report := h.ready.Report(r.Context())
	a := healthAnswer{Status: string(report.State), Replica: h.replica}
	if report.Ready() {
		writeJSON(w, http.StatusOK, a)
		return
	}
	if report.State == StateReady {
		a.Status = "failing"
	}
	detail := h.detail != nil && h.detail(r)
	for _, f := range report.Failing {
		failing := failingAnswer{Store: f.Store}
		if detail {
			failing.Error = f.Err.Error()
		}
		a.Failing = append(a.Failing, failing)
	}
	writeJSON(w, http.StatusServiceUnavailable, a)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client is gone
}
