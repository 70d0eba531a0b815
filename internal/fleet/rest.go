package fleet

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

const (
	// maxImmediate bounds the polls in a row that come at once and change
	// nothing, so that a part that always wants more cannot have the replica spin.
	maxImmediate = 100
	// maxAlarms bounds the times that are remembered; the interval makes up for
	// more.
	maxAlarms = 1000
)

// Wake has the next poll come at once, or right behind the one under way. While
// the store is down it waits for the next attempt.
func (p *Poller) Wake() {
	p.mu.Lock()
	p.woken = true
	p.mu.Unlock()
	p.nudge()
}

// WakeAt has a poll come when the primary's clock shows t, at the latest.
func (p *Poller) WakeAt(t time.Time) {
	p.mu.Lock()
	first := p.alarms.add(t)
	p.mu.Unlock()
	if first {
		p.nudge()
	}
}

func (p *Poller) nudge() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// rest waits until the next poll; false when the poller is to stop.
func (p *Poller) rest(again bool) bool {
	regular := clock.Now().Add(p.pause(again))
	for {
		timer := time.NewTimer(p.until(regular))
		select {
		case <-p.quit:
			timer.Stop()
			return false
		case <-p.kick:
			timer.Stop()
			continue
		case <-timer.C:
		}
		select { // both may have been ready
		case <-p.quit:
			return false
		default:
			return true
		}
	}
}

// pause is the regular time to the next poll.
func (p *Poller) pause(again bool) time.Duration {
	if p.failures > 0 {
		return p.backoff(p.failures)
	}
	if again && p.immediate < maxImmediate {
		p.immediate++
		return 0
	}
	p.immediate = 0
	return p.cfg.Interval + rand.N(p.cfg.Interval/5+1)
}

// backoff is the time to the next attempt after n failures in a row, between a
// half and the whole of the doubled interval.
func (p *Poller) backoff(n int) time.Duration {
	d := p.cfg.Interval
	for ; n > 1 && d < p.cfg.MaxBackoff; n-- {
		d *= 2
	}
	d = min(d, p.cfg.MaxBackoff)
	return d/2 + rand.N(d/2+1)
}

// until is the time to the next poll, which comes regularly at the latest. While
// the store is down nothing hastens it.
func (p *Poller) until(regular time.Time) time.Duration {
	d := regular.Sub(clock.Now())
	if p.failures > 0 {
		return d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.woken {
		return 0
	}
	if t, ok := p.alarms.first(); ok {
		// The estimate of the primary's clock is a little off; an alarm stays until
		// the primary itself has shown its time.
		d = min(d, max(t.Sub(p.store.Clock()), time.Millisecond))
	}
	return d
}

// alarms are times of the primary's clock, in order.
type alarms []time.Time

// add remembers a time and reports whether it is the first to come.
func (a *alarms) add(t time.Time) (first bool) {
	i, found := slices.BinarySearchFunc(*a, t, time.Time.Compare)
	if !found {
		*a = slices.Insert(*a, i, t)
	}
	if len(*a) > maxAlarms {
		*a = (*a)[:maxAlarms]
	}
	return i == 0 && !found
}

func (a alarms) first() (time.Time, bool) {
	if len(a) == 0 {
		return time.Time{}, false
	}
	return a[0], true
}

// passed forgets the times up to now.
func (a *alarms) passed(now time.Time) {
	i, found := slices.BinarySearchFunc(*a, now, time.Time.Compare)
	if found {
		i++
	}
	*a = slices.Delete(*a, 0, i)
}
