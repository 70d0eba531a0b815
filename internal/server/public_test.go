package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// echo answers with the mount's name and what it sees of the URL.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s://%s %s %s host=%s q=%s", name, r.URL.Scheme, r.URL.Host, r.URL.Path, r.URL.EscapedPath(), r.Host, r.URL.RawQuery)
	})
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newPublic(t *testing.T, cfg PublicConfig) *Public {
	t.Helper()
	if cfg.BaseURL == nil {
		cfg.BaseURL = mustURL(t, "https://pods.example")
	}
	p, err := NewPublic(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// send asks with the exact request target that is given.
func send(h http.Handler, method, target string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPaths(t *testing.T) {
	p := newPublic(t, PublicConfig{
		Mounts: []Mount{
			{Path: "/lab", Handler: echo("lab")},
			{Path: "/lab/deep er", Handler: echo("deep")},
			{Path: "/é", Handler: echo("accent")},
		},
		WellKnown: map[string]http.Handler{"webfinger": echo("finger")},
	})
	for _, c := range []struct {
		method, target string
		status         int
		want           string // body, or Location of a redirect
	}{
		{"GET", "/lab/", 200, "lab https://pods.example / / host=example.com q="},
		{"GET", "/lab/a?x=%2F", 200, "lab https://pods.example /a /a host=example.com q=x=%2F"},
		{"GET", "/l%61b/a", 200, "lab https://pods.example /a /a host=example.com q="},
		{"GET", "/lab/a%2Fb", 200, "lab https://pods.example /a/b /a%2Fb host=example.com q="},
		{"GET", "/lab//a//", 200, "lab https://pods.example //a// //a// host=example.com q="},
		{"GET", `/lab/a%5Cb`, 200, `lab https://pods.example /a\b /a%5Cb host=example.com q=`},
		{"GET", "/lab/%7Ea", 200, "lab https://pods.example /~a /%7Ea host=example.com q="},
		{"GET", "/lab/%252e%252e/a", 200, "lab https://pods.example /%2e%2e/a /%252e%252e/a host=example.com q="},
		{"GET", "/lab/...", 200, "lab https://pods.example /... /... host=example.com q="},
		{"GET", "/lab/deep%20er/x", 200, "deep https://pods.example /x /x host=example.com q="},
		{"GET", "/lab/deep", 200, "lab https://pods.example /deep /deep host=example.com q="},
		{"GET", "/%C3%A9/x", 200, "accent https://pods.example /x /x host=example.com q="},
		{"GET", "/lab", 308, "/lab/"},
		{"HEAD", "/lab?a=b", 308, "/lab/?a=b"},
		{"POST", "/lab?a=b", 200, "lab https://pods.example / / host=example.com q=a=b"},
		{"GET", "http://evil.example/lab/a", 200, "lab https://pods.example /a /a host=evil.example q="},
		{"GET", "/laboratory", 404, "not found\n"},
		{"GET", "/lab%2Fa", 404, "not found\n"},
		{"GET", "/LAB/", 404, "not found\n"},
		{"GET", "//lab/", 404, "not found\n"},
		{"GET", "/lab/..", 400, "bad path\n"},
		{"GET", "/lab/../x", 400, "bad path\n"},
		{"GET", "/lab/%2e%2E/x", 400, "bad path\n"},
		{"GET", "/lab/./x", 400, "bad path\n"},
		{"GET", "/lab/a%2F..%2Fb", 400, "bad path\n"},
		{"GET", "/lab/a%5C..%5Cb", 400, "bad path\n"},
		{"GET", "/lab/a%00b", 400, "bad path\n"},
		{"OPTIONS", "*", 400, "bad path\n"},
		{"GET", "/.well-known/webfinger?resource=a", 200, "finger https://pods.example /.well-known/webfinger /.well-known/webfinger host=example.com q=resource=a"},
		{"GET", "/.well-known/other", 404, "not found\n"},
		{"GET", "/.well-known", 404, "not found\n"},
		{"GET", "/healthz", 404, "not found\n"},
	} {
		w := send(p, c.method, c.target)
		got := w.Body.String()
		if l := w.Header().Get("Location"); l != "" {
			got = l
		}
		if w.Code != c.status || got != c.want {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.target, w.Code, got, c.status, c.want)
		}
	}
}

func TestBasePath(t *testing.T) {
	p := newPublic(t, PublicConfig{
		BaseURL:   mustURL(t, "https://x.example/d%20wk/"),
		Mounts:    []Mount{{Path: "/lab", Handler: echo("lab")}, {Path: "/", Handler: echo("root")}},
		WellKnown: map[string]http.Handler{"a": echo("known")},
		Health:    NewHealth("r1", NewReadiness(nil), nil),
	})
	for target, want := range map[string]string{
		"/d%20wk/lab/a":    "lab https://x.example /a /a host=example.com q=",
		"/lab/a":           "lab https://x.example /a /a host=example.com q=",
		"/d%20wk":          "root https://x.example / / host=example.com q=",
		"/d%20wk/":         "root https://x.example / / host=example.com q=",
		"/d%20wkx":         "root https://x.example /d wkx /d%20wkx host=example.com q=",
		"/.well-known/a":   "known https://x.example /.well-known/a /.well-known/a host=example.com q=",
		"/.well-known/b":   "root https://x.example /.well-known/b /.well-known/b host=example.com q=",
		"/healthz":         `{"status":"ok","replica":"r1"}` + "\n",
		"/d%20wk/healthz":  `{"status":"ok","replica":"r1"}` + "\n",
		"/d%20wk/healthz/": "root https://x.example /healthz/ /healthz/ host=example.com q=",
	} {
		if got := send(p, "GET", target).Body.String(); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if got := send(p, "GET", "/lab").Header().Get("Location"); got != "/d%20wk/lab/" {
		t.Errorf("redirect to %q", got)
	}
}

func TestNewPublicRefuses(t *testing.T) {
	base := mustURL(t, "http://localhost:8080")
	h := echo("x")
	for name, cfg := range map[string]PublicConfig{
		"no base":         {},
		"base scheme":     {BaseURL: mustURL(t, "ftp://x")},
		"base host":       {BaseURL: mustURL(t, "http:///x")},
		"relative mount":  {BaseURL: base, Mounts: []Mount{{"lab", h, 0}}},
		"trailing slash":  {BaseURL: base, Mounts: []Mount{{"/lab/", h, 0}}},
		"empty segment":   {BaseURL: base, Mounts: []Mount{{"/a//b", h, 0}}},
		"dots":            {BaseURL: base, Mounts: []Mount{{"/a/../b", h, 0}}},
		"twice":           {BaseURL: base, Mounts: []Mount{{"/a", h, 0}, {"/a", h, 0}}},
		"no handler":      {BaseURL: base, Mounts: []Mount{{"/a", nil, 0}}},
		"well-known":      {BaseURL: base, Mounts: []Mount{{"/.well-known/x", h, 0}}},
		"health":          {BaseURL: base, Mounts: []Mount{{"/readyz", h, 0}}},
		"no directory":    {BaseURL: base, Dir: "/nonexistent/dir"},
		"fallback alone":  {BaseURL: base, Fallback: "app.html"},
		"fallback absent": {BaseURL: base, Dir: t.TempDir(), Fallback: "app.html"},
	} {
		if p, err := NewPublic(cfg); err == nil {
			p.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHeaders(t *testing.T) {
	own := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "sandbox")
		w.Header().Set("Dwk-Replica", "forged")
		w.Header().Set("X-Request-Id", "forged")
		w.WriteHeader(http.StatusTeapot)
	})
	silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mounts := []Mount{{"/own", own, 0}, {"/silent", silent, 0}}
	p := newPublic(t, PublicConfig{Mounts: mounts, Replica: "r1"})
	for _, c := range []struct {
		target, csp string
		status      int
	}{
		{"/own/", "sandbox", 418},
		{"/silent/", "frame-ancestors 'self'", 200},
		{"/none", "frame-ancestors 'self'", 404},
		{"/a%00", "frame-ancestors 'self'", 400},
	} {
		w := send(p, "GET", c.target)
		h := w.Result().Header
		if w.Code != c.status || h.Get("Content-Security-Policy") != c.csp {
			t.Errorf("%s: %d, CSP %q", c.target, w.Code, h["Content-Security-Policy"])
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Strict-Transport-Security": "max-age=31536000", "Dwk-Replica": "r1",
		} {
			if h.Get(name) != want || len(h[name]) != 1 {
				t.Errorf("%s: %s is %q, want %q", c.target, name, h[name], want)
			}
		}
		if id := h.Get("X-Request-Id"); id == "forged" || !validRequestID(id) {
			t.Errorf("%s: request id %q", c.target, id)
		}
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Dwk-Replica"], w.Header()["X-Request-Id"] = nil, nil
	})
	p = newPublic(t, PublicConfig{Mounts: []Mount{{"/bare", bare, 0}}, Replica: "r1"})
	if h := send(p, "GET", "/bare/").Result().Header; h["Dwk-Replica"] != nil || h["X-Request-Id"] != nil || h.Get("Referrer-Policy") == "" {
		t.Errorf("left out: %v", h)
	}
	plain := newPublic(t, PublicConfig{BaseURL: mustURL(t, "http://localhost"), Mounts: mounts})
	if h := send(plain, "GET", "/silent/").Header(); h.Get("Strict-Transport-Security") != "" {
		t.Error("HSTS on http")
	}
}

func TestRequestID(t *testing.T) {
	var seen, seenCtx string
	p := newPublic(t, PublicConfig{Mounts: []Mount{{"/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen, seenCtx = r.Header.Get("X-Request-Id"), RequestID(r.Context())
	}), 0}}})
	for in, kept := range map[string]bool{
		"abc-DEF_1.2": true, strings.Repeat("a", 128): true,
		"": false, strings.Repeat("a", 129): false, "a b": false, "a\nb": false, "é": false, `"x"`: false,
	} {
		w := send(p, "GET", "/", func(r *http.Request) { r.Header["X-Request-Id"] = []string{in} })
		out := w.Header().Get("X-Request-Id")
		if (out == in) != kept || out != seen || out != seenCtx || !validRequestID(out) {
			t.Errorf("in %q: out %q, handler saw %q and %q", in, out, seen, seenCtx)
		}
	}
}

