package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Beside is the record of one comparison with what people would use instead.
type Beside struct {
	Date       string            `json:"date"`
	Processors int               `json:"processors"`
	Load       float64           `json:"load"` // of the machine, a minute's, when it began
	Disk       float64           `json:"disk"` // sequential SQLite transactions a second, each synced
	Rounds     int               `json:"rounds"`
	Seconds    float64           `json:"seconds"` // of a round
	Versions   map[string]string `json:"versions"`
	Cases      []BesideCase      `json:"cases"`
}

// A BesideCase is one load on all sides. The first two are compared, dwk and the
// other; what follows is shown.
type BesideCase struct {
	Name    string       `json:"name"`
	Objects int          `json:"objects"`
	Clients int          `json:"clients"`
	Sides   []BesideSide `json:"sides"`
	// Ratios are dwk's rates over the other's, of each round, and Ratio is
	// their median. Aim is what it should be.
	Ratios []float64 `json:"ratios"`
	Ratio  float64   `json:"ratio"`
	Aim    float64   `json:"aim"`
	// Unequal says that one side syncs and the other does not: then the ratio
	// compares different promises.
	Unequal bool `json:"unequal"`
}

// A BesideSide is one program under one load: medians over the rounds.
type BesideSide struct {
	Name  string    `json:"name"`
	Rates []float64 `json:"rates"` // operations a second, of each round
	Rate  float64   `json:"rate"`
	P50   float64   `json:"p50_ms"`
	P99   float64   `json:"p99_ms"`
	// CPU is the processor time of the server an operation, in microseconds;
	// 0 when the server is in the load generator.
	CPU float64 `json:"cpu_us"`
	// Fsyncs are those of an operation; -1 when they were not counted.
	Fsyncs float64 `json:"fsyncs"`
}

// BesideFile is where the record is, in the folder of the figures.
const BesideFile = "beside.json"

// besideSection is what the figures tell of it; "" without a record.
func besideSection(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, BesideFile)) //nolint:gosec // of the project
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var r Beside
	if err := json.Unmarshal(text, &r); err != nil {
		return "", fmt.Errorf("%s: %w", BesideFile, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## Beside others

%s, %d processors with a load of %.1f before, a disk that takes %.0f synced transactions a second one after the other. All programs and the clients share the machine.
Medians of %d rounds of %.0f s, in turn, by one load generator. Fsyncs are counted with strace in a run of their own. `+"`make bench-beside`"+` repeats it.
`, r.Date, r.Processors, r.Load, r.Disk, r.Rounds, r.Seconds)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "%s: %s. ", name, strings.TrimPrefix(r.Versions[name], name+" "))
	}
	b.WriteString(`

| load | program | a second | p50 | p99 | processor | fsyncs | times | aim |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
`)
	for _, c := range r.Cases {
		for i, s := range c.Sides {
			name, times := "", "| "
			if i == 0 {
				name, times = fmt.Sprintf("%s, %d clients", c.Name, c.Clients), fmt.Sprintf("%.2f | %.3g", c.Ratio, c.Aim)
				if c.Unequal {
					times = "unequal | "
				}
			}
			processor := "in the client"
			if s.CPU > 0 {
				processor = fmt.Sprintf("%.0f µs", s.CPU)
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f ms | %.2f ms | %s | %.2f | %s |\n", name, s.Name, s.Rate, s.P50, s.P99, processor, s.Fsyncs, times)
		}
	}
	return b.String(), nil
}
