package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func newBucketLab(t *testing.T) (*fakeEnv, *front) {
	t.Helper()
	env, h := newLab(t)
	return env, h.(*front)
}

func TestBucketRoundTrip(t *testing.T) {
	_, h := newBucketLab(t)
	w := send(h, "PUT", "/bucket/dir/Zo%C3%AB%20%23%3F%25.txt", "0123456789",
		"Content-Type", "text/plain; charset=utf-8", "X-Meta-Title", "%E6%97%A5%E6%9C%AC 100%25", "x-meta-empty", "", "X-Other", "no")
	tag := w.Header().Get("ETag")
	var info fileInfo
	if err := json.Unmarshal(w.Body.Bytes(), &info); err != nil || w.Code != 200 || info.Key != "dir/Zoë #?%.txt" || info.Size != 10 || tag != `"`+info.ETag+`"` {
		t.Errorf("%d %s, ETag %s, %v", w.Code, w.Body, tag, err)
	}
	for _, path := range []string{"/bucket/dir/Zo%C3%AB%20%23%3F%25.txt", "/bucket/dir%2FZo%C3%AB%20%23%3F%25.txt"} {
		for _, method := range []string{"GET", "HEAD"} {
			w := send(h, method, path, "")
			got := w.Header()
			if w.Code != 200 || got.Get("Content-Type") != "text/plain; charset=utf-8" || got.Get("ETag") != tag || got.Get("Content-Length") != "10" ||
				got.Get("X-Meta-Title") != "%E6%97%A5%E6%9C%AC%20100%25" || len(got["X-Meta-Empty"]) != 1 || got.Get("X-Other") != "" ||
				!strings.HasPrefix(got.Get("Content-Security-Policy"), "sandbox") || got.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %v", method, w.Code, got)
			}
			if body := w.Body.String(); (method == "GET") != (body == "0123456789") || method == "HEAD" && body != "" {
				t.Errorf("%s: %q", method, body)
			}
		}
	}
	for range 2 {
		want(t, send(h, "DELETE", "/bucket/dir/Zo%C3%AB%20%23%3F%25.txt", ""), 204, "")
	}
	want(t, send(h, "GET", "/bucket/dir/Zo%C3%AB%20%23%3F%25.txt", ""), 404, `{"error":"no such key"}`)
	want(t, send(h, "HEAD", "/bucket/x", ""), 404, `{"error":"no such key"}`)
}

func TestBucketPaths(t *testing.T) {
	_, h := newBucketLab(t)
	for _, c := range []struct {
		method, path string
		status       int
		header       []string
	}{
		{"GET", "/bucket", 404, nil}, {"PUT", "/bucket/", 405, nil}, {"DELETE", "/bucket/", 405, nil}, {"POST", "/bucket/x", 405, nil}, {"HEAD", "/bucket/", 200, nil},
		{"PUT", "/bucket//", 400, nil}, {"PUT", "/bucket//x", 400, nil}, {"PUT", "/bucket/x/", 400, nil}, {"PUT", "/bucket/x//y", 400, nil},
		{"PUT", "/bucket/../x", 400, nil}, {"PUT", "/bucket/%2e%2e/x", 400, nil}, {"PUT", "/bucket/..%2fx", 400, nil}, {"GET", "/bucket/..%2f..%2fetc/passwd", 400, nil},
		{"GET", "/bucket/%00", 400, nil}, {"DELETE", "/bucket/%ff", 400, nil}, {"PUT", "/bucket/" + strings.Repeat("k", 1025), 400, nil},
		{"PUT", "/bucket/x", 400, []string{"If-Match", `"a"`}}, {"PUT", "/bucket/x", 400, []string{"If-None-Match", `"a"`}},
		{"DELETE", "/bucket/x", 400, []string{"If-Match", `"a"`}}, {"DELETE", "/bucket/x", 400, []string{"If-None-Match", `*`}},
		{"PUT", "/bucket/x", 400, []string{"X-Meta-A", "%zz"}}, {"PUT", "/bucket/x", 400, []string{"X-Meta-A", "%ff"}}, {"PUT", "/bucket/x", 400, []string{"X-Meta-A!", "x"}},
		{"PUT", "/bucket/x", 400, []string{"X-Meta-A", strings.Repeat("v", 2048)}}, {"PUT", "/bucket/x", 400, []string{"Content-Type", "é"}},
		{"GET", "/bucket/?limit=0", 400, nil}, {"GET", "/bucket/?limit=1001", 400, nil}, {"GET", "/bucket/?cursor=%21", 400, nil}, {"GET", "/bucket/?prefix=%ff", 400, nil}, {"GET", "/bucket/?a=%zz", 400, nil},
	} {
		w := send(h, c.method, c.path, "x", c.header...)
		if w.Code != c.status {
			t.Errorf("%s %.60s %.60q: %d %s", c.method, c.path, c.header, w.Code, w.Body)
		}
		var e struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &e); w.Code >= 400 && (err != nil || e.Error == "") {
			t.Errorf("%s %.60s: body %s", c.method, c.path, w.Body)
		}
	}
	want(t, send(h, "GET", "/bucket/", ""), 200, `{"objects":[],"prefixes":[]}`)
	if w := send(h, "PUT", "/bucket/x", "", "Host", "evil.example"); w.Code != 421 {
		t.Errorf("foreign host: %d", w.Code)
	}
}

