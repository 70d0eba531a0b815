package remotestorage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// An authorization is what an application asks for. Who asks is told by where
// the answer goes, and by nothing else: there is no registration.
type authorization struct {
	redirect  string // as it was sent
	origin    string
	plain     bool // the answer passes the network in the clear
	response  string
	state     string
	scopeText string
	challenge string
	method    string

	scope scope
}

// readAuthorization reads a request, and refuses one that cannot be answered
// at a place that is an application's.
func readAuthorization(q url.Values) (a authorization, err error) {
	a = authorization{
		redirect: q.Get("redirect_uri"), response: q.Get("response_type"), state: q.Get("state"),
		scopeText: q.Get("scope"), challenge: q.Get("code_challenge"), method: q.Get("code_challenge_method"),
	}
	for _, name := range []string{"redirect_uri", "response_type", "state", "scope", "code_challenge", "code_challenge_method"} {
		if len(q[name]) > 1 {
			return a, fmt.Errorf("%s is there twice", name)
		}
	}
	u, err := redirectURL(a.redirect)
	if err != nil {
		return a, err
	}
	a.origin = origin(u)
	a.plain = u.Scheme == "http" && !loopback(u.Hostname())
	return a, nil
}

const maxRedirect = 2 << 10 // bytes

// redirectURL reads where an answer is to go.
func redirectURL(text string) (*url.URL, error) {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '\\' || c == '"' || c == '<' || c == '>' {
			return nil, errors.New("redirect_uri has characters that no URL has")
		}
	}
	u, err := url.Parse(text)
	switch {
	case text == "" || len(text) > maxRedirect || err != nil:
		return nil, errors.New("redirect_uri is no URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("redirect_uri is not an http or https URL")
	case u.User != nil || strings.Contains(text, "#"):
		return nil, errors.New("redirect_uri has a user or a fragment")
	case !hostPattern.MatchString(u.Host):
		return nil, errors.New("redirect_uri has a bad host")
	}
	return u, nil
}

var hostPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// origin is what browsers call it: scheme, host, and port unless it is usual.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	usual := map[string]string{"http": ":80", "https": ":443"}
	return u.Scheme + "://" + strings.TrimSuffix(host, usual[u.Scheme])
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

var challengePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// check returns the error of OAuth that a request has, which goes to the
// application.
func (a *authorization) check() (code string) {
	var err error
	switch a.scope, err = parseScope(a.scopeText); {
	case a.response != "token" && a.response != "code":
		return "unsupported_response_type"
	case a.response == "code" && (a.method != "S256" || !challengePattern.MatchString(a.challenge)):
		return "invalid_request"
	case err != nil:
		return "invalid_scope"
	}
	return ""
}

// answer is where the browser goes with the outcome: pairs of names and values.
// Clients cut the raw text at & and =, and do not take + for a space.
func (a *authorization) answer(pairs ...string) string {
	if a.state != "" {
		pairs = append(pairs, "state", a.state)
	}
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, pairs[i]+"="+strings.ReplaceAll(url.QueryEscape(pairs[i+1]), "+", "%20"))
	}
	text := strings.Join(parts, "&")
	switch {
	case a.response != "code":
		return a.redirect + "#" + text
	case strings.Contains(a.redirect, "?"):
		return a.redirect + "&" + text
	default:
		return a.redirect + "?" + text
	}
}

// serveDialog asks the owner of an account whether an application may come in.
func (f *front) serveDialog(w http.ResponseWriter, r *http.Request, escaped string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, HEAD, POST")
		f.page(w, http.StatusMethodNotAllowed, "message", messagePage{Title: "Not possible", Text: "This page cannot do that."})
		return
	}
	name, known := accountName(escaped)
	if !known {
		f.page(w, http.StatusNotFound, "message", messagePage{Title: "No such account", Text: "There is no account of that name here."})
		return
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	var a authorization
	if err == nil {
		a, err = readAuthorization(q)
	}
	if err != nil {
		// Not answered at an address that may be anybody's.
		f.page(w, http.StatusBadRequest, "message", messagePage{Title: "Bad request", Text: "The application's request cannot be answered: " + err.Error() + "."})
		return
	}
	if code := a.check(); code != "" {
		http.Redirect(w, r, a.answer("error", code), http.StatusFound)
		return
	}
	d := dialogPage{Name: name, Address: name + "@" + f.places.accountHost, Origin: a.origin, Plain: a.plain, Action: template.URL("?" + r.URL.RawQuery)}
	for _, p := range a.scope {
		d.Scopes = append(d.Scopes, scopeLine{p.module, p.module == "*", p.write})
	}
	if acc, ok := f.signedIn(r); ok && acc.name == name {
		d.SignedIn = true
	}
	if r.Method != http.MethodPost {
		f.showDialog(w, r, http.StatusOK, d)
		return
	}
	f.decide(w, r, a, d)
}

