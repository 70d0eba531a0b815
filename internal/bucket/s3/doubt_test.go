package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// uploads are those that the server has.
func uploads(t *testing.T, b *Bucket) int {
	t.Helper()
	res, err := b.core.ListMultipartUploads(t.Context(), b.name, "", "", "", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	return len(res.Uploads)
}

// The lost answer to the end of an upload is made up for by asking again.
func TestLostCompletion(t *testing.T) {
	var lose, cut atomic.Int64
	view, b := faultyBucket(t, func(_ http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") {
			return false, false
		}
		if cut.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		return false, lose.Add(-1) >= 0
	})
	b.partSize = 5 << 20
	text := bytes.Repeat([]byte("0123456789abcdef"), 12<<16) // 12 MiB
	for name, c := range map[string]struct {
		lose, cut int64
		fails     bool
	}{"answer lost": {1, 0, false}, "request lost": {0, 1, false}, "both lost": {1, 1, false}, "all requests lost": {0, 3, true}} {
		lose.Store(c.lose)
		cut.Store(c.cut)
		info, err := view.Put(t.Context(), name, bytes.NewReader(text), durable.PutOptions{})
		if c.fails != errors.Is(err, durable.ErrUnknownOutcome) || c.fails == (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		got, err := view.Head(t.Context(), name)
		if c.fails && !errors.Is(err, durable.ErrNotFound) || !c.fails && (err != nil || got.Size != int64(len(text)) || info.Size != got.Size || info.ETag == "") {
			t.Errorf("%s: put %+v, there is %+v, %v", name, info, got, err)
		}
		if n := uploads(t, b); n > 0 {
			t.Errorf("%s: %d uploads are left", name, n)
		}
	}
}

// An upload that failed is ended when the store is there again.
func TestAbandonedUpload(t *testing.T) {
	var down atomic.Bool
	view, b := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.URL.Query().Get("partNumber") == "2" {
			down.Store(true)
		}
		if down.Load() {
			slowDown(w)
			return true, false
		}
		return false, false
	})
	b.partSize = 5 << 20
	if _, err := view.Put(t.Context(), "k", bytes.NewReader(make([]byte, 12<<20)), durable.PutOptions{}); !errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) {
		t.Errorf("%v", err)
	}
	down.Store(false)
	if n := uploads(t, b); n != 1 {
		t.Errorf("%d uploads, want the one that could not be ended", n)
	}
	for deadline := time.Now().Add(time.Minute); uploads(t, b) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not ended")
		}
	}
	// Close tries once more instead of waiting.
	if _, err := view.Put(t.Context(), "k", bytes.NewReader(make([]byte, 12<<20)), durable.PutOptions{}); err == nil {
		t.Error("no error")
	}
	down.Store(false)
	b.Close()
	if n := uploads(t, b); n > 0 {
		t.Errorf("%d uploads are left behind Close", n)
	}
}

// What was perhaps done by an attempt is not called undone because the next one
// was refused.
func TestDoubtStays(t *testing.T) {
	var n atomic.Int64
	b, _ := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.Method != http.MethodPut && r.Method != http.MethodDelete {
			return false, false
		}
		if n.Add(1) == 1 {
			return false, true
		}
		slowDown(w)
		return true, false
	})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{}); !errors.Is(err, durable.ErrUnknownOutcome) || errors.Is(err, durable.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	if _, err := b.Head(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	n.Store(0)
	if err := b.Delete(t.Context(), "k"); !errors.Is(err, durable.ErrUnknownOutcome) || errors.Is(err, durable.ErrUnavailable) {
		t.Errorf("delete: %v", err)
	}
	if _, err := b.Head(t.Context(), "k"); !errors.Is(err, durable.ErrNotFound) {
		t.Error(err)
	}
}

// An answer to another part than was asked for is refused, as is one cut short.
func TestWrongRanges(t *testing.T) {
	var header string
	var status int
	var body string
	b, _ := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.Method != http.MethodGet {
			return false, false
		}
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		if header != "" {
			w.Header().Set("Content-Range", header)
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(status)
		io.WriteString(w, body)
		return true, false
	})
	for _, c := range []struct {
		name   string
		opts   durable.GetOptions
		status int
		header string
		body   string
		ok     bool
	}{
		{"right", durable.GetOptions{Offset: 2, Length: 3}, 206, "bytes 2-4/10", "234", true},
		{"at the end", durable.GetOptions{Offset: 8, Length: 5}, 206, "bytes 8-9/10", "89", true},
		{"to the end", durable.GetOptions{Offset: 8}, 206, "bytes 8-9/10", "89", true},
		{"the end", durable.GetOptions{Offset: -2}, 206, "bytes 8-9/10", "89", true},
		{"more than all", durable.GetOptions{Offset: -20}, 206, "bytes 0-9/10", "0123456789", true},
		{"whole", durable.GetOptions{}, 200, "", "0123456789", true},
		{"ignored", durable.GetOptions{Offset: 2, Length: 3}, 200, "", "0123456789", false},
		{"another", durable.GetOptions{Offset: 2, Length: 3}, 206, "bytes 3-5/10", "345", false},
		{"fewer", durable.GetOptions{Offset: 2, Length: 3}, 206, "bytes 2-4/10", "23", false},
		{"more", durable.GetOptions{Offset: 2, Length: 3}, 206, "bytes 2-5/10", "2345", false},
		{"another end", durable.GetOptions{Offset: -2}, 206, "bytes 7-9/10", "789", false},
		{"no numbers", durable.GetOptions{Offset: 2}, 206, "bytes x", "23", false},
	} {
		header, status, body = c.header, c.status, c.body
		r, info, err := b.Get(t.Context(), "k", c.opts)
		if !c.ok {
			if !errors.Is(err, durable.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", c.name, info, err)
			}
			continue
		}
		if err != nil || info.Size != 10 {
			t.Errorf("%s: %+v, %v", c.name, info, err)
			continue
		}
		if text, err := io.ReadAll(r); string(text) != c.body || err != nil {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
		r.Close()
	}
}
