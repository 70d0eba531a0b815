package remotestorage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// siteOrigin is that of the configuration's base_url.
const siteOrigin = "http://localhost:8080"

// A browser keeps cookies, and sends forms with what browsers say of them.
type browser struct {
	f       *fixture
	cookies map[string]string
	site    string // Sec-Fetch-Site of what it posts
	origin  string
}

func (f *fixture) browser() *browser {
	return &browser{f: f, cookies: map[string]string{}, site: "same-origin", origin: siteOrigin}
}

func (b *browser) send(method, path string, form url.Values) answer {
	b.f.t.Helper()
	var header []string
	for name, value := range b.cookies {
		header = append(header, "Cookie", name+"="+value)
	}
	header = append(header, "Host", "localhost:8080")
	if form != nil {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded")
		if b.site != "" {
			header = append(header, "Sec-Fetch-Site", b.site)
		}
		if b.origin != "" {
			header = append(header, "Origin", b.origin)
		}
	}
	a := b.f.send(method, path, strings.NewReader(form.Encode()), header...)
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/rs" {
			b.f.t.Errorf("cookie %v", c)
		}
	}
	return a
}

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)

// post fills in the form of a page.
func (b *browser) post(page answer, path string, fields ...string) answer {
	b.f.t.Helper()
	m := formField.FindStringSubmatch(page.body)
	if m == nil {
		b.f.t.Fatalf("no form in %d %s", page.status, page.body)
	}
	form := url.Values{"form": {m[1]}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return b.send("POST", path, form)
}

func dialog(params ...string) string {
	q := url.Values{"redirect_uri": {"http://localhost:9999"}, "scope": {"api-test:rw"}, "client_id": {"http://localhost:9999"}, "response_type": {"token"}}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
		if params[i+1] == "" {
			q.Del(params[i])
		}
	}
	return "/rs/oauth/alice?" + q.Encode()
}

// fragment cuts the answer of an authorization as clients do.
func fragment(t *testing.T, a answer, separator string) map[string]string {
	t.Helper()
	_, raw, ok := strings.Cut(a.header.Get("Location"), separator)
	if a.status != 302 || !ok || strings.Contains(raw, "+") {
		t.Fatalf("%d to %s", a.status, a.header.Get("Location"))
	}
	out := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		parts := strings.Split(pair, "=")
		value, err := url.PathUnescape(parts[1])
		if err != nil || len(parts) != 2 {
			t.Errorf("pair %q: %v", pair, err)
		}
		out[parts[0]] = value
	}
	return out
}

