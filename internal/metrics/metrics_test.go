package metrics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/davidwkeith/dwk/internal/event"
)

// everything returns metrics of which every one has a value.
func everything(t *testing.T) *Metrics {
	t.Helper()
	m := New(Config{Version: "v1.2.3", Replica: "0123456789abcdef"})
	one := func() int { return 1 }
	second := func() time.Duration { return time.Second }
	m.Register(Gauges{
		State: func() string { return "ready" }, Ready: func() bool { return true },
		Objects: one, Sockets: one, Memory: func() int64 { return 1 }, Running: one, Requests: func() int { return 1 }, Plans: one, Skew: second, PollAge: second,
		Backlogs: func() []Backlog {
			return []Backlog{{Kind: "alarms", Name: "Cart", Due: 3, Overdue: time.Minute}, {Kind: "queue", Name: "mail", Dead: 2, Overdue: -time.Second}}
		},
		Schedules: func() []Schedule {
			return []Schedule{{Name: "nightly", Age: time.Hour, Failed: true, Running: 2}, {Name: "new", Age: -1, Overdue: time.Minute}}
		},
	})
	m.Store("coordination")(time.Millisecond, OK)
	m.Request("/lab", 503, time.Second)
	log := slog.New(m.Log(slog.DiscardHandler))
	log.Debug(event.ObjectCommitOK, event.KeyTook, time.Millisecond, event.KeyLate, time.Second, event.KeyCount, 3)
	return m
}

// expect compares the named metrics with their text.
func expect(t *testing.T, m *Metrics, text string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(text), names...); err != nil {
		t.Error(err)
	}
}