func TestBucketConditions(t *testing.T) {
	_, h := newBucketLab(t)
	if w := send(h, "PUT", "/bucket/k", "first", "If-None-Match", "*"); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	want(t, send(h, "PUT", "/bucket/k", "second", "If-None-Match", "*"), 412, `{"error":"the key exists"}`)
	tag := send(h, "HEAD", "/bucket/k", "").Header().Get("ETag")
	want(t, send(h, "GET", "/bucket/k", "", "If-None-Match", `"x", `+tag), 304, "")
	want(t, send(h, "GET", "/bucket/k", "", "If-None-Match", `"x"`), 200, "first")
}

func TestBucketRanges(t *testing.T) {
	_, h := newBucketLab(t)
	send(h, "PUT", "/bucket/k", "0123456789")
	send(h, "PUT", "/bucket/empty", "")
	tag := send(h, "HEAD", "/bucket/k", "").Header().Get("ETag")
	for _, c := range []struct {
		key, header  string
		status       int
		body, answer string
	}{
		{"k", "bytes=0-", 206, "0123456789", "bytes 0-9/10"}, {"k", "bytes=2-4", 206, "234", "bytes 2-4/10"}, {"k", "bytes=9-9", 206, "9", "bytes 9-9/10"},
		{"k", "bytes=8-99", 206, "89", "bytes 8-9/10"}, {"k", "bytes=-3", 206, "789", "bytes 7-9/10"}, {"k", "bytes=-99", 206, "0123456789", "bytes 0-9/10"},
		{"k", "Bytes= 2-4", 206, "234", "bytes 2-4/10"}, {"k", "bytes=5-99999999999999999999", 206, "56789", "bytes 5-9/10"}, {"k", "bytes=0-9223372036854775807", 206, "0123456789", "bytes 0-9/10"},
		{"k", "bytes=-99999999999999999999", 206, "0123456789", "bytes 0-9/10"},
		{"k", "bytes=10-", 416, "", "bytes */10"}, {"k", "bytes=10-12", 416, "", "bytes */10"}, {"k", "bytes=99999999999999999999-", 416, "", "bytes */10"}, {"k", "bytes=-0", 416, "", "bytes */10"},
		{"empty", "bytes=0-", 416, "", "bytes */0"}, {"empty", "bytes=-1", 416, "", "bytes */0"}, {"empty", "", 200, "", ""},
		{"k", "bytes=4-2", 200, "0123456789", ""}, {"k", "bytes=0-1,3-4", 200, "0123456789", ""}, {"k", "lines=0-1", 200, "0123456789", ""}, {"k", "bytes=-", 200, "0123456789", ""},
		{"k", "bytes=a-b", 200, "0123456789", ""}, {"k", "bytes=+1-2", 200, "0123456789", ""}, {"k", "bytes=1", 200, "0123456789", ""}, {"k", "bytes=--1", 200, "0123456789", ""},
	} {
		w := send(h, "GET", "/bucket/"+c.key, "", "Range", c.header)
		if w.Code == 416 && strings.Contains(w.Body.String(), `"error"`) {
			w.Body.Reset()
		}
		if w.Code != c.status || w.Body.String() != c.body || w.Header().Get("Content-Range") != c.answer {
			t.Errorf("%s: %d %q %q", c.header, w.Code, w.Body, w.Header().Get("Content-Range"))
		}
		if c.status != 416 && w.Header().Get("Content-Length") != fmt.Sprint(len(c.body)) {
			t.Errorf("%s: length %s", c.header, w.Header().Get("Content-Length"))
		}
	}
	want(t, send(h, "GET", "/bucket/k", "", "Range", "bytes=1-2", "If-Range", tag), 206, "12")
	want(t, send(h, "GET", "/bucket/k", "", "Range", "bytes=1-2", "If-Range", `"x"`), 200, "0123456789")
	if w := send(h, "HEAD", "/bucket/k", "", "Range", "bytes=1-2"); w.Code != 200 || w.Header().Get("Content-Length") != "10" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"bytes=0-", "bytes=-5", "bytes=1-2", "bytes=9223372036854775807-9223372036854775807", "bytes=-0"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		part, ok := parseRange([]string{s})
		if !ok || size < 0 {
			return
		}
		offset, length := resolve(part, size)
		if part.Length < 0 || length < 0 || offset < 0 || length > 0 && (offset >= size || length > size-offset) {
			t.Errorf("%q of %d: %+v, %d bytes from %d", s, size, part, length, offset)
		}
	})
}

