package remotestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/", "/a", "/a/", "/a/b", "//", "/..", "/%2e%2e/", "/%2F", "/%00", "/%ff", "/a%20b/%C3%A9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePath(s)
		if err != nil {
			return
		}
		escaped := "/"
		for _, name := range p.folders {
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
				t.Errorf("%q has the name %q", s, name)
			}
			escaped += url.PathEscape(name) + "/"
		}
		again, err := parsePath(escaped + url.PathEscape(p.name))
		if err != nil || again.name != p.name || !slices.Equal(again.folders, p.folders) {
			t.Errorf("%q is %+v, and again %+v: %v", s, p, again, err)
		}
	})
}

func FuzzParseScope(f *testing.F) {
	for _, s := range []string{"a:r", "*:rw", "a:rw b:r", "public:r", ":r", "a:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseScope(text)
		if err != nil {
			return
		}
		again, err := parseScope(s.String())
		if err != nil || !slices.Equal(s, again) || s.allows(docPath{name: "x"}, false) && !strings.Contains(text, "*") {
			t.Errorf("%q is %v, and again %v: %v", text, s, again, err)
		}
	})
}

func TestScopes(t *testing.T) {
	for _, c := range []struct {
		scope, path string
		read, write bool
	}{
		{"m:rw", "/m/", true, true}, {"m:rw", "/m/x", true, true}, {"m:r", "/m/x/y", true, false}, {"m:rw", "/m", false, false}, {"m:rw", "/", false, false}, {"m:rw", "/mm/x", false, false},
		{"m:rw", "/public/m/x", true, true}, {"m:rw", "/public/m/", true, true}, {"m:rw", "/public/m", false, false}, {"m:rw", "/public/", false, false}, {"m:rw", "/public/x/m/", false, false},
		{"m:rw", "/x/m/y", false, false}, {"*:r", "/", true, false}, {"*:rw", "/", true, true}, {"*:rw", "/public/", true, true}, {"*:r", "/x", true, false}, {"a:r m:rw", "/a/x", true, false}, {"a:r m:rw", "/m/x", true, true},
		{"m:r m:rw", "/m/x", true, true}, {"*:r m:rw", "/x/", true, false}, {"m:rw", "/public/public/m/x", false, false},
	} {
		s, err := parseScope(c.scope)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if s.allows(p, false) != c.read || s.allows(p, true) != c.write {
			t.Errorf("%s, %s: %v, %v", c.scope, c.path, s.allows(p, false), s.allows(p, true))
		}
	}
}

func TestPasswords(t *testing.T) {
	h := &hasher{make(chan struct{}, 1), hashMemory}
	hash, err := h.hash(t.Context(), "secret")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatal(hash, err)
	}
	other, _ := h.hash(t.Context(), "secret")
	if other == hash {
		t.Error("two hashes are the same: no salt")
	}
	for _, c := range []struct {
		hash, password string
		ok, fails      bool
	}{
		{hash, "secret", true, false}, {hash, "Secret", false, false}, {hash, "", false, false}, {"", "secret", false, false}, {"", "", false, false},
		{"plain", "plain", false, true}, {"$argon2i$v=19$m=1,t=1,p=1$AA$AA", "x", false, true}, {"$argon2id$v=19$m=1,t=0,p=1$AA$AA", "x", false, true},
		{"$argon2id$v=19$m=99999999,t=1,p=1$AA$AA", "x", false, true}, {"$argon2id$v=19$m=8,t=1,p=1$!$AA", "x", false, true}, {"$argon2id$v=19$m=8,t=1,p=1$AA$!", "x", false, true},
	} {
		ok, err := h.check(t.Context(), c.hash, c.password)
		if ok != c.ok || (err != nil) != c.fails {
			t.Errorf("%q, %q: %v %v", c.hash, c.password, ok, err)
		}
	}
	h.turns <- struct{}{} // all turns are taken
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.check(ctx, hash, "secret"); err == nil {
		t.Error("it did not wait for its turn")
	}
}

