package remotestorage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// Names are what they are when nothing is escaped, however they were sent, and
// come back in listings as such.
func TestNames(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "m:rw")
	for _, name := range []string{"a & ü%41 'x'.txt", "y & z.txt", "%", "~a", "a+b", "日本語", "e\u0301", "\u00e9", `back\slash`, `quo"te`, "<b>", "a?b#c", " ", "a\tb", "con", ".hidden", "...", "\U0001F4A9", "a;b=c", "a:b@c,d"} {
		path := "/m/" + url.PathEscape(name)
		tag := u.put(path, name, "If-None-Match", "*")
		l, _ := u.list("/m/")
		if i, ok := l.Items[name]; !ok || quote(i.ETag) != tag || len(l.Items) != 1 {
			t.Errorf("%q is listed as %v", name, l.Items)
		}
		if a := u.get(path); a.body != name || a.etag() != tag {
			t.Errorf("%q: %v", name, a)
		}
		wants(t, "DELETE "+path, u.do("DELETE", path, ""), 200)
	}
	tag := u.put("/m/%7Ea/%62", "x")
	if a := u.get("/m/~a/b"); a.etag() != tag {
		t.Errorf("another spelling of a path: %v", a)
	}
	if l, _ := u.list("/m/"); len(l.Items) != 1 || l.Items["~a/"].ETag == "" {
		t.Errorf("%v", l)
	}
}

// Paths that are no paths are refused, whoever looks at them first, and are
// never taken for others.
func TestHostilePaths(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "*:rw")
	u.put("/secret/x", "x")
	for _, path := range []string{
		"//", "/m//x", "/m/../secret/x", "/m/%2e%2e/secret/x", "/m/.%2E/secret/x", "/m/./x", "/m/%2e/x", "/m/a%2Fb", "/m/a%2fb", "/m/a%00b", "/m/%00",
		"/m/%ff", "/m/%c3%28", "/m/%ed%a0%80", "/m//", "/m/x/..", "/m/x/.", "//m/x", "/m/..%2fsecret/x", "/m/%c0%af/x",
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			if a := u.do(method, path, ""); a.status != 400 {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	for path, status := range map[string]int{
		"/m/" + strings.Repeat("n", maxName): 201, "/m/" + strings.Repeat("n", maxName+1): 414,
		"/m/" + strings.Repeat("d/", 500) + "x": 201, "/m/" + strings.Repeat("d/", 4200) + "x": 414,
	} {
		if a := u.do("PUT", path, "x"); a.status != status || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("a path of %d bytes: %d", len(path), a.status)
		}
	}
	l, _ := u.list("/")
	if len(l.Items) != 2 || l.Items["m/"].ETag == "" || l.Items["secret/"].ETag == "" {
		t.Errorf("root: %v", l)
	}
	for _, account := range []string{"nobody", "ALICE", "..", "a%2Fb", "", "alice%00", strings.Repeat("a", 500)} {
		if a := (user{f, account, u.token}).get("/secret/x"); a.status == 200 || a.status >= 500 {
			t.Errorf("account %q: %v", account, a)
		}
	}
	// A header's value cannot begin another header.
	for _, bad := range []string{"text/plain\x01", "text/\xff", strings.Repeat("t", maxType+1)} {
		if a, err := f.trySend("PUT", "/rs/store/alice/m/h", strings.NewReader("x"), "Authorization", "Bearer "+u.token, "Content-Type", bad); err == nil && a.status != 400 {
			t.Errorf("Content-Type %q: %d", bad, a.status)
		}
	}
	if validType("text/plain\r\nSet-Cookie: a=b") {
		t.Error("a line end in a content type")
	}
}

