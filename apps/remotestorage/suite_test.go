package remotestorage

import (
	"encoding/json"
	"strings"
	"testing"
)

// The cases of the remoteStorage project's own suite for servers, in its order:
// later ones rest on earlier ones.
func TestOfficialCases(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	f.account("bob")
	const dir = "/api-test"
	rw, ro, root, no := f.user("alice", "api-test:rw"), f.user("alice", "api-test:r"), f.user("alice", "*:rw"), f.anonymous("alice")
	const doc = `{"new": "object", "should_be": "large_enough", "to_trigger": "compression", "if_enabled": "on_server"}`
	put := func(u user, path, body, ctype string, header ...string) answer {
		return u.do("PUT", path, body, append(header, "Content-Type", ctype)...)
	}
	isTag := func(what, tag string) {
		t.Helper()
		if len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' || strings.ContainsAny(tag[1:len(tag)-1], `"`) {
			t.Errorf("%s: entity tag %s", what, tag)
		}
	}

	// OPTIONS
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		a := no.do("OPTIONS", dir+"/foo", "", "Access-Control-Request-Method", method, "Origin", "https://unhosted.org", "Referer", "https://unhosted.org")
		wants(t, "OPTIONS", a, 200, 204)
		if a.body != "" || a.header.Get("Access-Control-Allow-Origin") != "https://unhosted.org" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "ETag") ||
			!strings.Contains(a.header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("OPTIONS for %s: %v", method, a)
		}
		for _, name := range []string{"Authorization", "Content-Type", "Origin", "If-Match", "If-None-Match"} {
			if !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), name) {
				t.Errorf("OPTIONS for %s does not allow %s", method, name)
			}
		}
	}

	// PUT
	for path, body := range map[string]string{"/test-object-simple.json": doc, "/some-subdir/nested-folder-object.json": `{"foo": "baz"}`} {
		a := put(rw, dir+path, body, "application/json")
		wants(t, "PUT "+path, a, 201)
		isTag("PUT", a.etag())
	}
	_, outer := rw.list(dir + "/")
	inner, innerTag := rw.list(dir + "/some-subdir/")
	a := put(rw, dir+"/some-subdir/nested-folder-object.json", `{"foo": "bam"}`, "application/json")
	wants(t, "update", a, 200)
	newInner, newInnerTag := rw.list(dir + "/some-subdir/")
	_, newOuter := rw.list(dir + "/")
	const nested = "nested-folder-object.json"
	if newInner.Items[nested].ETag != strings.Trim(a.etag(), `"`) || newInner.Items[nested].ETag == inner.Items[nested].ETag || outer == newOuter || innerTag == newInnerTag {
		t.Errorf("an update changed too little: %v, %v", inner, newInner)
	}
	wants(t, "PUT over a folder", put(rw, dir+"/some-subdir", "", "text/plain"), 409)
	wants(t, "PUT with Content-Range", put(rw, dir+"/some-subdir/"+nested, "sup", "text/plain", "Content-Range", "bytes 0-3/3"), 400)
	wants(t, "PUT my-list", put(rw, dir+"/my-list", "", "text/plain"), 201)
	wants(t, "PUT below a document", put(rw, dir+"/my-list/item", "", "text/plain"), 409)
	simple := dir + "/test-object-simple.json"
	a = put(rw, simple, doc, "application/json", "If-Match", rw.do("HEAD", simple, "").etag())
	wants(t, "PUT If-Match", a, 200)
	isTag("PUT If-Match", a.etag())
	wants(t, "PUT If-Match another", put(rw, simple, "{}", "application/json", "If-Match", `"invalid"`), 412)
	wants(t, "PUT If-Match nothing", put(rw, dir+"/four-oh-four.json", "{}", "application/json", "If-Match", `"doesnotmatter"`), 412)
	wants(t, "PUT If-None-Match existing", put(rw, simple, "{}", "application/json", "If-None-Match", "*"), 412)
	wants(t, "PUT If-None-Match new", put(rw, dir+"/test-object-simple2.json", doc, "application/json", "If-None-Match", "*"), 201)

	// GET and HEAD
	for _, header := range [][]string{nil, {"Accept-Encoding", "gzip, deflate, br"}} {
		a = rw.get(simple, header...)
		if a.status != 200 || a.body != doc || a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") != "102" ||
			a.header.Get("Cache-Control") != "no-cache" || a.header.Get("Content-Encoding") != "" {
			t.Errorf("GET: %v", a)
		}
		isTag("GET", a.etag())
	}
	for _, list := range []string{a.etag(), `"r2d2c3po", ` + a.etag()} {
		if a := rw.get(simple, "If-None-Match", list); a.status != 304 || a.body != "" {
			t.Errorf("GET If-None-Match %s: %v", list, a)
		}
	}
	if h := rw.do("HEAD", simple, ""); h.status != 200 || h.etag() != a.etag() || h.header.Get("Content-Type") != "application/json" || h.header.Get("Content-Length") != "102" || h.body != "" {
		t.Errorf("HEAD: %v", h)
	}
	jpeg := string([]byte{0xff, 0xd8, 0xff, 0xe0, 0, 1, 2}) + strings.Repeat("\x00\xff", 14000)
	const photo = dir + "/Capture%20d'%C3%A9cran.jpg"
	wants(t, "PUT a photo", put(rw, photo, jpeg, "image/jpeg; charset=binary"), 201)
	if a := rw.get(photo); a.status != 200 || a.body != jpeg || a.header.Get("Content-Type") != "image/jpeg; charset=binary" {
		t.Errorf("GET a photo: %d %v", a.status, a.header)
	}
	wants(t, "GET nothing", rw.get(dir+"/four-oh-four.html"), 404)

	// Folders
	if h := rw.do("HEAD", dir+"/", ""); h.status != 200 || h.body != "" || h.header.Get("Content-Type") != "application/ld+json" {
		t.Errorf("HEAD of a folder: %v", h)
	}
	var raw struct {
		Items map[string]map[string]any `json:"items"`
	}
	folder := rw.get(dir + "/")
	isTag("GET of a folder", folder.etag())
	if err := json.Unmarshal([]byte(folder.body), &raw); err != nil || len(raw.Items) != 5 {
		t.Fatalf("%v: %s", err, folder.body)
	}
	for name, i := range raw.Items {
		length, isNumber := i["Content-Length"].(float64)
		switch {
		case strings.HasSuffix(name, "/") && len(i) != 1, i["ETag"] == "":
			t.Errorf("item %s: %v", name, i)
		case !strings.HasSuffix(name, "/") && (!isNumber || length != float64(int(length)) || i["Content-Type"] == "" || i["Last-Modified"] == ""):
			t.Errorf("item %s: %v", name, i)
		}
	}
	for _, name := range []string{"Capture d'écran.jpg", "my-list", "some-subdir/", "test-object-simple.json", "test-object-simple2.json"} {
		if raw.Items[name] == nil {
			t.Errorf("the folder has no %s: %s", name, folder.body)
		}
	}
	wants(t, "PUT in the root", put(rw, "/thisisbadpractice.json", "{}", "application/json"), 403)
	wants(t, "PUT in the root with *", put(root, "/thisisbadpractice.json", "{}", "application/json"), 201)
	if l, tag := root.list("/"); len(l.Items) != 2 || l.Items["api-test/"].ETag == "" || l.Items["thisisbadpractice.json"].ETag == "" {
		t.Errorf("root: %v %s", l, tag)
	}
	wants(t, "DELETE in the root", root.do("DELETE", "/thisisbadpractice.json", ""), 200)
	wants(t, "HEAD of what is deleted", root.do("HEAD", "/thisisbadpractice.json", ""), 404)
	for _, list := range []string{folder.etag(), `"r2d2c3po", ` + folder.etag()} {
		if a := rw.get(dir+"/", "If-None-Match", list); a.status != 304 || a.body != "" || a.etag() != folder.etag() {
			t.Errorf("GET of a folder, If-None-Match %s: %v", list, a)
		}
	}
	if l, _ := rw.list(dir + "/does-not-exist/"); l.Items == nil || len(l.Items) != 0 {
		t.Errorf("a folder that does not exist: %v", l)
	}

	// Others
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		wants(t, method+" at another account", user{f, "bob", rw.token}.do(method, dir+"/failwhale.png", ""), 401, 403)
	}
	wants(t, "GET read-only", ro.get(simple), 200)
	wants(t, "HEAD read-only", ro.do("HEAD", simple, ""), 200)
	wants(t, "PUT read-only", put(ro, dir+"/x.json", "{}", "application/json"), 403)
	wants(t, "DELETE read-only", ro.do("DELETE", simple, ""), 403)

	// Public
	const public = "/public/api-test/test-object-simple.json"
	wants(t, "PUT in public", put(rw, public, "{}", "application/json"), 201)
	wants(t, "PUT in another's public", put(rw, "/public/othercategory/x.json", "{}", "application/json"), 403)
	wants(t, "GET in public", no.get(public), 200)
	wants(t, "HEAD in public", no.do("HEAD", public, ""), 200)
	wants(t, "PUT without a token", put(no, public, "{}", "application/json"), 401)
	wants(t, "DELETE without a token", no.do("DELETE", public, ""), 401)
	full, empty := no.get("/public/api-test/"), no.get("/public/api-test/foo/")
	full.header.Del("Date")
	empty.header.Del("Date")
	if full.status != 401 || empty.status != 401 || full.body != empty.body || len(full.header) != len(empty.header) || full.etag() != "" {
		t.Errorf("listings without a token differ: %v, %v", full, empty)
	}
	for name := range full.header {
		if full.header.Get(name) != empty.header.Get(name) {
			t.Errorf("listings without a token differ in %s: %q, %q", name, full.header.Get(name), empty.header.Get(name))
		}
	}
	wants(t, "a public listing with a token", rw.get("/public/api-test/"), 200)
	wants(t, "DELETE in public", rw.do("DELETE", public, ""), 200)

	// DELETE
	for _, path := range []string{simple, photo, dir + "/some-subdir/" + nested, dir + "/my-list"} {
		tag := rw.do("HEAD", path, "").etag()
		a := rw.do("DELETE", path, "")
		if a.status != 200 || a.etag() != tag {
			t.Errorf("DELETE %s: %v, want %s", path, a, tag)
		}
		wants(t, "HEAD after DELETE", rw.do("HEAD", path, ""), 404)
	}
	wants(t, "DELETE nothing", rw.do("DELETE", dir+"/four-oh-four.html", ""), 404)
	simple2 := dir + "/test-object-simple2.json"
	wants(t, "DELETE If-Match another", rw.do("DELETE", simple2, "", "If-Match", `"invalid"`), 412)
	tag := rw.do("HEAD", simple2, "").etag()
	wants(t, "DELETE If-Match", rw.do("DELETE", simple2, "", "If-Match", tag), 200)
	wants(t, "HEAD after DELETE If-Match", rw.do("HEAD", simple2, ""), 404)
	wants(t, "DELETE If-Match nothing", rw.do("DELETE", dir+"/four-oh-four.json", "", "If-Match", `"match me"`), 412)
	if l, _ := root.list("/"); len(l.Items) != 0 {
		t.Errorf("the empty root has %v", l)
	}
	if i := f.info("alice"); i.Used != 0 || i.Documents != 0 {
		t.Errorf("an empty account has %+v", i)
	}
}