func TestImplicitGrant(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	b := f.browser()
	path := dialog("scope", "api-test:rw other:r", "state", "a b&c=d#ü+")
	page := b.send("GET", path, nil)
	if page.status != 200 || !strings.Contains(page.body, ">http://localhost:9999<") || !strings.Contains(page.body, "<strong>api-test</strong>: read and change") || !strings.Contains(page.body, "<strong>other</strong>: read only") ||
		!strings.Contains(page.body, `value="alice"`) || strings.Contains(page.body, "secure connection") || strings.Contains(page.body, "<script") {
		t.Errorf("dialog: %d %s", page.status, page.body)
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self' http://localhost:9999") || strings.Contains(csp, "unsafe") ||
		page.header.Get("X-Frame-Options") != "DENY" || page.header.Get("Cache-Control") != "no-store" || page.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("dialog: %v", page.header)
	}
	checkForm(t, page.body, path)
	wrong := b.post(page, path, "username", "alice", "password", "wrong", "allow", "1")
	if wrong.status != 403 || !strings.Contains(wrong.body, "wrong") || wrong.header.Get("Location") != "" {
		t.Errorf("a wrong password: %d %s", wrong.status, wrong.body)
	}
	f.account("bob")
	wants(t, "another's password", b.post(page, path, "username", "bob", "password", password, "allow", "1"), 403)
	a := b.post(page, path, "username", "alice", "password", password, "allow", "1")
	if !strings.HasPrefix(a.header.Get("Location"), "http://localhost:9999#access_token=") {
		t.Errorf("granted: %v", a.header)
	}
	got := fragment(t, a, "#")
	if got["token_type"] != "bearer" || got["state"] != "a b&c=d#ü+" || got["scope"] != "api-test:rw other:r" || len(got["access_token"]) < 26 {
		t.Errorf("granted: %v", got)
	}
	u := user{f, "alice", got["access_token"]}
	u.put("/api-test/x", "x")
	wants(t, "beyond the scope", u.do("PUT", "/other/x", "x"), 403)
	// Signed in from here on, nobody asks for the password.
	page = b.send("GET", dialog(), nil)
	if strings.Contains(page.body, "password") || !strings.Contains(page.body, "signed in") {
		t.Errorf("signed in: %s", page.body)
	}
	second := fragment(t, b.post(page, dialog(), "allow", "1"), "#")["access_token"]
	if second == "" || second == got["access_token"] {
		t.Error("a token was given twice")
	}
	if got := fragment(t, b.post(page, path, "refuse", "1"), "#"); got["error"] != "access_denied" || got["state"] != "a b&c=d#ü+" || len(got) != 2 {
		t.Errorf("refused: %v", got)
	}
	wants(t, "neither", b.post(page, path), 200)
	// A token is not valid elsewhere, and not when it is almost right.
	for _, token := range []string{second + "x", second[:25], strings.ToLower(second), "", " "} {
		wants(t, fmt.Sprintf("token %q", token), f.send("GET", "/rs/store/alice/api-test/x", nil, "Authorization", "Bearer "+token), 401)
	}
	wants(t, "at another's", user{f, "bob", second}.get("/api-test/x"), 401)
	a = f.send("GET", "/rs/store/alice/api-test/x?access_token="+second, nil)
	if a.status != 401 || a.header.Get("WWW-Authenticate") != `Bearer realm="localhost:8080"` {
		t.Errorf("a token in the query: %v", a.header)
	}
	wants(t, "another scheme", f.send("GET", "/rs/store/alice/api-test/x", nil, "Authorization", "Basic "+second), 401)
	wants(t, "in lower case", f.send("GET", "/rs/store/alice/api-test/x", nil, "Authorization", "bearer "+second), 200)
	if h := (user{f, "alice", "bad"}).get("/api-test/x").header.Get("WWW-Authenticate"); !strings.Contains(h, `, error="invalid_token"`) {
		t.Errorf("a bad token: %s", h)
	}
	if h := u.get("/third/x").header.Get("WWW-Authenticate"); !strings.Contains(h, `, error="insufficient_scope"`) {
		t.Errorf("beyond the scope: %s", h)
	}
	wants(t, "a cookie", f.send("GET", "/rs/store/alice/api-test/x", nil, "Cookie", sessionCookie+"="+b.cookies[sessionCookie]), 401)
}

// checkForm looks at a page as a keyboard and a reader of screens do: each
// field has a label, and the form goes back to where it came from.
func checkForm(t *testing.T, page, action string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	labels, fields := map[string]bool{}, map[string]string{}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
		}
		switch {
		case n.Data == "label":
			labels[attr["for"]] = true
		case n.Data == "input" && attr["type"] != "hidden":
			fields[attr["id"]] = attr["name"]
		case n.Data == "form" && action != "":
			u, err := url.Parse("http://localhost:8080" + action)
			if err != nil {
				t.Fatal(err)
			}
			to, err := u.Parse(attr["action"])
			if err != nil || to.Path != u.Path || to.Query().Encode() != u.Query().Encode() {
				t.Errorf("the form goes to %s, want %s", to, u)
			}
		case n.Data == "html" && attr["lang"] == "", attr["tabindex"] != "", attr["onclick"] != "", n.Data == "script":
			t.Errorf("<%s %v>", n.Data, attr)
		}
	}
	for id, name := range fields {
		if !labels[id] {
			t.Errorf("field %s has no label", name)
		}
	}
}