func TestAccessLog(t *testing.T) {
	var log bytes.Buffer
	var done []Access
	p := newPublic(t, PublicConfig{
		Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		Done:   func(a Access) { done = append(done, a) },
		Health: NewHealth("r", NewReadiness(nil), nil),
		Mounts: []Mount{{"/lab", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Dwk-Txid", "42")
			w.Header().Set("Set-Cookie", "s3cret=1")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "s3cret body")
		}), 0}},
	})
	send(p, "POST", "/lab/a?token=s3cret", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer s3cret")
		r.Header.Set("Cookie", "s3cret=1")
		r.Header.Set("Referer", "https://third.example/s3cret")
		r.Header.Set("X-Request-Id", "id1")
	})
	line := log.String()
	for _, want := range []string{`"msg":"http.request"`, `"method":"POST"`, `"mount":"/lab"`, `"path":"/lab/a"`, `"status":201`, `"bytes":11`, `"request_id":"id1"`, `"txid":"42"`, `"took":`} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	if strings.Contains(line, "s3cret") {
		t.Errorf("secret in %s", line)
	}
	if len(done) != 1 || done[0].Mount != "/lab" || done[0].Status != 201 || done[0].Bytes != 11 {
		t.Errorf("done %+v", done)
	}
	log.Reset()
	if send(p, "GET", "/healthz"); log.Len() > 0 {
		t.Errorf("health request logged: %s", log.String())
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	p := newPublic(t, PublicConfig{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Mounts: []Mount{
			{"/early", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Set-Cookie", "a=b")
				w.Header().Set("Content-Length", "1")
				panic(errors.New("the inner reason"))
			}), 0},
			{"/late", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "half")
				w.(http.Flusher).Flush()
				panic("late reason")
			}), 0},
			{"/abort", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), 0},
		},
	})
	s := httptest.NewServer(p)
	defer s.Close()
	defer s.Client().CloseIdleConnections()

	res, err := s.Client().Get(s.URL + "/early/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 500 || strings.Contains(string(body), "reason") || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("early panic: %d %q %v", res.StatusCode, body, res.Header)
	}
	if !strings.Contains(string(body), res.Header.Get("X-Request-Id")) || res.Header.Get("X-Content-Type-Options") == "" {
		t.Errorf("early panic: %q %v", body, res.Header)
	}

	res, err = s.Client().Get(s.URL + "/late/")
	if err != nil {
		t.Fatal(err)
	}
	if body, err = io.ReadAll(res.Body); err == nil {
		t.Errorf("a cut body %q looks whole", body)
	}
	res.Body.Close()

	if res, err = s.Client().Get(s.URL + "/abort/"); err == nil {
		res.Body.Close()
		t.Errorf("aborted request answered %d", res.StatusCode)
	}
	s.Close()
	for _, want := range []string{"http.panic", "the inner reason", "late reason", "public_test.go", "aborted=true"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log.String())
		}
	}
}

