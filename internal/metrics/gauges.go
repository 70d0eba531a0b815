package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are functions that tell a replica's present state. They are called for
// each scrape, and wait for nothing. A metric whose function is nil is absent.
type Gauges struct {
	// State is the phase of the replica's life, and Ready whether it takes
	// requests, its stores as they were last seen.
	State func() string
	Ready func() bool
	// Objects are in memory, Running of them run or wait for an event.
	Objects, Running func() int
	// Sockets are open.
	Sockets func() int
	// Memory is what the objects' databases take, in bytes.
	Memory func() int64
	// Requests run on the public listener.
	Requests func() int
	// Plans wait for a transaction.
	Plans func() int
	// Skew is the primary's clock less the machine's.
	Skew func() time.Duration
	// PollAge is how long ago the last poll of the store that worked was sent.
	PollAge func() time.Duration
	// Backlogs are what waits in the store, fleet-wide, as last seen, each kind
	// and name once.
	Backlogs func() []Backlog
	// Schedules are those that the replica runs, fleet-wide, as last seen.
	Schedules func() []Schedule
}

// A Schedule is a schedule of an application.
type Schedule struct {
	Name string
	// Age is how long ago the newest run began, negative when there was none, and
	// Failed whether it failed or was cut off.
	Age    time.Duration
	Failed bool
	// Overdue is how long ago the first occurrence was due of those that nobody has
	// begun.
	Overdue time.Duration
	// Running are the runs of this replica.
	Running int
}

// A Backlog is what one kind of work has waiting in the store.
type Backlog struct {
	// Kind is "alarms" or "queue", and Name that of the class or the queue.
	Kind, Name string
	// Due is what was not begun although it is due, and Dead what is given up
	// until somebody looks at it. Both are counted up to a bound.
	Due, Dead int64
	// Overdue is how long ago the first was due of what was not begun, or 0.
	Overdue time.Duration
}

// Register adds the gauges. It is called once.
func (m *Metrics) Register(g Gauges) {
	gauge(m, "dwk_replica_ready", "1 when the replica takes requests, its stores as they were last seen.", g.Ready, func(ok bool) float64 {
		if ok {
			return 1
		}
		return 0
	})
	count := func(n int) float64 { return float64(n) }
	gauge(m, "dwk_objects_resident", "Objects in memory, with a mirror.", g.Objects, count)
	gauge(m, "dwk_objects_memory_bytes", "What the databases of the objects in memory take.", g.Memory, func(n int64) float64 { return float64(n) })
	gauge(m, "dwk_objects_running", "Objects that run or wait for an event.", g.Running, count)
	gauge(m, "dwk_http_requests_running", "Requests to the public listener that run, those whose clients are slow included.", g.Requests, count)
	gauge(m, "dwk_sockets", "Open WebSockets.", g.Sockets, count)
	gauge(m, "dwk_plans_waiting", "Changes that wait for a transaction on the coordination store.", g.Plans, count)
	gauge(m, "dwk_clock_skew_seconds", "The primary's clock less this machine's.", g.Skew, time.Duration.Seconds)
	gauge(m, "dwk_poll_age_seconds", "How long ago the last poll of the store that worked was sent.", g.PollAge, time.Duration.Seconds)
	if g.State != nil {
		m.registry.MustRegister(stateCollector{g.State})
	}
	if g.Backlogs != nil {
		m.registry.MustRegister(backlogCollector{g.Backlogs})
	}
	if g.Schedules != nil {
		m.registry.MustRegister(scheduleCollector{g.Schedules})
	}
}

func gauge[T any](m *Metrics, name, help string, read func() T, value func(T) float64) {
	if read != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(read()) }))
	}
}

var (
	stateDesc   = prometheus.NewDesc("dwk_replica_state", "1 for the phase of its life that the replica is in.", []string{"state"}, nil)
	dueDesc     = prometheus.NewDesc("dwk_backlog_due", "Work in the store that is due and was not begun, fleet-wide.", []string{"kind", "name"}, nil)
	deadDesc    = prometheus.NewDesc("dwk_backlog_dead", "Work in the store that is given up, fleet-wide.", []string{"kind", "name"}, nil)
	overdueDesc = prometheus.NewDesc("dwk_backlog_overdue_max_seconds", "How long ago the first was due of what was not begun.", []string{"kind", "name"}, nil)
)

var (
	cronAgeDesc     = prometheus.NewDesc("dwk_cron_last_run_age_seconds", "How long ago the newest run of a schedule began, fleet-wide.", []string{"schedule"}, nil)
	cronFailedDesc  = prometheus.NewDesc("dwk_cron_last_run_failed", "1 when the newest run of a schedule failed or was cut off, fleet-wide.", []string{"schedule"}, nil)
	cronOverdueDesc = prometheus.NewDesc("dwk_cron_overdue_seconds", "How long ago the first occurrence was due of those that were not begun, fleet-wide.", []string{"schedule"}, nil)
	cronRunningDesc = prometheus.NewDesc("dwk_cron_running", "Runs of a schedule on this replica.", []string{"schedule"}, nil)
)

type scheduleCollector struct{ read func() []Schedule }

func (c scheduleCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cronAgeDesc, cronFailedDesc, cronOverdueDesc, cronRunningDesc} {
		out <- d
	}
}

func (c scheduleCollector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.read() {
		send := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Name)
		}
		if s.Age >= 0 {
			send(cronAgeDesc, s.Age.Seconds())
			failed := 0.0
			if s.Failed {
				failed = 1
			}
			send(cronFailedDesc, failed)
		}
		send(cronOverdueDesc, s.Overdue.Seconds())
		send(cronRunningDesc, float64(s.Running))
	}
}

type stateCollector struct{ read func() string }

func (c stateCollector) Describe(out chan<- *prometheus.Desc) { out <- stateDesc }

func (c stateCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, c.read())
}

type backlogCollector struct{ read func() []Backlog }

func (c backlogCollector) Describe(out chan<- *prometheus.Desc) {
	out <- dueDesc
	out <- deadDesc
	out <- overdueDesc
}

func (c backlogCollector) Collect(out chan<- prometheus.Metric) {
	for _, b := range c.read() {
		for d, v := range map[*prometheus.Desc]float64{dueDesc: float64(b.Due), deadDesc: float64(b.Dead), overdueDesc: max(b.Overdue, 0).Seconds()} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, b.Kind, b.Name)
		}
	}
}