// Every answer of the store can be seen by the page that asked, and says which
// headers it may read.
func TestCORS(t *testing.T) {
	f := newFixture(t, map[string]any{"quota": 10, "max_document": 100})
	f.account("alice")
	u, no := f.user("alice", "m:rw"), f.anonymous("alice")
	tag := u.put("/m/x", "x")
	const site = "https://app.example"
	for what, a := range map[string]answer{
		"200": u.get("/m/x", "Origin", site), "304": u.get("/m/x", "Origin", site, "If-None-Match", tag), "400": u.get("/m//x", "Origin", site),
		"401": no.get("/m/x", "Origin", site), "403": u.get("/n/x", "Origin", site), "404": u.get("/m/y", "Origin", site),
		"405": u.do("POST", "/m/x", "x", "Origin", site), "409": u.do("PUT", "/m", "x", "Origin", site), "412": u.do("PUT", "/m/x", "y", "Origin", site, "If-Match", `"z"`),
		"413": u.do("PUT", "/m/z", strings.Repeat("z", 101), "Origin", site), "414": u.get("/m/"+strings.Repeat("n", maxName+1), "Origin", site),
		"416": u.get("/m/x", "Origin", site, "Range", "bytes=5-"), "507": u.do("PUT", "/m/z", "0123456789a", "Origin", site), "204": no.do("OPTIONS", "/m/x", "", "Origin", site),
		"201": u.do("PUT", "/m/new", "n", "Origin", site),
	} {
		if what == "409" { // a document /m is in no module
			what = "403"
		}
		if fmt.Sprint(a.status) != what {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
		h := a.header
		if h.Get("Access-Control-Allow-Origin") != site || !strings.Contains(h.Get("Vary"), "Origin") || h.Get("Access-Control-Allow-Credentials") != "" || len(h["Access-Control-Allow-Origin"]) != 1 {
			t.Errorf("%s: %v", what, h)
		}
		for _, name := range []string{"ETag", "Content-Type", "Content-Length", "Last-Modified", "WWW-Authenticate", "Retry-After", "Accept-Ranges", "Content-Range"} {
			if !strings.Contains(h.Get("Access-Control-Expose-Headers"), name) {
				t.Errorf("%s: %s is not exposed", what, name)
			}
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox; default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: a page in the store could do too much: %v", what, h)
		}
	}
	if a := u.get("/m/x"); a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("without Origin: %v", a.header)
	}
	if h := no.do("OPTIONS", "/m/x", "").header.Get("Access-Control-Allow-Headers"); strings.Contains(h, "*") {
		t.Errorf("allowed headers: %s", h)
	}
}

func TestConditions(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "m:rw")
	tag := u.put("/m/x", "one")
	for _, c := range []struct {
		method, path, header, value string
		status                      int
		etag                        string // "now" is the present one
	}{
		{"PUT", "/m/x", "If-Match", `"old"`, 412, "now"}, {"PUT", "/m/x", "If-Match", `"old"`, 412, "now"}, // each time
		{"DELETE", "/m/x", "If-Match", `"old"`, 412, "now"}, {"PUT", "/m/x", "If-None-Match", "*", 412, "now"}, {"DELETE", "/m/x", "If-None-Match", tag, 412, "now"},
		{"PUT", "/m/x", "If-None-Match", tag, 412, "now"}, {"PUT", "/m/x", "If-Match", "W/" + tag, 412, "now"}, {"PUT", "/m/x", "If-Match", strings.Trim(tag, `"`), 412, "now"},
		{"PUT", "/m/y", "If-Match", "*", 412, ""}, {"DELETE", "/m/y", "If-Match", "*", 412, ""}, {"PUT", "/m/d/y", "If-Match", tag, 412, ""}, {"DELETE", "/m/x/y", "If-Match", tag, 412, ""},
		{"PUT", "/m/y", "If-None-Match", `"old"`, 201, "any"}, {"PUT", "/m/y", "If-None-Match", `"old"`, 200, "any"},
		{"GET", "/m/x", "If-None-Match", "W/" + tag, 304, "now"}, {"GET", "/m/x", "If-None-Match", "*", 304, "now"}, {"HEAD", "/m/x", "If-None-Match", tag, 304, "now"},
		{"GET", "/m/x", "If-None-Match", `"old"`, 200, "now"}, {"GET", "/m/x", "If-Match", `"old"`, 412, "now"}, {"GET", "/m/y2", "If-None-Match", "*", 404, ""},
	} {
		a := u.do(c.method, c.path, "", c.header, c.value)
		want := c.etag
		if want == "now" {
			want = tag
		}
		if a.status != c.status || want != "any" && a.etag() != want {
			t.Errorf("%s %s %s %s: %d %q, want %d %q", c.method, c.path, c.header, c.value, a.status, a.etag(), c.status, want)
		}
	}
	if a := u.get("/m/x"); a.body != "one" || a.etag() != tag {
		t.Errorf("a refused change changed the document: %v", a)
	}
	wants(t, "a list", u.do("PUT", "/m/x", "two", "If-Match", `"a", `+tag+` , "b"`), 200)
	wants(t, "any", u.do("PUT", "/m/x", "three", "If-Match", "*"), 200)
	now := u.get("/m/x").etag()
	wants(t, "both, and the first fails", u.do("PUT", "/m/x", "4", "If-Match", `"old"`, "If-None-Match", `"old"`), 412)
	wants(t, "both, and the second fails", u.do("PUT", "/m/x", "4", "If-Match", now, "If-None-Match", now), 412)
	wants(t, "two headers", u.do("PUT", "/m/x", "4", "If-Match", `"old"`, "If-Match", now), 200)
	wants(t, "the first version again", u.do("PUT", "/m/x", "one", "If-Match", tag), 412)
}