func TestBodyLimit(t *testing.T) {
	p := newPublic(t, PublicConfig{Mounts: []Mount{
		{"/small", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				if _, ok := errors.AsType[*http.MaxBytesError](err); !ok {
					t.Errorf("read: %v", err)
				}
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}), 10},
		{"/any", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), 0},
	}})
	for _, c := range []struct {
		target  string
		size    int
		chunked bool
		status  int
	}{
		{"/small/", 10, false, 200}, {"/small/", 11, false, 413},
		{"/small/", 10, true, 200}, {"/small/", 11, true, 413},
		{"/any/", 1 << 20, true, 200},
	} {
		w := send(p, "POST", c.target, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", c.size))), int64(c.size)
			if c.chunked {
				r.ContentLength = -1
			}
		})
		if w.Code != c.status {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

func TestResponseInterfaces(t *testing.T) {
	p := newPublic(t, PublicConfig{Mounts: []Mount{
		{"/hijack", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hijack := func() (io.ReadWriteCloser, error) { c, _, err := w.(http.Hijacker).Hijack(); return c, err }
			if r.URL.RawQuery == "controller" {
				hijack = func() (io.ReadWriteCloser, error) {
					c, _, err := http.NewResponseController(w).Hijack()
					return c, err
				}
			}
			c, err := hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 204 Mine\r\n\r\n")
		}), 0},
		{"/hints", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Referrer-Policy", "origin")
			w.WriteHeader(http.StatusTeapot)
		}), 0},
		{"/flush", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied")); n != 6 || err != nil {
				t.Error(n, err)
			}
		}), 0},
	}})
	s := httptest.NewServer(p)
	defer s.Close()
	defer s.Client().CloseIdleConnections()
	for target, want := range map[string]string{"/hijack/": "204 Mine", "/hijack/?controller": "204 Mine", "/flush/": "200 OK", "/hints/": "418 I'm a teapot"} {
		res, err := s.Client().Get(s.URL + target)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.Status != want {
			t.Errorf("%s: %s", target, res.Status)
		}
		if target == "/flush/" && res.Header.Get("X-Content-Type-Options") == "" {
			t.Error("flushed without the headers")
		}
		if target == "/hints/" && (res.Header.Get("X-Content-Type-Options") == "" || res.Header.Get("Referrer-Policy") != "origin") {
			t.Errorf("after early hints: %v", res.Header)
		}
	}
}

