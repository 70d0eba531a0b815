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

// Three schedules like those that make robustness runs, but short: nothing is wrong.
// A machine that is too slow for one of them gets no verdict on it, which is no
// failure; that it gets none on any would be the harness's.
func TestSeeds(t *testing.T) {
	held := 0
	for _, seed := range []uint64{1003, 1009, 1010} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		plan := Draw(seed, DrawOptions{Steps: 4, Calls: 600, TTL: 2 * time.Second})
		rec := Run(t.Context(), plan, Options{Limit: 150 * time.Second, Dir: dir, Out: t.Output()})
		t.Logf("seed %d: %s: %d operations in %v %s", seed, rec.Verdict, rec.Total(), time.Duration(rec.Elapsed)*time.Millisecond, rec.Trouble)
		switch rec.Verdict {
		case figures.Held:
			held++
		case figures.Violated:
			t.Errorf("seed %d: %+v\nrun it again with: go run ./internal/fleettest/chaos/robustness -seed %d -steps 4 -calls 600 -ttl 2s", seed, rec.Violations, seed)
		}
	}
	if held == 0 && !t.Failed() {
		t.Error("no verdict on any seed")
	}
}
