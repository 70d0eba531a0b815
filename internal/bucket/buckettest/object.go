package buckettest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

func testRoundTrip(t *testing.T, b durable.Bucket) {
	for _, size := range []int{0, 1, 1000, 300_000} {
		key, body := fmt.Sprintf("body/%d", size), string(pattern(size))
		info := put(t, b, key, body, durable.PutOptions{ContentType: "text/plain; charset=utf-8"})
		if info.Key != key || info.Size != int64(size) || info.ETag == "" || strings.Contains(info.ETag, `"`) || info.ContentType != "text/plain; charset=utf-8" {
			t.Errorf("put: %+v", info)
		}
		text, got := get(t, b, key, durable.GetOptions{})
		if text != body {
			t.Errorf("%d bytes came back as %d", size, len(text))
		}
		if age := time.Since(got.Uploaded); age.Abs() > time.Hour {
			t.Errorf("uploaded %v ago", age)
		}
		info.Uploaded = got.Uploaded
		same(t, "get", got, info)
		same(t, "head", head(t, b, key), info)
	}
	if info := put(t, b, "untyped", "x", durable.PutOptions{}); info.ContentType != "application/octet-stream" || len(info.Metadata) != 0 {
		t.Errorf("%+v", info)
	}
	if info := head(t, b, "untyped"); info.ContentType != "application/octet-stream" || len(info.Metadata) != 0 {
		t.Errorf("%+v", info)
	}
}

func testMetadata(t *testing.T, b durable.Bucket) {
	given := map[string]string{
		"plain": "value", "Mixed-Case_1": "kept As Is", "unicode": "Zoë ☂ 日本 🦀 e\u0301", "empty": "", "spaces": "  a  b ",
		"percent": "100% %41 %zz", "lines": "a\r\nb\tc\x00d\x7f", "like-rfc2047": "=?utf-8?q?x?=", "plus": "a+b&c=d;e,f\"g\"",
	}
	info := put(t, b, "m", "x", durable.PutOptions{Metadata: given})
	given["plain"] = "changed afterwards"
	got := head(t, b, "m").Metadata
	for name, value := range given {
		lower := strings.ToLower(name)
		if name == "plain" {
			value = "value"
		}
		if got[lower] != value || info.Metadata[lower] != value {
			t.Errorf("%s: %q and %q, want %q", name, got[lower], info.Metadata[lower], value)
		}
	}
	if len(got) != len(given) || len(info.Metadata) != len(given) {
		t.Errorf("%q", got)
	}
	// The largest that is accepted.
	put(t, b, "large", "x", durable.PutOptions{Metadata: map[string]string{"name": strings.Repeat("v", 2044)}})
	unicode := strings.Repeat("é", 340)
	put(t, b, "wide", "x", durable.PutOptions{Metadata: map[string]string{"name": unicode}})
	if got := head(t, b, "wide").Metadata["name"]; got != unicode {
		t.Errorf("%q", got)
	}
}

func testRefusedOptions(t *testing.T, b durable.Bucket) {
	meta := func(name, value string) durable.PutOptions {
		return durable.PutOptions{Metadata: map[string]string{name: value}}
	}
	for _, opts := range []durable.PutOptions{
		meta("", "x"), meta("a b", "x"), meta("é", "x"), meta("a:b", "x"), meta("a\n", "x"), meta("a.b", "x"),
		meta("a", "\xff"), meta("name", strings.Repeat("v", 2045)), meta("name", strings.Repeat("é", 341)), meta("name", strings.Repeat("%", 682)),
		{Metadata: map[string]string{"Name": "x", "name": "y"}},
		{ContentType: "text/plain\r\nX-Evil: 1"}, {ContentType: "text/plain\x00"}, {ContentType: "é/é"}, {ContentType: " text/plain"},
		{ContentType: "text/" + strings.Repeat("x", 252)},
	} {
		if _, err := b.Put(t.Context(), "refused", strings.NewReader("x"), opts); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("%.100q: %v", fmt.Sprint(opts), err)
		}
	}
	absent(t, b, "refused")
	put(t, b, "k", "x", durable.PutOptions{})
	if _, _, err := b.Get(t.Context(), "k", durable.GetOptions{Length: -1}); !errors.Is(err, durable.ErrInvalid) {
		t.Errorf("negative length: %v", err)
	}
}