// What cannot be answered at an application's own place is not answered there;
// what can is.
func TestAuthorizationErrors(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	b := f.browser()
	for _, redirect := range []string{
		"", "data://google.com/,x", "javascript:alert(1)", "javascript://app.example/%0aalert(1)", "file:///etc/passwd", "ftp://app.example/", "//app.example/", "/here", "app.example",
		"https://", "https:///x", "https://user@app.example/", "https://google.com:x@evil.example/", "https://app.example/#x", "https://app.example/#", "http://[::1", "https://app.example\\@evil.example/",
		"https://app.example/\r\nSet-Cookie: a=b", "https://app.example/\x00", "https://app.example /", " https://app.example/", "https://äpp.example/", "https://app.example:99x/", "HTTPS:app.example", "https://a<b>.example/",
		"https://app.example/" + strings.Repeat("x", maxRedirect),
	} {
		for _, post := range []bool{false, true} {
			form := url.Values(nil)
			method := "GET"
			if post {
				method, form = "POST", url.Values{"allow": {"1"}}
			}
			if a := b.send(method, dialog("redirect_uri", redirect), form); a.status != 400 || a.header.Get("Location") != "" {
				t.Errorf("%s to %q: %d %s", method, redirect, a.status, a.header.Get("Location"))
			}
		}
	}
	wants(t, "two redirect_uris", b.send("GET", dialog()+"&redirect_uri=https://evil.example/", nil), 400)
	for _, c := range []struct {
		error  string
		params []string
	}{
		{"invalid_scope", []string{"scope", ""}}, {"invalid_scope", []string{"scope", "public:rw"}}, {"invalid_scope", []string{"scope", "m"}}, {"invalid_scope", []string{"scope", "m:w"}},
		{"invalid_scope", []string{"scope", "m:rw a/b:r"}}, {"invalid_scope", []string{"scope", "<script>:rw"}}, {"invalid_scope", []string{"scope", strings.Repeat("m:rw ", 1000)}},
		{"unsupported_response_type", []string{"response_type", ""}}, {"unsupported_response_type", []string{"response_type", "id_token"}},
	} {
		got := fragment(t, b.send("GET", dialog(append(c.params, "state", "s&t")...), nil), "#")
		if got["error"] != c.error || got["state"] != "s&t" || len(got) != 2 {
			t.Errorf("%v: %v", c.params, got)
		}
	}
	for _, c := range [][]string{{}, {"code_challenge", "x", "code_challenge_method", "S256"}, {"code_challenge", text64(48)[:43]}, {"code_challenge", text64(48)[:43], "code_challenge_method", "plain"}} {
		got := fragment(t, b.send("GET", dialog(append(c, "response_type", "code")...), nil), "?")
		if got["error"] != "invalid_request" {
			t.Errorf("%v: %v", c, got)
		}
	}
	for path, status := range map[string]int{"/rs/oauth/nobody?" + dialog()[len("/rs/oauth/alice?"):]: 200, "/rs/oauth/No%20Body": 404, "/rs/oauth/": 404, "/rs/oauth/alice/x": 404, "/rs/nothing": 404, "/rs/token/": 405, "/rs/a/b": 404} {
		wants(t, path, b.send("GET", path, nil), status)
	}
	wants(t, "DELETE", b.send("DELETE", dialog(), nil), 405)
}