// A version is new with each change of a document, whatever the change, and is
// that of every folder above it. Without a change all stay.
func TestVersions(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "*:rw")
	folders := []string{"/", "/m/", "/m/a/", "/m/a/b/"}
	state := func() (all []string) {
		for _, p := range folders {
			a, again := u.get(p), u.get(p)
			if a.etag() != again.etag() || a.body != again.body {
				t.Errorf("%s changes by itself", p)
			}
			all = append(all, a.etag())
		}
		return all
	}
	seen := map[string]bool{}
	before := state()
	step := func(what string, changed int, change func()) {
		t.Helper()
		change()
		after := state()
		for i := range after {
			if (after[i] != before[i]) != (i < changed) {
				t.Errorf("%s: %s from %s to %s", what, folders[i], before[i], after[i])
			}
			if after[i] != before[i] && after[i] != quote(noFolder) && i == 0 && seen[after[i]] {
				t.Errorf("%s: %s came back", what, after[i])
			}
		}
		seen[before[0]] = true
		before = after
	}
	step("create", 4, func() { u.put("/m/a/b/x", "x") })
	step("same bytes", 4, func() { u.put("/m/a/b/x", "x") })
	step("another type", 4, func() { u.do("PUT", "/m/a/b/x", "x", "Content-Type", "text/html") })
	step("beside", 3, func() { u.put("/m/a/y", "y") })
	step("nothing", 0, func() { u.do("PUT", "/m/a/b/x", "z", "If-Match", `"old"`) })
	step("a conflict", 0, func() { u.do("PUT", "/m/a/b", "z") })
	step("elsewhere", 1, func() { u.put("/n/x", "x") })
	step("delete", 4, func() { u.do("DELETE", "/m/a/b/x", "") })
	if l, tag := u.list("/m/a/b/"); len(l.Items) != 0 || tag != quote(noFolder) {
		t.Errorf("an emptied folder: %v %s", l, tag)
	}
	if l, _ := u.list("/m/a/"); len(l.Items) != 1 || l.Items["y"].ETag == "" {
		t.Errorf("its parent: %v", l)
	}
	u.put("/m/p/q/r/s", "x")
	wants(t, "delete", u.do("DELETE", "/m/p/q/r/s", ""), 200)
	if l, _ := u.list("/m/"); len(l.Items) != 1 || l.Items["a/"].ETag == "" {
		t.Errorf("folders that are empty, one in another: %v", l)
	}
	// Of folders that there are not, too.
	_, tag := u.list("/none/at/all/")
	if a := u.get("/none/at/all/", "If-None-Match", tag); a.status != 304 || a.etag() != tag {
		t.Errorf("a folder that does not exist: %v", a)
	}
	// Where there was a folder there may be a document now, and the other way.
	wants(t, "document for a folder", u.do("PUT", "/m/a/b", "x"), 201)
	wants(t, "delete it", u.do("DELETE", "/m/a/b", ""), 200)
	wants(t, "folder for a document", u.do("PUT", "/m/a/b/c", "x"), 201)
	wants(t, "delete a folder as a document", u.do("DELETE", "/m/a/b", ""), 409)
	wants(t, "delete a folder", u.do("DELETE", "/m/a/b/", ""), 400)
	wants(t, "put a folder", u.do("PUT", "/m/a/q/", ""), 400)
}

