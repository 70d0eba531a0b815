package host

import (
	"errors"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/metrics"
)

// observe returns a function that counts the round trips to a store.
func (r *replica) observe(store string) func(took time.Duration, err error) {
	count := r.metrics.Store(store)
	return func(took time.Duration, err error) {
		outcome := metrics.OK
		if err != nil {
			outcome = libsql.OutcomeOf(err).String()
		}
		count(took, outcome)
	}
}

// observeCalls returns a function that counts the calls of a bucket or SQL
// binding. That a key is missing or taken is an answer.
func (r *replica) observeCalls(store string) func(took time.Duration, err error) {
	count := r.metrics.Store(store)
	return func(took time.Duration, err error) {
		_, database := errors.AsType[*libsql.Error](err)
		outcome := metrics.Failed
		switch {
		case err == nil, errors.Is(err, durable.ErrNotFound), errors.Is(err, durable.ErrPrecondition), errors.Is(err, durable.ErrInvalid),
			errors.Is(err, durable.ErrReadOnly):
			outcome = metrics.OK
		case database:
			outcome = libsql.OutcomeOf(err).String()
		case errors.Is(err, durable.ErrUnavailable):
			outcome = metrics.Refused
		case errors.Is(err, durable.ErrUnknownOutcome):
			outcome = metrics.Unknown
		}
		count(took, outcome)
	}
}

// pollAge is how long ago the last poll that worked was sent.
func (r *replica) pollAge() time.Duration {
	if last := r.poller.LastOK(); !last.IsZero() {
		return clock.Since(last)
	}
	return clock.Since(r.began)
}

// gauges are the replica's state, for metrics. They touch no store.
func (r *replica) gauges() metrics.Gauges {
	return metrics.Gauges{
		State:    func() string { return string(r.ready.State()) },
		Ready:    func() bool { return r.ready.Latest().Ready() },
		Objects:  func() int { return r.objects.Stats().Objects },
		Sockets:  func() int { return r.objects.Stats().Sockets },
		Memory:   func() int64 { return r.objects.Stats().Memory },
		Running:  func() int { return r.objects.Stats().Running },
		Requests: func() int { return r.public.Active() },
		Plans:    func() int { return r.objects.Stats().Plans },
		Skew:     r.stores.KV.Skew,

		Backlogs:  r.backlog.Backlogs,
		Schedules: r.schedules,
		PollAge:   r.pollAge,
	}
}
