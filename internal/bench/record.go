package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms have steps of a thousandth of the value, from a microsecond to
// the longest latency; longer ones count as that.
const (
	longest   = 10 * time.Minute
	precision = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), precision)
}

// A record takes what clients measure. Its size does not depend on how much
// that is.
type record struct {
	mu       sync.Mutex
	all      *hdrhistogram.Histogram
	kinds    map[Kind]*hdrhistogram.Histogram
	errors   map[string]int64
	replicas map[string]int64
}

func newRecord() *record {
	return &record{
		all: newHistogram(), kinds: map[Kind]*hdrhistogram.Histogram{}, errors: map[string]int64{}, replicas: map[string]int64{},
	}
}

// add takes one answer. Only the latencies of what was done are kept: refusals
// that come at once would flatter.
func (r *record) add(kind Kind, a Answer, latency time.Duration) {
	us := min(max(latency, 0), longest).Microseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Replica != "" {
		r.replicas[a.Replica]++
	}
	if !a.OK {
		r.errors[a.Status]++
		return
	}
	h := r.kinds[kind]
	if h == nil {
		h = newHistogram()
		r.kinds[kind] = h
	}
	h.RecordValue(us)     //nolint:errcheck // it is in the range
	r.all.RecordValue(us) //nolint:errcheck // likewise
}

// report sums up. Nothing is added any more.
func (r *record) report(elapsed time.Duration) *Report {
	rep := &Report{Elapsed: elapsed, OK: r.all.TotalCount(), Errors: r.errors, Latency: latency(r.all), Kinds: map[Kind]Latency{}, Replicas: r.replicas}
	rep.Requests = rep.OK
	for _, n := range r.errors {
		rep.Requests += n
	}
	for kind, h := range r.kinds {
		rep.Kinds[kind] = latency(h)
	}
	return rep
}

// A Report is what was measured.
type Report struct {
	Elapsed time.Duration
	// Requests counts all operations that ended, OK those that were done, and
	// Errors the others by status.
	Requests, OK int64
	Errors       map[string]int64
	// Unsent counts the operations of an open loop that were due and never
	// sent, because no client was free before the end. They are in no latency.
	Unsent int64
	// Latency is that of what was done, and Kinds the same by kind.
	Latency Latency
	Kinds   map[Kind]Latency
	// Replicas counts answers by replica.
	Replicas map[string]int64
}

// Throughput returns the operations done a second.
func (r *Report) Throughput() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.OK) / r.Elapsed.Seconds()
}

// A Latency is a distribution.
type Latency struct {
	Count                          int64
	Mean, P50, P90, P99, P999, Max time.Duration
}

func latency(h *hdrhistogram.Histogram) Latency {
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	return Latency{
		Count: h.TotalCount(), Mean: time.Duration(h.Mean() * float64(time.Microsecond)),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: time.Duration(h.Max()) * time.Microsecond,
	}
}
