package remotestorage

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"
)

//go:embed pages.html
var pagesHTML embed.FS

//go:embed style.css
var style string

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) },
	"size":  sizeText,
	"day":   func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2 January 2006") },
}).ParseFS(pagesHTML, "pages.html"))

// pagePolicy allows a page its own style and forms, and nothing else.
var pagePolicy = "default-src 'none'; style-src 'sha256-" + styleHash() + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}

type messagePage struct{ Title, Text string }

type scopeLine struct {
	Module string
	All    bool
	Write  bool
}

type dialogPage struct {
	Name, Address, Origin string
	Plain, SignedIn       bool
	Scopes                []scopeLine
	Action                template.URL // the query, which the form keeps
	Token                 string
	Error                 string
}

type loginPage struct{ Base, Token, Error, Name string }

type accountPage struct {
	Base, Token, Address, Store string
	Info                        infoAnswer
	Note, Error                 string
}

// page shows one page.
func (f *front) page(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Errorf("page %s: %w", name, err))
	}
	h := w.Header()
	if h.Get("Content-Security-Policy") == "" {
		h.Set("Content-Security-Policy", pagePolicy)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	w.WriteHeader(status)
	w.Write(b.Bytes()) //nolint:errcheck // the client is gone
}

func (f *front) failPage(w http.ResponseWriter, r *http.Request, err error) {
	status, line := hostStatus(err)
	f.log.WarnContext(r.Context(), "a page failed", "status", status, "error", err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	f.page(w, status, "message", messagePage{Title: "That did not work", Text: "Please try again: " + line + "."})
}

// loginFailed returns the status for a form that is shown again, or 0 when it
// has answered.
func (f *front) loginFailed(w http.ResponseWriter, r *http.Request, err error) int {
	many, throttled := errors.AsType[tooManyError](err)
	switch {
	case throttled:
		w.Header().Set("Retry-After", strconv.Itoa(many.wait))
		f.page(w, http.StatusTooManyRequests, "message", messagePage{Title: "Too many failures", Text: "Please try again in " + (time.Duration(many.wait) * time.Second).String() + "."})
		return 0
	case errors.Is(err, errWrongPassword):
		return http.StatusForbidden
	default:
		f.failPage(w, r, err)
		return 0
	}
}

const (
	sessionCookie = "rs_session"
	formCookie    = "rs_form"
)

// cookie is one that other sites cannot have sent with a form of theirs, but with
// a link: the dialog is reached by one.
func (f *front) cookie(name, value string, age time.Duration) *http.Cookie {
	path := f.places.base.Path
	if path == "" {
		path = "/"
	}
	return &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: int(age / time.Second), HttpOnly: true,
		Secure: f.places.base.Scheme == "https", SameSite: http.SameSiteLaxMode,
	}
}

// formTokenSize is what rand.Text returns at the least.
const formTokenSize = 26

// formToken returns what a form must bring back beside its cookie, which other
// sites can neither read nor have sent with a form of theirs.
func (f *front) formToken(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(formCookie); err == nil && len(c.Value) >= formTokenSize {
		return c.Value
	}
	token := rand.Text()
	http.SetCookie(w, f.cookie(formCookie, token, 24*time.Hour))
	return token
}

// ownForm reads a form, and refuses one that another site has sent.
func (f *front) ownForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := f.guard.Check(r)
	if err == nil {
		err = r.ParseForm()
	}
	if err == nil {
		c, cookieErr := r.Cookie(formCookie)
		if cookieErr != nil || len(c.Value) < formTokenSize || subtle.ConstantTimeCompare([]byte(c.Value), []byte(r.PostForm.Get("form"))) != 1 {
			err = errors.New("the form is not from here")
		}
	}
	if err != nil {
		f.page(w, http.StatusForbidden, "message", messagePage{Title: "Not accepted", Text: "The form did not come from this site, or cookies are off. Please go back and try again."})
		return false
	}
	return true
}

func (f *front) startSession(w http.ResponseWriter, r *http.Request, acc account) error {
	ttl := time.Duration(f.settings.SessionTTL)
	secret, err := f.accounts.session(r.Context(), acc, ttl)
	if err == nil {
		http.SetCookie(w, f.cookie(sessionCookie, secret, ttl))
	}
	return err
}

// signedIn returns whose browser it is.
func (f *front) signedIn(r *http.Request) (account, bool) {
	c, err := r.Cookie(sessionCookie)
	if err != nil || c.Value == "" {
		return account{}, false
	}
	acc, err := f.accounts.whose(r.Context(), c.Value)
	if err != nil && !errors.Is(err, errNoAccount) {
		f.log.WarnContext(r.Context(), "a session could not be read", "error", err)
	}
	return acc, err == nil
}