// Who asks is told by where the answer goes.
func TestDialogShowsTheRealOrigin(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	for _, c := range []struct {
		redirect, origin string
		plain            bool
	}{
		{"https://google.com.evil.example/", "https://google.com.evil.example", false}, {"https://evil.example/https://google.com", "https://evil.example", false},
		{"https://App.Example:443/path?x=1", "https://app.example", false}, {"http://app.example:80", "http://app.example", true}, {"https://app.example:8443/", "https://app.example:8443", false},
		{"http://127.0.0.1:1/", "http://127.0.0.1:1", false}, {"http://[::1]:1/", "http://[::1]:1", false}, {"http://localhost.evil.example/", "http://localhost.evil.example", true},
	} {
		a := f.browser().send("GET", dialog("redirect_uri", c.redirect, "client_id", "https://google.com"), nil)
		if a.status != 200 || !strings.Contains(a.body, `<p class="who">`+c.origin+`</p>`) || strings.Contains(a.body, ">https://google.com<") || strings.Contains(a.body, "secure connection") != c.plain {
			t.Errorf("%s: %d %s", c.redirect, a.status, a.body)
		}
		if csp := a.header.Get("Content-Security-Policy"); strings.Count(csp, ";") != 4 {
			t.Errorf("%s: policy %s", c.redirect, csp)
		}
	}
	// Whatever is in the request is text in the page.
	a := f.browser().send("GET", dialog("state", `"><script>alert(1)</script>`, "scope", "m:rw")+"&%22%3E%3Cscript%3E=1", nil)
	if a.status != 200 || strings.Contains(a.body, "<script") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestForgedForms(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	b := f.browser()
	page := b.send("GET", dialog(), nil)
	token := formField.FindStringSubmatch(page.body)[1]
	signIn := []string{"username", "alice", "password", password, "allow", "1"}
	if a := b.post(page, dialog(), signIn...); a.status != 302 {
		t.Fatalf("%v", a)
	}
	before := len(f.info("alice").Grants)
	for what, forge := range map[string]func(b *browser, form url.Values){
		"another site":           func(b *browser, _ url.Values) { b.site, b.origin = "cross-site", "https://evil.example" },
		"a site beside":          func(b *browser, _ url.Values) { b.site, b.origin = "same-site", "http://evil.localhost:8080" },
		"an old browser":         func(b *browser, _ url.Values) { b.site, b.origin = "", "https://evil.example" },
		"a sandboxed page":       func(b *browser, _ url.Values) { b.site, b.origin = "", "null" },
		"no token":               func(_ *browser, form url.Values) { form.Del("form") },
		"another token":          func(_ *browser, form url.Values) { form.Set("form", strings.Repeat("A", 26)) },
		"no cookie":              func(b *browser, _ url.Values) { delete(b.cookies, formCookie) },
		"another token's cookie": func(b *browser, _ url.Values) { b.cookies[formCookie] = strings.Repeat("A", 26) },
		"an empty pair":          func(b *browser, form url.Values) { b.cookies[formCookie] = ""; form.Set("form", "") },
	} {
		for _, path := range []string{dialog(), "/rs/revoke", "/rs/password", "/rs/logout", "/rs/login"} {
			forged := f.browser()
			for name, value := range b.cookies {
				forged.cookies[name] = value
			}
			form := url.Values{"form": {token}, "allow": {"1"}, "id": {f.info("alice").Grants[0].ID}, "old": {password}, "new": {"taken over"}, "username": {"alice"}, "password": {password}}
			forge(forged, form)
			if a := forged.send("POST", path, form); a.status != 403 {
				t.Errorf("%s posts to %s: %d %s", what, path, a.status, a.header.Get("Location"))
			}
		}
	}
	if n := len(f.info("alice").Grants); n != before {
		t.Errorf("%d grants, want %d", n, before)
	}
	// Links do nothing.
	for _, path := range []string{"/rs/logout", "/rs/revoke", "/rs/password", "/rs/login"} {
		wants(t, "GET "+path, b.send("GET", path, nil), 303)
	}
	if _, ok := b.cookies[sessionCookie]; !ok {
		t.Error("a link has signed out")
	}
}

func TestPKCE(t *testing.T) {
	f := newFixture(t, map[string]any{"token_ttl": "1h"})
	f.account("alice")
	b := f.browser()
	verifier := text64(64)
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	const redirect = "https://app.example/cb?x=1"
	path := dialog("response_type", "code", "redirect_uri", redirect, "code_challenge", challenge, "code_challenge_method", "S256", "state", "st")
	page := b.send("GET", path, nil)
	b.post(page, path, "username", "alice", "password", password, "allow", "1")
	code := func() string {
		t.Helper()
		a := b.post(page, path, "allow", "1")
		got := fragment(t, a, "?x=1&")
		if got["state"] != "st" || len(got) != 2 || !strings.HasPrefix(a.header.Get("Location"), redirect) {
			t.Errorf("code: %v", got)
		}
		return got["code"]
	}
	redeem := func(fields ...string) (answer, grantReply) {
		t.Helper()
		form := url.Values{"grant_type": {"authorization_code"}, "code_verifier": {verifier}, "redirect_uri": {redirect}, "client_id": {"https://app.example"}}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		a := f.send("POST", "/rs/token", strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded", "Origin", "https://app.example")
		if a.header.Get("Access-Control-Allow-Origin") != "https://app.example" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("token: %v", a.header)
		}
		var r grantReply
		if err := json.Unmarshal([]byte(a.body), &r); err != nil {
			t.Error(err)
		}
		return a, r
	}
	c := code()
	a, r := redeem("code", c)
	if a.status != 200 || r.Type != "bearer" || r.Scope != "api-test:rw" || r.Expires != 3600 {
		t.Errorf("token: %d %+v", a.status, r)
	}
	u := user{f, "alice", r.Token}
	u.put("/api-test/x", "x")
	if a, r := redeem("code", c); a.status != 400 || r.Error != "invalid_grant" {
		t.Errorf("a code for the second time: %d %+v", a.status, r)
	}
	wants(t, "the token of a code that came twice", u.get("/api-test/x"), 401)
	for what, fields := range map[string][]string{
		"another verifier": {"code_verifier", text64(48)}, "another place": {"redirect_uri", "https://evil.example/"}, "a short verifier": {"code_verifier", text64(32)},
		"no code": {"code", ""}, "a code of nobody": {"code", "nobody.ABC"}, "a code without a name": {"code", "ABC"}, "another grant": {"grant_type", "password"},
	} {
		c := code()
		if a, r := redeem(append([]string{"code", c}, fields...)...); a.status != 400 || r.Token != "" || r.Error == "" {
			t.Errorf("%s: %d %+v", what, a.status, r)
		}
		if what == "another verifier" || what == "another place" { // one try
			if a, r := redeem("code", c); a.status != 400 || r.Error != "invalid_grant" {
				t.Errorf("%s, and then the right one: %d %+v", what, a.status, r)
			}
		}
	}
	late := code()
	f.shift.Add(int64(codeTTL + time.Second))
	if a, r := redeem("code", late); a.status != 400 || r.Error != "invalid_grant" {
		t.Errorf("a late code: %d %+v", a.status, r)
	}
	a, r = redeem("code", code())
	wants(t, "token", a, 200)
	u = user{f, "alice", r.Token}
	wants(t, "a token", u.get("/api-test/x"), 200)
	f.shift.Add(int64(time.Hour))
	wants(t, "an expired token", u.get("/api-test/x"), 401)
	f.wake("alice")
	eventually(t, "what has expired is forgotten", func() bool { return len(f.info("alice").Grants) == 0 })
	for method, status := range map[string]int{"OPTIONS": 204, "GET": 405} {
		a := f.send(method, "/rs/token", nil, "Origin", "https://app.example")
		if a.status != status || a.header.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("%s: %v", method, a)
		}
	}
	wants(t, "a large form", f.send("POST", "/rs/token", strings.NewReader(strings.Repeat("a=b&", 10000)), "Content-Type", "application/x-www-form-urlencoded"), 400)
}

