package object

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

// A tenure is one lease while this replica holds it. Its context ends when the
// lease is lost or no longer trusted. A goroutine renews it until end.
type tenure struct {
	lease.Held
	a      *actor
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	once   sync.Once
	// renewal begins the renewal, which loops counts from the start.
	renewal *time.Timer

	mu sync.Mutex
	// trusted is how long the lease is used without asking again, by this
	// machine's monotonic clock. No promise rests on it.
	trusted time.Time
	// extended is when the last statement that extended the lease was sent, and
	// seen when the last one that saw it live was.
	extended, seen time.Time
	// wanted is when another replica's wish was first noticed, or zero.
	wanted time.Time
	lost   bool
	// claim is set while the object's alarm is claimed under the lease.
	claim bool
}

// newTenure begins the use of a lease that a statement sent at sent has taken.
func newTenure(a *actor, info lease.Info, sent time.Time) *tenure {
	t := &tenure{
		Held:  lease.Held{Class: a.class, ID: a.id, Holder: info.Holder, Stamp: info.Stamp},
		a:     a,
		ended: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancelCause(a.rt.ctx)
	t.saw(info, sent, true)
	a.rt.loops.Add(1)
	t.renewal = time.AfterFunc(t.untilRenewal(0), t.renew) // most leases end before
	return t
}

// saw takes what the answer to a statement sent at sent told about the lease.
func (t *tenure) saw(info lease.Info, sent time.Time, extended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ttl := t.a.rt.cfg.LeaseTTL
	// A fifth of the TTL is kept back for the answer's way and slow clocks.
	if until := sent.Add(min(info.Remaining(), ttl) - ttl/5); until.After(t.trusted) {
		t.trusted = until
	}
	// A poll may show a lease that an earlier one has taken.
	if at := sent.Add(min(info.Remaining(), ttl) - ttl); extended && at.After(t.extended) {
		t.extended = at
	}
	if sent.After(t.seen) {
		t.seen = sent
	}
	if info.Wanted != 0 && t.wanted.IsZero() {
		t.wanted = clock.Now()
	}
}

// covers reports whether a statement sent after arrival has seen the lease.
func (t *tenure) covers(arrival time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.After(arrival)
}

// usable reports whether the lease may be used without asking.
func (t *tenure) usable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.lost && clock.Now().Before(t.trusted)
}

// dueToExtend reports whether a third of the TTL has passed since the lease
// was extended.
func (t *tenure) dueToExtend() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return clock.Since(t.extended) >= t.a.rt.cfg.LeaseTTL/3
}

// yieldAfter is how long a holder goes on after it noticed that its lease is
// wanted, and yieldFor how long it then leaves the lease alone.
const (
	yieldAfter = 50 * time.Millisecond
	yieldFor   = 100 * time.Millisecond
)

// isWanted reports whether another replica asked for the lease.
func (t *tenure) isWanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.wanted.IsZero()
}

// mustYield reports whether no further event may start under this lease.
func (t *tenure) mustYield() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.wanted.IsZero() && clock.Since(t.wanted) >= yieldAfter
}

// lose ends the lease's use: what runs under it is cancelled and not committed.
func (t *tenure) lose() {
	t.mu.Lock()
	t.lost = true
	t.mu.Unlock()
	t.cancel(durable.ErrFenced)
}

// setClaim says whether the object's alarm is claimed under the lease.
func (t *tenure) setClaim(claim bool) {
	t.mu.Lock()
	t.claim = claim
	t.mu.Unlock()
}

// addExtend extends the lease when the plan is applied, and moves an alarm that
// is claimed under it.
func (t *tenure) addExtend(p *kv.Plan) {
	t.AddExtend(p, t.a.rt.cfg.LeaseTTL)
	t.mu.Lock()
	claim := t.claim
	t.mu.Unlock()
	if claim {
		alarm.AddFollow(p, t.Held)
	}
}

// extend extends the lease, when it is live and still ours, and so confirms it.
func (t *tenure) extend(ctx context.Context) (lease.Info, bool, error) {
	p := kv.NewPlan()
	t.Require(p)
	t.addExtend(p)
	show := t.AddShow(p)
	v, err := t.a.rt.commits.Commit(ctx, p)
	if err != nil {
		return lease.Info{}, false, fmt.Errorf("extend lease of %s/%s: %w", t.Class, t.ID, err)
	}
	info, ok, err := lease.Read(t.Class, t.ID, v.Results[show])
	return info, v.OK && ok && info.Holder == t.Holder && info.Stamp == t.Stamp, err
}

// end stops the renewal. It may be repeated.
func (t *tenure) end() {
	t.once.Do(func() {
		close(t.ended)
		if t.renewal.Stop() {
			t.a.rt.loops.Done()
		}
	})
}

// untilRenewal returns how long the next look at the lease may wait: not less
// than retry, and not longer than the lease is trusted.
func (t *tenure) untilRenewal(retry time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.a.rt.cfg.LeaseTTL/3 - clock.Since(t.extended)
	return min(max(next, retry), t.trusted.Sub(clock.Now()))
}

// left returns how long the lease is trusted still.
func (t *tenure) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trusted.Sub(clock.Now())
}

// renew extends the lease, from a third of its TTL on, repeated while it is
// trusted.
func (t *tenure) renew() {
	defer t.a.rt.loops.Done()
	ttl := t.a.rt.cfg.LeaseTTL
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	stop := context.AfterFunc(t.ctx, cancel)
	defer stop()
	retry := time.Duration(0)
	for {
		if t.left() <= 0 {
			t.a.rt.log.LogAttrs(ctx, slog.LevelWarn, events.LeaseExpired, slog.String(events.KeyClass, t.Class), slog.String(events.KeyObject, t.ID))
			t.lose()
			t.a.rt.hurry(t.a)
			return
		}
		timer := time.NewTimer(t.untilRenewal(retry))
		select {
		case <-t.ended:
			timer.Stop()
			return
		case <-t.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if !t.dueToExtend() {
			continue
		}
		call, done := context.WithTimeout(ctx, max(min(t.left(), ttl/2), time.Millisecond))
		sent := clock.Now()
		info, ok, err := t.extend(call)
		done()
		select {
		case <-t.ended:
			return
		default:
		}
		switch {
		case err != nil:
			// Repeated as it is: an extension changes nothing that matters.
			retry = ttl/20 + rand.N(ttl/20)
		case !ok:
			t.a.rt.log.LogAttrs(ctx, slog.LevelWarn, events.LeaseExpired, slog.String(events.KeyClass, t.Class), slog.String(events.KeyObject, t.ID))
			t.lose()
			t.a.rt.hurry(t.a)
			return
		default:
			retry = 0
			t.saw(info, sent, true)
			if t.isWanted() {
				t.a.rt.hurry(t.a)
			}
		}
	}
}
