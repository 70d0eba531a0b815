// Package metrics shows what a replica does to Prometheus.
//
// The log is the source. [Metrics.Log] wraps the replica's log handler and
// counts every record whose message is a name of package event, at any level,
// whether it is written or not. A part of the program that logs its events has
// its metrics: nothing else is to be called. Of the attributes of an event,
// three are observed, each by a histogram of its own:
//
//	event.KeyTook   time.Duration   how long it took
//	event.KeyLate   time.Duration   how long after it was due it began
//	event.KeyCount  int             the number of things that it was done to
//
// An event has those that it knows. A batch of a queue is one record, at debug
// level:
//
//	queue.batch.ok  took=12ms count=50 queue=mail
//
// What is not an event but a state is read when somebody asks: [Gauges] holds
// the functions, which the host brings together from the parts. They return
// what the parts know already, since a scrape must not wait for a store.
// Calls of a store are observed by the function that [Metrics.Store] returns,
// requests by [Metrics.Request].
//
// Labels are names of events, stores, mounts, queues and kinds. Ids of objects
// never are: there is no bound to them.
package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config says whose metrics they are.
type Config struct {
	// Version is that of the program, and Replica the id of the process.
	Version, Replica string
}

// Metrics are the figures of one replica. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	events   events

	trips    *prometheus.CounterVec
	tripTook *prometheus.HistogramVec

	requests    *prometheus.CounterVec
	requestTook *prometheus.HistogramVec
}

// Buckets of histograms.
var (
	secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	lateBuckets    = []float64{.01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	countBuckets   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// New returns metrics in a registry of their own.
func New(cfg Config) *Metrics {
	m := &Metrics{
		registry:    prometheus.NewRegistry(),
		trips:       counters("dwk_store_round_trips_total", "Round trips to a store, by what is known about their outcome.", "store", "outcome"),
		tripTook:    histograms("dwk_store_seconds", "How long round trips to a store took.", secondsBuckets, "store"),
		requests:    counters("dwk_http_requests_total", "Requests to the public listener.", "mount", "status"),
		requestTook: histograms("dwk_http_request_seconds", "How long requests to the public listener took.", secondsBuckets, "mount"),
	}
	info := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dwk_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "goversion": runtime.Version(), "replica": cfg.Replica},
	}, func() float64 { return 1 })
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info, m.trips, m.tripTook, m.requests, m.requestTook,
	)
	m.events = newEvents(m.registry)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Gatherer returns what collects the metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// The outcomes of a round trip.
const (
	OK      = "ok"
	Refused = "refused"
	Failed  = "failed"
	Unknown = "unknown"
)

// Store returns a function to be called after each round trip to the store of
// that name.
func (m *Metrics) Store(name string) func(took time.Duration, outcome string) {
	for _, o := range []string{OK, Refused, Failed, Unknown} {
		m.trips.WithLabelValues(name, o) // there from the start, as 0
	}
	seconds := m.tripTook.WithLabelValues(name)
	return func(took time.Duration, outcome string) {
		m.trips.WithLabelValues(name, outcome).Inc()
		seconds.Observe(took.Seconds())
	}
}

// Request takes a request to the public listener that is over.
func (m *Metrics) Request(mount string, status int, took time.Duration) {
	m.requests.WithLabelValues(mount, strconv.Itoa(status)).Inc()
	m.requestTook.WithLabelValues(mount).Observe(took.Seconds())
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