type grantReply struct {
	Token   string `json:"access_token"`
	Type    string `json:"token_type"`
	Scope   string `json:"scope"`
	Expires int64  `json:"expires_in"`
	Error   string `json:"error"`
}

func TestOwnersPage(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "m:rw")
	u.put("/m/x", text64(4096))
	b, other := f.browser(), f.browser()
	login := b.send("GET", "/rs/", nil)
	checkForm(t, login.body, "")
	wants(t, "a wrong password", b.post(login, "/rs/login", "username", "alice", "password", "x"), 403)
	wants(t, "nobody", b.post(login, "/rs/login", "username", "nobody", "password", password), 403)
	a := b.post(login, "/rs/login", "username", "alice", "password", password)
	if a.status != 303 || a.header.Get("Location") != siteOrigin+"/rs/" {
		t.Fatalf("signed in: %v", a)
	}
	page := b.send("GET", "/rs/", nil)
	checkForm(t, page.body, "")
	for _, want := range []string{"alice@localhost:8080", "https://app.example", "m:rw", "1 documents, 4.0 KiB", siteOrigin + "/rs/store/alice"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page has no %q: %s", want, page.body)
		}
	}
	if strings.Contains(page.body, u.token) {
		t.Error("the page has a token in it")
	}
	// Nobody's session, and somebody's who has gone.
	stranger := f.browser()
	strangersPage := stranger.send("GET", "/rs/", nil)
	wants(t, "revoke, not signed in", stranger.post(strangersPage, "/rs/revoke", "id", f.info("alice").Grants[0].ID), 403)
	other.post(other.send("GET", "/rs/", nil), "/rs/login", "username", "alice", "password", password)
	wants(t, "change, with a wrong password", b.post(page, "/rs/password", "old", "x", "new", "another one"), 403)
	wants(t, "change to a short one", b.post(page, "/rs/password", "old", password, "new", "short"), 400)
	wants(t, "change", b.post(page, "/rs/password", "old", password, "new", "another one"), 200)
	if a := other.send("GET", "/rs/", nil); !strings.Contains(a.body, "Sign in") {
		t.Errorf("another browser is still signed in: %s", a.body)
	}
	wants(t, "still let in", u.get("/m/x"), 200)
	page = b.send("GET", "/rs/", nil)
	if !strings.Contains(page.body, "alice@") {
		t.Errorf("signed out by its own change: %s", page.body)
	}
	// From then on the very next request is refused.
	wants(t, "revoke", b.post(page, "/rs/revoke", "id", f.info("alice").Grants[0].ID), 303)
	wants(t, "revoked", u.get("/m/x"), 401)
	session := b.cookies[sessionCookie]
	wants(t, "sign out", b.post(page, "/rs/logout"), 303)
	b.cookies[sessionCookie] = session
	if a := b.send("GET", "/rs/", nil); !strings.Contains(a.body, "Sign in") {
		t.Errorf("a session that has ended: %s", a.body)
	}
	wants(t, "the old password", b.post(login, "/rs/login", "username", "alice", "password", password), 403)
	wants(t, "the new password", b.post(login, "/rs/login", "username", "alice", "password", "another one"), 303)
	wants(t, "the whole address", b.post(login, "/rs/login", "username", " Alice@localhost:8080 ", "password", "another one"), 303)
}