func (f *front) showDialog(w http.ResponseWriter, r *http.Request, status int, d dialogPage) {
	d.Token = f.formToken(w, r)
	// After the form the browser goes on to the application.
	target := d.Origin
	if strings.Contains(target, "[") { // which policies cannot name
		target, _, _ = strings.Cut(target, "//")
	}
	w.Header().Set("Content-Security-Policy", strings.Replace(pagePolicy, "form-action 'self'", "form-action 'self' "+target, 1))
	f.page(w, status, "dialog", d)
}

// decide takes the owner's answer.
func (f *front) decide(w http.ResponseWriter, r *http.Request, a authorization, d dialogPage) {
	if !f.ownForm(w, r) {
		return
	}
	if r.PostForm.Has("refuse") {
		http.Redirect(w, r, a.answer("error", "access_denied"), http.StatusFound)
		return
	}
	if !r.PostForm.Has("allow") {
		f.showDialog(w, r, http.StatusOK, d)
		return
	}
	if !d.SignedIn {
		acc, err := f.accounts.login(r.Context(), r.PostForm.Get("username"), r.PostForm.Get("password"), f.throttle.client(r))
		if err == nil && acc.name != d.Name {
			err = errWrongPassword
		}
		if err != nil {
			status := f.loginFailed(w, r, err)
			if status == 0 {
				return
			}
			d.Error = "The name or the password is wrong."
			f.showDialog(w, r, status, d)
			return
		}
		if err := f.startSession(w, r, acc); err != nil {
			f.failPage(w, r, err)
			return
		}
	}
	location, err := f.let(r, a, d.Name)
	if err != nil {
		f.failPage(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, location, http.StatusFound)
}

// let lets the application in, and returns where it learns how.
func (f *front) let(r *http.Request, a authorization, name string) (string, error) {
	id, err := f.accounts.vault(r.Context(), name)
	if err != nil {
		return "", err
	}
	q := grantRequest{Origin: a.origin, Scope: a.scope.String(), Redirect: a.redirect, Challenge: a.challenge}
	var g grantAnswer
	if a.response == "code" {
		if err := f.vaults.call(r.Context(), id, "code", q, &g); err != nil {
			return "", err
		}
		return a.answer("code", name+"."+g.Token), nil
	}
	if err := f.vaults.call(r.Context(), id, "grant", q, &g); err != nil {
		return "", err
	}
	pairs := []string{"access_token", g.Token, "token_type", "bearer", "scope", g.Scope}
	if g.Expires > 0 {
		pairs = append(pairs, "expires_in", fmt.Sprint(g.Expires))
	}
	return a.answer(pairs...), nil
}

const maxForm = 16 << 10 // bytes

var verifierPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// serveToken trades a code for a token. The caller is a page of the
// application.
func (f *front) serveToken(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	cors(h, r)
	h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	h.Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPost:
	default:
		h.Set("Allow", "POST, OPTIONS")
		text(w, http.StatusMethodNotAllowed, "method not allowed")
		return
	}
	if wait, ok := f.throttle.allow(r); !ok {
		tooMany(w, wait)
		return
	}
	g, code, err := f.redeem(w, r)
	if err != nil {
		status, _ := hostStatus(err)
		h.Set("Retry-After", "1")
		tokenError(w, status, "server_error")
		return
	}
	if code != "" {
		f.throttle.failed(r)
		tokenError(w, http.StatusBadRequest, code)
		return
	}
	h.Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(struct { //nolint:errcheck // the client is gone
		Token   string `json:"access_token"`
		Type    string `json:"token_type"`
		Scope   string `json:"scope"`
		Expires int64  `json:"expires_in,omitempty"`
	}{g.Token, "bearer", g.Scope, g.Expires})
}

func tokenError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": code}) //nolint:errcheck // the client is gone
}

// redeem returns the grant, or the error of OAuth.
func (f *front) redeem(w http.ResponseWriter, r *http.Request) (g grantAnswer, code string, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return g, "invalid_request", nil
	}
	q := r.PostForm
	for _, v := range q {
		if len(v) > 1 {
			return g, "invalid_request", nil
		}
	}
	switch {
	case q.Get("grant_type") != "authorization_code":
		return g, "unsupported_grant_type", nil
	case q.Get("code") == "" || q.Get("redirect_uri") == "" || !verifierPattern.MatchString(q.Get("code_verifier")):
		return g, "invalid_request", nil
	}
	i := strings.LastIndex(q.Get("code"), ".")
	if i < 0 {
		return g, "invalid_grant", nil
	}
	id, err := f.accounts.vault(r.Context(), q.Get("code")[:i])
	if errors.Is(err, errNoAccount) {
		return g, "invalid_grant", nil
	}
	if err != nil {
		return g, "", err
	}
	sum := sha256.Sum256([]byte(q.Get("code_verifier")))
	err = f.vaults.call(r.Context(), id, "redeem", redeemRequest{
		Code: q.Get("code")[i+1:], Redirect: q.Get("redirect_uri"), Challenge: base64.RawURLEncoding.EncodeToString(sum[:]),
	}, &g)
	if no, ok := errors.AsType[*refusal](err); ok {
		return g, no.text, nil
	}
	return g, "", err
}
