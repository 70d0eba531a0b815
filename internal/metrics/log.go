package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/davidwkeith/dwk/internal/event"
)

// Log returns a handler that counts events and passes on to next what next
// wants. It is enabled for every level, so that debug events count too.
func (m *Metrics) Log(next slog.Handler) slog.Handler { return &handler{m.events, next} }

// Uncounted returns the logger without the counting handler below it, for
// those whose messages are not events.
func Uncounted(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*handler); ok {
		return slog.New(h.next)
	}
	return log
}

type handler struct {
	events events
	next   slog.Handler
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if e := h.events[r.Message]; e != nil {
		e.total.Inc()
		r.Attrs(e.observe)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.events, h.next.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.events, h.next.WithGroup(name)}
}

// events are the metrics of each event by its name, which no other event joins
// later: the lookup takes no lock.
type events map[string]*counted

// counted are the metrics of one event.
type counted struct {
	total             prometheus.Counter
	took, late, count lazy
	// observe looks at one attribute. It is made once, as a closure allocates.
	observe func(slog.Attr) bool
}

func newEvents(r prometheus.Registerer) events {
	total := counters("dwk_events_total", "Events of the log, whatever its level.", "event")
	took := histograms("dwk_event_duration_seconds", "How long events took.", secondsBuckets, "event")
	late := histograms("dwk_event_late_seconds", "How long after they were due events began.", lateBuckets, "event")
	count := histograms("dwk_event_items", "The number of things that events were about: of a batch, of a sweep.", countBuckets, "event")
	r.MustRegister(total, took, late, count)
	all := events{}
	for _, name := range event.Names() {
		e := &counted{
			total: total.WithLabelValues(name), // there from the start, as 0
			took:  lazy{vec: took, name: name}, late: lazy{vec: late, name: name}, count: lazy{vec: count, name: name},
		}
		e.observe = e.attr
		all[name] = e
	}
	return all
}

func (e *counted) attr(a slog.Attr) bool {
	switch a.Key {
	case event.KeyTook:
		e.took.seconds(a.Value)
	case event.KeyLate:
		e.late.seconds(a.Value)
	case event.KeyCount:
		if a.Value.Kind() == slog.KindInt64 {
			e.count.get().Observe(float64(a.Value.Int64()))
		}
	}
	return true
}

// lazy is a histogram that is there from its first use: few events have one.
type lazy struct {
	vec  *prometheus.HistogramVec
	name string
	once sync.Once
	h    prometheus.Observer
}

func (l *lazy) get() prometheus.Observer {
	l.once.Do(func() { l.h = l.vec.WithLabelValues(l.name) })
	return l.h
}

// seconds observes a duration. Clocks that differ may make it negative.
func (l *lazy) seconds(v slog.Value) {
	if v.Kind() == slog.KindDuration {
		l.get().Observe(max(v.Duration(), time.Duration(0)).Seconds())
	}
}