func TestDocuments(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 1000})
	f.account("alice")
	u, no := f.user("alice", "m:rw"), f.anonymous("alice")
	for _, size := range []int{0, 1, 999, 1000, 1001, 100_000} {
		for _, chunked := range []bool{false, true} {
			path := fmt.Sprintf("/m/%d-%v", size, chunked)
			body := strings.Repeat("0123456789", size/10+1)[:size]
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = io.MultiReader(r) // of which the client does not know the length
			}
			a := f.send("PUT", "/rs/store/alice"+path, r, "Authorization", "Bearer "+u.token, "Content-Type", "x/y; z=1")
			wants(t, "PUT "+path, a, 201)
			g := u.get(path, "Accept-Encoding", "gzip")
			if g.body != body || g.etag() != a.etag() || g.header.Get("Content-Type") != "x/y; z=1" || g.header.Get("Content-Length") != fmt.Sprint(size) ||
				g.header.Get("Content-Encoding") != "" || g.header.Get("Accept-Ranges") != "bytes" {
				t.Errorf("GET %s: %d %v", path, g.status, g.header)
			}
			if when, err := http.ParseTime(g.header.Get("Last-Modified")); err != nil || time.Since(when) > time.Hour {
				t.Errorf("GET %s: Last-Modified %v", path, g.header)
			}
			if h := u.do("HEAD", path, ""); h.status != 200 || h.body != "" || h.header.Get("Content-Length") != fmt.Sprint(size) || h.etag() != a.etag() {
				t.Errorf("HEAD %s: %v", path, h)
			}
			l, _ := u.list("/m/")
			if i := l.Items[path[3:]]; i.Length == nil || *i.Length != int64(size) || i.Type != "x/y; z=1" || i.Modified != g.header.Get("Last-Modified") {
				t.Errorf("%s is listed as %+v", path, i)
			}
		}
	}
	if n := f.bucket.count("put"); n != 4 {
		t.Errorf("%d bodies were put into the bucket, want 4", n)
	}
	wants(t, "without a type", u.do("PUT", "/m/t", "x"), 201)
	if a := u.get("/m/t"); a.header.Get("Content-Type") != defaultType {
		t.Errorf("without a type: %v", a.header)
	}
	u.put("/m/t", "x")
	wants(t, "public", u.do("PUT", "/public/m/p", "p", "Content-Type", "text/html"), 201)
	for _, who := range []user{u, no} {
		if a := who.get("/public/m/p"); a.status != 200 || a.header.Get("Cache-Control") != "no-cache, public" {
			t.Errorf("public: %v", a)
		}
	}
	wants(t, "public, with a token for something else", f.user("alice", "n:r").get("/public/m/p"), 200)
	wants(t, "public, with a bad token", user{f, "alice", "bad"}.get("/public/m/p"), 401)
	wants(t, "public, and not there", no.get("/public/m/q"), 404)
	wants(t, "public, of nobody", f.anonymous("nobody").get("/public/m/q"), 404)
}