func testKeys(t *testing.T, b durable.Bucket) {
	odd := []string{
		"a", "with space", " leading", "trailing ", "percent%2Fslash", "%", "%zz", "hash#frag", "query?x=y&z", "plus+plus", "semi;colon", "colon:x",
		`back\slash`, `C:\dir`, `quote"double`, "single'quote", "star*", "[bracket]", "{brace}", "<angle>", "pipe|", "tilde~", "~", "dollar$HOME", "back`tick",
		"é", "e\u0301", "日本語/キー", "🦀", "\u202ertl", "-dash", "--", "...", "..a", "a..", ".hidden/.deeper", "new\nline", "tab\t", "con", "nul.txt",
		"UPPER", "upper", "x/y/z", "x/y.z/w", "deep/" + strings.Repeat("d/", 100) + "end", strings.Repeat("s", 200),
	}
	for _, key := range odd {
		put(t, b, key, "body of "+key, durable.PutOptions{})
	}
	for _, key := range odd {
		if text, info := get(t, b, key, durable.GetOptions{}); text != "body of "+key || info.Key != key {
			t.Errorf("%.80q: %.80q, %.80q", key, text, info.Key)
		}
	}
	want := slices.Sorted(slices.Values(odd))
	if got := keys(t, b); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, key := range odd {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %.80q: %v", key, err)
		}
	}
	if got := keys(t, b); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

func testLongestKey(t *testing.T, b durable.Bucket) {
	var long strings.Builder
	for long.Len() < 800 {
		fmt.Fprintf(&long, "%0200d/", long.Len())
	}
	key := long.String() + strings.Repeat("e", 1024-long.Len())
	put(t, b, key, "body", durable.PutOptions{})
	if text, info := get(t, b, key, durable.GetOptions{}); text != "body" || info.Key != key {
		t.Errorf("%q, %.80q", text, info.Key)
	}
	if got := keys(t, b); !slices.Equal(got, []string{key}) {
		t.Errorf("listed %.80q", got)
	}
	if err := b.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
	absent(t, b, key)
}

// BadKeys are what no bucket takes as a key.
var BadKeys = []string{
	"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/..", "a/../b", "a/./b", "a/.", "../../etc/passwd", "\x00", "a\x00b", "\xff", "a/\xc3",
	strings.Repeat("k", 1025), strings.Repeat("k/", 512) + "k",
}

func testRefusedKeys(t *testing.T, b durable.Bucket) {
	for _, key := range BadKeys {
		_, putErr := b.Put(t.Context(), key, strings.NewReader("x"), durable.PutOptions{})
		_, _, getErr := b.Get(t.Context(), key, durable.GetOptions{})
		_, headErr := b.Head(t.Context(), key)
		deleteErr := b.Delete(t.Context(), key)
		for _, err := range []error{putErr, getErr, headErr, deleteErr} {
			if !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%.80q: %v", key, err)
			} else if len(err.Error()) > 1000 {
				t.Errorf("%.80q: error of %d bytes", key, len(err.Error()))
			}
		}
	}
	if got := keys(t, b); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

