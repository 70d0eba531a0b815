package mirror

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/superfly/ltx"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newMirror returns a mirror in a directory of its own.
func newMirror(t testing.TB, cfg Config) *Mirror {
	t.Helper()
	m := New(filepath.Join(t.TempDir(), "object.db"), cfg)
	t.Cleanup(func() {
		if err := m.Discard(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func exec(t testing.TB, m *Mirror, query string, args ...any) {
	t.Helper()
	if _, err := m.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%.80s: %v", query, err)
	}
}

// values returns all values of all rows.
func values(t testing.TB, m *Mirror, query string, args ...any) []any {
	t.Helper()
	var vs []any
	for row, err := range m.Query(t.Context(), query, args...) {
		if err != nil {
			t.Fatalf("%.80s: %v", query, err)
		}
		vs = append(vs, row.Values...)
	}
	return vs
}

func value(t testing.TB, m *Mirror, query string, args ...any) any {
	t.Helper()
	vs := values(t, m, query, args...)
	if len(vs) != 1 {
		t.Fatalf("%s: %d values, want 1", query, len(vs))
	}
	return vs[0]
}

// commit captures and confirms, and returns the entry.
func commit(t testing.TB, m *Mirror) *Entry {
	t.Helper()
	e, err := m.Capture()
	if err != nil {
		t.Fatal(err)
	}
	if e == nil {
		t.Fatal("nothing was captured")
	}
	if err := m.Confirm(e.Post); err != nil {
		t.Fatal(err)
	}
	return e
}

// fileSum is the checksum of a closed database by the LTX library.
func fileSum(t testing.TB, m *Mirror) uint64 {
	t.Helper()
	f, err := os.Open(m.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum, err := ltx.ChecksumReader(f, int(m.pageSize))
	if err != nil {
		t.Fatal(err)
	}
	return uint64(sum)
}

func TestHandOver(t *testing.T) {
	a, b := newMirror(t, Config{}), newMirror(t, Config{})
	exec(t, a, "CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES(1, 'one')")
	first := commit(t, a)
	if first.Pre != (Position{}) || first.Post.TXID != 1 {
		t.Fatalf("first entry goes from %s to %s", first.Pre, first.Post)
	}
	exec(t, a, "UPDATE t SET b = randomblob(20000)")
	second := commit(t, a)
	if second.Pre != first.Post || second.Post != a.Position() {
		t.Fatalf("second entry goes from %s to %s, after %s", second.Pre, second.Post, first.Post)
	}
	if err := b.Apply(first.Data, second.Data); err != nil {
		t.Fatal(err)
	}
	if b.Position() != a.Position() {
		t.Fatalf("positions %s and %s", a.Position(), b.Position())
	}
	exec(t, b, "VACUUM")
	third := commit(t, b)
	if err := a.Apply(third.Data); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Mirror{a, b} {
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
		if sum := fileSum(t, m); sum != third.Post.Checksum {
			t.Errorf("file sum %016x, want %s", sum, third.Post)
		}
	}
	x, _ := os.ReadFile(a.path)
	y, _ := os.ReadFile(b.path)
	if !bytes.Equal(x, y) {
		t.Error("files differ")
	}
}

func TestUndo(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a)")
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the undone database is still there: %v", err)
	}
	exec(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
	commit(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(m.path)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(2); CREATE TABLE u(a); VACUUM")
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, m, "SELECT count(*) FROM t"); got != int64(1) {
		t.Errorf("%v rows after undo, want 1", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(m.path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file differs after undo (%v)", err)
	}
}
