package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/mode"
)

// What a fleet promises, in the words of its README.
const (
	PromiseServed     = "any replica serves any request"
	PromiseReplicas   = "any replica may die at any moment"
	PromiseWriter     = "at most one replica changes an object"
	PromiseAlarm      = "an alarm that was accepted fires"
	PromiseMessage    = "a message that was sent is delivered until it is acknowledged"
	PromiseOccurrence = "an occurrence of a schedule is run by one replica"
)

// A Risk is something that does not go as it should, the promise that is at risk
// by it, and what an operator does about it.
type Risk struct {
	Promise string `json:"promise"`
	Problem string `json:"problem"`
	Advice  string `json:"advice"`
}

// Risks are what keeps the fleet from being well, the worst first.
func (s Status) Risks() (list []Risk) {
	add := func(promise, advice, problem string, args ...any) {
		list = append(list, Risk{promise, fmt.Sprintf(problem, args...), advice})
	}
	if s.New() {
		add(PromiseServed, "start a replica: dwk serve", "the store set is new: no replica has claimed it")
		return list
	}
	if err := mode.Check(s.Mode, s.Store); err != nil {
		add(PromiseWriter, "replicas refuse it: see the mode marker in docs/operators.md", "%s", strings.TrimPrefix(err.Error(), mode.ErrRefused.Error()+": "))
		return list
	}
	switch {
	case s.Ready("") > 0:
	case len(s.Replicas) > 0:
		add(PromiseServed, "their logs say what they wait for: probe.store.failed, drain.step.done", "no replica is ready")
	default:
		add(PromiseServed, "start replicas; the last line of one that exits says why", "no replica is ready")
	}
	for _, r := range s.Replicas {
		if r.Layout != s.Store.Layout {
			add(PromiseWriter, "stop it: dwk drain "+r.ID, "replica %s writes layout %d", r.ID, r.Layout)
		}
	}
	s.backlogRisks(add)
	s.scheduleRisks(add)
	if s.LeftOver > 0 {
		add(PromiseReplicas, "wait until the TTL is over, or dwk lease release; see dwk lease list", "%s of replicas that are gone, until the TTL is over", count(s.LeftOver, "lease"))
	}
	return list
}

func (s Status) backlogRisks(add func(promise, advice, problem string, args ...any)) {
	overdue := func(promise, advice, what string, list []Backlog) {
		var n, oldest int64
		var names []string
		for _, b := range list {
			if b.Overdue > 0 && !b.Paused {
				n += b.Overdue
				oldest = max(oldest, b.OldestMs)
				names = append(names, b.Name)
			}
		}
		if n > 0 {
			add(promise, fmt.Sprintf(advice, few(names)), "%s, the first since %s", count(n, what), age(oldest))
		}
	}
	overdue(PromiseAlarm, "start more replicas, and ones that mount %s; see dwk alarm list", "overdue alarm", s.Alarms)
	overdue(PromiseMessage, "start more replicas, and ones that consume %s, or raise its concurrency; see dwk queue list", "overdue message", s.Messages)
}

func (s Status) scheduleRisks(add func(promise, advice, problem string, args ...any)) {
	var late, cut []string
	oldest := int64(0)
	for _, c := range s.Schedules {
		o, ok := s.Brought[c.Name]
		if !ok {
			continue
		}
		if at := c.Overdue(s.NowMs, &o); at > 0 && s.NowMs-at > OverdueMs {
			late, oldest = append(late, c.Name), max(oldest, s.NowMs-at)
		}
		if len(c.CutOff(s.NowMs-OverdueMs)) > 0 {
			cut = append(cut, c.Name)
		}
	}
	if len(late) > 0 {
		add(PromiseOccurrence, fmt.Sprintf("start replicas that mount the application of %s; see dwk cron list", few(late)), "%s, the first since %s", count(int64(len(late)), "overdue schedule"), age(oldest))
	}
	if len(cut) > 0 {
		add(PromiseOccurrence, fmt.Sprintf("start replicas that mount the application of %s; see dwk cron history", few(cut)), "%s with a run that was cut off and not repeated", count(int64(len(cut)), "schedule"))
	}
}

// few names some of a list.
func few(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func age(ms int64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second)
}

// Verdict says in one line whether the fleet is all right, and if not, what is
// wrong. Dead letters, failures and pauses are told of and no fault.
func (s Status) Verdict() (ok bool, text string) {
	risks := s.Risks()
	var words []string
	for _, r := range risks {
		words = append(words, r.Problem)
	}
	if len(risks) == 0 {
		words = append(words, "all right: "+count(int64(s.Ready("")), "replica")+" ready")
	}
	return len(risks) == 0, strings.Join(append(words, s.notes()...), "; ")
}

// notes tell of what is no fault of the fleet.
func (s Status) notes() (out []string) {
	var dead, failed, paused int64
	for _, list := range [][]Backlog{s.Alarms, s.Messages} {
		for _, b := range list {
			dead += b.Dead
			if b.Paused {
				paused++
			}
		}
	}
	pausedSchedules := int64(0)
	for _, c := range s.Schedules {
		if c.Last.Outcome != "" && c.Last.Outcome != cron.OK {
			failed++
		}
		if c.Paused {
			pausedSchedules++
		}
	}
	for _, n := range []struct {
		n    int64
		what string
	}{{dead, "dead letter"}, {failed, "failed schedule"}, {paused, "paused queue"}, {pausedSchedules, "paused schedule"}} {
		if n.n > 0 {
			out = append(out, count(n.n, n.what))
		}
	}
	return out
}

func count(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