func testMissing(t *testing.T, b durable.Bucket) {
	absent(t, b, "missing")
	absent(t, b, "missing/deep/down")
	put(t, b, "there/x", "x", durable.PutOptions{})
	for _, key := range []string{"there/y", "ther", "there", "there/x/y", "missing", "missing/y"} {
		absent(t, b, key)
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	for range 2 {
		if err := b.Delete(t.Context(), "there/x"); err != nil {
			t.Error(err)
		}
		absent(t, b, "there/x")
	}
	put(t, b, "there", "now a key itself", durable.PutOptions{})
}

func testOverwrite(t *testing.T, b durable.Bucket) {
	overwrite(t, b, func(i int) map[string]string { return map[string]string{"n": fmt.Sprint(i)} })
}

// testOverwriteMetadata overwrites bodies with other metadata, and with none.
func testOverwriteMetadata(t *testing.T, b durable.Bucket) {
	overwrite(t, b, func(i int) map[string]string {
		if i%2 == 1 {
			return nil
		}
		return map[string]string{fmt.Sprintf("n%d", i): "v"}
	})
}

func overwrite(t *testing.T, b durable.Bucket, metadata func(i int) map[string]string) {
	tags := map[string]bool{}
	for i, body := range []string{"first and longest", "second", "", "fourth"} {
		opts := durable.PutOptions{ContentType: fmt.Sprintf("text/x-%d", i), Metadata: metadata(i)}
		info := put(t, b, "k", body, opts)
		text, got := get(t, b, "k", durable.GetOptions{})
		info.Uploaded = got.Uploaded
		if text != body || tags[info.ETag] {
			t.Errorf("%q, etag %s", text, info.ETag)
		}
		tags[info.ETag] = true
		same(t, "overwritten", got, info)
		if got := keys(t, b); !slices.Equal(got, []string{"k"}) {
			t.Errorf("%q", got)
		}
	}
}

func testRanges(t *testing.T, b durable.Bucket) {
	body := string(pattern(1000))
	put(t, b, "k", body, durable.PutOptions{})
	put(t, b, "empty", "", durable.PutOptions{})
	const huge = 1<<63 - 1
	for _, c := range []struct {
		key            string
		offset, length int64
		want           string
	}{
		{"k", 0, 0, body}, {"k", 0, 1, body[:1]}, {"k", 0, 1000, body}, {"k", 0, 2000, body}, {"k", 1, 998, body[1:999]}, {"k", 999, 0, body[999:]},
		{"k", 999, 5, body[999:]}, {"k", 1000, 0, ""}, {"k", 1000, 5, ""}, {"k", 1001, 0, ""}, {"k", huge, huge, ""}, {"k", 1, huge, body[1:]},
		{"k", -1, 0, body[999:]}, {"k", -10, 3, body[990:993]}, {"k", -1000, 0, body}, {"k", -1001, 2, body[:2]}, {"k", -huge - 1, 0, body},
		{"empty", 0, 0, ""}, {"empty", 0, 5, ""}, {"empty", 5, 0, ""}, {"empty", -5, 0, ""},
	} {
		text, info := get(t, b, c.key, durable.GetOptions{Offset: c.offset, Length: c.length})
		if text != c.want {
			t.Errorf("%s from %d, %d bytes: got %d bytes", c.key, c.offset, c.length, len(text))
		}
		same(t, "info of a part", info, head(t, b, c.key))
	}
}

func testIfAbsent(t *testing.T, b durable.Bucket) {
	once := durable.PutOptions{IfAbsent: true}
	put(t, b, "a/k", "first", once)
	if _, err := b.Put(t.Context(), "a/k", strings.NewReader("second"), once); !errors.Is(err, durable.ErrPrecondition) {
		t.Errorf("second: %v", err)
	}
	if text, _ := get(t, b, "a/k", durable.GetOptions{}); text != "first" {
		t.Errorf("%q", text)
	}
	if err := b.Delete(t.Context(), "a/k"); err != nil {
		t.Error(err)
	}
	put(t, b, "a/k", "third", once)
	put(t, b, "a/k", "fourth", durable.PutOptions{})
	if text, _ := get(t, b, "a/k", durable.GetOptions{}); text != "fourth" {
		t.Errorf("%q", text)
	}
}