// servePages serves the owner's page and what its forms do.
func (f *front) servePages(w http.ResponseWriter, r *http.Request, path string) {
	acts := map[string]func(http.ResponseWriter, *http.Request, account){"revoke": f.revoke, "password": f.changePassword, "logout": f.logout}
	act, isAct := acts[path]
	switch {
	case path == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		if acc, ok := f.signedIn(r); ok {
			f.showAccount(w, r, http.StatusOK, acc, "", "")
			return
		}
		f.showLogin(w, r, http.StatusOK, "")
	case path == "login" && r.Method == http.MethodPost:
		f.login(w, r)
	case isAct && r.Method == http.MethodPost:
		if !f.ownForm(w, r) {
			return
		}
		acc, ok := f.signedIn(r)
		if !ok {
			f.showLogin(w, r, http.StatusForbidden, "Please sign in again.")
			return
		}
		act(w, r, acc)
	case path == "", path == "login", isAct:
		f.home(w, r)
	default:
		f.page(w, http.StatusNotFound, "message", messagePage{Title: "Not found", Text: "There is no such page."})
	}
}

func (f *front) home(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, f.places.root()+"/", http.StatusSeeOther)
}

func (f *front) showLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	f.page(w, status, "login", loginPage{Base: f.places.root(), Token: f.formToken(w, r), Error: problem, Name: r.PostForm.Get("username")})
}

func (f *front) login(w http.ResponseWriter, r *http.Request) {
	if !f.ownForm(w, r) {
		return
	}
	acc, err := f.accounts.login(r.Context(), r.PostForm.Get("username"), r.PostForm.Get("password"), f.throttle.client(r))
	if err != nil {
		if status := f.loginFailed(w, r, err); status != 0 {
			f.showLogin(w, r, status, "The name or the password is wrong.")
		}
		return
	}
	if err := f.startSession(w, r, acc); err != nil {
		f.failPage(w, r, err)
		return
	}
	f.home(w, r)
}

func (f *front) showAccount(w http.ResponseWriter, r *http.Request, status int, acc account, note, problem string) {
	p := accountPage{
		Base: f.places.root(), Token: f.formToken(w, r), Address: acc.name + "@" + f.places.accountHost,
		Store: f.places.storageRoot(acc.name), Note: note, Error: problem,
	}
	id, err := f.accounts.vault(r.Context(), acc.name)
	if err == nil {
		err = f.vaults.call(r.Context(), id, "info", none{}, &p.Info)
	}
	if err != nil {
		f.failPage(w, r, err)
		return
	}
	f.page(w, status, "account", p)
}

func (f *front) revoke(w http.ResponseWriter, r *http.Request, acc account) {
	id, err := f.accounts.vault(r.Context(), acc.name)
	if err == nil {
		err = f.vaults.call(r.Context(), id, "revoke", revokeRequest{ID: r.PostForm.Get("id")}, nil)
	}
	if err != nil {
		f.failPage(w, r, err)
		return
	}
	f.home(w, r)
}

func (f *front) changePassword(w http.ResponseWriter, r *http.Request, acc account) {
	if _, err := f.accounts.login(r.Context(), acc.name, r.PostForm.Get("old"), f.throttle.client(r)); err != nil {
		if status := f.loginFailed(w, r, err); status != 0 {
			f.showAccount(w, r, status, acc, "", "The present password is wrong.")
		}
		return
	}
	if err := checkPassword(r.PostForm.Get("new")); err != nil {
		f.showAccount(w, r, http.StatusBadRequest, acc, "", "The password was not changed: "+err.Error()+".")
		return
	}
	acc, err := f.accounts.setPassword(r.Context(), acc, r.PostForm.Get("new"))
	if err == nil {
		err = f.startSession(w, r, acc)
	}
	if err != nil {
		f.failPage(w, r, err)
		return
	}
	f.showAccount(w, r, http.StatusOK, acc, "The password is changed. All other browsers are signed out.", "")
}

func (f *front) logout(w http.ResponseWriter, r *http.Request, _ account) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		if err := f.accounts.endSession(r.Context(), c.Value); err != nil {
			f.failPage(w, r, err)
			return
		}
	}
	http.SetCookie(w, f.cookie(sessionCookie, "", -time.Second))
	f.home(w, r)
}

// sizeText writes a number of bytes for people.
func sizeText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if v < 1<<10 {
			break
		}
		v, unit = v/(1<<10), next
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
