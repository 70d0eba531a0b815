package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/term"
)

// benchReport is what bench answers. Times are milliseconds, rates by the
// second.
type benchReport struct {
	Subject string   `json:"subject"` // embedded, target or stores
	Store   string   `json:"store,omitempty"`
	Targets []string `json:"targets,omitempty"`
	Mix     string   `json:"mix"`
	Objects int      `json:"objects"`
	Clients int      `json:"clients"`
	Seed    uint64   `json:"seed"`
	Rate    *float64 `json:"rate"` // null is a closed loop

	ElapsedMs  float64          `json:"elapsed_ms"`
	Requests   int64            `json:"requests"`
	OK         int64            `json:"ok"`
	Errors     map[string]int64 `json:"errors"`
	Unsent     int64            `json:"unsent"`
	Throughput float64          `json:"throughput"`
	Latency    benchLatency     `json:"latency"`
	Kinds      []benchKind      `json:"kinds"`
	Replicas   []benchShare     `json:"replicas,omitempty"`

	RoundTrips         *int64     `json:"round_trips,omitempty"`
	RoundTripsPerEvent *float64   `json:"round_trips_per_event,omitempty"`
	Disk               *benchDisk `json:"disk,omitempty"`
	// Left are things that the run has made and that are still there.
	Left []string `json:"left"`
}

type benchLatency struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

type benchKind struct {
	Kind    string       `json:"kind"`
	OK      int64        `json:"ok"`
	Latency benchLatency `json:"latency"`
}

// benchShare is one replica's part.
type benchShare struct {
	Replica  string  `json:"replica"`
	Requests int64   `json:"requests"`
	Share    float64 `json:"share"`
	// MaxRSS is the most memory that the replica's process ever had, in bytes.
	MaxRSS int64 `json:"max_rss,omitempty"`
	// CPUMs is the processor time of its process, from its start to its end.
	CPUMs float64 `json:"cpu_ms,omitempty"`
}

type benchDisk struct {
	// Rate is the disk's own sequential transactions a second, and Ratio the
	// throughput divided by it.
	Rate  float64 `json:"transactions_per_second"`
	Ratio float64 `json:"ratio"`
}

func (o benchOptions) report(r *bench.Report, disk bench.Disk) *benchReport {
	out := &benchReport{
		Mix: string(o.load.Mix), Objects: o.load.Objects, Clients: o.load.Clients, Seed: o.load.Seed, Targets: o.targets,
		ElapsedMs: milliseconds(r.Elapsed), Requests: r.Requests, OK: r.OK, Errors: r.Errors, Unsent: r.Unsent,
		Throughput: r.Throughput(), Latency: newBenchLatency(r.Latency), Kinds: []benchKind{}, Left: []string{},
	}
	if o.load.Rate > 0 {
		out.Rate = &o.load.Rate
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		l := r.Kinds[kind]
		out.Kinds = append(out.Kinds, benchKind{string(kind), l.Count, newBenchLatency(l)})
	}
	for _, id := range slices.Sorted(maps.Keys(r.Replicas)) {
		n := r.Replicas[id]
		out.Replicas = append(out.Replicas, benchShare{Replica: id, Requests: n, Share: float64(n) / float64(r.Requests)})
	}
	if rate := disk.Rate(); rate > 0 {
		out.Disk = &benchDisk{rate, out.Throughput / rate}
	}
	return out
}

func (r *benchReport) setTrips(n int64) {
	r.RoundTrips = &n
	if r.OK > 0 {
		each := float64(n) / float64(r.OK)
		r.RoundTripsPerEvent = &each
	}
}

func newBenchLatency(l bench.Latency) benchLatency {
	return benchLatency{
		milliseconds(l.Mean), milliseconds(l.P50), milliseconds(l.P90), milliseconds(l.P99), milliseconds(l.P999), milliseconds(l.Max),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// show writes the report.
func (r *benchReport) show(t *term.Term) error {
	if t.JSON {
		return t.WriteJSON(r)
	}
	loop := "closed loop"
	if r.Rate != nil {
		loop = fmt.Sprintf("open loop of %g a second", *r.Rate)
	}
	tb := term.NewTable()
	tb.Row("load", fmt.Sprintf("%s on %d objects, %d clients, %s", r.Mix, r.Objects, r.Clients, loop))
	tb.Row("done", fmt.Sprintf("%d in %.2fs", r.OK, r.ElapsedMs/1000))
	tb.Row("throughput", fmt.Sprintf("%.1f/s", r.Throughput))
	if r.Disk != nil {
		tb.Row("disk", fmt.Sprintf("%.1f sequential transactions/s", r.Disk.Rate))
		tb.Row("ratio", fmt.Sprintf("%.2f times the disk", r.Disk.Ratio))
	}
	if r.RoundTripsPerEvent != nil {
		tb.Row("round trips", fmt.Sprintf("%.2f an event", *r.RoundTripsPerEvent))
	}
	if r.Unsent > 0 {
		tb.Row("unsent", term.Cell{Text: fmt.Sprintf("%d were due and found no free client: the latencies are too good", r.Unsent), Tone: term.Bad})
	}
	for _, status := range slices.Sorted(maps.Keys(r.Errors)) {
		tb.Row("failed", term.Cell{Text: fmt.Sprintf("%d: %s", r.Errors[status], status), Tone: term.Bad})
	}
	for _, s := range r.Replicas {
		text := fmt.Sprintf("%s answered %.1f%%", s.Replica, 100*s.Share)
		if s.MaxRSS > 0 {
			text += fmt.Sprintf(", %.1f MB at most, %.2fs of processor time", float64(s.MaxRSS)/1e6, s.CPUMs/1000)
		}
		tb.Row("replica", text)
	}
	for _, left := range r.Left {
		tb.Row("left", left)
	}
	if err := t.Table(tb); err != nil || r.OK == 0 {
		return err
	}
	tb = term.NewTable("LATENCY", "DONE", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	for _, k := range r.Kinds {
		tb.Row(k.Kind, k.OK, inMs(k.Latency.Mean), inMs(k.Latency.P50), inMs(k.Latency.P90), inMs(k.Latency.P99), inMs(k.Latency.P999), inMs(k.Latency.Max))
	}
	if len(r.Kinds) > 1 {
		l := r.Latency
		tb.Row("all", r.OK, inMs(l.Mean), inMs(l.P50), inMs(l.P90), inMs(l.P99), inMs(l.P999), inMs(l.Max))
	}
	return t.Table(tb)
}

func inMs(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) + "ms" }
