package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

func (a *auditor) classPrefix(name string) (lo, hi []byte) {
	if a.Class != "" {
		return bounds(name, a.Class)
	}
	return bounds(name)
}

// letters tells of the alarms that were given up.
func (a *auditor) letters(ctx context.Context) error {
	lo, hi := a.classPrefix(alarm.DeadPrefix)
	return a.eachEntry(ctx, lo, hi, func(key tuple.Key, e stored) error {
		var l alarm.Dead
		if json.Unmarshal(e.value, &l) != nil {
			return nil // reported with the entries
		}
		f := Finding{Check: AlarmDead, Message: fmt.Sprintf("the alarm of %s was given up at %s after %d retries", instant(l.Due), instant(l.DiedAt), l.RetryCount), Reason: l.Error}
		f.Class, _ = key[1].(string)
		f.ID, _ = key[2].(string)
		return a.report.add(f)
	})
}

// eachEntry calls f with the entries of a range whose keys have the form of
// their kind and whose values can be read.
func (a *auditor) eachEntry(ctx context.Context, lo, hi []byte, f func(tuple.Key, stored) error) error {
	return a.each(ctx, lo, hi, func(keys [][]byte) error {
		entries, err := a.read(ctx, keys)
		if err != nil {
			return err
		}
		for _, k := range keys {
			e, ok := entries[string(k)]
			key, err := tuple.Decode(k)
			if kind, _ := kindOf(key); err != nil || !ok || e.value == nil || !kind.fits(key) {
				continue
			}
			if err := f(key, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// lateness are the bounds, in milliseconds, below which runs are counted
// together: a tenth of a second to an hour.
var lateness = []int64{100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000}

// A punctuality sums up the runs of one class, or of one schedule.
type punctuality struct {
	class                              string
	runs, first, late, failed, crashed int64
	worst                              int64
	upTo                               [12]int64 // by lateness; the last is beyond
}

// within is the bound below which a share of the first runs were.
func (p *punctuality) within(share float64) string {
	n := int64(0)
	for i, c := range p.upTo {
		if n += c; float64(n) >= share*float64(p.first) && i < len(lateness) {
			return "within " + span(lateness[i])
		}
	}
	return "over " + span(lateness[len(lateness)-1])
}

// add counts a run that began so many milliseconds after it was due, and returns
// by how much that is late, 0 when it is not.
func (p *punctuality) add(ms int64, allowed time.Duration) time.Duration {
	ms = max(0, ms)
	p.first++
	p.worst = max(p.worst, ms)
	i, _ := slices.BinarySearch(lateness, ms)
	p.upTo[i]++
	if ms <= allowed.Milliseconds() {
		return 0
	}
	p.late++
	return time.Duration(ms) * time.Millisecond
}

// runs judges how late the runs of alarms were.
func (a *auditor) runs(ctx context.Context) error {
	if a.sinceMs == 0 {
		return nil
	}
	lo, hi := a.classPrefix(alarm.RunPrefix)
	var p *punctuality
	// An alarm that was tried again has the due time of its first try.
	var object string
	var lastDue int64
	err := a.eachEntry(ctx, lo, hi, func(key tuple.Key, e stored) error {
		class, _ := key[1].(string)
		id, _ := key[2].(string)
		ms, _ := key[3].(float64)
		var r alarm.Run
		if json.Unmarshal(e.value, &r) != nil {
			return nil
		}
		again := object == class+"/"+id && lastDue == r.Due
		object, lastDue = class+"/"+id, r.Due
		if int64(ms) < a.sinceMs {
			return nil
		}
		if p != nil && p.class != class {
			if err := a.punctual(p); err != nil {
				return err
			}
			p = nil
		}
		if p == nil {
			p = &punctuality{class: class}
		}
		return a.judgeRun(p, id, int64(ms), r, again)
	})
	if err != nil || p == nil {
		return err
	}
	return a.punctual(p)
}

func (a *auditor) judgeRun(p *punctuality, id string, startedMs int64, r alarm.Run, again bool) error {
	a.sum.Runs++
	p.runs++
	switch r.Outcome {
	case alarm.OutcomeFailed:
		p.failed++
	case alarm.OutcomeCrashed:
		p.crashed++
	}
	if again || r.Outcome == alarm.OutcomeCrashed { // a crash is noticed when its lease is over
		return nil
	}
	late := p.add(startedMs-r.Due, a.Overdue)
	if late == 0 {
		return nil
	}
	return a.report.add(Finding{
		Check: AlarmLate, Class: p.class, ID: id, Message: fmt.Sprintf("the alarm of %s began %s late", instant(r.Due), span(late.Milliseconds())),
		Reason: "replica " + r.Replica + " ran it, outcome " + r.Outcome,
	})
}

func (a *auditor) punctual(p *punctuality) error {
	return a.report.add(Finding{Check: AlarmRuns, Class: p.class, Count: p.runs, Message: p.text(a.sinceMs, "crashed")})
}

// text sums up, with a word for the runs that were cut off.
func (p *punctuality) text(sinceMs int64, crashed string) string {
	words := []string{fmt.Sprintf("%d runs since %s: %d late", p.runs, instant(sinceMs), p.late), fmt.Sprintf("%d failed", p.failed), fmt.Sprintf("%d %s", p.crashed, crashed)}
	if p.first > 0 {
		words = append(words, "half began "+p.within(0.5), "99 of 100 "+p.within(0.99), "the latest "+span(p.worst)+" after it was due")
	}
	return strings.Join(words, ", ")
}
