package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// What is known about an operation.
const (
	maybe   = iota // nobody knows
	applied        // it was answered
	refused        // surely not applied
)

// An op is one request to an object and what came of it.
type op struct {
	id, object, kind string
	steps            []string
	start, end       int64
	fate, code       int
	// length is what it was answered. Of an operation that adds it is its place.
	length int
	// seen are what it let out before its end.
	seen []seen
}

// seen is a length that was let out in the middle of an event.
type seen struct {
	object string
	length int
	// start is a moment before the event arrived, and end when it was seen.
	start, end int64
}

func (o *op) has(step string) bool {
	for _, s := range o.steps {
		if s == step {
			return true
		}
	}
	return false
}

// kinds are the operations by their steps, as often as they stand here.
var kinds = [][]string{
	{}, {}, {}, {"wait"}, {"wait"},
	{"add"}, {"add"}, {"add"}, {"add"}, {"add", "wait"}, {"wait", "add"},
	{"observe"}, {"wait", "observe"}, {"add", "observe"}, {"add", "observe", "wait"},
	{"add", "flush", "wait"}, {"flush"},
	{"send"}, {"send"}, {"add", "send"}, {"send", "observe", "add"},
	{"alarm"}, {"add", "alarm"}, {"alarm", "add", "observe"}, {"noalarm"},
	{"add", "fail"},
}

// plain are those for objects whose operations are all alike.
var plain = [][]string{{}, {}, {"wait"}, {"add"}, {"add"}, {"add"}, {"add", "wait"}, {"wait", "add"}, {"add", "observe"}, {"add", "fail"}}

// client sends operations, one after the other.
func (s *scenario) client(n, count int, r *rand.Rand) {
	for i := range count {
		short, long, often := time.Duration(r.IntN(20))*time.Millisecond, time.Duration(r.Int64N(int64(ttl))), r.IntN(6) == 0
		switch {
		case s.profile.busy:
			short /= 4
			often = false
		case s.profile.slow:
			often = true
		}
		if often {
			short = long
		}
		time.Sleep(short)
		name := s.objects[r.IntN(len(s.objects))]
		list := kinds
		if name[0] == 'c' {
			list = plain
		}
		steps := list[r.IntN(len(list))]
		q := url.Values{"ms": {strconv.Itoa(r.IntN(900))}, "in": {strconv.Itoa([]int{0, 100, 2000}[r.IntN(3)])}}
		m := s.pick(r.IntN(100))
		ctx, cancel := context.WithCancel(s.ctx)
		if leaves := time.Duration(r.IntN(300)) * time.Millisecond; r.IntN(15) == 0 && !s.profile.calm() {
			time.AfterFunc(leaves, cancel)
		}
		if m != nil {
			s.request(ctx, m, name, fmt.Sprintf("%d.%d", n, i), steps, q)
		}
		cancel()
	}
}

// request sends one operation.
func (s *scenario) request(ctx context.Context, m *member, name, id string, steps []string, q url.Values) *op {
	o := &op{id: id, object: name, steps: steps}
	o.start = s.moment()
	s.mu.Lock()
	s.ops = append(s.ops, o)
	s.mu.Unlock()
	q["do"] = steps
	q.Set("op", id)
	q.Set("object", name)
	q.Set("start", strconv.FormatInt(o.start, 10))
	if name[0] == 'c' {
		q.Set("anonymous", "")
	}
	s.tell("%s %v of %s by %s", id, steps, name, m.id)
	code, _, body := m.send(ctx, name, q)
	s.mu.Lock()
	s.seq++
	o.end, o.code = s.seq, code
	switch {
	case code == 200:
		o.fate = applied
		o.length, _ = strconv.Atoi(body)
	case code == 503, code == 500 && !o.has("observe") && !o.has("flush"):
		o.fate = refused
	}
	s.mu.Unlock()
	s.tell("%s is answered %d %q", id, code, body)
	return o
}

// observed is called when an event lets something out.
func (s *scenario) observed(q url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	x := seen{object: q.Get("object"), end: s.seq}
	x.length, _ = strconv.Atoi(q.Get("length"))
	x.start, _ = strconv.ParseInt(q.Get("start"), 10, 64)
	id := q.Get("op")
	for _, o := range s.ops {
		if o.id == id && id != "" {
			o.seen = append(o.seen, x)
			return
		}
	}
	s.ops = append(s.ops, &op{object: x.object, seen: []seen{x}, start: x.start, end: x.end, fate: refused}) // an alarm's
}

// The ends of a run of an alarm, or a delivery, that is no success.
const (
	failed  = "failed"
	crashed = "crashed"
)

// An alarmRun is one run of an alarm.
type alarmRun struct {
	m     *member
	retry int
	how   string
}

