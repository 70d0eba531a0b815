package remotestorage

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// front is the stateless part: it refuses what no event is needed to refuse,
// shows pages and moves bodies.
type front struct {
	env      durable.Env
	settings *Settings
	places   places
	accounts *accounts
	vaults   vaults
	bucket   durable.Bucket
	throttle *throttle
	guard    *http.CrossOriginProtection
	log      *slog.Logger
}

func newFront(env durable.Env) (http.Handler, error) {
	s := env.Settings().(*Settings)
	if err := s.check(); err != nil {
		return nil, err
	}
	p, err := newPlaces(env, s)
	if err != nil {
		return nil, err
	}
	acc, err := openAccounts(env)
	if err != nil {
		return nil, err
	}
	f := &front{
		env: env, settings: s, places: p, accounts: acc, vaults: newVaults(env), bucket: env.Bucket(bucketName),
		throttle: newThrottle(env, s.TrustedProxies), guard: http.NewCrossOriginProtection(), log: env.Logger(),
	}
	if err := f.guard.AddTrustedOrigin(p.base.Scheme + "://" + p.base.Host); err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	return f, nil
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Routed by hand: a ServeMux would redirect odd paths, which a client that
	// puts does not follow.
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/store/"); ok {
		f.serveStore(w, r, rest)
		return
	}
	if f.places.misdirected(r, false) {
		http.Error(w, "this host name has the store only", http.StatusMisdirectedRequest)
		return
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case first == "token" && rest == "":
		f.serveToken(w, r)
	case first == "oauth" && !strings.Contains(rest, "/"):
		f.serveDialog(w, r, rest)
	case rest != "":
		f.page(w, http.StatusNotFound, "message", messagePage{Title: "Not found", Text: "There is no such page."})
	default:
		f.servePages(w, r, first)
	}
}

// hostStatus is the status that says what became of a call to an object.
func hostStatus(err error) (status int, text string) {
	switch {
	case errors.Is(err, durable.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, "too large"
	case errors.Is(err, durable.ErrUnknownOutcome):
		return http.StatusGatewayTimeout, "whether this was done is not known"
	case errors.Is(err, durable.ErrHandlerFailed), errors.Is(err, durable.ErrNotFound), errors.Is(err, durable.ErrInvalid):
		return http.StatusInternalServerError, "internal error"
	default:
		return http.StatusServiceUnavailable, "busy; nothing was done"
	}
}

// text answers with a line.
func text(w http.ResponseWriter, status int, line string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, line+"\n") //nolint:errcheck // the client is gone
}
