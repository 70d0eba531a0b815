package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

func TestMain(m *testing.M) { fleettest.Main(m) }

// Three schedules of those that make robustness runs, shortened: the drivers and
// checkers work, and nothing is wrong.
func TestSeeds(t *testing.T) {
	for _, seed := range []uint64{1003, 1009, 1010} {
		plan := Draw(seed, DrawOptions{Steps: 4, Calls: 600, TTL: 2 * time.Second})
		rec := runSeed(t, plan)
		if rec.Verdict == figures.Unclear { // a machine that is too slow tells nothing, most of the time
			t.Logf("seed %d once more: %s", seed, rec.Trouble)
			rec = runSeed(t, plan)
		}
		if rec.Verdict != figures.Held {
			t.Errorf("seed %d: %s: %s %+v\nreplay it with: go run ./internal/fleettest/chaos/robustness -seed %d -steps 4 -calls 600 -ttl 2s", seed, rec.Verdict, rec.Trouble, rec.Violations, seed)
		}
		t.Logf("seed %d: %d operations in %v", seed, rec.Total(), time.Duration(rec.Elapsed)*time.Millisecond)
	}
}

func runSeed(t *testing.T, plan Plan) figures.Robustness {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), plan, Options{Limit: 4 * time.Minute, Dir: dir, Out: t.Output()})
}
