package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

const (
	// MinEvery is the shortest time between two occurrences.
	MinEvery = time.Second
	// MaxEvery bounds the D of "@every D".
	MaxEvery = 365 * 24 * time.Hour
	// maxExpression bounds an expression, in bytes.
	maxExpression = 256
	// searchYears is how far off an occurrence may be: the 29th of February is up
	// to eight years off.
	searchYears = 10
)

// A Schedule is a set of instants, its occurrences: the same ones on every
// replica, whatever was computed before.
//
// Five fields are times of a zone. A time that the zone's clock skips occurs as
// much later as the clock was put forward. A time that it shows twice occurs the
// first time only, unless the schedule runs in every hour of the day.
type Schedule struct {
	expr  string
	every time.Duration // of "@every", else 0
	walls walls
	zone  *time.Location
	// hourly says that no hour of the day is left out.
	hourly bool
}

// walls are times as clocks on walls show them, without a zone: they are in UTC.
type walls interface {
	// Next returns the first time behind t, and Prev the last one before it; zero
	// when there is none for many years.
	Next(t time.Time) time.Time
	Prev(t time.Time) time.Time
}

// Parse reads an expression: five fields (minute, hour, day of the month, month,
// day of the week), "@hourly", "@daily", "@weekly", "@monthly", "@yearly", or
// "@every D" for the multiples of a duration since 1970-01-01T00:00:00Z. Days
// match when either field does if both are restricted. The five fields are times
// of the zone, or of the one that "CRON_TZ=Zone " before them names.
func Parse(expr, zone string) (Schedule, error) {
	s := Schedule{expr: expr}
	if len(expr) > maxExpression {
		return s, fmt.Errorf("schedule %.40q...: longer than %d bytes", expr, maxExpression)
	}
	rest := strings.TrimSpace(expr)
	if d, ok := strings.CutPrefix(rest, "@every "); ok {
		err := s.parseEvery(strings.TrimSpace(d))
		return s, err
	}
	if prefix, after, ok := strings.Cut(rest, " "); ok {
		for _, name := range []string{"CRON_TZ=", "TZ="} {
			if z, ok := strings.CutPrefix(prefix, name); ok {
				zone, rest = z, strings.TrimSpace(after)
			}
		}
	}
	var err error
	if s.zone, err = loadZone(zone); err != nil {
		return s, err
	}
	return s, s.parseFields(rest)
}

func (s *Schedule) parseEvery(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return fmt.Errorf("schedule %q: %q is not a duration such as 90s or 1h30m", s.expr, text)
	case d < MinEvery || d > MaxEvery:
		return fmt.Errorf("schedule %q: want %s to %s", s.expr, MinEvery, MaxEvery)
	case d%time.Millisecond != 0:
		return fmt.Errorf("schedule %q: want whole milliseconds", s.expr)
	}
	s.every = d
	return nil
}

// loadZone refuses the machine's own zone: it may be another on each replica.
func loadZone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		return nil, fmt.Errorf("%q is not a time zone such as Europe/Berlin", name)
	}
	return loc, nil
}

func (s *Schedule) parseFields(fields string) error {
	if strings.HasPrefix(fields, "@every") || strings.Contains(fields, "TZ=") {
		return fmt.Errorf("schedule %q: %w", s.expr, errForm)
	}
	p, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return err
	}
	parsed, err := p.WithMaxSearchYears(searchYears).Parse(fields)
	if err != nil {
		return fmt.Errorf("schedule %q: %w", s.expr, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return fmt.Errorf("schedule %q: %w", s.expr, errForm)
	}
	const allHours = 1<<24 - 1
	spec.Location = time.UTC
	s.walls, s.hourly = spec, spec.Hour&allHours == allHours
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return fmt.Errorf("schedule %q: it never occurs", s.expr)
	}
	return nil
}

var errForm = errors.New("want five fields, @hourly, @daily, @weekly, @monthly, @yearly, or @every D")

// String returns the expression.
func (s Schedule) String() string { return s.expr }

// Next returns the first occurrence after t, or zero when there is none for many
// years.
func (s Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return epochFloor(t, s.every).Add(s.every)
	}
	look := t
	for range maxPeriods {
		p := periodAt(look.In(s.zone))
		if at := s.nextIn(p, t); !at.IsZero() || p.end.IsZero() {
			return at
		}
		look, t = p.end, p.end.Add(-1)
	}
	return time.Time{}
}

// Last returns the last occurrence that is not after t, or zero when there was
// none for many years.
func (s Schedule) Last(t time.Time) time.Time {
	if s.every > 0 {
		return epochFloor(t, s.every)
	}
	for range maxPeriods {
		p := periodAt(t.In(s.zone))
		if at := s.lastIn(p, t); !at.IsZero() || p.start.IsZero() {
			return at
		}
		t = p.start.Add(-1)
	}
	return time.Time{}
}

// epochFloor is the last multiple of d since the epoch that is not after t.
func epochFloor(t time.Time, d time.Duration) time.Time {
	ms, step := t.UnixMilli(), d.Milliseconds()
	floor := ms / step * step
	if floor > ms {
		floor -= step
	}
	return time.UnixMilli(floor).UTC()
}