func TestSettings(t *testing.T) {
	for _, text := range []string{`{"quota":-1}`, `{"max_document":0}`, `{"max_document":99999999999}`, `{"inline_limit":-1}`, `{"inline_limit":99999999}`, `{"session_ttl":"0s"}`, `{"grace":"x"}`, `{"grace":"-1s"}`, `{"trusted_proxies":["x"]}`} {
		s := defaults()
		err := json.Unmarshal([]byte(text), s)
		if err == nil {
			err = s.check()
		}
		if err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if err := defaults().check(); err != nil {
		t.Error(err)
	}
	s := defaults()
	if err := json.Unmarshal([]byte(`{"grace":"2h","trusted_proxies":["10.0.0.0/8"]}`), s); err != nil || !s.TrustedProxies[0].Contains(netip.MustParseAddr("10.1.2.3")) {
		t.Errorf("%+v %v", s, err)
	}
	for _, u := range []string{"store.example", "ftp://x.example", "https://a@x.example", "https://x.example/?q", "https://x.example/#f", "https://"} {
		if _, err := newPlaces(placesEnv{}, &Settings{StorageURL: u}); err == nil {
			t.Errorf("storage_url %s is accepted", u)
		}
	}
	for name, ok := range map[string]bool{"a": true, "a.b-c_d": true, "0": true, "": false, "A": false, ".a": false, "a.": false, "a/b": false, "ä": false, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "a\n": false} {
		if validName(name) != ok {
			t.Errorf("name %q: %v", name, !ok)
		}
	}
}

// The store is a tree of documents, whatever is done to it in which order: this
// compares it with one that is a map.
func TestModel(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 4})
	f.account("alice")
	u := f.user("alice", "*:rw")
	type doc struct{ body, tag string }
	docs := map[string]doc{} // by path
	path := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 3).Draw(t, "names"), "/")
	})
	under := func(folder string) bool {
		for p := range docs {
			if strings.HasPrefix(p, folder+"/") {
				return true
			}
		}
		return false
	}
	blocked := func(p string) bool {
		for i, c := range p {
			if _, ok := docs[p[:i]]; ok && c == '/' {
				return true
			}
		}
		return false
	}
	check := func(rt *rapid.T, what string, a answer, status int) {
		if a.status != status {
			rt.Fatalf("%s: %d %s, want %d", what, a.status, a.body, status)
		}
	}
	runs := 20
	if testing.Short() {
		runs = 4
	}
	if os.Getenv("DWK_TEST_LONG") != "" {
		runs = 300
	}
	rapid.Check(t, func(rt *rapid.T) {
		if runs--; runs < 0 {
			return
		}
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			p := path.Draw(rt, "path")
			old, exists := docs[p]
			condition := rapid.SampledFrom([]string{"", "If-None-Match: *", "If-Match: *", "If-Match: old", "If-Match: other"}).Draw(rt, "condition")
			name, value, _ := strings.Cut(condition, ": ")
			value = strings.ReplaceAll(strings.ReplaceAll(value, "old", old.tag), "other", `"other"`)
			var header []string
			if name != "" && value != "" {
				header = []string{name, value}
			}
			holds := header == nil || (name == "If-Match") == exists && value != `"other"`
			before := u.get("/").etag()
			changed := false
			switch rapid.SampledFrom([]string{"put", "put", "delete"}).Draw(rt, "op") {
			case "put":
				body := rapid.SampledFrom([]string{"", "s", "large"}).Draw(rt, "body")
				a := u.do("PUT", p, body, header...)
				switch {
				case blocked(p) || under(p):
					check(rt, "PUT "+p, a, 409)
				case !holds:
					check(rt, "PUT "+p, a, 412)
				default:
					check(rt, "PUT "+p, a, map[bool]int{true: 200, false: 201}[exists])
					docs[p], changed = doc{body, a.etag()}, true
				}
			case "delete":
				a := u.do("DELETE", p, "", header...)
				switch {
				case under(p):
					check(rt, "DELETE "+p, a, 409)
				case !holds:
					check(rt, "DELETE "+p, a, 412)
				case !exists:
					check(rt, "DELETE "+p, a, 404)
				default:
					check(rt, "DELETE "+p, a, 200)
					delete(docs, p)
					changed = true
				}
			}
			if after := u.get("/").etag(); (after != before) != changed {
				rt.Fatalf("the root's version went from %s to %s", before, after)
			}
		}
		var size int64
		seen := 0
		var walk func(folder string)
		walk = func(folder string) {
			l, _ := u.list(folder)
			if len(l.Items) == 0 && folder != "/" {
				rt.Fatalf("an empty folder %s is listed", folder)
			}
			for name, i := range l.Items {
				if strings.HasSuffix(name, "/") {
					if tag := u.get(folder + name).etag(); tag != quote(i.ETag) {
						rt.Fatalf("%s%s is listed as %s and is %s", folder, name, i.ETag, tag)
					}
					walk(folder + name)
					continue
				}
				d, ok := docs[folder+name]
				if !ok || quote(i.ETag) != d.tag || *i.Length != int64(len(d.body)) {
					rt.Fatalf("%s%s is listed as %+v, want %+v", folder, name, i, d)
				}
				seen++
				size += *i.Length
			}
		}
		walk("/")
		for p, d := range docs {
			if a := u.get(p); a.body != d.body || a.etag() != d.tag {
				rt.Fatalf("%s is %v, want %+v", p, a, d)
			}
		}
		if i := f.info("alice"); seen != len(docs) || i.Used != size || i.Documents != int64(len(docs)) {
			rt.Fatalf("%d documents are listed, want %d; %d bytes, want %d", seen, len(docs), i.Used, size)
		}
	})
	f.orphansGo("alice", f.documentsOver(u, "/", 4))
}

// What a change costs depends on how deep it is, and what a listing costs on how
// much is listed: neither on how much there is.
func TestCostOfAPut(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	u := f.user("alice", "m:rw")
	statements := func(path string) int64 {
		before := f.statements.Load()
		u.put(path, "x")
		return f.statements.Load() - before
	}
	list := func(path string) int64 {
		before := f.statements.Load()
		u.list(path)
		return f.statements.Load() - before
	}
	u.put("/m/d/first", "x")
	few, fewListed := statements("/m/d/new0"), list("/m/")
	for i := range 20 {
		u.put(fmt.Sprintf("/m/d/x%d", i), "x")
		u.put(fmt.Sprintf("/m/d/e%d/x", i), "x")
	}
	if many := statements("/m/d/new1"); many != few {
		t.Errorf("a put among many takes %d statements, among few %d", many, few)
	}
	if many := list("/m/"); many != fewListed {
		t.Errorf("a folder above many is listed with %d statements, above few with %d", many, fewListed)
	}
	u.put("/m/d/e/f/g/first", "x")
	if deep := statements("/m/d/e/f/g/new"); deep != few+3*2 {
		t.Errorf("three levels deeper a put takes %d statements, want %d", deep, few+3*2)
	}
	wants(t, "", u.get("/m/d/new1"), http.StatusOK)
}
