package dir

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

func put(t *testing.T, b *Bucket, key, body string) durable.ObjectInfo {
	t.Helper()
	info, err := b.Put(t.Context(), key, strings.NewReader(body), durable.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// read returns the body of a key, and the error that there is instead.
func read(t *testing.T, b *Bucket, key string) (string, error) {
	t.Helper()
	body, _, err := b.Get(t.Context(), key, durable.GetOptions{})
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

func wantBody(t *testing.T, b *Bucket, key, want string) {
	t.Helper()
	if got, err := read(t, b, key); got != want || err != nil {
		t.Errorf("%s: %.80q, %v, want %.80q", key, got, err, want)
	}
}

func listed(t *testing.T, b *Bucket) (keys []string) {
	t.Helper()
	page, err := b.List(t.Context(), durable.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// files are the paths of all files and empty directories.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if list, _ := os.ReadDir(path); d.IsDir() && (len(list) > 0 || rel == ".") {
			return nil
		}
		paths = append(paths, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The files are those of local mode, byte for byte where it matters.
func TestLayout(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	info, err := b.Put(t.Context(), "a/b c.txt", strings.NewReader("hello"), durable.PutOptions{
		ContentType: "text/plain", Metadata: map[string]string{"Who": "Zoë"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a/b c.txt", "a/b c.txt.r2meta"}) {
		t.Errorf("%q", got)
	}
	body, _ := os.ReadFile(filepath.Join(dir, "a/b c.txt"))
	text, _ := os.ReadFile(filepath.Join(dir, "a/b c.txt.r2meta"))
	var meta map[string]any
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Fatal(err)
	}
	custom, _ := meta["customMetadata"].(map[string]any)
	version, _ := meta["version"].(string)
	uploaded, _ := meta["uploaded"].(string)
	at, err := time.Parse("2006-01-02T15:04:05.000Z", uploaded)
	if string(body) != "hello" || meta["size"] != 5.0 || meta["etag"] != "5d41402abc4b2a76b9719d911017c592" || meta["contentType"] != "text/plain" ||
		custom["who"] != "Zoë" || uuid.Validate(version) != nil || err != nil || !at.Equal(info.Uploaded) || len(meta) != 6 {
		t.Errorf("%s", text)
	}
	if err := b.Delete(t.Context(), "a/b c.txt"); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

// What an older host wrote is read as it is; what is no object is passed over.
func TestOlderFiles(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	meta := func(size, version string) string {
		return `{"size":` + size + `,"etag":"e","version":"` + version + `","uploaded":"2024-02-29T12:00:00.5Z","extra":1}`
	}
	write(t, dir+"/ok", "123")
	write(t, dir+"/ok.r2meta", meta("3", "not a uuid/../x"))
	write(t, dir+"/x.tmp/ok", "1234")
	write(t, dir+"/x.tmp/ok.r2meta", meta("4", "5c2b8f0e-52d5-4f0c-8f6f-0a1b2c3d4e5f"))
	write(t, dir+"/body only", "x")
	write(t, dir+"/meta only.r2meta", meta("1", ""))
	write(t, dir+"/left.tmp", "x")
	write(t, dir+"/left.tmp.r2meta", meta("1", ""))
	write(t, dir+"/.r2meta", meta("1", ""))
	write(t, dir+"/dir.r2meta/k", "x")
	write(t, dir+"/dir.r2meta/k.r2meta", meta("1", ""))
	wantBody(t, b, "ok", "123")
	wantBody(t, b, "x.tmp/ok", "1234")
	info, err := b.Head(t.Context(), "ok")
	if err != nil || info.ContentType != bucket.DefaultType || info.ETag != "e" || info.Uploaded.UnixMilli() != 1709208000500 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, key := range []string{"body only", "meta only"} {
		if _, err := read(t, b, key); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
		put(t, b, key, "new") // over what is left
		wantBody(t, b, key, "new")
		if err := b.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if got := listed(t, b); !slices.Equal(got, []string{"ok", "x.tmp/ok"}) {
		t.Errorf("%q", got)
	}
}

func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	for name, sidecar := range map[string]string{
		"text": "no JSON", "empty": "", "size": `{"size":9,"uploaded":"2024-02-29T12:00:00Z"}`, "negative": `{"size":-1,"uploaded":"2024-02-29T12:00:00Z"}`,
		"time": `{"size":4,"uploaded":"yesterday"}`, "large": strings.Repeat(" ", maxSidecar) + `{"size":4,"uploaded":"2024-02-29T12:00:00Z"}`,
	} {
		write(t, filepath.Join(dir, name), "body")
		write(t, filepath.Join(dir, name+sidecarSuffix), sidecar)
		_, getErr := read(t, b, name)
		_, headErr := b.Head(t.Context(), name)
		_, listErr := b.List(t.Context(), durable.ListOptions{Prefix: name})
		for _, err := range []error{getErr, headErr, listErr} {
			if err == nil || errors.Is(err, durable.ErrNotFound) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := b.Put(t.Context(), name, strings.NewReader("x"), durable.PutOptions{IfAbsent: true}); !errors.Is(err, durable.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
		put(t, b, name, "repaired")
		wantBody(t, b, name, "repaired")
	}
}

func TestRefusedPlaces(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "a", "x")
	put(t, b, "d/e/f", "x")
	for _, c := range []struct {
		key      string
		conflict string
	}{
		{"a.r2meta", ""}, {".r2meta", ""}, {"x.r2meta/y", ""}, {"x.tmp", ""}, {".tmp", ""}, {"d/x.tmp", ""}, {strings.Repeat("s", 249), ""},
		{strings.Repeat("é", 125) + "/x", ""}, {"a/b", "a"}, {"a/b/c/d", "a"}, {"d", "d/"}, {"d/e", "d/e/"}, {"d/e/f/g", "d/e/f"},
	} {
		_, err := b.Put(t.Context(), c.key, strings.NewReader("x"), durable.PutOptions{})
		conflict, isConflict := errors.AsType[*bucket.ConflictError](err)
		if !errors.Is(err, durable.ErrInvalid) || isConflict != (c.conflict != "") || isConflict && (conflict.Key != c.key || conflict.Other != c.conflict) {
			t.Errorf("put %.30q: %v", c.key, err)
		}
		_, getErr := read(t, b, c.key)
		deleteErr := b.Delete(t.Context(), c.key)
		if isConflict {
			if !errors.Is(getErr, durable.ErrNotFound) || deleteErr != nil {
				t.Errorf("%.30q: get %v, delete %v", c.key, getErr, deleteErr)
			}
		} else if !errors.Is(getErr, durable.ErrInvalid) || !errors.Is(deleteErr, durable.ErrInvalid) {
			t.Errorf("%.30q: get %v, delete %v", c.key, getErr, deleteErr)
		}
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a", "a.r2meta", "d/e/f", "d/e/f.r2meta"}) {
		t.Errorf("%q", got)
	}
	put(t, b, "x.tmp/y", "x")
	put(t, b, strings.Repeat("s", 248), "x")
	// A directory without keys is in nobody's way.
	if err := os.Mkdir(dir+"/hollow", 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, b, "hollow", "x")
	wantBody(t, b, "hollow", "x")
}

func TestSymlinks(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside+"/secret", "secret")
	write(t, outside+"/secret.r2meta", `{"size":6,"etag":"e","version":"v","uploaded":"2024-02-29T12:00:00Z"}`)
	b := open(t, dir)
	put(t, b, "in/k", "x")
	for link, target := range map[string]string{
		"away": outside, "secret": outside + "/secret", "secret.r2meta": outside + "/secret.r2meta", "in/up": "../../" + filepath.Base(outside), "in/self": ".",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"away/secret", "secret", "in/up/secret"} {
		if text, err := read(t, b, key); err == nil {
			t.Errorf("%s: read %q", key, text)
		}
		b.Delete(t.Context(), key)                                                    //nolint:errcheck // it may fail, not follow
		b.Put(t.Context(), key, strings.NewReader("overwrite"), durable.PutOptions{}) //nolint:errcheck // likewise
	}
	if got := listed(t, b); slices.Contains(got, "away/secret") || !slices.Contains(got, "in/k") {
		t.Errorf("%q", got)
	}
	if got := files(t, outside); !slices.Equal(got, []string{"secret", "secret.r2meta"}) {
		t.Errorf("outside: %q", got)
	}
	if text, err := os.ReadFile(outside + "/secret"); string(text) != "secret" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// A lock that somebody else holds is waited for, until the context ends.
func TestLockWaits(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "d/k", "old")
	f, err := b.folder("d/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	unlock, err := f.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	done := make(chan error)
	go func() {
		_, err := b.Put(ctx, "d/k", strings.NewReader("new"), durable.PutOptions{})
		done <- err
	}()
	wantBody(t, b, "d/k", "old") // readers take no lock
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("put: %v", err)
	}
	go func() {
		_, err := b.Put(t.Context(), "d/k", strings.NewReader("new"), durable.PutOptions{})
		done <- err
	}()
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantBody(t, b, "d/k", "new")
	if got := files(t, dir); !slices.Equal(got, []string{"d/k", "d/k.r2meta"}) {
		t.Errorf("left %q", got)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir+"/made/on/the/way")
	put(t, b, "k", "x")
	write(t, dir+"/file", "x")
	if _, err := Open(dir + "/file"); err == nil {
		t.Error("a file was opened as a bucket")
	}
}
