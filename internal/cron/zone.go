package cron

import "time"

// maxPeriods bounds the search of an occurrence: a zone has about two a year.
const maxPeriods = 60

// A period is the time between two changes of a zone's offset from UTC.
type period struct {
	// start is in the period, end is not; zero means that there is none.
	start, end time.Time
	// offset is that of the period, and before that of the one before it.
	offset, before time.Duration
}

// periodAt returns the period of t in the zone of t.
func periodAt(t time.Time) period {
	var p period
	p.start, p.end = t.ZoneBounds()
	p.offset = offsetAt(t)
	p.before = p.offset
	if !p.start.IsZero() {
		p.before = offsetAt(p.start.Add(-1))
	}
	return p
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wallAt is what a clock with an offset shows at t.
func wallAt(t time.Time, offset time.Duration) time.Time { return t.UTC().Add(offset) }

// repeated is when the period first shows a time that the one before it had not
// shown: until then the clock, which was put back, shows times again. It is the
// start when it was not put back.
func (p period) repeated() time.Time {
	return p.start.Add(max(0, p.before-p.offset))
}

// late is until when times occur that the start of the period has skipped. It is
// the start when none were.
func (p period) late() time.Time {
	return p.start.Add(max(0, p.offset-p.before))
}

// contains reports whether t lies in the period, up to a bound before its end.
func (p period) contains(t time.Time) bool {
	return !t.Before(p.start) && (p.end.IsZero() || t.Before(p.end))
}

// nextIn returns the first occurrence in the period that is after t, or zero.
func (s Schedule) nextIn(p period, t time.Time) time.Time {
	from := t // everything after it counts
	if first := p.start.Add(-1); !p.start.IsZero() && from.Before(first) {
		from = first
	}
	var skipped time.Time
	if late := p.late(); late.After(p.start) && from.Before(late) {
		// The clock that was not put forward goes on.
		if at := s.walls.Next(wallAt(from, p.before)); !at.IsZero() {
			if at = at.Add(-p.before); at.Before(late) && p.contains(at) {
				skipped = at
			}
		}
	}
	if again := p.repeated(); !s.hourly && again.After(p.start) && from.Before(again) {
		from = again.Add(-1)
	}
	at := s.walls.Next(wallAt(from, p.offset))
	if !at.IsZero() {
		at = at.Add(-p.offset)
	}
	return first(inside(p, at), skipped)
}

// lastIn returns the last occurrence in the period that is not after t, or zero.
func (s Schedule) lastIn(p period, t time.Time) time.Time {
	before := t.Truncate(time.Second).Add(time.Second) // everything before it counts
	var skipped time.Time
	if late := p.late(); late.After(p.start) {
		limit := before
		if limit.After(late) {
			limit = late
		}
		if at := s.walls.Prev(wallAt(limit, p.before)); !at.IsZero() {
			skipped = inside(p, at.Add(-p.before))
		}
	}
	at := s.walls.Prev(wallAt(before, p.offset))
	if !at.IsZero() {
		at = inside(p, at.Add(-p.offset))
	}
	if again := p.repeated(); !s.hourly && again.After(p.start) && at.Before(again) {
		at = time.Time{}
	}
	if skipped.After(at) {
		return skipped
	}
	return at
}

// inside is t when the period contains it, or zero.
func inside(p period, t time.Time) time.Time {
	if t.IsZero() || !p.contains(t) {
		return time.Time{}
	}
	return t
}

// first is the earlier one of two times that are not zero.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