func TestRate(t *testing.T) {
	p := newPublic(t, PublicConfig{
		Mounts: []Mount{{"/", echo("x"), 0}}, Rate: Rate{PerSecond: 0.001, Burst: 2},
		Health: NewHealth("r", NewReadiness(nil), nil),
	})
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	for i, c := range []struct {
		addr, target string
		status       int
	}{
		{"192.0.2.1:1", "/", 200}, {"192.0.2.1:2", "/", 200}, {"192.0.2.1:3", "/", 429},
		{"192.0.2.1:4", "/healthz", 200}, {"192.0.2.2:1", "/", 200},
		{"[2001:db8::1]:1", "/", 200}, {"[2001:db8::2]:1", "/", 200}, {"[2001:db8::3]:1", "/", 429},
		{"[2001:db8:0:1::3]:1", "/", 200}, {"[::ffff:192.0.2.1]:1", "/", 429},
	} {
		w := send(p, "GET", c.target, from(c.addr))
		if w.Code != c.status {
			t.Errorf("%d %+v: %d", i, c, w.Code)
		}
		if w.Code == 429 && w.Header().Get("Retry-After") != "1000" {
			t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
		}
	}
	for i := range maxLimited + 10 {
		p.limiter.allow(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if n := len(p.limiter.byIP); n != maxLimited || p.limiter.order.Len() != n {
		t.Errorf("remembers %d addresses", n)
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/%2e%2e/", "//", "/a%2F..%5Cb", "/%00", "/%zz", "*", "/é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		p, err := parsePath(escaped)
		if err != nil {
			return
		}
		if p.escaped() != escaped {
			t.Fatalf("%q became %q", escaped, p.escaped())
		}
		for part := range strings.FieldsFuncSeq(p.path(), func(c rune) bool { return c == '/' || c == '\\' }) {
			if part == ".." || part == "." || strings.Contains(part, "\x00") {
				t.Fatalf("%q has %q", escaped, part)
			}
		}
		if name, ok := fileName(p); ok && (strings.Contains(name, "/.") || strings.HasPrefix(name, "/") || name[0] == '.' && name != ".") {
			t.Fatalf("%q is file %q", escaped, name)
		}
	})
}
