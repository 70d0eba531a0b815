package mirror

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDiskFull runs on a file system of 1 MiB, where the system lets it mount one.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a file system:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	source := newMirror(t, Config{})
	exec(t, source, "CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(3000000))")
	big := commit(t, source)

	m := New(filepath.Join(dir, "a.db"), Config{MaxSize: 100 << 20})
	defer m.Discard() //nolint:errcheck // the file system goes
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	_, err := m.Exec(t.Context(), "INSERT INTO t VALUES(randomblob(2000000))")
	if !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	if e, err := m.Capture(); e != nil || err != nil {
		t.Errorf("captured %v, %v", e, err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	// The WAL fits, its checkpoint does not: the database cannot be closed.
	exec(t, m, "INSERT INTO t VALUES(randomblob(700000))")
	commit(t, m)
	if err := m.Close(); !errors.Is(err, ErrDiscarded) {
		t.Errorf("close: %v", err)
	}
	checkLost(t, m)
	if err := m.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(big.Data); !errors.Is(err, ErrDiscarded) || errors.Is(err, ErrDiverged) {
		t.Errorf("apply: %v", err)
	}
	checkLost(t, m)
}
