package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// faulty is a server before which fault is asked for each request: it may
// answer by itself, or let the answer be lost.
func faulty(t *testing.T, fault func(w http.ResponseWriter, r *http.Request) (done, lose bool)) string {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(fake(t), "/things"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, lose := fault(w, r)
		if done {
			return
		}
		if lose {
			w2 := httptest.NewRecorder()
			proxy.ServeHTTP(w2, r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/things"
}

func slowDown(w http.ResponseWriter) {
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>slow down</Message></Error>`)
}

func faultyBucket(t *testing.T, fault func(w http.ResponseWriter, r *http.Request) (done, lose bool)) (durable.Bucket, *Bucket) {
	b := open(t, Config{URL: faulty(t, fault), Region: "us-east-1", PathStyle: "true", Timeout: time.Minute})
	return bucket.Retry(b), b
}

// A store that is busy for a moment is no failure; one that stays so is.
func TestBusyStore(t *testing.T) {
	var left atomic.Int64
	b, _ := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		if left.Add(-1) >= 0 {
			slowDown(w)
			return true, false
		}
		return false, false
	})
	calls := map[string]func() error{
		"put": func() error {
			_, err := b.Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{})
			return err
		},
		"new": func() error {
			_, err := b.Put(t.Context(), "n", strings.NewReader("x"), durable.PutOptions{IfAbsent: true})
			return err
		},
		"head": func() error { _, err := b.Head(t.Context(), "k"); return err },
		"get": func() error {
			body, _, err := b.Get(t.Context(), "k", durable.GetOptions{})
			if err == nil {
				body.Close()
			}
			return err
		},
		"list":   func() error { _, err := b.List(t.Context(), durable.ListOptions{}); return err },
		"delete": func() error { return b.Delete(t.Context(), "gone") },
	}
	for _, name := range []string{"put", "new", "head", "get", "list", "delete"} {
		left.Store(1)
		if err := calls[name](); err != nil {
			t.Errorf("%s, busy once: %v", name, err)
		}
		left.Store(100)
		if err := calls[name](); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("%s, busy: %v", name, err)
		}
		if n := 100 - left.Load(); n > 3 {
			t.Errorf("%s: %d attempts", name, n)
		}
		left.Store(0)
	}
}

// The lost answer of a conditional put is not repeated: it would find its own
// body there and call it a conflict. That of a plain one is.
func TestLostAnswers(t *testing.T) {
	var lose, puts atomic.Int64
	b, _ := faultyBucket(t, func(_ http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.Method == http.MethodPut {
			puts.Add(1)
			return false, lose.Add(-1) >= 0
		}
		return false, false
	})
	lose.Store(1)
	if _, err := b.Put(t.Context(), "plain", strings.NewReader("x"), durable.PutOptions{}); err != nil || puts.Load() != 2 {
		t.Errorf("%v after %d", err, puts.Load())
	}
	lose.Store(1)
	_, err := b.Put(t.Context(), "new", strings.NewReader("x"), durable.PutOptions{IfAbsent: true})
	if !errors.Is(err, durable.ErrUnknownOutcome) || errors.Is(err, durable.ErrPrecondition) || puts.Load() != 3 {
		t.Errorf("%v after %d", err, puts.Load())
	}
	if _, err := b.Head(t.Context(), "new"); err != nil {
		t.Errorf("%v", err)
	}
}

// A large body is sent in parts, each of which may be repeated; an upload that
// fails leaves nothing behind. One that must be new is one request.
func TestParts(t *testing.T) {
	var busy atomic.Bool
	var mu sync.Mutex
	var methods string
	requests := func() string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { methods = "" }()
		return methods
	}
	view, b := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		mu.Lock()
		methods += r.Method + " "
		mu.Unlock()
		if r.URL.Query().Get("partNumber") == "2" && busy.Swap(false) {
			slowDown(w)
			return true, false
		}
		return false, false
	})
	b.partSize = 5 << 20
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	busy.Store(true)
	info, err := view.Put(t.Context(), "large", bytes.NewReader(text), durable.PutOptions{ContentType: "text/x", Metadata: map[string]string{"a": "ü"}})
	if sent := requests(); err != nil || info.Size != int64(len(text)) || sent != "POST PUT PUT PUT PUT PUT POST " {
		t.Fatalf("%+v, %v, requests %s", info, err, sent)
	}
	body, got, err := view.Get(t.Context(), "large", durable.GetOptions{Offset: 5<<20 - 1, Length: 3})
	if err != nil || got.Size != info.Size || got.ContentType != "text/x" || got.Metadata["a"] != "ü" {
		t.Fatalf("%+v, %v", got, err)
	}
	if part, err := io.ReadAll(body); string(part) != "f01" || err != nil {
		t.Errorf("%q, %v", part, err)
	}
	body.Close()
	for name, body := range map[string]io.Reader{
		"a body that breaks": io.MultiReader(bytes.NewReader(text), errorReader{}),
	} {
		if _, err := view.Put(t.Context(), "broken", body, durable.PutOptions{}); !errors.Is(err, errRead) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := view.Put(ctx, "broken", io.MultiReader(bytes.NewReader(text), cancelReader(cancel), bytes.NewReader(text)), durable.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if res, err := b.core.ListMultipartUploads(t.Context(), b.name, "", "", "", "", 10); err != nil || len(res.Uploads) > 0 {
		t.Errorf("left %+v, %v", res.Uploads, err)
	}
	if _, err := view.Head(t.Context(), "broken"); !errors.Is(err, durable.ErrNotFound) {
		t.Error(err)
	}
	requests()
	info, err = view.Put(t.Context(), "new", bytes.NewReader(text), durable.PutOptions{IfAbsent: true})
	if sent := requests(); err != nil || info.Size != int64(len(text)) || sent != "HEAD PUT " {
		t.Errorf("%+v, %v, requests %s", info, err, sent)
	}
	if _, err := view.Put(t.Context(), "new", bytes.NewReader(text), durable.PutOptions{IfAbsent: true}); !errors.Is(err, durable.ErrPrecondition) {
		t.Error(err)
	}
}

var errRead = errors.New("the body broke")

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errRead }

type cancelReader context.CancelFunc

func (c cancelReader) Read([]byte) (int, error) { c(); return 0, io.EOF }

// A connection on which nothing moves ends.
func TestStandstill(t *testing.T) {
	block := make(chan struct{})
	url := faulty(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
		return true, false
	})
	b := open(t, Config{URL: url, Region: "us-east-1", PathStyle: "true", Timeout: 200 * time.Millisecond})
	if _, err := b.Head(t.Context(), "k"); !errors.Is(err, durable.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	close(block)
}

func TestMetadataEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ =?%a+]*`)).Draw(t, "value")
		text := encode(value)
		if decode(text) != value {
			t.Fatalf("%q became %q and %q", value, text, decode(text))
		}
		if strings.TrimSpace(text) != text || strings.Contains(text, "  ") || strings.Contains(text, "=?") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q is not safe in a header", text)
		}
	})
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"s3://b": "s3.amazonaws.com true b ", "s3://b/p/q/": "s3.amazonaws.com true b p/q/", "https://h:9/b": "h:9 true b ", "http://h/b/p": "h false b p/",
		"https://h": "", "https://h/": "", "s3://": "", "ftp://h/b": "", "https://u:secret@h/b": "", "https://h/b?x=secret": "", "https://h/b/../c": "", "https://h/b//c/./d": "", "%": "",
	} {
		endpoint, secure, name, prefix, err := parse(text)
		got := ""
		if err == nil {
			got = endpoint + map[bool]string{true: " true ", false: " false "}[secure] + name + " " + prefix
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, cfg := range []Config{{URL: "https://h/b", PathStyle: "on"}, {URL: "https://h/b", CA: "/none"}} {
		if _, err := Open(cfg); err == nil {
			t.Errorf("opened %+v", cfg)
		}
	}
}