func TestRanges(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 100})
	f.account("alice")
	u := f.user("alice", "m:rw")
	for path, body := range map[string]string{"/m/small": text64(96), "/m/large": text64(6400)} {
		tag := u.put(path, body)
		size := len(body)
		for _, c := range []struct {
			header string
			status int
			body   string
		}{
			{"bytes=0-3", 206, body[:4]}, {"bytes=10-", 206, body[10:]}, {"bytes=-5", 206, body[size-5:]}, {fmt.Sprintf("bytes=%d-", size), 416, ""},
			{"lines=1-2", 416, ""}, {"bytes=5-4", 416, ""}, {fmt.Sprintf("bytes=50-%d", size*2), 206, body[50:]},
		} {
			a := u.get(path, "Range", c.header)
			if a.status != c.status || a.status == 206 && (a.body != c.body || a.etag() != tag || a.header.Get("Content-Type") != "text/plain") {
				t.Errorf("%s %s: %d %v", path, c.header, a.status, a.header)
			}
		}
		if a := u.get(path, "Range", "bytes=0-3", "If-Range", tag); a.status != 206 {
			t.Errorf("If-Range: %d", a.status)
		}
		if a := u.get(path, "Range", "bytes=0-3", "If-Range", `"old"`); a.status != 200 || a.body != body {
			t.Errorf("If-Range of another version: %d", a.status)
		}
		if a := u.do("HEAD", path, "", "Range", "bytes=0-3"); a.status != 200 || a.header.Get("Content-Length") != fmt.Sprint(size) {
			t.Errorf("HEAD with a range: %d", a.status)
		}
		if a := u.get(path, "Range", "bytes=0-1,4-5"); a.status != 206 || !strings.HasPrefix(a.header.Get("Content-Type"), "multipart/byteranges") {
			t.Errorf("two ranges: %d %v", a.status, a.header)
		}
	}
}

func TestQuota(t *testing.T) {
	f := newFixture(t, map[string]any{"quota": 1000, "inline_limit": 100, "max_document": 2000})
	f.account("alice")
	u := f.user("alice", "m:rw")
	used := func(want int64) {
		t.Helper()
		if i := f.info("alice"); i.Used != want {
			t.Errorf("%d bytes are used, want %d", i.Used, want)
		}
	}
	u.put("/m/a", text64(96))
	u.put("/m/b", text64(800))
	used(896)
	wants(t, "over the quota", u.do("PUT", "/m/c", text64(112)), 507)
	wants(t, "over the quota, chunked", f.send("PUT", "/rs/store/alice/m/c", io.MultiReader(strings.NewReader(text64(160))), u.with(nil)...), 507)
	wants(t, "over the quota, small", u.do("PUT", "/m/c", text64(96)+"0123456789"), 507)
	wants(t, "replaced by as much", u.do("PUT", "/m/b", text64(800)), 200)
	wants(t, "replaced by less", u.do("PUT", "/m/b", text64(16)), 200)
	used(112)
	wants(t, "nothing", u.do("PUT", "/m/d", ""), 201)
	wants(t, "fits now", u.do("PUT", "/m/c", text64(880)), 201)
	used(992)
	wants(t, "delete", u.do("DELETE", "/m/c", ""), 200)
	used(112)
	wants(t, "a document too large", u.do("PUT", "/m/e", text64(2016)), 413)
	f.call("alice", "quota", openRequest{Quota: 1e6}, nil)
	wants(t, "a document too large, chunked", f.send("PUT", "/rs/store/alice/m/e", io.MultiReader(strings.NewReader(text64(2016))), u.with(nil)...), 413)
	f.call("alice", "quota", openRequest{Quota: 0}, nil)
	wants(t, "without a quota", u.do("PUT", "/m/e", text64(1600)), 201)
	wants(t, "without a token", f.anonymous("alice").do("PUT", "/m/f", text64(1600)), 401)
	f.orphansGo("alice", 1) // no refusal leaves a body behind, but the last document has one
}

// orphansGo waits until nothing but the documents' bodies is in the bucket.
func (f *fixture) orphansGo(name string, bodies int) {
	f.t.Helper()
	f.shift.Add(int64(time.Duration(f.env.Settings().(*Settings).Grace) + time.Second))
	f.wake(name)
	eventually(f.t, "orphans are collected", func() bool { return len(f.keys()) == bodies && f.info(name).Waiting == 0 })
}

