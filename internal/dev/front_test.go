package dev

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// backend answers with its name and what it got.
func backend(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, name+" "+r.Method+" "+r.Host+r.URL.RequestURI()+" "+r.Header.Get("X-Forwarded-For")+" "+string(body))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// nobody is an address at which nothing listens.
const nobody = "127.0.0.1:1"

func TestFront(t *testing.T) {
	a, b, dead := backend(t, "a"), backend(t, "b"), nobody
	var mu sync.Mutex
	var ready []string
	set := func(list ...string) { mu.Lock(); ready = list; mu.Unlock() }
	h, closeIdle := NewFront(func() []string { mu.Lock(); defer mu.Unlock(); return ready })
	defer closeIdle()
	web := httptest.NewServer(h)
	defer web.Close()
	do := func(path string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "example.com"
		res, err := web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}
	// Each in turn, also when one takes no connection: then with the whole body.
	for _, list := range [][]string{{a, b}, {a, dead, b}, {dead, dead, a, b}} {
		set(list...)
		seen := map[string]int{}
		for range 12 {
			res, text := do("/x?y=%2F")
			if res.StatusCode != 200 || text[1:] != " POST example.com/x?y=%2F 127.0.0.1 body" {
				t.Fatalf("%d %s", res.StatusCode, text)
			}
			seen[text[:1]]++
		}
		if seen["a"] < 3 || seen["b"] < 3 {
			t.Errorf("%v: %v", list, seen)
		}
	}
	for _, list := range [][]string{{}, {dead}, {dead, dead}} {
		set(list...)
		if res, _ := do("/"); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("%v: %d", list, res.StatusCode)
		}
	}
	// What was sent is not sent again, and not said to be refused.
	set(a)
	if res, _ := do("/cut"); res.StatusCode != 502 || res.Header.Get("Retry-After") != "" {
		t.Errorf("cut: %d", res.StatusCode)
	}
}

func TestDialing(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errors.New("x"): false, &net.OpError{Op: "read", Err: io.EOF}: false, &net.OpError{Op: "dial", Err: io.EOF}: true,
	} {
		if dialing(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
