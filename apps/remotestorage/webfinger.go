package remotestorage

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

const relStorage = "http://tools.ietf.org/id/draft-dejong-remotestorage"

// webFinger tells where an account's store is (RFC 7033).
type webFinger struct {
	places   places
	accounts *accounts
	throttle *throttle
}

func newWebFinger(env durable.Env) (http.Handler, error) {
	s := env.Settings().(*Settings)
	p, err := newPlaces(env, s)
	return &webFinger{p, newAccounts(env), newThrottle(env, s.TrustedProxies)}, err
}

type jrd struct {
	Subject string    `json:"subject,omitempty"`
	Links   []jrdLink `json:"links"`
}

type jrdLink struct {
	Rel        string             `json:"rel"`
	Type       string             `json:"type,omitempty"`
	Href       string             `json:"href"`
	Properties map[string]*string `json:"properties,omitempty"`
}

func (f *webFinger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if f.places.misdirected(r, false) {
		text(w, http.StatusMisdirectedRequest, "this host name has the store only")
		return
	}
	if r.URL.Path != "/.well-known/webfinger" {
		text(w, http.StatusNotFound, "not found")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		text(w, http.StatusMethodNotAllowed, "method not allowed")
		return
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q["resource"]) != 1 || q.Get("resource") == "" {
		text(w, http.StatusBadRequest, "one resource is asked for")
		return
	}
	if wait, ok := f.throttle.allow(r); !ok {
		tooMany(w, wait)
		return
	}
	name, ok := f.name(q.Get("resource"))
	if ok {
		_, err = f.accounts.get(r.Context(), name)
	}
	switch {
	case !ok, errors.Is(err, errNoAccount):
		f.throttle.failed(r)
		text(w, http.StatusNotFound, "no such account")
		return
	case err != nil:
		status, line := hostStatus(err)
		h.Set("Retry-After", "1")
		text(w, status, line)
		return
	}
	answer := jrd{Subject: "acct:" + name + "@" + f.places.accountHost, Links: []jrdLink{}}
	if rels := q["rel"]; len(rels) == 0 || slices.Contains(rels, relStorage) {
		answer.Links = append(answer.Links, f.link(name))
	}
	h.Set("Content-Type", "application/jrd+json")
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client is gone
}

// name reads the account's name in "acct:name@host".
func (f *webFinger) name(resource string) (string, bool) {
	address, ok := strings.CutPrefix(resource, "acct:")
	name, host, found := strings.Cut(address, "@")
	return name, ok && found && strings.EqualFold(host, f.places.accountHost) && validName(name)
}

func (f *webFinger) link(name string) jrdLink {
	dialog, token := f.places.at("oauth", name), f.places.at("token")
	text := func(s string) *string { return &s }
	return jrdLink{Rel: relStorage, Type: version, Href: f.places.storageRoot(name), Properties: map[string]*string{
		"http://remotestorage.io/spec/version":           text(version),
		"http://tools.ietf.org/html/rfc6749#section-4.2": &dialog,
		"http://tools.ietf.org/html/rfc6749#section-3.1": &dialog,
		"http://tools.ietf.org/html/rfc6749#section-3.2": &token,
		"http://tools.ietf.org/html/rfc7636":             text("S256"),
		"http://tools.ietf.org/html/rfc6750#section-2.3": nil,
		"http://tools.ietf.org/html/rfc7233":             text("GET"),
		"http://remotestorage.io/spec/web-authoring":     nil,
	}}
}
