package sim

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/queue"
)

// check asks all objects what became of everything, and compares that with what
// was promised. Nothing goes wrong meanwhile.
func (s *scenario) check() {
	_, letters := s.dead(alarm.DeadPrefix)
	keys, _ := s.dead(alarm.DeadPrefix)
	if s.profile.exact() && len(letters) > 0 {
		s.wrong(fmt.Sprint("dead alarms: ", letters))
	}
	buried := map[string]bool{}
	for _, k := range keys {
		buried[s.names[k[2].(string)]] = true
	}
	for n, name := range s.objects {
		if o := s.request(s.ctx, s.pick(n), name, "last "+name, []string{"add"}, url.Values{}); o.fate != applied {
			s.wrong(fmt.Sprintf("when nothing goes wrong any more %s answers %d", name, o.code))
		}
		var d dump
		code, header, _ := s.pick(n+1).send(s.ctx, name, url.Values{"do": {"dump"}})
		if err := json.Unmarshal([]byte(header.Get("Dump")), &d); code != 200 || err != nil {
			s.wrong(fmt.Sprintf("%s cannot be read: %d %v", name, code, err))
			continue
		}
		var ops []*op
		s.mu.Lock()
		for _, o := range s.ops {
			if o.object == name {
				ops = append(ops, o)
			}
		}
		s.mu.Unlock()
		s.tell("%s holds %v, %v", name, d.Log, d.Alarms)
		s.wrong(checkLog(name, ops, d.Log)...)
		s.wrong(checkOrder(name, ops, len(d.Log))...)
		s.wrong(checkAlarms(ops, d.Alarms, buried[name])...)
	}
	s.wrong(s.checkRuns()...)
	s.wrong(s.checkMails()...)
	if s.profile.calm() {
		for _, o := range s.ops {
			if o.id != "" && o.fate != applied && !o.has("fail") {
				s.wrong(fmt.Sprintf("nothing goes wrong, and %s %v of %s is answered %d", o.id, o.steps, o.object, o.code))
			}
		}
	}
}

// checkLog compares the log with what its operations were answered: who was
// answered is there once, at the place that he was told, and who was refused is
// not.
func checkLog(name string, ops []*op, log []string) (wrong []string) {
	anonymous := name[0] == 'c'
	atLeast, atMost := 0, 0
	places := map[int]string{}
	for _, o := range ops {
		if !o.has("add") {
			continue
		}
		told := []int{}
		if o.fate == applied {
			told = append(told, o.length)
		}
		for _, x := range o.seen {
			if slices.Index(o.steps, "add") < slices.Index(o.steps, "observe") {
				told = append(told, x.length)
			}
		}
		if len(told) > 0 {
			atLeast++
		}
		if len(told) > 0 || o.fate == maybe {
			atMost++
		}
		if len(told) > 0 {
			if other, ok := places[told[0]]; ok {
				wrong = append(wrong, fmt.Sprintf("%s and %s of %s were both told place %d", o.id, other, name, told[0]))
			}
			places[told[0]] = o.id
		}
		if anonymous {
			continue
		}
		n := 0
		for i, id := range log {
			if id == o.id {
				n++
				for _, place := range told {
					if place != i+1 {
						wrong = append(wrong, fmt.Sprintf("%s of %s was told place %d and has %d", o.id, name, place, i+1))
					}
				}
			}
		}
		switch {
		case len(told) > 0 && n != 1:
			wrong = append(wrong, fmt.Sprintf("%s of %s was answered and is there %d times", o.id, name, n))
		case n > 1:
			wrong = append(wrong, fmt.Sprintf("%s of %s is there %d times", o.id, name, n))
		case len(told) == 0 && o.fate == refused && n > 0:
			wrong = append(wrong, fmt.Sprintf("%s of %s was refused with %d and is there", o.id, name, o.code))
		}
	}
	if len(log) < atLeast || len(log) > atMost {
		wrong = append(wrong, fmt.Sprintf("%s holds %d operations, %d to %d were made", name, len(log), atLeast, atMost))
	}
	return wrong
}

// A look is a moment between start and end at which the log had a length: right
// behind an operation, or between two.
type look struct {
	id         string
	length     int
	adds       bool
	start, end int64
}

