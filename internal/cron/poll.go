package cron

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// pollTakes bounds the proposals of one poll. Schedules take turns.
const pollTakes = 16

// asked is a poll that is under way.
type asked struct {
	takes []proposed
	look  int // index of the first result of the look
}

type proposed struct {
	take
	j      *job
	first  int // index of the result that tells whether it was done
	missed int // index of the result that lists what was missed, or -1
}

// Name names the part of the poll.
func (c *Runner) Name() string { return "crons" }

// Poll returns the statements of the next poll: proposals, none when nothing
// seems to be due, and a look at all schedules, which also tells what was won.
func (c *Runner) Poll(int) (stmts []libsql.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose(clock.Now()) // a poll that was never answered
	if c.stopping || len(c.jobs) == 0 {
		return nil
	}
	c.asked, c.cut = &asked{}, false
	now := c.cfg.Store.Clock()
	room := maxRuns - c.runs
	names := make([]string, len(c.jobs))
	for i := range c.jobs {
		names[i] = c.jobs[i].name
		j := c.jobs[(c.turn+i)%len(c.jobs)]
		for _, t := range j.proposals(now, c.cfg.TTL) {
			if len(c.asked.takes) == pollTakes || t.runs() && room == 0 {
				c.cut = true
				break
			}
			if t.runs() {
				room--
				failpoint.Hit("cron.take.before")
			}
			t.holder, t.replica = uuid.NewString(), c.cfg.Replica
			s, missed := t.statements()
			if missed >= 0 {
				missed += len(stmts)
			}
			c.asked.takes = append(c.asked.takes, proposed{t, j, len(stmts), missed})
			stmts = append(stmts, s...)
		}
	}
	c.turn = (c.turn + 1) % len(c.jobs)
	c.asked.look = len(stmts)
	return append(stmts, look(names)...)
}

// runs reports whether something is run when the take wins.
func (t take) runs() bool { return t.kind != takeClose && t.kind != takeNew }

func (t take) claim() claim {
	return claim{t.name, t.at, t.attempt, t.holder, t.ttl, t.life}
}

// proposals is what seems to be due. The primary decides.
func (j *job) proposals(now time.Time, ttl time.Duration) (list []take) {
	if !j.looked {
		return nil
	}
	add := func(k kind, at int64, attempt int) *take {
		window, life := j.window(time.UnixMilli(at))
		list = append(list, take{kind: k, name: j.name, at: at, end: at + window.Milliseconds(), attempt: attempt, tries: 1, asked: k == takeRequest, ttl: ttl, life: life,
			allow: j.opts.Allow, schedule: j.opts.Schedule, zone: j.opts.Zone})
		return &list[len(list)-1]
	}
	if j.seen.last == nil {
		add(takeNew, 0, 0)
		return list
	}
	for _, r := range j.seen.running {
		if r.Until > ms(now) || j.runs[r.Holder] {
			continue
		}
		n, paused := r.tries(), j.seen.paused && !r.Request // one that runs on request only is repeated too
		switch {
		case n > 1 || n == 1 && j.opts.AtMostOnce, paused && !j.opts.Allow && j.seen.request != nil:
			t := add(takeClose, r.at, r.Attempt)
			t.old, t.tries = r.Holder, n
		case !paused && j.free():
			t := add(takeRepeat, r.at, r.Attempt+1)
			t.old, t.tries, t.asked = r.Holder, n+1, r.Request
		}
	}
	if !j.free() || !j.opts.Allow && len(j.seen.running) > 0 {
		return list
	}
	if at, ok := j.due(now); ok && !j.opts.Paused {
		t := add(takeDue, ms(at), 1)
		t.missed, t.cut = j.missed(at)
	}
	if r := j.seen.request; r != nil {
		at := r.at
		if at == 0 {
			at = ms(now)
		}
		add(takeRequest, at, r.runs+1).request = r.key
	}
	return list
}

// free reports whether one more run can begin here.
func (j *job) free() bool {
	if j.opts.Allow {
		return len(j.runs) < maxOverlap
	}
	return len(j.runs) == j.stuck && j.stuck < maxOverlap
}

// due returns the newest occurrence when nobody has won it.
func (j *job) due(now time.Time) (time.Time, bool) {
	at := j.schedule.Last(now)
	return at, !at.IsZero() && j.seen.last != nil && ms(at) > j.seen.last.settled() && !j.seen.paused
}

