package fleettest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// mirrors returns the database files in the directory of a replica.
func mirrors(t *testing.T, r *Replica) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.Dir(), "objects", "*", "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Replicas with one replica_dir leave each other's mirrors alone, while they
// start, work and die; a dead one's are removed by the next that starts.
func TestReplicasShareADirectory(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		l := NewLedger("shared")
		a := f.Start()
		for range 3 {
			l.Append(a)
		}
		had := mirrors(t, a)
		if len(had) != 1 {
			t.Fatalf("mirrors %v, want one", had)
		}
		b := f.Start()
		if got := mirrors(t, a); len(got) != 1 || got[0] != had[0] {
			t.Errorf("after the other's start: mirrors %v, had %v", got, had)
		}
		for range 3 {
			for _, r := range []*Replica{a, b} {
				if ans := l.Append(r); ans.Status != http.StatusOK {
					t.Errorf("%s: %v", r.Name, ans)
				}
			}
		}
		if filepath.Dir(a.Dir()) != filepath.Dir(b.Dir()) || a.Dir() == b.Dir() {
			t.Errorf("directories %s and %s", a.Dir(), b.Dir())
		}
		a.Kill()
		if _, err := os.Stat(a.Dir()); err != nil {
			t.Errorf("a killed replica's directory: %v", err)
		}
		c := f.Start()
		if _, err := os.Stat(a.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory of the dead replica is still there: %v", err)
		}
		if got := mirrors(t, b); len(got) != 1 {
			t.Errorf("the living replica's mirrors: %v", got)
		}
		for _, r := range []*Replica{b, c} {
			if ans := l.Append(r); ans.Status != http.StatusOK {
				t.Errorf("%s: %v", r.Name, ans)
			}
			l.Check(t, r)
		}
	})
}

// Mirrors that are deleted, or cut, between the events of a running replica
// cost nothing but time.
func TestMirrorsAreDeleted(t *testing.T) {
	t.Parallel()
	remove := func(what func(r *Replica) []string) func(*testing.T, *Replica) {
		return func(t *testing.T, r *Replica) {
			for _, path := range what(r) {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
		}
	}
	damages := []struct {
		name string
		do   func(t *testing.T, r *Replica)
	}{
		{"the databases", remove(func(r *Replica) []string { return mirrors(t, r) })},
		{"the WALs", remove(func(r *Replica) []string {
			files, _ := filepath.Glob(filepath.Join(r.Dir(), "objects", "*", "*-wal"))
			return files
		})},
		{"all files of objects", remove(func(r *Replica) []string {
			files, _ := filepath.Glob(filepath.Join(r.Dir(), "objects", "*", "*"))
			return files
		})},
		{"all directories of classes", remove(func(r *Replica) []string { return []string{filepath.Join(r.Dir(), "objects")} })},
		{"the replica's directory", remove(func(r *Replica) []string { return []string{r.Dir()} })},
	}
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		a, b, l := f.Start(), f.Start(), NewLedger("deleted")
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				for range 3 {
					if ans := l.Append(a); ans.Status != http.StatusOK {
						t.Errorf("before: %v", ans)
					}
					d.do(t, a)
					if ans := l.Append(a); ans.Status != http.StatusOK {
						t.Errorf("after: %v", ans)
					}
					d.do(t, a)
					l.Check(t, a)
				}
				if ans := l.Append(b); ans.Status != http.StatusOK {
					t.Errorf("the other replica: %v", ans)
				}
				l.Check(t, b)
				l.Check(t, a)
			})
		}
	})
}