func TestNamesAndHelp(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(t).Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// An event is counted at every level, whatever the log shows, and with the
// attributes and groups of its logger.
func TestCountsWhatIsNotLogged(t *testing.T) {
	m := New(Config{})
	var out bytes.Buffer
	log := slog.New(m.Log(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug(event.LeaseAcquireOK)
	log.With("a", 1).WithGroup("g").Debug(event.LeaseAcquireOK, event.KeyTook, 30*time.Millisecond)
	log.Warn(event.LeaseExpired, "a", 2)
	log.Info("lease.acquire.okay") // not the name of an event
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "msg=lease.expired a=2") {
		t.Errorf("log: %q", got)
	}
	for name, want := range map[string]float64{event.LeaseAcquireOK: 2, event.LeaseExpired: 1, event.ObjectCommitOK: 0} {
		if got := testutil.ToFloat64(m.events[name].total); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got, err := testutil.GatherAndCount(m.Gatherer(), "dwk_events_total"); err != nil || got != len(event.Names()) {
		t.Errorf("%d series of events, want %d (%v)", got, len(event.Names()), err)
	}
}

func TestObserves(t *testing.T) {
	m := New(Config{})
	log := slog.New(m.Log(slog.DiscardHandler))
	log.Debug(event.ObjectCommitOK, event.KeyTook, 30*time.Millisecond, "x", 1)
	log.Debug(event.ObjectCommitOK, event.KeyTook, "soon", event.KeyCount, 1.5) // of other types: no figures
	log.Debug(event.ObjectKeepTrimmed, event.KeyCount, 30)
	log.Debug(event.ObjectKeepTrimmed, event.KeyLate, 90*time.Second, event.KeyCount, int64(3))
	log.Debug(event.ObjectKeepTrimmed, event.KeyLate, -time.Second) // clocks differ
	for _, want := range []string{
		`dwk_event_duration_seconds_bucket{event="object.commit.ok",le="0.025"} 0`,
		`dwk_event_duration_seconds_bucket{event="object.commit.ok",le="0.05"} 1`,
		`dwk_event_duration_seconds_count{event="object.commit.ok"} 1`,
		`dwk_event_items_sum{event="object.keep.trimmed"} 33`,
		`dwk_event_items_count{event="object.keep.trimmed"} 2`,
		`dwk_event_late_seconds_sum{event="object.keep.trimmed"} 90`,
		`dwk_event_late_seconds_count{event="object.keep.trimmed"} 2`,
	} {
		if !strings.Contains(text(t, m), want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if got, err := testutil.GatherAndCount(m.Gatherer(), "dwk_event_duration_seconds", "dwk_event_items"); err != nil || got != 2 {
		t.Errorf("%d histograms, want those in use: 2 (%v)", got, err)
	}
}

func TestFigures(t *testing.T) {
	m := everything(t)
	failed := m.Store("coordination")
	failed(time.Second, Unknown)
	expect(t, m, `
# HELP dwk_backlog_dead Work in the store that is given up, fleet-wide.
# TYPE dwk_backlog_dead gauge
dwk_backlog_dead{kind="alarms",name="Cart"} 0
dwk_backlog_dead{kind="queue",name="mail"} 2
# HELP dwk_backlog_due Work in the store that is due and was not begun, fleet-wide.
# TYPE dwk_backlog_due gauge
dwk_backlog_due{kind="alarms",name="Cart"} 3
dwk_backlog_due{kind="queue",name="mail"} 0
# HELP dwk_backlog_overdue_max_seconds How long ago the first was due of what was not begun.
# TYPE dwk_backlog_overdue_max_seconds gauge
dwk_backlog_overdue_max_seconds{kind="alarms",name="Cart"} 60
dwk_backlog_overdue_max_seconds{kind="queue",name="mail"} 0
# HELP dwk_http_requests_total Requests to the public listener.
# TYPE dwk_http_requests_total counter
dwk_http_requests_total{mount="/lab",status="503"} 1
# HELP dwk_replica_ready 1 when the replica takes requests, its stores as they were last seen.
# TYPE dwk_replica_ready gauge
dwk_replica_ready 1
# HELP dwk_replica_state 1 for the phase of its life that the replica is in.
# TYPE dwk_replica_state gauge
dwk_replica_state{state="ready"} 1
# HELP dwk_store_round_trips_total Round trips to a store, by what is known about their outcome.
# TYPE dwk_store_round_trips_total counter
dwk_store_round_trips_total{outcome="failed",store="coordination"} 0
dwk_store_round_trips_total{outcome="ok",store="coordination"} 1
dwk_store_round_trips_total{outcome="refused",store="coordination"} 0
dwk_store_round_trips_total{outcome="unknown",store="coordination"} 1
`, "dwk_backlog_dead", "dwk_backlog_due", "dwk_backlog_overdue_max_seconds", "dwk_http_requests_total",
		"dwk_replica_ready", "dwk_replica_state", "dwk_store_round_trips_total")
	got := text(t, m)
	for _, want := range []string{`dwk_build_info{goversion="go`, `replica="0123456789abcdef",version="v1.2.3"} 1`, "\ngo_goroutines ", "\nprocess_cpu_seconds_total "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
}

// What a replica lacks has no metric, rather than a zero.
func TestNoFunctionNoMetric(t *testing.T) {
	m := New(Config{})
	m.Register(Gauges{Objects: func() int { return 7 }})
	got := text(t, m)
	if !strings.Contains(got, "\ndwk_objects_resident 7\n") || strings.Contains(got, "dwk_objects_running") || strings.Contains(got, "dwk_backlog") {
		t.Error(got)
	}
}

// Metrics of several replicas in one process do not meet.
func TestOwnRegistry(t *testing.T) {
	a, b := New(Config{}), New(Config{})
	slog.New(a.Log(slog.DiscardHandler)).Info(event.ServeStarted)
	if got := testutil.ToFloat64(b.events[event.ServeStarted].total); got != 0 {
		t.Errorf("counted %v of another replica", got)
	}
}

func TestUncounted(t *testing.T) {
	m := New(Config{})
	var out bytes.Buffer
	log := slog.New(m.Log(slog.NewTextHandler(&out, nil))).With("replica", "r")
	app := Uncounted(log)
	app.Info(event.LeaseExpired)
	if got := out.String(); !strings.Contains(got, "msg=lease.expired replica=r") {
		t.Error(got)
	}
	if got := testutil.ToFloat64(m.events[event.LeaseExpired].total); got != 0 {
		t.Errorf("an application's message counted: %v", got)
	}
	if app.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug messages of applications are built")
	}
	if other := slog.New(slog.DiscardHandler); Uncounted(other) != other {
		t.Error("another logger was changed")
	}
}

func TestErrorsOfTheLog(t *testing.T) {
	h := New(Config{}).Log(failing{slog.DiscardHandler})
	if err := h.Handle(t.Context(), slog.NewRecord(time.Time{}, slog.LevelInfo, "x", 0)); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

var errFull = errors.New("disk full")

type failing struct{ slog.Handler }

func (failing) Enabled(context.Context, slog.Level) bool  { return true }
func (failing) Handle(context.Context, slog.Record) error { return errFull }

func TestConcurrent(t *testing.T) {
	m := everything(t)
	log := slog.New(m.Log(slog.DiscardHandler))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				log.Debug(event.LeaseAcquireOK, event.KeyTook, time.Millisecond)
			}
			text(t, m)
		})
	}
	wg.Wait()
	if want := `dwk_event_duration_seconds_count{event="lease.acquire.ok"} 800`; !strings.Contains(text(t, m), want) {
		t.Errorf("no %s", want)
	}
}

// An event that is counted and not shown costs no more allocations than slog
// itself makes for it.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	allocations := func(h slog.Handler) float64 {
		log := slog.New(h)
		return testing.AllocsPerRun(1000, func() { logEvent(ctx, log) })
	}
	m := New(Config{})
	if own, counted := allocations(enabled{slog.DiscardHandler}), allocations(m.Log(slog.DiscardHandler)); counted > own {
		t.Errorf("%v allocations, slog alone %v", counted, own)
	}
}

// logEvent is a debug event as the hot path has it.
func logEvent(ctx context.Context, log *slog.Logger) {
	log.LogAttrs(ctx, slog.LevelDebug, event.ObjectCommitOK, slog.String(event.KeyClass, "Counter"), slog.String(event.KeyObject, "0123"),
		slog.Uint64(event.KeyTXID, 7), slog.Duration(event.KeyTook, time.Millisecond))
}

// enabled takes every record and does nothing.
type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

func BenchmarkEvent(b *testing.B) {
	for name, h := range map[string]slog.Handler{
		"disabled": slog.DiscardHandler, "slog alone": enabled{slog.DiscardHandler}, "counted": New(Config{}).Log(slog.DiscardHandler),
	} {
		log := slog.New(h)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				logEvent(b.Context(), log)
			}
		})
		b.Run(name+", parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					logEvent(b.Context(), log)
				}
			})
		})
	}
}

func text(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}
