package figures

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// series is a measure at n times, of which the first ten are a warm-up.
func series(n int, f func(i int) float64) (times, samples []float64) {
	for i := range n {
		times, samples = append(times, float64(10*i)), append(samples, f(i))
	}
	return times, samples
}

func TestTrend(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return random.Float64()*20 - 10 }
	for _, c := range []struct {
		name  string
		f     func(i int) float64
		bound Bound
		grows bool
	}{
		{"noise", func(int) float64 { return 100 + noise() }, Bound{0.1, 1}, false},
		{"a leak", func(i int) float64 { return 100 + float64(i) + noise() }, Bound{0.1, 1}, true},
		{"a leak that is allowed", func(i int) float64 { return 100 + float64(i) + noise() }, Bound{0.1, 1000}, false},
		{"a leak without a bound", func(i int) float64 { return 100 + float64(i) + noise() }, Bound{}, false},
		{"a warm-up", func(i int) float64 { return 100 + float64(min(i, 10))*50 + noise() }, Bound{0.1, 1}, false},
		{"what falls", func(i int) float64 { return 500 - float64(i) + noise() }, Bound{0.1, 1}, false},
		{"saw teeth", func(i int) float64 { return 100 + float64(i%7)*10 + noise() }, Bound{0.1, 1}, false},
		{"one that stands out", func(i int) float64 {
			if i == 58 {
				return 1e6
			}
			return 100
		}, Bound{0.1, 1}, false},
		{"steps", func(i int) float64 { return 100 + float64(i/20)*100 }, Bound{0.1, 1}, true},
		{"from nothing", func(i int) float64 { return float64(max(0, i-30)) }, Bound{0.1, 5}, true},
	} {
		times, samples := series(60, c.f)
		if got := NewTrend(c.name, times, samples, 10, c.bound); got.Grows() != c.grows {
			t.Errorf("%v: grows %v", got, !c.grows)
		}
	}
	times, samples := series(60, func(i int) float64 { return float64(i) })
	if got := NewTrend("line", times, samples, 10, Bound{}); got.PerHour < 359.9 || got.PerHour > 360.1 || got.First != 17.5 || got.Last != 51.5 {
		t.Error(got)
	}
	for n := range 6 { // too few samples are no trend
		if got := NewTrend("few", times[:n], samples[:n], 3, Bound{0, 1}); got.Grows() {
			t.Error(got)
		}
	}
}

func TestSoakSection(t *testing.T) {
	dir := t.TempDir()
	if text, err := soakSection(dir); text != "" || err != nil {
		t.Errorf("without a record: %q, %v", text, err)
	}
	b, err := json.Marshal(Soak{Replicas: 3, Seconds: 600, Trends: []Trend{{Name: "goroutines", First: 100, Last: 101.26, PerHour: 0.5, Bound: 20}, {Name: "p99", First: 1}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, SoakFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := soakSection(dir)
	for _, want := range []string{"3 real processes", "10 minutes", "| goroutines | 100 | 101 | +0.50 | 20.0 |\n", "| p99 | 1.0 | 0 | 0 | not bounded |\n"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v, no %q in %s", err, want, text)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, SoakFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := soakSection(dir); err == nil {
		t.Error("a broken record is none")
	}
}
