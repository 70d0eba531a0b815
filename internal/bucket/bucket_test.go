package bucket_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
)

func open(t *testing.T) *dir.Bucket {
	t.Helper()
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestPrefixed(t *testing.T) {
	b := open(t)
	ctx := t.Context()
	for _, key := range []string{"p/a", "p/c/x", "p-/b", "pa", "q/a", "o"} {
		if _, err := b.Put(ctx, key, strings.NewReader(key), durable.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	view := bucket.Prefixed(b, "p")
	info, err := view.Put(ctx, "b", strings.NewReader("p/b"), durable.PutOptions{IfAbsent: true})
	if err != nil || info.Key != "b" {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, key := range []string{"a", "b", "c/x"} {
		body, info, err := view.Get(ctx, key, durable.GetOptions{})
		if err != nil || info.Key != key || info.Size != int64(len(key)+2) {
			t.Errorf("%s: %+v, %v", key, info, err)
			continue
		}
		body.Close()
		if info, err := view.Head(ctx, key); err != nil || info.Key != key {
			t.Errorf("%s: %+v, %v", key, info, err)
		}
	}
	var got []string
	for opts := (durable.ListOptions{Delimiter: "/", Limit: 1}); ; {
		page, err := view.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			got = append(got, o.Key)
		}
		got = append(got, page.Prefixes...)
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c/"}) {
		t.Errorf("listed %q", got)
	}
	if err := view.Delete(ctx, "a"); err != nil {
		t.Error(err)
	}
	if _, err := b.Head(ctx, "p/a"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := b.Head(ctx, "pa"); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

func TestPrefixedRefuses(t *testing.T) {
	b := open(t)
	if _, err := b.Put(t.Context(), "q/a", strings.NewReader("x"), durable.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix string
		keys   []string
	}{
		{"p", append(slices.Clone(buckettest.BadKeys), "../q/a", strings.Repeat("k", 1023))},
		{"", []string{"k"}}, {"p/", []string{"k"}}, {"..", []string{"k"}}, {"a/../b", []string{"k"}},
	} {
		view := bucket.Prefixed(b, c.prefix)
		for _, key := range c.keys {
			_, putErr := view.Put(t.Context(), key, strings.NewReader("x"), durable.PutOptions{})
			_, _, getErr := view.Get(t.Context(), key, durable.GetOptions{})
			_, headErr := view.Head(t.Context(), key)
			for _, err := range []error{putErr, getErr, headErr, view.Delete(t.Context(), key)} {
				if !errors.Is(err, durable.ErrInvalid) {
					t.Errorf("%q, %.40q: %v", c.prefix, key, err)
				}
			}
		}
		if _, err := view.List(t.Context(), durable.ListOptions{}); (err == nil) != (c.prefix == "p") {
			t.Errorf("list of %q: %v", c.prefix, err)
		}
	}
	page, err := bucket.Prefixed(b, "p").List(t.Context(), durable.ListOptions{Prefix: "../"})
	if err != nil || len(page.Objects) > 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<62).Draw(t, "size")
		near := rapid.Int64Range(-3, 3)
		opts := durable.GetOptions{
			Offset: rapid.OneOf(rapid.Int64(), near, rapid.Just(size), rapid.Just(-size)).Draw(t, "offset"),
			Length: rapid.OneOf(rapid.Int64Range(0, 1<<63-1), rapid.Int64Range(0, 3), rapid.Just(size)).Draw(t, "length"),
		}
		offset, length := bucket.Part(opts, size)
		if offset < 0 || length < 0 || offset > size || length > size-offset {
			t.Fatalf("%+v of %d: %d bytes from %d", opts, size, length, offset)
		}
		if opts.Length > 0 && length > opts.Length || opts.Length == 0 && offset+length != size {
			t.Fatalf("%+v of %d: %d bytes from %d", opts, size, length, offset)
		}
		if opts.Offset >= 0 && opts.Offset <= size && offset != opts.Offset {
			t.Fatalf("%+v of %d: from %d", opts, size, offset)
		}
	})
}

// What passes as a key stays below where it is joined.
func FuzzCheckKey(f *testing.F) {
	for _, key := range append(slices.Clone(buckettest.BadKeys), "a", "a/b", "...", "..a/b..", "é/ü", `..\a`) {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := bucket.CheckKey(key)
		if err != nil {
			if !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		segments := strings.Split(key, "/")
		if len(key) == 0 || len(key) > bucket.MaxKey || !utf8.ValidString(key) || strings.Contains(key, "\x00") ||
			slices.Contains(segments, "") || slices.Contains(segments, ".") || slices.Contains(segments, "..") {
			t.Errorf("%q passed", key)
		}
	})
}

func TestErrors(t *testing.T) {
	err := error(&bucket.InvalidError{What: "key", Value: strings.Repeat("é", 5000), Reason: "is too long"})
	if s := err.Error(); len(s) > 600 || !strings.Contains(s, "10000 bytes") || !strings.Contains(s, "is too long") {
		t.Errorf("%s", s)
	}
	if err := (&bucket.ConflictError{Key: "a/b", Other: "a"}); !errors.Is(err, durable.ErrInvalid) || err.Error() != `key "a/b" cannot be stored beside "a"` {
		t.Errorf("%v", err)
	}
}