// A large body is in the bucket before the document points to it, and stays as
// long as somebody may be reading it.
func TestLargeBodies(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 10})
	f.account("alice")
	u := f.user("alice", "m:rw")
	u.put("/m/x", text64(160))
	first := f.keys()
	tag := u.put("/m/x", text64(320))
	if n := len(f.keys()); n != 2 || f.info("alice").Waiting != 1 {
		t.Errorf("%d bodies", n)
	}
	f.orphansGo("alice", 1)
	if now := f.keys(); now[0] == first[0] {
		t.Error("the wrong body is gone")
	}
	if a := u.get("/m/x"); a.body != text64(320) || a.etag() != tag {
		t.Errorf("%v", a)
	}
	u.put("/m/x", "small")
	if a := u.get("/m/x"); a.body != "small" {
		t.Errorf("%v", a)
	}
	f.orphansGo("alice", 0)
	u.put("/m/x", text64(160))
	wants(t, "delete", u.do("DELETE", "/m/x", ""), 200)
	f.orphansGo("alice", 0)

	// Refused before the body is sent, and after.
	tag = u.put("/m/x", "now")
	puts := f.bucket.count("put")
	wants(t, "refused", u.do("PUT", "/m/x", text64(160), "If-Match", `"old"`), 412)
	if f.bucket.count("put") != puts {
		t.Error("a body was stored for nothing")
	}
	f.bucket.setFault(func(op, _ string) error {
		if op == "put done" { // meanwhile
			u.put("/m/x", "other")
		}
		return nil
	})
	if a := u.do("PUT", "/m/x", text64(160), "If-Match", tag); a.status != 412 || a.etag() == "" || a.etag() == tag {
		t.Errorf("changed meanwhile: %v", a)
	}
	f.bucket.setFault(func(op, _ string) error {
		if op == "put done" {
			u.put("/m/y/z", "a folder")
		}
		return nil
	})
	wants(t, "a folder meanwhile", u.do("PUT", "/m/y", text64(160)), 409)
	f.bucket.setFault(nil)
	if a := u.get("/m/x"); a.body != "other" {
		t.Errorf("%v", a)
	}
	eventually(t, "refused bodies are collected", func() bool { return len(f.keys()) == 0 })
}

// A failure between the bucket and the commit leaves the document as it is, and
// the body to the alarm.
func TestLargeBodiesFail(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 10})
	f.account("alice")
	u := f.user("alice", "m:rw")
	tag := u.put("/m/x", "before")
	canary := errors.New("canary")
	for _, op := range []string{"put", "put done"} {
		for _, err := range []error{durable.ErrUnavailable, durable.ErrUnknownOutcome, canary} {
			f.bucket.setFault(func(o, _ string) error {
				if o == op {
					return err
				}
				return nil
			})
			a := u.do("PUT", "/m/x", text64(160))
			if a.status < 500 || strings.Contains(a.body, "canary") || a.header.Get("Access-Control-Allow-Origin") == "" {
				t.Errorf("%s fails with %v: %v", op, err, a)
			}
		}
	}
	f.bucket.setFault(nil)
	// A client that goes away in the middle.
	r, w := io.Pipe()
	go func() {
		w.Write(bytes.Repeat([]byte("x"), 100_000)) //nolint:errcheck // it is cut
		w.CloseWithError(canary)
	}()
	if a, err := f.trySend("PUT", "/rs/store/alice/m/x", r, u.with(nil)...); err == nil && a.status < 400 {
		t.Errorf("half a body: %v", a)
	}
	if a := u.get("/m/x"); a.body != "before" || a.etag() != tag {
		t.Errorf("the document is %v", a)
	}
	// As when the replica dies between the two: nobody says that the body is not wanted.
	var key string
	staged := f.ask("alice", u.token, "/m/x", "begin", "")
	key = staged.Header.Get(headerBlob)
	if _, err := f.env.Bucket(bucketName).Put(t.Context(), key, strings.NewReader("body"), durable.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	f.orphansGo("alice", 0)
	if resp := f.ask("alice", u.token, "/m/x", key, "4"); resp.StatusCode != 503 {
		t.Errorf("an upload that took too long: %v", resp.Status)
	}
	if a := u.get("/m/x"); a.body != "before" {
		t.Errorf("the document is %v", a)
	}
	// The bucket is away when bodies are to be collected.
	u.put("/m/x", text64(160))
	u.put("/m/x", "after")
	f.bucket.setFault(func(op, _ string) error {
		if op == "delete" {
			return durable.ErrUnavailable
		}
		return nil
	})
	f.shift.Add(int64(26 * time.Hour))
	f.wake("alice")
	eventually(t, "a collection fails", func() bool {
		return f.bucket.count("delete") > 0 && strings.Contains(f.log.String(), "could not be deleted")
	})
	f.bucket.setFault(nil)
	f.wake("alice")
	eventually(t, "the body is collected", func() bool { return len(f.keys()) == 0 })
	// A body that cannot be read is no document, and no other.
	u.put("/m/x", text64(160))
	f.bucket.setFault(func(string, string) error { return durable.ErrUnavailable })
	if a := u.get("/m/x"); a.status != 503 || a.header.Get("Retry-After") == "" || a.etag() != "" {
		t.Errorf("a body that is away: %v", a)
	}
	f.bucket.setFault(func(string, string) error { return durable.ErrNotFound })
	wants(t, "a body that is lost", u.get("/m/x"), 500)
}

