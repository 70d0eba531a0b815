package dir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
)

// interrupt puts a key and leaves the files as a crash does, after so many of
// the two renames.
func interrupt(t *testing.T, b *Bucket, key, body string, renames int) {
	t.Helper()
	parent, name := filepath.Split(key)
	p := &putting{key: key, name: name, sidecar: sidecar{Version: uuid.NewString(), ContentType: "text/new"}}
	file, err := p.begin(t.Context(), b, parent)
	if err != nil {
		t.Fatal(err)
	}
	defer p.folder.close()
	if err := p.write(t.Context(), file, strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	exists, err := p.folder.settle(name)
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{p.renameBody, p.renameSidecar}
	if exists {
		slices.Reverse(steps)
	}
	for _, step := range steps[:renames] {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCrash(t *testing.T) {
	const oldBody, newBody = "old body", "new body" // of one size
	for _, c := range []struct {
		name    string
		old     bool
		renames int
		want    string
	}{
		{"new, no rename", false, 0, ""}, {"new, one", false, 1, ""}, {"new, both", false, 2, newBody},
		{"over, no rename", true, 0, oldBody}, {"over, one", true, 1, newBody}, {"over, both", true, 2, newBody},
	} {
		for _, then := range []struct {
			name string
			do   func(t *testing.T, b *Bucket) string // returns what the body is then, if another
		}{
			{"read", func(*testing.T, *Bucket) string { return c.want }},
			{"sweep", func(t *testing.T, b *Bucket) string {
				if _, err := b.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				return c.want
			}},
			{"put", func(t *testing.T, b *Bucket) string { put(t, b, "d/k", "next"); return "next" }},
			{"put if absent", func(t *testing.T, b *Bucket) string {
				_, err := b.Put(t.Context(), "d/k", strings.NewReader("next"), durable.PutOptions{IfAbsent: true})
				if c.want == "" && err == nil {
					return "next"
				}
				if !errors.Is(err, durable.ErrPrecondition) {
					t.Error(err)
				}
				return c.want
			}},
			{"delete", func(t *testing.T, b *Bucket) string {
				if err := b.Delete(t.Context(), "d/k"); err != nil {
					t.Error(err)
				}
				return ""
			}},
			{"crash again", func(t *testing.T, b *Bucket) string {
				interrupt(t, b, "d/k", "again", 1)
				if c.want == "" {
					return ""
				}
				return "again"
			}},
		} {
			t.Run(c.name+", "+then.name, func(t *testing.T) {
				dir := t.TempDir()
				b := open(t, dir)
				if c.old {
					put(t, b, "d/k", oldBody)
				}
				interrupt(t, b, "d/k", newBody, c.renames)
				check(t, b, "d/k", c.want, newBody)
				want := then.do(t, b)
				check(t, b, "d/k", want, newBody)
				age(t, dir)
				if _, err := b.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				check(t, b, "d/k", want, newBody)
				for _, path := range files(t, dir) {
					if strings.HasSuffix(path, tempSuffix) {
						t.Errorf("left %s", path)
					}
				}
				// The layout is whole for those who know nothing of temporary files.
				if text, err := os.ReadFile(dir + "/d/k"); want != "" && string(text) != want {
					t.Errorf("file of %q, %v, want %q", text, err, want)
				}
			})
		}
	}
}

// A sidecar without a body does not become that of the next body.
func TestCrashBesideStaleSidecar(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "d/k", "old body")
	if err := os.Remove(dir + "/d/k"); err != nil {
		t.Fatal(err)
	}
	interrupt(t, b, "d/k", "new body", 1)
	check(t, b, "d/k", "", "new body")
	put(t, b, "d/k", "next")
	check(t, b, "d/k", "next", "new body")
}

// check wants a body, or none, with the facts that belong to it.
func check(t *testing.T, b *Bucket, key, want, newBody string) {
	t.Helper()
	if want == "" {
		if text, err := read(t, b, key); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("%s: %q, %v", key, text, err)
		}
		if keys := listed(t, b); len(keys) > 0 {
			t.Errorf("listed %q", keys)
		}
		return
	}
	wantBody(t, b, key, want)
	info, err := b.Head(t.Context(), key)
	if isNew := want == newBody || want == "again"; err != nil || (info.ContentType == "text/new") != isNew || info.Size != int64(len(want)) {
		t.Errorf("%s with a body %q: %+v, %v", key, want, info, err)
	}
	if keys := listed(t, b); !slices.Equal(keys, []string{key}) {
		t.Errorf("listed %q", keys)
	}
}

// age makes the temporary files look two hours old.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	for _, path := range files(t, dir) {
		if strings.HasSuffix(path, tempSuffix) {
			if err := os.Chtimes(filepath.Join(dir, path), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "a/k", "x")
	write(t, dir+"/a/old.tmp", "x")
	write(t, dir+"/gone/deep/old.tmp", "x")
	age(t, dir)
	write(t, dir+"/a/young.tmp", "x")
	write(t, dir+"/body only", "x")
	if n, err := b.Sweep(t.Context()); n != 2 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a/k", "a/k.r2meta", "a/young.tmp", "body only"}) {
		t.Errorf("%q", got)
	}
	if got := listed(t, b); !slices.Equal(got, []string{"a/k"}) {
		t.Errorf("%q", got)
	}
}

// A sweep while a put is stalled makes the put fail and nothing else.
func TestSweepOfSlowPut(t *testing.T) {
	for _, old := range []bool{false, true} {
		dir := t.TempDir()
		b := open(t, dir)
		if old {
			put(t, b, "k", "old")
		}
		swept := false
		body := readerFunc(func(p []byte) (int, error) {
			if swept {
				return 0, errEOF
			}
			swept = true
			age(t, dir)
			if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			return copy(p, "new"), nil
		})
		if _, err := b.Put(t.Context(), "k", body, durable.PutOptions{ContentType: "text/new"}); err == nil {
			t.Error("put succeeded without its temporary file")
		}
		if old {
			check(t, b, "k", "old", "new")
		} else {
			check(t, b, "k", "", "new")
		}
	}
}
