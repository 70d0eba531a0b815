package server

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// site writes a public directory beside a secret file.
func site(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for name, body := range map[string]string{
		"secret.txt":                 "secret",
		"public/index.html":          "home",
		"public/app.js":              "js",
		"public/a b.txt":             "space",
		"public/.env":                "secret",
		"public/.git/config":         "secret",
		"public/docs/.hidden":        "secret",
		"public/docs/index.html":     "docs",
		"public/empty/file.css":      "css",
		"public/.well-known/x":       "secret",
		"public/odd/index.html/file": "x",
		"public/plain":               "<!doctype html><p>",
	} {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(top, "public")
	for link, to := range map[string]string{
		"inside.js": "app.js", "outside.txt": "../secret.txt", "absolute.txt": filepath.Join(top, "secret.txt"), "up": "..",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStatic(t *testing.T) {
	p := newPublic(t, PublicConfig{Dir: site(t), Mounts: []Mount{{"/lab", echo("lab"), 0}}})
	for _, c := range []struct {
		method, target string
		status         int
		want, typ      string
	}{
		{"GET", "/", 200, "home", "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "", "text/html; charset=utf-8"},
		{"GET", "/index.html", 200, "home", "text/html; charset=utf-8"},
		{"GET", "/app.js", 200, "js", "text/javascript; charset=utf-8"},
		{"GET", "/inside.js", 200, "js", "text/javascript; charset=utf-8"},
		{"GET", "/a%20b.txt", 200, "space", "text/plain; charset=utf-8"},
		{"GET", "/docs/", 200, "docs", "text/html; charset=utf-8"},
		{"GET", "/docs?q=1", 308, "/docs/?q=1", ""},
		{"GET", "/empty/file.css", 200, "css", "text/css; charset=utf-8"},
		{"GET", "/plain", 200, "<!doctype html><p>", "text/html; charset=utf-8"},
		{"POST", "/app.js", 405, "method not allowed\n", "text/plain; charset=utf-8"},
		{"DELETE", "/", 405, "method not allowed\n", "text/plain; charset=utf-8"},
		{"POST", "/nothing", 404, "not found\n", "text/plain; charset=utf-8"},
		{"GET", "/lab/app.js", 200, "", ""},
	} {
		w := send(p, c.method, c.target)
		got := w.Body.String()
		if l := w.Header().Get("Location"); l != "" {
			got = l
		}
		if w.Code != c.status || (c.want != "" && got != c.want) || (c.typ != "" && w.Header().Get("Content-Type") != c.typ) {
			t.Errorf("%s %s: %d %q %q", c.method, c.target, w.Code, got, w.Header().Get("Content-Type"))
		}
	}
	for _, target := range []string{
		"/.env", "/.git/config", "/.git/", "/docs/.hidden", "/.well-known/x", "/%2eenv", "/empty/", "/empty", "/odd/", "/odd",
		"/outside.txt", "/absolute.txt", "/up/secret.txt", "/up/", "/up/public/app.js", "/app.js/", "//app.js", "/docs//index.html",
		"/docs%2Findex.html", "/docs%5Cindex.html", "/missing", "//evil.example/docs", "/%5Cevil.example/docs",
	} {
		if w := send(p, "GET", target); w.Code != 404 || w.Body.String() != "not found\n" {
			t.Errorf("%s: %d %q %q", target, w.Code, w.Body.String(), w.Header().Get("Location"))
		}
	}
	for _, target := range []string{"/../secret.txt", "/docs/../app.js", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/..%5csecret.txt", "/app.js%00"} {
		if w := send(p, "GET", target); w.Code != 400 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}

func TestStaticValidators(t *testing.T) {
	dir := site(t)
	p := newPublic(t, PublicConfig{Dir: dir})
	w := send(p, "GET", "/app.js")
	tag, modified := w.Header().Get("ETag"), w.Header().Get("Last-Modified")
	if tag == "" || modified == "" {
		t.Fatalf("ETag %q, Last-Modified %q", tag, modified)
	}
	ask := func(name, value string) int {
		return send(p, "GET", "/app.js", func(r *http.Request) { r.Header.Set(name, value) }).Code
	}
	if ask("If-None-Match", tag) != 304 || ask("If-Modified-Since", modified) != 304 || ask("If-None-Match", `"other"`) != 200 {
		t.Error("validators do not work")
	}
	if err := os.WriteFile(filepath.Join(dir, "app.js"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if ask("If-None-Match", tag) != 200 {
		t.Error("a changed file kept its ETag")
	}
}

func TestFallback(t *testing.T) {
	p := newPublic(t, PublicConfig{Dir: site(t), Fallback: "index.html", Mounts: []Mount{{"/lab", http.NotFoundHandler(), 0}}})
	html := func(r *http.Request) { r.Header.Set("Accept", "text/html,*/*") }
	for _, c := range []struct {
		method, target string
		page           bool
		status         int
		want           string
	}{
		{"GET", "/people/ann", false, 200, "home"},
		{"HEAD", "/people/ann", false, 200, ""},
		{"GET", "/empty/", false, 200, "home"},
		{"GET", "/people/ann.smith", true, 200, "home"},
		{"GET", "/missing.js", false, 404, "not found\n"},
		{"POST", "/people/ann", true, 404, "not found\n"},
		{"GET", "/.env", true, 404, "not found\n"},
		{"GET", "/.well-known/x", true, 404, "not found\n"},
		{"GET", "/lab/x", true, 404, "404 page not found\n"},
		{"GET", "/app.js", true, 200, "js"},
	} {
		var edit []func(*http.Request)
		if c.page {
			edit = append(edit, html)
		}
		if w := send(p, c.method, c.target, edit...); w.Code != c.status || w.Body.String() != c.want {
			t.Errorf("%s %s: %d %q", c.method, c.target, w.Code, w.Body.String())
		}
	}
}