// checkOrder demands that all answers can be put into one order in which each
// was true and which real time does not contradict. Since the log only grows,
// its lengths give the order.
func checkOrder(name string, ops []*op, length int) (wrong []string) {
	looks := []look{}
	for _, o := range ops {
		for i, x := range o.seen {
			adds := o.has("add") && slices.Index(o.steps, "add") < slices.Index(o.steps, "observe")
			looks = append(looks, look{o.id, x.length, adds && i == 0, x.start, x.end})
		}
		if o.fate == applied {
			looks = append(looks, look{o.id, o.length, o.has("add"), o.start, o.end})
		}
	}
	slices.SortStableFunc(looks, func(a, b look) int {
		switch {
		case a.length != b.length:
			return a.length - b.length
		case a.adds != b.adds && a.adds:
			return -1
		case a.adds != b.adds:
			return 1
		}
		return int(a.start - b.start)
	})
	var latest look
	for _, l := range looks {
		if l.end < latest.start {
			wrong = append(wrong, fmt.Sprintf("%s of %s saw length %d and ended before %s began, which saw %d", l.id, name, l.length, latest.id, latest.length))
		}
		if l.start > latest.start {
			latest = l
		}
		if l.length > length {
			wrong = append(wrong, fmt.Sprintf("%s of %s saw length %d, and it has only %d", l.id, name, l.length, length))
		}
	}
	return wrong
}

// checkAlarms: who was answered has set an alarm, which has run or was replaced.
func checkAlarms(ops []*op, states []string, buried bool) (wrong []string) {
	for _, o := range ops {
		if !o.has("alarm") {
			continue
		}
		i := slices.IndexFunc(states, func(s string) bool { return strings.HasSuffix(s, " "+o.id) })
		switch {
		case i < 0 && o.fate == applied:
			wrong = append(wrong, fmt.Sprintf("the alarm %s was answered and is not there", o.id))
		case i >= 0 && o.fate == refused && len(o.seen) == 0:
			wrong = append(wrong, fmt.Sprintf("the alarm %s was refused and is there", o.id))
		case i >= 0 && strings.HasPrefix(states[i], "pending") && !buried:
			wrong = append(wrong, fmt.Sprintf("the alarm %s was never run to its end", o.id))
		}
	}
	return wrong
}

// checkRuns compares what the runs of alarms were told with how those before
// them ended.
func (s *scenario) checkRuns() (wrong []string) {
	for gen, runs := range s.alarms {
		failures, ended := 0, 0
		for i, r := range runs {
			if s.profile.exact() && s.profile.fail == 0 && (r.retry > failures || s.profile.calm() && r.retry < failures) {
				wrong = append(wrong, fmt.Sprintf("run %d of the alarm %s is told of %d failures, and there were %d", i, gen, r.retry, failures))
			}
			if s.profile.name == "crash" && i > 0 && runs[i-1].how == crashed && r.retry <= runs[i-1].retry {
				wrong = append(wrong, fmt.Sprintf("run %d of the alarm %s is told of %d failures, as the one that crashed", i, gen, r.retry))
			}
			if r.how == failed {
				failures++
			} else if r.how == "" {
				ended++
			}
		}
		if s.profile.calm() && ended > 1 {
			wrong = append(wrong, fmt.Sprintf("nothing goes wrong, and the alarm %s has %d runs that succeed", gen, ended))
		}
	}
	return wrong
}

// checkMails: a message that was sent is delivered until it is acknowledged or
// dead, and one that was not is never.
func (s *scenario) checkMails() (wrong []string) {
	_, letters := s.dead(queue.PrefixDead)
	if s.profile.exact() && s.profile.fail == 0 && len(letters) > 0 {
		wrong = append(wrong, fmt.Sprint("dead messages: ", letters))
	}
	sent := map[string]*op{}
	for _, o := range s.ops {
		if !o.has("send") {
			continue
		}
		sent[o.id] = o
		list := s.mails[o.id]
		done := slices.ContainsFunc(list, func(d *delivery) bool { return d.how == acked })
		isDead := slices.ContainsFunc(letters, func(v string) bool { return strings.Contains(v, `"`+o.id+`"`) })
		switch {
		case o.fate == applied && !done && !isDead:
			wrong = append(wrong, fmt.Sprintf("the message %s was never delivered to the end", o.id))
		case o.fate == refused && len(o.seen) == 0 && len(list) > 0:
			wrong = append(wrong, fmt.Sprintf("the message %s was refused and is delivered", o.id))
		}
	}
	for id, list := range s.mails {
		if sent[id] == nil {
			wrong = append(wrong, fmt.Sprintf("the message %s was never sent", id))
		}
		failures := 0
		for i, d := range list {
			if s.profile.exact() && s.profile.fail == 0 && (d.attempts > failures+1 || s.profile.calm() && d.attempts < failures+1) {
				wrong = append(wrong, fmt.Sprintf("delivery %d of the message %s is attempt %d, and %d failed", i, id, d.attempts, failures))
			}
			if s.profile.name == "crash" && i > 0 && list[i-1].how == crashed && d.attempts <= list[i-1].attempts {
				wrong = append(wrong, fmt.Sprintf("delivery %d of the message %s is attempt %d, as the one that crashed", i, id, d.attempts))
			}
			if d.how == failed {
				failures++
			}
		}
		if s.profile.calm() && len(list) != failures+1 {
			wrong = append(wrong, fmt.Sprintf("nothing goes wrong, and the message %s is delivered %d times, of which %d failed", id, len(list), failures))
		}
	}
	return wrong
}
