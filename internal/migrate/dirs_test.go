package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNewDirectoriesAreSynced: the name of each new directory is brought to disk
// in the one above it, and within the root also of those that a run before has
// made.
func TestNewDirectoriesAreSynced(t *testing.T) {
	base := t.TempDir()
	var synced []string
	maker := func() *dirMaker {
		return &dirMaker{root: filepath.Join(base, "new/root"), sync: func(dir string) error {
			rel, err := filepath.Rel(base, dir)
			synced = append(synced, rel)
			return err
		}}
	}
	check := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(synced, want) {
			t.Errorf("%s: synced %v, want %v", what, synced, want)
		}
		synced = nil
	}
	m := maker()
	temp := filepath.Join(base, "temp")
	if err := m.write(temp, filepath.Join(base, "new/root/r2/B/a/b"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	check("all are new", ".", "new", "new/root", "new/root/r2", "new/root/r2/B", "new/root/r2/B/a")
	if err := m.write(temp, filepath.Join(base, "new/root/r2/B/c/d"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	check("one is new", "new/root/r2/B", "new/root/r2/B/c")
	if err := maker().write(temp, filepath.Join(base, "new/root/r2/B/a/e"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	check("another run", "new", "new/root", "new/root/r2", "new/root/r2/B", "new/root/r2/B/a")
	if err := os.Mkdir(filepath.Join(base, "else"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.write(temp, filepath.Join(base, "else/queue"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	check("elsewhere", "else")
}