func TestLoginThrottle(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	b := f.browser()
	page := b.send("GET", dialog(), nil)
	throttled := false
	for range maxFailures["client"] + 1 {
		a := b.post(page, dialog(), "username", "nobody", "password", "guess", "allow", "1")
		if throttled = a.status == 429; throttled {
			if a.header.Get("Retry-After") == "" {
				t.Errorf("%v", a.header)
			}
			break
		}
	}
	a := b.post(page, dialog(), "username", "alice", "password", password, "allow", "1")
	if !throttled || a.status != 429 {
		t.Errorf("guesses are not slowed down: %d", a.status)
	}
	// All replicas know: it is in the database.
	wants(t, "the other form", b.post(page, "/rs/login", "username", "alice", "password", password), 429)
}

func TestTokenThrottle(t *testing.T) {
	f := newFixture(t, map[string]any{"trusted_proxies": []string{"127.0.0.0/8"}})
	f.frozen.Store(time.Now().UnixMilli()) // else a slow machine forgives in between
	f.account("alice")
	u := f.user("alice", "m:rw")
	u.put("/m/x", "x")
	guess := func(from string) int {
		return user{f, "alice", "guess"}.get("/m/x", "X-Forwarded-For", from).status
	}
	n := 0
	for ; guess("203.0.113.1") == 401; n++ {
		if n > 2*failureBurst+1000 {
			t.Fatal("guesses are not slowed down")
		}
	}
	if n < failureBurst {
		t.Errorf("slowed down after %d guesses", n)
	}
	a := user{f, "alice", "guess"}.get("/m/x", "X-Forwarded-For", "203.0.113.1", "Origin", "https://a.example")
	if a.status != 429 || a.header.Get("Retry-After") == "" || a.header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("%v", a)
	}
	for what, status := range map[string]int{"webfinger": f.send("GET", "/.well-known/webfinger?resource=acct:alice@localhost:8080", nil, "X-Forwarded-For", "203.0.113.1").status,
		"token": f.send("POST", "/rs/token", nil, "X-Forwarded-For", "203.0.113.1").status} {
		if status != 429 {
			t.Errorf("%s: %d", what, status)
		}
	}
	if s := guess("203.0.113.2"); s != 401 {
		t.Errorf("another client: %d", s)
	}
	if s := guess("203.0.113.1, 203.0.113.3"); s != 401 {
		t.Errorf("what a client says of itself is believed: %d", s)
	}
	if a := u.get("/m/x", "X-Forwarded-For", "203.0.113.1"); a.status != 200 {
		t.Errorf("a good token from the same address: %d", a.status)
	}
	f.frozen.Add(failureEvery.Milliseconds())
	if s := guess("203.0.113.1"); s != 401 {
		t.Errorf("after a while: %d", s)
	}
	if s := guess("203.0.113.1"); s != 429 {
		t.Errorf("and again: %d", s)
	}
	for i := range failureBurst + 2 {
		f.anonymous("alice").get(fmt.Sprintf("/public/m/%d", i), "X-Forwarded-For", "2001:db8::"+fmt.Sprintf("%x", i))
	}
	if a := f.anonymous("alice").get("/public/m/x", "X-Forwarded-For", "2001:db8::abc"); a.status != 429 {
		t.Errorf("guesses of names from one network: %d", a.status)
	}
}

