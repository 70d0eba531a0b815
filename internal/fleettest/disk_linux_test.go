package fleettest

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A replica whose replica_dir is full refuses what it cannot run, loses nothing
// that it has answered, harms no other replica, and goes on by itself when there
// is room again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	Each(t, func(t *testing.T, kind Kind) {
		small := t.TempDir()
		if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=6m"); err != nil {
			t.Skipf("mount: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) }) //nolint:errcheck // it is gone with the container
		f := New(t, kind)
		a, b := f.Start("DWK_REPLICA_DIR="+small), f.Start()
		ledger, fresh := NewLedger("full"), NewLedger("fresh")
		for range 3 {
			if ans := ledger.Append(a); ans.Status != http.StatusOK {
				t.Fatal(ans)
			}
		}
		for round := range 3 {
			ballast := filepath.Join(small, "ballast")
			fillDisk(t, ballast)
			refused := 0
			for i := range 30 {
				l := []*Ledger{ledger, fresh}[i%2]
				switch ans := l.Append(a); {
				case ans.Refused():
					refused++
				case ans.Status != http.StatusOK:
					t.Errorf("while it is full: %v", ans)
				}
				if ans := l.Append(b); ans.Status != http.StatusOK {
					t.Errorf("the other replica: %v", ans)
				}
			}
			if refused == 0 {
				t.Error("a full disk kept it from nothing")
			}
			if ans := send(t.Context(), http.MethodGet, a.Admin+"/healthz", ""); ans.Status != http.StatusOK {
				t.Errorf("/healthz: %v", ans)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			for _, l := range []*Ledger{ledger, fresh} {
				if ans := l.Append(a); ans.Status != http.StatusOK {
					t.Errorf("with room again: %v", ans)
				}
				l.Check(t, a)
				l.Check(t, b)
			}
			t.Logf("round %d: %d of 30 events were refused, answers %v %v", round, refused, ledger.Statuses(), fresh.Statuses())
		}
		// One object that is too large for the disk: it alone fails.
		large := runSQL(a, "large", statement{SQL: `CREATE TABLE b AS SELECT randomblob(12000000)`})
		wantRefused(t, large)
		for _, l := range []*Ledger{ledger, fresh} {
			if ans := l.Append(a); ans.Status != http.StatusOK {
				t.Errorf("behind it: %v", ans)
			}
			l.Check(t, b)
		}
	})
}

// smallDisk mounts a small file system, where that is allowed.
func smallDisk(t *testing.T) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	if os.Geteuid() != 0 || syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m") != nil {
		return "", false
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) }) //nolint:errcheck // it is gone with the container
	return dir, true
}
