package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

const layout = "2006-01-02 15:04 -0700"

func TestOccurrences(t *testing.T) {
	for _, c := range []struct{ name, expr, zone, from, want string }{
		{"five", "5 4 * * *", "UTC", "2026-03-01 00:00 +0000", "03-01 04:05 +0000, 03-02 04:05 +0000"},
		{"the instant itself is past", "5 4 * * *", "UTC", "2026-03-01 04:05 +0000", "03-02 04:05 +0000"},
		{"list, range, step", "1,3-5,50/5 0 * * *", "UTC", "2026-03-01 00:00 +0000", "03-01 00:01 +0000, 03-01 00:03 +0000, 03-01 00:04 +0000, 03-01 00:05 +0000, 03-01 00:50 +0000, 03-01 00:55 +0000, 03-02 00:01 +0000"},
		{"names", "0 0 * JAN mon-wed", "UTC", "2026-12-31 00:00 +0000", "01-04 00:00 +0000, 01-05 00:00 +0000, 01-06 00:00 +0000, 01-11 00:00 +0000"},
		{"Sunday is 7", "0 0 * * 7", "UTC", "2026-03-01 00:00 +0000", "03-08 00:00 +0000, 03-15 00:00 +0000"},
		{"Sunday is 0", "0 0 * * 0", "UTC", "2026-03-01 00:00 +0000", "03-08 00:00 +0000, 03-15 00:00 +0000"},
		{"Friday to Sunday", "0 0 * * 5-7", "UTC", "2026-03-01 00:00 +0000", "03-06 00:00 +0000, 03-07 00:00 +0000, 03-08 00:00 +0000, 03-13 00:00 +0000"},
		{"either day", "0 0 13 * 5", "UTC", "2026-03-01 00:00 +0000", "03-06 00:00 +0000, 03-13 00:00 +0000, 03-20 00:00 +0000, 03-27 00:00 +0000, 04-03 00:00 +0000, 04-10 00:00 +0000, 04-13 00:00 +0000"},
		{"leap day", "0 0 29 2 *", "UTC", "2096-03-01 00:00 +0000", "02-29 00:00 +0000"},
		{"daily", "@daily", "Europe/Berlin", "2026-03-28 12:00 +0100", "03-29 00:00 +0100, 03-30 00:00 +0200"},
		{"weekly", "@weekly", "UTC", "2026-03-01 12:00 +0000", "03-08 00:00 +0000"},
		{"hourly", "@hourly", "Asia/Kolkata", "2026-03-01 12:00 +0530", "03-01 13:00 +0530"},
		{"zone in the expression", "CRON_TZ=America/New_York 0 9 * * *", "UTC", "2026-03-07 15:00 +0000", "03-08 09:00 -0400, 03-09 09:00 -0400"},
		{"every", "@every 90m", "UTC", "1970-01-01 00:00 +0000", "01-01 01:30 +0000, 01-01 03:00 +0000"},
		{"every, of a zone", "@every 24h", "Europe/Berlin", "2026-03-28 12:00 +0100", "03-29 00:00 +0000, 03-30 00:00 +0000"},
		{"every, before the epoch", "@every 24h", "UTC", "1969-12-30 12:00 +0000", "12-31 00:00 +0000, 01-01 00:00 +0000"},

		{"in the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28 00:00 +0100", "03-28 02:30 +0100, 03-29 03:30 +0200, 03-30 02:30 +0200"},
		{"from within it", "30 2 * * *", "Europe/Berlin", "2026-03-29 03:10 +0200", "03-29 03:30 +0200, 03-30 02:30 +0200"},
		{"both sides of the gap", "30 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00 +0100", "03-29 03:30 +0200, 03-30 02:30 +0200"},
		{"every quarter over the gap", "*/15 * * * *", "Europe/Berlin", "2026-03-29 01:40 +0100", "03-29 01:45 +0100, 03-29 03:00 +0200, 03-29 03:15 +0200"},
		{"midnight in the gap", "0 0 * * *", "America/Santiago", "2026-09-05 12:00 -0400", "09-06 01:00 -0300, 09-07 00:00 -0300"},
		{"a day that is not there", "0 12 30 12 *", "Pacific/Apia", "2011-01-01 00:00 -1000", "12-31 12:00 +1400, 12-30 12:00 +1400"},
		{"a gap of half an hour", "*/20 1-2 * * *", "Australia/Lord_Howe", "2026-10-04 00:50 +1030", "10-04 01:00 +1030, 10-04 01:20 +1030, 10-04 01:40 +1030, 10-04 02:30 +1100, 10-04 02:40 +1100, 10-04 02:50 +1100, 10-05 01:00 +1100"},

		{"shown twice", "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00 +0200", "10-25 02:30 +0200, 10-26 02:30 +0100"},
		{"from between", "30 2 * * *", "Europe/Berlin", "2026-10-25 02:10 +0100", "10-26 02:30 +0100"},
		{"in every hour", "30 * * * *", "Europe/Berlin", "2026-10-25 01:00 +0200", "10-25 01:30 +0200, 10-25 02:30 +0200, 10-25 02:30 +0100, 10-25 03:30 +0100"},
		{"the first of two, and after it", "0 2-3 * * *", "Europe/Berlin", "2026-10-24 12:00 +0200", "10-25 02:00 +0200, 10-25 03:00 +0100, 10-26 02:00 +0100"},
		{"half an hour twice", "*/20 * * * *", "Australia/Lord_Howe", "2026-04-05 01:10 +1100", "04-05 01:20 +1100, 04-05 01:40 +1100, 04-05 01:40 +1030, 04-05 02:00 +1030"},
		{"midnight twice", "0 0 * * *", "Australia/Lord_Howe", "2026-04-05 01:00 +1100", "04-06 00:00 +1030, 04-07 00:00 +1030"},
	} {
		s, err := Parse(c.expr, c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		from, err := time.Parse(layout, c.from)
		if err != nil {
			t.Fatal(err)
		}
		at := from
		for want := range strings.SplitSeq(c.want, ", ") {
			zone, _ := time.Parse("01-02 15:04 -0700", want)
			before := at
			at = s.Next(at)
			if got := at.In(zone.Location()).Format("01-02 15:04 -0700"); got != want || !at.After(before) {
				t.Errorf("%s: %s behind %s, want %s", c.name, got, before, want)
			}
			if last := s.Last(at.Add(-time.Millisecond)); before != from && !last.Equal(before) {
				t.Errorf("%s: %s before %s, want %s", c.name, last, at, before)
			}
			if last := s.Last(at); !last.Equal(at) {
				t.Errorf("%s: the last at %s is %s", c.name, at, last)
			}
		}
	}
}

func TestBadSchedules(t *testing.T) {
	for expr, want := range map[string]string{
		"":                           "empty",
		"* * * *":                    "5 fields",
		"* * * * * *":                "5 fields",
		"*/90 * * * *":               "step",
		"60 * * * *":                 "above maximum",
		"* * 0 * *":                  "below minimum",
		"0 0 31 2 *":                 "never occurs",
		"0 0 30 2 *":                 "never occurs",
		"0 0 L * *":                  "L",
		"@reboot":                    "@reboot",
		"@every":                     "@every D",
		"@every x":                   "duration",
		"@every 1ms":                 "1s",
		"@every -5s":                 "1s",
		"@every 9000h":               "8760h",
		"@every 1.0000001s":          "milliseconds",
		"CRON_TZ=Mars/Base @daily":   "time zone",
		"CRON_TZ=Local @daily":       "time zone",
		"TZ=UTC CRON_TZ=UTC @daily":  "@every D",
		strings.Repeat("1,", 200):    "longer",
		"nonsense":                   "5 fields",
		"0 0 * * 8":                  "above maximum",
		"CRON_TZ=../../etc/passwd x": "time zone",
	} {
		if _, err := Parse(expr, "UTC"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", expr, err, want)
		}
	}
	if _, err := Parse("@daily", "Europe/Atlantis"); err == nil || !strings.Contains(err.Error(), "Europe/Atlantis") {
		t.Error(err)
	}
}

// A fieldText is a field whose values the test knows itself.
type fieldText struct {
	text   string
	values []int
}

func anyField(low, high int, star bool) *rapid.Generator[fieldText] {
	return rapid.Custom(func(t *rapid.T) fieldText {
		if star && rapid.Bool().Draw(t, "star") {
			return fieldText{text: "*"}
		}
		values := rapid.SliceOfNDistinct(rapid.IntRange(low, high), 1, 3, rapid.ID).Draw(t, "values")
		return fieldText{strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]"), values}
	})
}

func (f fieldText) has(n int) bool { return f.values == nil || slices.Contains(f.values, n) }

// Occurrences are those that a look at every minute finds: no other ones, none
// left out, and the same ones forwards and backwards.
func TestEveryMinute(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Pacific/Apia"}
	rapid.Check(t, func(t *rapid.T) {
		minute, hour, dom := anyField(0, 59, true).Draw(t, "minute"), anyField(0, 23, true).Draw(t, "hour"), anyField(1, 31, true).Draw(t, "dom")
		month, dow := anyField(1, 12, true).Draw(t, "month"), anyField(0, 6, true).Draw(t, "dow")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		expr := strings.Join([]string{minute.text, hour.text, dom.text, month.text, dow.text}, " ")
		s, err := Parse(expr, zone)
		if err != nil {
			if strings.Contains(err.Error(), "never occurs") {
				t.Skip("never")
			}
			t.Fatal(err)
		}
		matches := func(w time.Time) bool {
			day := dom.has(w.Day()) && dow.has(int(w.Weekday()))
			if dom.values != nil && dow.values != nil {
				day = dom.has(w.Day()) || dow.has(int(w.Weekday()))
			}
			return minute.has(w.Minute()) && hour.has(w.Hour()) && month.has(int(w.Month())) && day
		}
		// A few days, mostly around a change of the clock.
		start := time.Date(rapid.IntRange(2010, 2030).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		if _, change := start.In(loc).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "change") {
			start = change.UTC().Add(-30 * time.Hour).Truncate(time.Minute)
		}
		end := start.Add(60 * time.Hour)
		want := map[time.Time]bool{}
		seen := map[string]bool{}
		for at := start.Add(-24 * time.Hour); at.Before(end); at = at.Add(time.Minute) {
			w := at.In(loc)
			text := w.Format("2006-01-02 15:04")
			if matches(w) && (hour.values == nil || !seen[text]) {
				want[at] = true
			}
			seen[text] = true
			prev := at.Add(-time.Minute).In(loc)
			_, o1 := prev.Zone()
			if _, o2 := w.Zone(); o2 > o1 { // what was skipped
				for m := range (o2 - o1) / 60 {
					if matches(at.UTC().Add(time.Duration(o1)*time.Second + time.Duration(m)*time.Minute)) {
						want[at.Add(time.Duration(m)*time.Minute)] = true
					}
				}
			}
		}
		for at := range want {
			if at.Before(start) || !at.Before(end) {
				delete(want, at)
			}
		}
		n := 0
		for at := s.Next(start.Add(-1)); at.Before(end) && !at.IsZero(); at = s.Next(at) {
			if n++; !want[at.UTC()] {
				t.Fatalf("%q in %s: %s is none", expr, zone, at.In(loc))
			}
			if last := s.Last(at); !last.Equal(at) {
				t.Fatalf("%q in %s: Last(%s) is %s", expr, zone, at.In(loc), last.In(loc))
			}
			if next := s.Next(at); !next.IsZero() {
				between := at.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(at))-1).Draw(t, "between")))
				if last, again := s.Last(between), s.Next(between); !last.Equal(at) || !again.Equal(next) {
					t.Fatalf("%q in %s: at %s %s and %s, want %s and %s", expr, zone, between.In(loc), last.In(loc), again.In(loc), at.In(loc), next.In(loc))
				}
			}
		}
		if n != len(want) {
			t.Fatalf("%q in %s from %s: %d occurrences, want %d", expr, zone, start, n, len(want))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, expr := range []string{"*/5 1-3,7 * JAN-MAR mon", "@every 5s", "@daily", "CRON_TZ=Europe/Berlin 0 0 29 2 *", "0 0 31 2 *", "H H * * *", "? * * * ?"} {
		f.Add(expr, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, expr, zone string) {
		s, err := Parse(expr, zone)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
		at := s.Next(now)
		if !at.IsZero() && (!at.After(now) || !s.Last(at).Equal(at)) {
			t.Fatalf("%q: %s behind %s, then %s", expr, at, now, s.Last(at))
		}
	})
}
