// Package buckettest is one suite of behaviour that every kind of bucket
// passes. It asks for nothing that only some stores can do.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// Faults are the tests that a store cannot pass, by their names, each with what
// it does instead. They are skipped, and say so.
type Faults map[string]string

// Run runs the suite but for the faults of the store. Each call of open returns
// an empty bucket, which may be another view of the same store.
func Run(t *testing.T, open func(t *testing.T) durable.Bucket, faults Faults) {
	left := maps.Clone(faults)
	for _, test := range []struct {
		name string
		run  func(*testing.T, durable.Bucket)
	}{
		{"RoundTrip", testRoundTrip},
		{"Metadata", testMetadata},
		{"RefusedOptions", testRefusedOptions},
		{"Keys", testKeys},
		{"LongestKey", testLongestKey},
		{"RefusedKeys", testRefusedKeys},
		{"Missing", testMissing},
		{"Overwrite", testOverwrite},
		{"OverwriteMetadata", testOverwriteMetadata},
		{"Ranges", testRanges},
		{"IfAbsent", testIfAbsent},
		{"IfAbsentRace", testIfAbsentRace},
		{"BrokenBody", testBrokenBody},
		{"Cancelled", testCancelled},
		{"NeverMixed", testNeverMixed},
		{"OpenBodyStays", testOpenBodyStays},
		{"Large", testLarge},
		{"List", testList},
		{"ListDelimiters", testListDelimiters},
		{"ListRefused", testListRefused},
		{"ListFacts", testListFacts},
		{"ListChanging", testListChanging},
		{"ListLimit", testListLimit},
	} {
		delete(left, test.name)
		t.Run(test.name, func(t *testing.T) {
			if what := faults[test.name]; what != "" {
				t.Skip("this store " + what)
			}
			test.run(t, open(t))
		})
	}
	for name := range left {
		t.Errorf("there is no test %s", name)
	}
}

// Empty deletes all that a bucket has.
func Empty(t testing.TB, b durable.Bucket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for {
		page, err := b.List(ctx, durable.ListOptions{})
		if err != nil {
			t.Errorf("empty the bucket: %v", err)
			return
		}
		for _, o := range page.Objects {
			if err := b.Delete(ctx, o.Key); err != nil {
				t.Errorf("empty the bucket: %v", err)
				return
			}
		}
		if len(page.Objects) == 0 {
			return
		}
	}
}

func put(t *testing.T, b durable.Bucket, key, body string, opts durable.PutOptions) durable.ObjectInfo {
	t.Helper()
	info, err := b.Put(t.Context(), key, strings.NewReader(body), opts)
	if err != nil {
		t.Fatalf("put %.80q: %v", key, err)
	}
	return info
}

func get(t *testing.T, b durable.Bucket, key string, opts durable.GetOptions) (string, durable.ObjectInfo) {
	t.Helper()
	body, info, err := b.Get(t.Context(), key, opts)
	if err != nil {
		t.Fatalf("get %.80q: %v", key, err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("read %.80q: %v", key, err)
	}
	return string(text), info
}

func head(t *testing.T, b durable.Bucket, key string) durable.ObjectInfo {
	t.Helper()
	info, err := b.Head(t.Context(), key)
	if err != nil {
		t.Fatalf("head %.80q: %v", key, err)
	}
	return info
}

// absent checks that a key is nowhere.
func absent(t *testing.T, b durable.Bucket, key string) {
	t.Helper()
	if _, err := b.Head(t.Context(), key); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("head %.80q: %v", key, err)
	}
	if body, _, err := b.Get(t.Context(), key, durable.GetOptions{}); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("get %.80q: %v", key, err)
		if err == nil {
			body.Close()
		}
	}
	for _, k := range keys(t, b) {
		if k == key {
			t.Errorf("%.80q is listed", key)
		}
	}
}

// keys are all keys of a bucket.
func keys(t *testing.T, b durable.Bucket) (keys []string) {
	t.Helper()
	objects, _ := all(t, b, durable.ListOptions{})
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// all reads a list to its end.
func all(t *testing.T, b durable.Bucket, opts durable.ListOptions) (objects []durable.ObjectInfo, prefixes []string) {
	t.Helper()
	for seen := map[string]bool{}; ; seen[opts.Cursor] = true {
		page, err := b.List(t.Context(), opts)
		if err != nil {
			t.Fatalf("list %+v: %v", opts, err)
		}
		if n := len(page.Objects) + len(page.Prefixes); opts.Limit > 0 && n > opts.Limit || n == 0 && page.Cursor != "" {
			t.Fatalf("list %+v: page of %d", opts, n)
		}
		objects, prefixes = append(objects, page.Objects...), append(prefixes, page.Prefixes...)
		if page.Cursor == "" {
			return objects, prefixes
		}
		if seen[page.Cursor] {
			t.Fatalf("list %+v: cursor %q twice", opts, page.Cursor)
		}
		opts.Cursor = page.Cursor
	}
}

// same compares what is known about a body. Stores know the time to the second.
func same(t *testing.T, what string, got, want durable.ObjectInfo) {
	t.Helper()
	if got.Key != want.Key || got.Size != want.Size || got.ETag != want.ETag || got.ContentType != want.ContentType ||
		!maps.Equal(got.Metadata, want.Metadata) || got.Uploaded.Sub(want.Uploaded).Abs() > time.Second {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// pattern is a body of n bytes in which every place looks different.
func pattern(n int) []byte {
	var b bytes.Buffer
	for x := uint32(1); b.Len() < n; x = x*1664525 + 1013904223 {
		b.WriteByte(byte(x >> 24))
	}
	return b.Bytes()
}
