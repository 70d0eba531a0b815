package buckettest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

var listKeys = []string{
	"-", "a b/1", "a!", "a-b", "a/b", "a/c/d", "a/c/e/f", "a/c0", "a0", "a01/x", "b%/c", "b%2F", "c#/?", "deep/a/b/c/d/e", "deep/a/b/c/d/f", "x-/1", "x-y/1", "x-y/2",
	"x/1", "x/2", "x/3", "x/4", "x/5", "x/6", "x/7", "z", "é/z", "é/ü", "日/本", "🦀",
}

// testList compares lists of every kind with those of a simple model.
func testList(t *testing.T, b durable.Bucket) { checkLists(t, b, "", "/") }

// testListDelimiters is testList with delimiters that few use.
func testListDelimiters(t *testing.T, b durable.Bucket) { checkLists(t, b, "-", "/b", "c", "本") }

func checkLists(t *testing.T, b durable.Bucket, delimiters ...string) {
	if objects, prefixes := all(t, b, durable.ListOptions{}); len(objects)+len(prefixes) > 0 {
		t.Fatalf("an empty bucket lists %v %q", objects, prefixes)
	}
	for i := range listKeys {
		put(t, b, listKeys[(i*7)%len(listKeys)], "x", durable.PutOptions{})
	}
	for _, prefix := range []string{"", "a", "a/", "a/c", "a/c/", "x", "x/", "x-", "x/3", "deep/a/b", "deep/a/b/", "é", "日/本", "none", "none/", "a//", "../", "./", "/", "b%", "a/b/"} {
		for _, delimiter := range delimiters {
			for _, limit := range []int{0, 1, 2, 3, 7} {
				opts := durable.ListOptions{Prefix: prefix, Delimiter: delimiter, Limit: limit}
				objects, prefixes := all(t, b, opts)
				var got []string
				for _, o := range objects {
					got = append(got, o.Key)
				}
				wantKeys, wantPrefixes := model(prefix, delimiter)
				if !slices.Equal(got, wantKeys) || !slices.Equal(prefixes, wantPrefixes) {
					t.Errorf("list %+v: %q %q, want %q %q", opts, got, prefixes, wantKeys, wantPrefixes)
				}
			}
		}
	}
}

func model(prefix, delimiter string) (keys, prefixes []string) {
	for _, key := range slices.Sorted(slices.Values(listKeys)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if before, _, ok := strings.Cut(rest, delimiter); ok && delimiter != "" {
			prefixes = append(prefixes, prefix+before+delimiter)
		} else {
			keys = append(keys, key)
		}
	}
	return keys, slices.Compact(prefixes)
}

func testListRefused(t *testing.T, b durable.Bucket) {
	for _, opts := range []durable.ListOptions{
		{Limit: -1}, {Prefix: "\xff"}, {Prefix: "a\x00"}, {Prefix: strings.Repeat("p", 1025)}, {Delimiter: "\xff"}, {Delimiter: strings.Repeat("d", 1025)},
	} {
		if page, err := b.List(t.Context(), opts); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("%.80q: %+v, %v", fmt.Sprint(opts), page, err)
		}
	}
}

func testListFacts(t *testing.T, b durable.Bucket) {
	info := put(t, b, "d/k", "body", durable.PutOptions{ContentType: "text/plain", Metadata: map[string]string{"a": "b"}})
	info.Uploaded = head(t, b, "d/k").Uploaded
	info.ContentType, info.Metadata = "", nil
	objects, _ := all(t, b, durable.ListOptions{})
	if len(objects) != 1 {
		t.Fatalf("%+v", objects)
	}
	same(t, "listed", objects[0], info)
}

// testListChanging changes keys between the pages: the others come once each.
func testListChanging(t *testing.T, b durable.Bucket) {
	var stay []string
	for i := range 30 {
		stay = append(stay, fmt.Sprintf("s%02d/k", i))
		put(t, b, stay[i], "x", durable.PutOptions{})
	}
	for _, delimiter := range []string{"", "/"} {
		var got []string
		opts := durable.ListOptions{Delimiter: delimiter, Limit: 4}
		for n := 0; ; n++ {
			page, err := b.List(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page.Objects {
				got = append(got, o.Key)
			}
			for _, p := range page.Prefixes {
				got = append(got, p+"k")
			}
			if page.Cursor == "" {
				break
			}
			opts.Cursor = page.Cursor
			last := got[len(got)-1]
			// One before the place where the list goes on, one at it, one long after.
			put(t, b, "a"+fmt.Sprint(n)+"/k", "x", durable.PutOptions{})
			put(t, b, last+"+", "x", durable.PutOptions{})
			put(t, b, "z/"+fmt.Sprint(n), "x", durable.PutOptions{})
			if !slices.Contains(stay, last) {
				if err := b.Delete(t.Context(), last); err != nil {
					t.Fatal(err)
				}
			}
		}
		old := slices.DeleteFunc(slices.Clone(got), func(k string) bool { return !slices.Contains(stay, k) })
		if !slices.Equal(old, stay) || len(slices.Compact(slices.Clone(got))) != len(got) || !slices.IsSorted(got) {
			t.Errorf("delimiter %q: %q", delimiter, got)
		}
	}
}

func testListLimit(t *testing.T, b durable.Bucket) {
	if testing.Short() {
		t.Skip("puts 1,001 keys")
	}
	for i := range 1001 {
		put(t, b, fmt.Sprintf("k%04d", i), "", durable.PutOptions{})
	}
	for _, limit := range []int{0, 1000, 5000} {
		page, err := b.List(t.Context(), durable.ListOptions{Limit: limit})
		if err != nil || len(page.Objects) != 1000 || page.Cursor == "" {
			t.Errorf("limit %d: %d keys, %v", limit, len(page.Objects), err)
		}
	}
	if got := keys(t, b); len(got) != 1001 {
		t.Errorf("%d keys", len(got))
	}
	// Behind a page that is just full some stores tell of more, and then have
	// nothing.
	page, err := b.List(t.Context(), durable.ListOptions{Limit: 1000, Prefix: "k0"})
	if err != nil || len(page.Objects) != 1000 {
		t.Fatalf("a page that is just full: %d keys, %v", len(page.Objects), err)
	}
	if page.Cursor == "" {
		return
	}
	page, err = b.List(t.Context(), durable.ListOptions{Limit: 1000, Prefix: "k0", Cursor: page.Cursor})
	if err != nil || len(page.Objects) > 0 || page.Cursor != "" {
		t.Errorf("behind a page that is just full: %+v, %v", page, err)
	}
}
