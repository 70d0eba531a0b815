package durabletest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/queue"
)

// Alarm returns the time that the alarm of an object was set to; ok is false
// without one.
func (h *Host) Alarm(class, name string) (at time.Time, ok bool) {
	h.t.Helper()
	s := h.alarmState(class, name)
	return time.UnixMilli(s.Asked()), s.Set
}

// RunAlarm has the alarm of an object run now, whenever it is due, and waits for
// the end of the run. It returns the error of a run that failed, which is run
// again after alarms.backoff, and [durable.ErrNotFound] when there is no alarm.
func (h *Host) RunAlarm(class, name string) error {
	h.t.Helper()
	ops, end := h.objects()
	defer end()
	id := durable.IDFromName(name).String()
	before, err := ops.RetryAlarm(h.t.Context(), objectops.AlarmChange{Class: class, ID: id, Wait: patience})
	if errors.Is(err, objectops.ErrNotFound) {
		return errors.Join(durable.ErrNotFound, err)
	}
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	var now objectops.AlarmState
	h.eventually("the end of the alarm's run", func() bool {
		now = h.alarmState(class, name)
		same := now.Set && now.Asked() == before.After.Asked() && now.RetryCount == 0
		return !same && now.Claim == ""
	})
	if now.Dead != nil {
		return errors.New(now.Dead.Error)
	}
	if now.Set && now.RetryCount > 0 && now.Asked() == before.After.Asked() {
		info, err := ops.Alarm(h.t.Context(), class, id)
		if err != nil {
			h.t.Fatalf("durabletest: %v", err)
		}
		return errors.New(info.Runs[0].Error)
	}
	return nil
}

func (h *Host) alarmState(class, name string) objectops.AlarmState {
	h.t.Helper()
	s, err := objectops.New(objectops.Config{Store: h.store.KV}).AlarmState(h.t.Context(), class, durable.IDFromName(name).String())
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	return s
}

// objects are the operations of an operator, until end.
func (h *Host) objects() (ops *objectops.Ops, end func()) {
	h.t.Helper()
	_, id, err := mode.Read(h.t.Context(), h.store.KV)
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	files := h.store.Files(id.ID)
	return objectops.New(objectops.Config{
		Store: h.store.KV, Blobs: files, StoreID: id.ID, LeaseTTL: h.cfg.Lease.TTL, InlineLimit: int64(h.cfg.Objects.InlineLimit), MaxSize: int64(h.cfg.Objects.MaxSize),
	}), func() { files.Close() } //nolint:errcheck // only read from
}

// Deliver makes the messages of a queue due that wait for their time, and waits
// until none is due or being delivered. One that was not acknowledged waits again
// then: each call delivers it once.
func (h *Host) Deliver(name string) {
	h.t.Helper()
	if _, err := queue.Hurry(h.t.Context(), h.store.KV, name); err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	h.eventually("the deliveries of queue "+name, func() bool {
		i := h.inspect(name)
		return i.Due == 0 && i.Claimed == 0
	})
}

// Waiting is the number of messages in a queue that are neither acknowledged nor
// dead.
func (h *Host) Waiting(name string) int {
	h.t.Helper()
	i := h.inspect(name)
	return int(i.Due + i.Delayed + i.Claimed)
}

func (h *Host) inspect(name string) queue.Info {
	h.t.Helper()
	i, err := queue.Inspect(h.t.Context(), h.store.KV, name)
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	return i
}

// A DeadLetter is a message that was given up.
type DeadLetter struct {
	ID       string
	Body     json.RawMessage
	Attempts int
	// Error is that of the last delivery.
	Error string
}

// DeadLetters are the messages of a queue that were given up, oldest first.
func (h *Host) DeadLetters(name string) (dead []DeadLetter) {
	h.t.Helper()
	for m, err := range queue.Peek(h.t.Context(), h.store.KV, name, true, 0) {
		if err != nil {
			h.t.Fatalf("durabletest: %v", err)
		}
		dead = append(dead, DeadLetter{m.ID, m.Body, m.Attempts, m.Error})
	}
	return dead
}

// RunCron runs one occurrence of a schedule, which must be past, waits for its
// end and returns its error. The zero time is now.
func (h *Host) RunCron(name string, at time.Time) error {
	h.t.Helper()
	ctx, kv := h.t.Context(), h.store.KV
	if at.IsZero() {
		now, err := kv.Now(ctx)
		if err != nil {
			h.t.Fatalf("durabletest: %v", err)
		}
		at = now
	}
	before, _ := h.newestRun(ctx, name, at)
	id, err := cron.Request(ctx, kv, name, "test", at)
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	var run cron.Run
	h.eventually("the run of schedule "+name, func() bool {
		// In this order: a request that is taken between the looks is seen.
		_, waits, err := kv.Get(ctx, tuple.Key{cron.PrefixRequest, name, id})
		if err != nil {
			h.t.Fatalf("durabletest: %v", err)
		}
		var open bool
		run, open = h.newestRun(ctx, name, at)
		return !waits && !open && run.Attempt > before.Attempt
	})
	if run.Outcome != cron.OK {
		return errors.New(run.Error)
	}
	return nil
}

// newestRun is the last run of an occurrence, and whether one is under way.
func (h *Host) newestRun(ctx context.Context, name string, at time.Time) (r cron.Run, open bool) {
	h.t.Helper()
	x, _, err := cron.Examine(ctx, h.store.KV, name)
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	for _, line := range x.Lines {
		if line.At == at.UnixMilli() && line.Attempt > r.Attempt {
			r = line
		}
	}
	return r, slices.ContainsFunc(x.Claims, func(c cron.Claim) bool { return c.At == at.UnixMilli() })
}