func TestBucketList(t *testing.T) {
	_, h := newBucketLab(t)
	keys := []string{"a", "b/1", "b/2", "b/c/3", "d e"}
	for _, key := range keys {
		send(h, "PUT", "/bucket/"+strings.ReplaceAll(key, " ", "%20"), key)
	}
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"", keys}, {"delimiter=/", []string{"a", "d e", "b/"}}, {"prefix=b/", keys[1:4]}, {"prefix=b/&delimiter=/", []string{"b/1", "b/2", "b/c/"}}, {"prefix=none", nil},
	} {
		for _, limit := range []int{1, 2, 1000} {
			var names, prefixes []string
			for cursor := ""; ; {
				w := send(h, "GET", fmt.Sprintf("/bucket/?%s&limit=%d&cursor=%s", c.query, limit, cursor), "")
				var page struct {
					Objects  []fileInfo
					Prefixes []string
					Cursor   string
				}
				if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
					t.Fatalf("%s: %d %s", c.query, w.Code, w.Body)
				}
				for _, o := range page.Objects {
					names = append(names, o.Key)
					if o.Size != int64(len(o.Key)) || o.ETag == "" || o.Uploaded == 0 {
						t.Errorf("%+v", o)
					}
				}
				prefixes = append(prefixes, page.Prefixes...)
				if cursor = page.Cursor; cursor == "" {
					break
				}
			}
			if got := append(names, prefixes...); !slices.Equal(got, c.want) {
				t.Errorf("%s by %d: %q, want %q", c.query, limit, got, c.want)
			}
		}
	}
}

// brokenBucket fails each call.
type brokenBucket struct{ err error }

func (b brokenBucket) Put(context.Context, string, io.Reader, durable.PutOptions) (durable.ObjectInfo, error) {
	return durable.ObjectInfo{}, b.err
}
func (b brokenBucket) Get(context.Context, string, durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	return nil, durable.ObjectInfo{}, b.err
}
func (b brokenBucket) Head(context.Context, string) (durable.ObjectInfo, error) {
	return durable.ObjectInfo{}, b.err
}
func (b brokenBucket) Delete(context.Context, string) error { return b.err }
func (b brokenBucket) List(context.Context, durable.ListOptions) (durable.Listing, error) {
	return durable.Listing{}, b.err
}

func TestBucketFails(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("s3: %w", durable.ErrUnavailable), 503}, {errors.New("canary"), 500}, {&testError{}, 500},
	} {
		env := newFakeEnv(t)
		env.bucket = brokenBucket{c.err}
		f := &front{env: env, hosts: newHosts(env.BaseURL()), files: newFiles(env)}
		for _, r := range [][2]string{{"PUT", "/bucket/k"}, {"GET", "/bucket/k"}, {"HEAD", "/bucket/k"}, {"DELETE", "/bucket/k"}, {"GET", "/bucket/"}} {
			if w := send(f, r[0], r[1], "x"); w.Code != c.status || strings.Contains(w.Body.String(), "canary") {
				t.Errorf("%v, %v: %d %s", c.err, r, w.Code, w.Body)
			}
		}
	}
}

type testError struct{}

func (*testError) Error() string { return "canary" }

// A body that is too large or ends early is the client's fault, and leaves
// nothing.
func TestBucketBadBody(t *testing.T) {
	_, f := newBucketLab(t)
	f.files.limit = 10
	want(t, send(f, "PUT", "/bucket/k", "01234567890"), 413, `{"error":"the body is over 10 bytes"}`)
	r := httptest.NewRequest(http.MethodPut, "/bucket/k", io.MultiReader(strings.NewReader("x"), errReader{}))
	r.Host = "localhost"
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	want(t, w, 400, `{"error":"the body could not be read"}`)
	want(t, send(f, "GET", "/bucket/", ""), 200, `{"objects":[],"prefixes":[]}`)
	if w := send(f, "PUT", "/bucket/k", "0123456789"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
