package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// A thing is an object: a log of the operations that were applied to it, with an alarm.
// Its answers tell how long the log is, so that every operation has its place.
type thing struct {
	state durable.State
	env   env
	class string
}

// The classes: one that writes when it is constructed, and one whose first
// commit may have no pages.
const (
	eager = "Eager"
	lazy  = "Lazy"
)

const tables = `CREATE TABLE IF NOT EXISTS log(op TEXT); CREATE TABLE IF NOT EXISTS alarms(gen TEXT, state TEXT)`

func newObject(class string, e env) durable.Class {
	return func(s durable.State, de durable.Env) (durable.Object, error) {
		e := e
		e.Env = de
		o := &thing{state: s, env: e, class: class}
		if class == eager {
			return o, o.exec(context.Background(), tables)
		}
		return o, nil
	}
}

// env is what an object has besides its state.
type env struct {
	durable.Env
	m *member
}

func (o *thing) exec(ctx context.Context, sql string, args ...any) error {
	_, err := o.state.SQL().Exec(ctx, sql, args...)
	return err
}

// list returns the first column of a query's rows, none when there is no table.
func (o *thing) list(ctx context.Context, table, sql string) (out []string, err error) {
	for _, q := range []string{`SELECT name FROM sqlite_schema WHERE name = '` + table + `'`, sql} {
		out = []string{}
		for row, err := range o.state.SQL().Query(ctx, q) {
			if err != nil {
				return nil, err
			}
			out = append(out, fmt.Sprint(row.Values[0]))
		}
		if len(out) == 0 {
			break
		}
	}
	return out, nil
}

// length returns the length of the log.
func (o *thing) length(ctx context.Context) (int, error) {
	n, err := o.list(ctx, "log", `SELECT count(*) FROM log`)
	if err != nil || len(n) == 0 {
		return 0, err
	}
	return strconv.Atoi(n[0])
}

// observe lets the length out in the middle of an event.
func (o *thing) observe(ctx context.Context, q url.Values) error {
	n, err := o.length(ctx)
	if err != nil {
		return err
	}
	q.Set("length", strconv.Itoa(n))
	r, err := http.NewRequestWithContext(ctx, "GET", "http://outside.example/?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := o.env.HTTPClient().Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ServeHTTP runs the steps of an operation in the order of its query.
func (o *thing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, q := r.Context(), r.URL.Query()
	for _, step := range q["do"] {
		if err := o.do(ctx, w, step, q); err != nil {
			panic(err)
		}
	}
	n, err := o.length(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Fprint(w, n)
}

func (o *thing) do(ctx context.Context, w http.ResponseWriter, step string, q url.Values) error {
	op := q.Get("op")
	switch step {
	case "add":
		if err := o.exec(ctx, tables); err != nil {
			return err
		}
		if q.Has("anonymous") {
			op = "" // two of these are the same change of the same pages
		}
		return o.exec(ctx, `INSERT INTO log VALUES (?)`, op)
	case "wait":
		ms, _ := strconv.Atoi(q.Get("ms"))
		return wait(ctx, time.Duration(ms)*time.Millisecond)
	case "observe":
		return o.observe(ctx, url.Values{"op": {op}, "object": {q.Get("object")}, "start": {q.Get("start")}})
	case "flush":
		return http.NewResponseController(w).Flush()
	case "send":
		return o.env.Queue(queueName).Send(ctx, map[string]string{"object": q.Get("object"), "op": op}, durable.SendOptions{})
	case "alarm":
		if err := o.exec(ctx, tables); err != nil {
			return err
		}
		ms, _ := strconv.Atoi(q.Get("in"))
		if err := o.exec(ctx, `UPDATE alarms SET state = 'replaced' WHERE state = 'pending'; INSERT INTO alarms VALUES (?, 'pending')`, op); err != nil {
			return err
		}
		return o.state.SetAlarmIn(time.Duration(ms) * time.Millisecond)
	case "noalarm":
		if err := o.exec(ctx, tables); err != nil {
			return err
		}
		if err := o.exec(ctx, `UPDATE alarms SET state = 'replaced' WHERE state = 'pending'`); err != nil {
			return err
		}
		return o.state.DeleteAlarm()
	case "fail":
		return errors.New("the handler fails")
	case "dump":
		var d dump
		var err error
		if d.Log, err = o.list(ctx, "log", `SELECT op FROM log ORDER BY rowid`); err == nil {
			d.Alarms, err = o.list(ctx, "alarms", `SELECT state || ' ' || gen FROM alarms`)
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(d)
		w.Header().Set("Dump", string(text))
		return err
	}
	return errors.New("unknown step " + step)
}

// A dump is all that an object holds.
type dump struct{ Log, Alarms []string }

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// draw is a number below n that belongs to some texts, in every run of a seed.
func (s *scenario) draw(n int, texts ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, texts)
	return int(h.Sum64() >> 8 % uint64(n))
}

// Alarm implements durable.Alarmer. What it does belongs to the alarm and the
// number of its run.
func (o *thing) Alarm(ctx context.Context, info durable.AlarmInfo) error {
	s, m := o.env.m.s, o.env.m
	pending, err := o.list(ctx, "alarms", `SELECT gen FROM alarms WHERE state = 'pending'`)
	if err != nil {
		return err
	}
	if len(pending) != 1 {
		if !m.wire.cut.Load() {
			s.wrong(fmt.Sprintf("an alarm of %s runs on %s, and %d are pending", o.state.ID(), m.id, len(pending)))
		}
		return errors.New("no alarm is pending")
	}
	gen := pending[0]
	run, n := s.alarmRun(gen, m, info.RetryCount)
	if s.draw(4, gen, n, "slow") == 0 {
		if err := wait(ctx, time.Duration(s.draw(int(2*ttl/time.Millisecond), gen, n, "ms"))*time.Millisecond); err != nil {
			return err
		}
	}
	if s.draw(3, gen, n, "part") == 0 { // a part is committed before the end
		if err := o.exec(ctx, `CREATE TABLE IF NOT EXISTS parts(gen TEXT); INSERT INTO parts VALUES (?)`, gen); err != nil {
			return err
		}
		if err := o.observe(ctx, url.Values{"object": {s.name(o.state.ID())}}); err != nil {
			return err
		}
	}
	switch x := s.draw(10, gen, n, "end"); {
	case x < 2 && n < 3:
		run.how = failed
		return errors.New("the alarm fails")
	case x < 5 && s.mayCrash(m):
		run.how = crashed
		s.crash(m)
		<-ctx.Done()
		return ctx.Err()
	}
	return o.exec(ctx, `UPDATE alarms SET state = 'fired' WHERE gen = ?`, gen)
}