// ask sends a Vault what the front door does for a large body.
func (f *fixture) ask(name, token, path, stage, size string) *http.Response {
	f.t.Helper()
	if size == "" {
		size = "-1"
	}
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut, "http://vault/store"+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, headerStage: {stage}, headerSize: {size}}
	resp, err := f.vaults.get(f.vaultID(name)).Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// Of requests at the same time that cannot all succeed one does.
func TestRaces(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 10})
	f.account("alice")
	u := f.user("alice", "m:rw")
	race := func(n int, do func(i int) answer) (statuses map[int]int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		statuses = map[int]int{}
		for i := range n {
			wg.Go(func() {
				a := do(i)
				mu.Lock()
				defer mu.Unlock()
				statuses[a.status]++
			})
		}
		wg.Wait()
		return statuses
	}
	for round := range 4 {
		body := []string{"small", text64(160)}[round%2]
		path := fmt.Sprintf("/m/create%d", round)
		if s := race(8, func(int) answer { return u.do("PUT", path, body, "If-None-Match", "*") }); s[201] != 1 || s[412] != 7 {
			t.Errorf("create: %v", s)
		}
		tag := u.get(path).etag()
		if s := race(8, func(int) answer { return u.do("PUT", path, body, "If-Match", tag) }); s[200] != 1 || s[412] != 7 {
			t.Errorf("change: %v", s)
		}
		tag = u.get(path).etag()
		s := race(8, func(i int) answer {
			if i%2 == 0 {
				return u.do("DELETE", path, "", "If-Match", tag)
			}
			return u.do("PUT", path, body, "If-Match", tag)
		})
		if s[200] != 1 || s[412] != 7 {
			t.Errorf("change or delete: %v", s)
		}
		at := fmt.Sprintf("/m/both%d", round)
		s = race(2, func(i int) answer { return u.do("PUT", at+[]string{"", "/below"}[i], body) })
		if s[201] != 1 || s[409] != 1 {
			t.Errorf("document and folder: %v", s)
		}
	}
	l, _ := u.list("/m/")
	for name, i := range l.Items {
		a := u.get("/m/" + name)
		if strings.Trim(a.etag(), `"`) != i.ETag {
			t.Errorf("%s is listed as %+v and is %v", name, i, a.header)
		}
	}
	bodies := f.documentsOver(u, "/m/", 10)
	f.orphansGo("alice", bodies)
}

// documentsOver counts the documents below a folder whose bodies are in the
// bucket.
func (f *fixture) documentsOver(u user, path string, limit int64) (n int) {
	l, _ := u.list(path)
	for name, i := range l.Items {
		if i.Length == nil {
			n += f.documentsOver(u, path+name, limit)
		} else if *i.Length > limit {
			n++
		}
	}
	return n
}
