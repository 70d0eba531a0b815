package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Soak is the record of one long run under a steady load.
type Soak struct {
	Date       string  `json:"date"`
	Processors int     `json:"processors"`
	Load       float64 `json:"load"` // of the machine, a minute's, when it began
	Replicas   int     `json:"replicas"`
	// Seconds is how long the load lasted, WarmUp the part of it that counts for
	// no trend, and Interval how far samples are apart.
	Seconds  float64 `json:"seconds"`
	WarmUp   float64 `json:"warm_up"`
	Interval float64 `json:"interval"`
	// Requests were answered as they should be, Refused by a 503, and Failed
	// otherwise.
	Requests int64   `json:"requests"`
	Refused  int64   `json:"refused"`
	Failed   int64   `json:"failed"`
	Trends   []Trend `json:"trends"`
}

// A Trend is how one measure went.
type Trend struct {
	Name string `json:"name"`
	// First and Last are the medians of the first and the last third of the
	// samples behind the warm-up, and PerHour is the slope of a line through all
	// of those.
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
	PerHour float64 `json:"per_hour"`
	// Bound is the most by which Last may be above First; 0 is no bound.
	Bound float64 `json:"bound"`
	// Samples are all, the warm-up included.
	Samples []float64 `json:"samples"`
}

// Bound says how much a measure may grow: by a share of what it was, and in any
// case by a number.
type Bound struct {
	Share, Number float64
}

// NewTrend fits samples, of which warm are those of the warm-up. Times are in
// seconds. The bound is for what grows behind it.
func NewTrend(name string, times, samples []float64, warm int, bound Bound) Trend {
	t := Trend{Name: name, Samples: samples}
	if warm > len(samples) {
		warm = len(samples)
	}
	steady := samples[warm:]
	if len(steady) < 3 {
		return t
	}
	third := len(steady) / 3
	t.First, t.Last = middle(steady[:third]), middle(steady[len(steady)-third:])
	t.PerHour = slope(times[warm:], steady) * 3600
	if bound != (Bound{}) {
		t.Bound = max(bound.Number, bound.Share*t.First)
	}
	return t
}

// Grows reports whether the measure grew beyond its bound: the end is above the
// beginning, and all in between rises too. One of both alone may be chance.
func (t Trend) Grows() bool {
	return t.Bound > 0 && t.Last-t.First > t.Bound && t.PerHour > 0
}

func (t Trend) String() string {
	return fmt.Sprintf("%s: %.4g at first, %.4g at last, %+.4g an hour, bound %.4g", t.Name, t.First, t.Last, t.PerHour, t.Bound)
}

func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// slope is that of the line with the least squares of distances.
func slope(x, y []float64) float64 {
	var mx, my float64
	for i := range x {
		mx += x[i] / float64(len(x))
		my += y[i] / float64(len(x))
	}
	var xy, xx float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
	}
	if xx == 0 || math.IsNaN(xy) {
		return 0
	}
	return xy / xx
}

// SoakFile is where the record is, in the folder of the figures.
const SoakFile = "soak.json"

// soakSection is what the figures tell of it; "" without a record.
func soakSection(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, SoakFile)) //nolint:gosec // of the project
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var s Soak
	if err := json.Unmarshal(text, &s); err != nil {
		return "", fmt.Errorf("%s: %w", SoakFile, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## Soak

%d real processes on a libSQL server and an S3 server under a steady mixed load, %.0f minutes on %s (%d processors, load %.1f before): %d requests answered,
%d refused with 503, %d failed. The first %.0f minutes count for no trend. `+"`make soak`"+` repeats it.

| measure | first third | last third | an hour | may grow by |
| --- | --- | --- | --- | --- |
`, s.Replicas, s.Seconds/60, s.Date, s.Processors, s.Load, s.Requests, s.Refused, s.Failed, s.WarmUp/60)
	for _, t := range s.Trends {
		bound := "not bounded"
		if t.Bound > 0 {
			bound = short(t.Bound)
		}
		sign := ""
		if t.PerHour > 0 {
			sign = "+"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s%s | %s |\n", t.Name, short(t.First), short(t.Last), sign, short(t.PerHour), bound)
	}
	return b.String(), nil
}

// short is a number as people read it.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 1:
		return fmt.Sprintf("%.1f", v)
	case a < 0.005:
		return "0"
	}
	return fmt.Sprintf("%.2f", v)
}
