package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/metrics"
)

// ScheduleOptions returns how a schedule of a mounted application is run: as the
// configuration says, and where that says nothing as the application does.
func ScheduleOptions(cfg *config.Config, app string, c durable.Cron) cron.Options {
	i := slices.IndexFunc(cfg.Crons, func(o config.Cron) bool { return o.App == app && o.Name == c.Name })
	o := cron.Options{Schedule: c.Schedule, Zone: "UTC", CatchUp: time.Hour, Timeout: defaultCronTimeout}
	if i >= 0 {
		own := cfg.Crons[i]
		o = cron.Options{Schedule: own.Schedule, Zone: own.Zone, Paused: own.Paused, Allow: own.Overlap == "allow", CatchUp: own.CatchUp, AtMostOnce: own.AtMostOnce, Timeout: own.Timeout}
		if o.Schedule == "" {
			o.Schedule = c.Schedule
		}
	}
	return o
}

// defaultCronTimeout is that of the configuration.
const defaultCronTimeout = 15 * time.Minute

// schedule makes the runner with the schedules of all mounted applications. All
// that is wrong with them is named at once.
func (r *replica) schedule(envs []*env) error {
	r.crons = cron.NewRunner(cron.Config{
		Replica: r.id, Store: r.stores.KV, Commits: r.stores.KV, TTL: r.cfg.Lease.TTL, Wake: r.poller.Wake, WakeAt: r.poller.WakeAt,
	}, r.log)
	r.undo = append(r.undo, func() error {
		// After an orderly stop there is nothing left to wait for.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.crons.Stop(ctx)
	})
	var wrong []error
	brought := map[string]bool{}
	for _, e := range envs {
		for _, c := range e.app.Crons {
			brought[e.app.Name+" "+c.Name] = true
			err := errors.New("it has no handler")
			if c.Run != nil {
				err = r.crons.Add(c.Name, ScheduleOptions(r.cfg, e.app.Name, c), e, c.Run)
			}
			if err != nil {
				wrong = append(wrong, fmt.Errorf("application %s: %w", e.app.Name, err))
			}
		}
	}
	for i, c := range r.cfg.Crons {
		if !brought[c.App+" "+c.Name] {
			wrong = append(wrong, fmt.Errorf("crons[%d]: application %s brings no schedule %q", i, c.App, c.Name))
		}
	}
	return errors.Join(wrong...)
}

// schedules are the schedules as they were last seen, for metrics.
func (r *replica) schedules() []metrics.Schedule {
	var out []metrics.Schedule
	now := r.stores.KV.Clock()
	for _, s := range r.crons.Statuses() {
		m := metrics.Schedule{Name: s.Name, Overdue: s.Overdue, Running: s.Running, Failed: s.Failed, Age: -1}
		if !s.Started.IsZero() {
			m.Age = max(now.Sub(s.Started), 0)
		}
		out = append(out, m)
	}
	return out
}
