package fleettest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// maxMemory is what a move may use, in bytes.
const maxMemory = 200 << 20

// largeMove is what a large move moves: in a long run a directory that takes
// long, or as many percent of it as DWK_TEST_MOVE_PERCENT says.
func largeMove(t *testing.T) migratetest.Options {
	t.Helper()
	percent := 100
	if text := os.Getenv("DWK_TEST_MOVE_PERCENT"); text != "" {
		var err error
		if percent, err = strconv.Atoi(text); err != nil || percent < 1 {
			t.Fatalf("DWK_TEST_MOVE_PERCENT=%s: want a number from 1", text)
		}
	}
	of := func(long, short int) int { return Long(long*percent/100, short) }
	return migratetest.Options{
		Objects: of(50_000, 1000), Bodies: of(5_000, 50), Large: int64(of(3<<30, 150<<20)),
		Rows: of(1_150_000, 28_000), RowBytes: 1900, Messages: of(20_000, 500),
	}
}

// TestMoveIsBounded: memory does not grow with what is moved, and a run over a
// finished move only looks. A long run kills it 50 times on the way there and 10
// on the way back, and compares all that there is at the end.
func TestMoveIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much")
	}
	f := New(t, Wire)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	o := largeMove(t)
	began := time.Now()
	migratetest.Make(t, old, o)
	t.Logf("%+v made in %v", o, time.Since(began).Round(time.Second))
	var want migratetest.Facts
	long := Long(1, 0) == 1
	if long {
		want = migratetest.Local(t, old)
	}
	up, down := []string{"migrate", "to-central", "--data-dir", old, "--yes"}, []string{"migrate", "to-local", "--data-dir", back, "--yes"}
	f.killMany(Long(50, 0), up)
	f.bounded("to-central", append(up, "--report", filepath.Join(f.Dir, "up.jsonl")))
	again := f.bounded("to-central again", up)
	if !strings.Contains(again, `"moved": 0`) || strings.Contains(again, `"moved": 1`) {
		t.Errorf("something moved again: %s", again)
	}
	f.killMany(Long(10, 0), down)
	f.bounded("to-local", down)
	if long {
		migratetest.Compare(t, "back", migratetest.Local(t, back), want)
	}
}

// killMany kills a command at random moments, each time it is started.
func (f *Fleet) killMany(n int, args []string) {
	f.t.Helper()
	began, kills := time.Now(), 0
	for range n {
		if f.killed(time.Duration(rand.Int64N(int64(20*time.Second))), args...) {
			kills++
		}
	}
	if n > 0 {
		f.t.Logf("%s: %d kills of %d in %v", args[1], kills, n, time.Since(began).Round(time.Second))
	}
}

// bounded runs a command that must succeed without much memory, and returns its
// answer.
func (f *Fleet) bounded(what string, args []string) string {
	f.t.Helper()
	began := time.Now()
	cmd := f.program(nil, append(args, "-o", "json")...)
	out, notes := &strings.Builder{}, &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, notes
	if err := start(cmd); err != nil {
		f.t.Fatal(err)
	}
	done, peak := make(chan struct{}), make(chan int64)
	go func() { peak <- peakOf(cmd.Process.Pid, done) }()
	cmd.Wait() //nolint:errcheck // it is in ProcessState
	close(done)
	used := <-peak
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		f.t.Fatalf("%s: exit %d: %s", what, code, notes)
	}
	f.t.Logf("%s: %v, %d MiB", what, time.Since(began).Round(time.Millisecond), used>>20)
	if used > maxMemory {
		f.t.Errorf("%s used %d MiB", what, used>>20)
	}
	return out.String()
}
