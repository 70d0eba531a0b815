package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// Run puts a load on a target and returns what was measured. Nothing is sent a
// second time. It fails only when ctx ends.
func Run(ctx context.Context, l Load, t Target) (*Report, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return run(ctx, l, t, l.picker)
}

func run(ctx context.Context, l Load, t Target, picker func(client int) func(n int64) Op) (*Report, error) {
	loop := &loop{Load: l, target: t, record: newRecord(), start: clock.Now()}
	if l.Duration > 0 {
		loop.end = loop.start.Add(l.Duration)
	}
	var clients sync.WaitGroup
	for i := range l.Clients {
		clients.Go(func() { loop.client(ctx, i, picker(i)) })
	}
	clients.Wait()
	elapsed := clock.Since(loop.start)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := loop.record.report(elapsed)
	r.Unsent = max(loop.due()-r.Requests, 0)
	return r, nil
}

// A loop is one load under way.
type loop struct {
	Load
	target     Target
	record     *record
	start, end time.Time    // end is zero without a duration
	next       atomic.Int64 // the number of the next operation
}

// client is what one client does. In an open loop an operation has a time at
// which it is due, and its latency counts from there: what waits for a client
// because the target is slow is not forgotten.
func (l *loop) client(ctx context.Context, i int, pick func(int64) Op) {
	for ctx.Err() == nil {
		n := l.next.Add(1) - 1
		if l.Requests > 0 && n >= l.Requests {
			return
		}
		began := clock.Now()
		if l.Rate > 0 {
			due := l.start.Add(l.after(n))
			if !l.before(due) || !wait(ctx, due.Sub(began)) {
				return
			}
			began = due
		}
		if !l.before(clock.Now()) {
			return
		}
		op := pick(n)
		answer := l.target.Do(ctx, i, op)
		if ctx.Err() == nil {
			l.record.add(op.Kind, answer, clock.Since(began))
		}
	}
}

// before reports whether operations are still begun at t.
func (l *loop) before(t time.Time) bool { return l.end.IsZero() || t.Before(l.end) }

// after returns how long after the start operation n of an open loop is due.
func (l *loop) after(n int64) time.Duration {
	return time.Duration(float64(n) / l.Rate * float64(time.Second))
}

// due returns the number of operations of an open loop that were due.
func (l *loop) due() int64 {
	if l.Rate == 0 {
		return 0
	}
	n := int64(l.Rate * l.Duration.Seconds())
	for l.after(n) < l.Duration { // the one that is due at the very end is not
		n++
	}
	if l.Requests > 0 && (l.Duration == 0 || l.Requests < n) {
		n = l.Requests
	}
	return n
}

// wait waits for d, if it is positive, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