// missed are the occurrences before at that nobody has won, newest first; more
// tells that there are others before them.
func (j *job) missed(at time.Time) (list []int64, more bool) {
	for {
		at = j.schedule.Last(at.Add(-time.Millisecond))
		if at.IsZero() || ms(at) <= j.seen.last.settled() {
			return list, false
		}
		if len(list) == maxMissed {
			return list, true
		}
		list = append(list, ms(at))
	}
}

// lose remembers the proposals of the poll under way, whose answer is lost, and
// forgets the oldest.
func (c *Runner) lose(now time.Time) {
	if c.asked != nil {
		for _, p := range c.asked.takes {
			if p.runs() {
				c.lost = append(c.lost, lostTake{p.take, now})
			}
		}
		c.asked = nil
	}
	c.lost = slices.DeleteFunc(c.lost, func(t lostTake) bool { return now.Sub(t.at) > lostFor })
}

// Polled takes the results of a poll, or its error, and begins what was won.
func (c *Runner) Polled(res []libsql.Result, err error, sent time.Time) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		return false
	}
	if err != nil {
		if libsql.OutcomeOf(err) == libsql.Unknown {
			c.lose(clock.Now())
		}
		c.asked = nil
		return false
	}
	a := c.asked
	c.asked = nil
	for _, p := range a.takes {
		if p.missed >= 0 {
			c.tellMissed(p.j, res[p.missed])
		}
		if p.kind == takeClose && p.tries > 0 && res[p.first].Changes > 0 {
			c.tellInterrupted(p.name, p.at, p.attempt)
		}
	}
	list, nowMs := readLook(res[a.look:], len(c.jobs))
	now := time.UnixMilli(nowMs)
	for i, j := range c.jobs {
		again = j.saw(list[i], now) || again
		c.begin(j, a, now, sent)
		if !j.opts.Paused && !j.seen.paused {
			if next := j.schedule.Next(now); !next.IsZero() {
				c.cfg.WakeAt(next)
			}
		}
	}
	return (again || c.cut && c.runs < maxRuns) && !c.stopping
}

// saw notes what a look has found, and reports whether it may be time to
// propose something that there was no reason to propose before.
func (j *job) saw(s seen, now time.Time) (again bool) {
	held := !j.opts.Allow && len(j.seen.running) > 0
	again = !j.looked
	j.looked, j.seen = true, s
	_, due := j.due(now)
	j.overdue = 0
	if due && !j.opts.Paused {
		j.overdue = max(0, now.Sub(j.schedule.Next(time.UnixMilli(s.last.settled()))))
	}
	return again || held && len(s.running) == 0 && (due || s.request != nil)
}

// begin starts what this replica has won, in the last poll or in one whose
// answer was lost.
func (c *Runner) begin(j *job, a *asked, now, sent time.Time) {
	for _, r := range j.seen.running {
		var won *take
		late := false
		for i := range a.takes {
			if a.takes[i].holder == r.Holder {
				won = &a.takes[i].take
			}
		}
		for i := range c.lost {
			if c.lost[i].holder == r.Holder {
				won, late = &c.lost[i].take, true
			}
		}
		if won == nil || j.runs[r.Holder] {
			continue
		}
		left := time.Duration(r.Until-ms(now)) * time.Millisecond
		cl := won.claim()
		cl.attempt = r.Attempt
		if late {
			holder := r.Holder
			c.lost = slices.DeleteFunc(c.lost, func(t lostTake) bool { return t.holder == holder })
		}
		if c.stopping || left < c.cfg.TTL/2 {
			c.wg.Go(func() { c.end(cl, result{}) })
			continue
		}
		if won.kind == takeRepeat && won.tries > 1 {
			c.tellInterrupted(j.name, r.at, r.Attempt-1)
		}
		j.runs[r.Holder] = true
		c.runs++
		c.wg.Go(func() { c.work(j, cl, r, sent.Add(left*8/10)) })
	}
}

// tellInterrupted logs that a run was cut off.
func (c *Runner) tellInterrupted(name string, at int64, attempt int) {
	c.log.Warn(event.CronRunInterrupted, event.KeySchedule, name, "at", time.UnixMilli(at).UTC(), "attempt", attempt)
}

// tellMissed logs how many occurrences were listed as missed.
func (c *Runner) tellMissed(j *job, res libsql.Result) {
	n := 0
	for _, row := range res.Rows {
		if row[0] == Missed {
			n++
		}
	}
	if n > 0 {
		c.log.Warn(event.CronRunMissed, event.KeySchedule, j.name, event.KeyCount, n)
	}
}