func TestWebFinger(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	const path = "/.well-known/webfinger"
	for query, status := range map[string]int{
		"?resource=acct:alice@localhost:8080": 200, "?resource=acct%3Aalice%40localhost%3A8080": 200, "?resource=acct:alice@LOCALHOST:8080": 200,
		"?resource=acct:nobody@localhost:8080": 404, "?resource=acct:alice@other.example": 404, "?resource=acct:alice@localhost": 404, "?resource=alice@localhost:8080": 404,
		"?resource=https://localhost:8080/alice": 404, "?resource=acct:ALICE@localhost:8080": 404, "?resource=acct:alice'--@localhost:8080": 404,
		"": 400, "?resource=": 400, "?resource=acct:alice@localhost:8080&resource=x": 400, "?resource=%zz": 400,
		"?resource=acct:alice@localhost:8080&rel=x&rel=" + url.QueryEscape(relStorage): 200, "?resource=acct:alice@localhost:8080&rel=x": 200,
	} {
		a := f.send("GET", path+query, nil, "Origin", "https://app.example")
		if a.status != status || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v", query, a.status, a.header)
		}
		if status != 200 {
			continue
		}
		var j struct {
			Links []struct {
				Rel, Href  string
				Properties map[string]any
			}
		}
		if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.header.Get("Content-Type") != "application/jrd+json" {
			t.Fatalf("%v %s", err, a.body)
		}
		if strings.HasSuffix(query, "rel=x") {
			if len(j.Links) != 0 {
				t.Errorf("%s: %s", query, a.body)
			}
			continue
		}
		if len(j.Links) != 1 || j.Links[0].Rel != relStorage || j.Links[0].Href != siteOrigin+"/rs/store/alice" {
			t.Fatalf("%s: %s", query, a.body)
		}
		p := j.Links[0].Properties
		for name, want := range map[string]any{
			"http://remotestorage.io/spec/version": version, "http://tools.ietf.org/html/rfc6749#section-4.2": siteOrigin + "/rs/oauth/alice",
			"http://tools.ietf.org/html/rfc6749#section-3.1": siteOrigin + "/rs/oauth/alice", "http://tools.ietf.org/html/rfc6749#section-3.2": siteOrigin + "/rs/token",
			"http://tools.ietf.org/html/rfc7636": "S256", "http://tools.ietf.org/html/rfc6750#section-2.3": nil, "http://tools.ietf.org/html/rfc7233": "GET",
			"http://remotestorage.io/spec/web-authoring": nil,
		} {
			if got, ok := p[name]; !ok || got != want {
				t.Errorf("%s: property %s is %v, want %v", query, name, got, want)
			}
		}
		if strings.Contains(a.body, "token=") {
			t.Errorf("%s", a.body)
		}
	}
	wants(t, "POST", f.send("POST", path+"?resource=acct:alice@localhost:8080", nil), 405)
	wants(t, "below", f.send("GET", path+"/x?resource=acct:alice@localhost:8080", nil), 404)
}

// A store with a host name of its own answers there only, and all else does
// not: a page in the store is of another origin than the dialog.
func TestStoreApart(t *testing.T) {
	f := newFixture(t, map[string]any{"storage_url": "https://store.example/rs", "account_host": "people.example"})
	f.account("alice")
	u := f.user("alice", "*:rw")
	a := f.send("GET", "/.well-known/webfinger?resource=acct:alice@people.example", nil, "Host", "localhost:8080")
	if !strings.Contains(a.body, `"href":"https://store.example/rs/store/alice"`) || !strings.Contains(a.body, siteOrigin+"/rs/oauth/alice") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, c := range []struct {
		host, path string
		status     int
	}{
		{"store.example", "/rs/store/alice/m/", 200}, {"localhost:8080", "/rs/store/alice/m/", 421}, {"other.example", "/rs/store/alice/m/", 421},
		{"store.example", dialog(), 421}, {"store.example", "/rs/", 421}, {"store.example", "/rs/token", 421}, {"store.example", "/.well-known/webfinger?resource=acct:alice@people.example", 421},
		{"localhost:8080", dialog(), 200}, {"localhost:8080", "/rs/", 200},
	} {
		a := f.send("GET", c.path, nil, "Host", c.host, "Authorization", "Bearer "+u.token)
		if a.status != c.status {
			t.Errorf("%s at %s: %d, want %d", c.path, c.host, a.status, c.status)
		}
		if c.host == "store.example" && a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: a cookie at the store", c.path)
		}
	}
}
