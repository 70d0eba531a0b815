package fleettest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// maxMemory is what a move may use, in bytes.
const maxMemory = 200 << 20

// TestMoveIsBounded: memory does not grow with what is moved, and a run over a
// finished move only looks.
func TestMoveIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much")
	}
	f := New(t, Wire)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	o := migratetest.Options{Objects: Long(50_000, 150), Bodies: Long(5_000, 50), Large: Long(1<<30, 32<<20), Rows: Long(5_000_000, 20_000), Messages: Long(20_000, 500)}
	began := time.Now()
	migratetest.Make(t, old, o)
	t.Logf("made in %v", time.Since(began))
	for _, args := range [][]string{
		{"to-central", "--data-dir", old, "--yes", "--report", filepath.Join(f.Dir, "up.jsonl")},
		{"to-central", "--data-dir", old, "--yes"},
		{"to-local", "--data-dir", back, "--yes"},
	} {
		began := time.Now()
		cmd := f.program(nil, append([]string{"migrate"}, args...)...)
		out := &strings.Builder{}
		cmd.Stderr = out
		if err := start(cmd); err != nil {
			t.Fatal(err)
		}
		done, peak := make(chan struct{}), make(chan int64)
		go func() { peak <- peakOf(cmd.Process.Pid, done) }()
		cmd.Wait() //nolint:errcheck // it is in ProcessState
		close(done)
		used := <-peak
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("%s: exit %d: %s", args[0], code, out)
		}
		t.Logf("%s: %v, %d MiB", args[0], time.Since(began).Round(time.Millisecond), used>>20)
		if used > maxMemory {
			t.Errorf("%s used %d MiB", args[0], used>>20)
		}
	}
}