// alarmRun notes that a run begins. n counts those of the alarm, from 0.
func (s *scenario) alarmRun(gen string, m *member, retry int) (r *alarmRun, n int) {
	s.tell("the alarm %s runs on %s, retry %d", gen, m.id, retry)
	s.mu.Lock()
	defer s.mu.Unlock()
	r = &alarmRun{m: m, retry: retry}
	if m.wire.cut.Load() {
		return r, 0
	}
	n = len(s.alarms[gen])
	s.alarms[gen] = append(s.alarms[gen], r)
	return r, n
}

// A delivery is one of a message.
type delivery struct {
	attempts int
	how      string
}

const acked = "acked"

// mail is the body of a message.
type mail struct{ Object, Op string }

// consume is the consumer. What it does belongs to the message and the number
// of its delivery.
func (m *member) consume(ctx context.Context, _ durable.Env, b durable.Batch) error {
	s := m.s
	var err error
	for _, msg := range b.Messages() {
		var body mail
		if err := json.Unmarshal(msg.Body(), &body); err != nil {
			return err
		}
		if m.wire.cut.Load() {
			return ctx.Err()
		}
		s.tell("message %s is delivered to %s, attempt %d", body.Op, m.id, msg.Attempts())
		s.mu.Lock()
		d := &delivery{attempts: msg.Attempts()}
		n := len(s.mails[body.Op])
		s.mails[body.Op] = append(s.mails[body.Op], d)
		s.mu.Unlock()
		if s.draw(5, body.Op, n, "slow") == 0 {
			if err := wait(ctx, time.Duration(s.draw(int(visibility/time.Millisecond), body.Op, n))*time.Millisecond); err != nil {
				return err
			}
		}
		x := s.draw(10, body.Op, n, "end")
		switch {
		case x == 0 && n < 2:
			d.how = failed
			msg.Retry(time.Duration(s.draw(500, body.Op)) * time.Millisecond)
		case x == 1 && n < 2:
			d.how = failed
			err = errors.New("the consumer fails")
		case x < 4 && s.mayCrash(m):
			d.how = crashed
			s.crash(m)
			<-ctx.Done()
			return ctx.Err()
		default:
			d.how = acked
			msg.Ack()
		}
	}
	return err
}

// harm does from time to time what a profile says, until ctx ends.
func (s *scenario) harm(ctx context.Context, r *rand.Rand) {
	var all []func(n int)
	p := s.profile
	if p.crash {
		all = append(all, func(n int) {
			// Half of what may crash is left to alarms and consumers.
			if m := s.pick(n); m != nil && s.crashed() < maxCrashes/2 && s.mayCrash(m) {
				s.crash(m)
			}
		})
	}
	if p.clock {
		all = append(all, func(n int) {
			d := time.Duration(n) * time.Millisecond / 10 * 2 * time.Duration(ttl/time.Second)
			if n%3 == 0 {
				d = -d / 4
			}
			s.tell("the primary's clock goes %v ahead", d)
			s.primary.step(d)
			s.pounce(n)
		})
	}
	if p.operator {
		all = append(all, func(n int) {
			s.release(n)
			s.pounce(n)
		})
	}
	for n := 0; len(all) > 0 && wait(ctx, time.Duration(r.Int64N(int64(ttl/2)))) == nil; n++ {
		all[r.IntN(len(all))](r.IntN(10_000))
	}
}

// pounce has one replica change an object and another one tell of it, at once:
// one of them may believe that it has the lease.
func (s *scenario) pounce(n int) {
	name := s.objects[n%len(s.objects)]
	tell := [][]string{{}, {"observe"}}[n/4%2]
	for i, steps := range [][]string{{"add"}, tell, tell} {
		if m := s.pick(n/8 + i); m != nil {
			s.request(s.ctx, m, name, fmt.Sprintf("p%d.%d.%d", n, s.moment(), i), steps, url.Values{})
		}
	}
}

// release ends a lease, as an operator may.
func (s *scenario) release(n int) {
	rows, _, _ := s.primary.run("", []libsql.Statement{libsql.S(`SELECT s.class, s.id, json_extract(kv.v, '$.holder'), kv.ver FROM sim_key s JOIN kv ON kv.k = s.k`)}, 0, false)
	if len(rows[0].Rows) == 0 {
		return
	}
	row := rows[0].Rows[n%len(rows[0].Rows)]
	s.tell("an operator ends the lease of %s", s.names[row[1].(string)])
	if _, wrong, err := s.primary.run("", []libsql.Statement{libsql.S(`DELETE FROM kv WHERE k = ? AND ver = ?`, lease.Key(row[0].(string), row[1].(string)), row[3])}, 0, false); err != nil || wrong != nil {
		s.wrong(fmt.Sprint("an operator's release: ", wrong, err))
	}
}
