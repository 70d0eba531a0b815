package cron

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Names returns the schedules that have been seen, run, paused or requested.
func Names(ctx context.Context, s *kv.Store) ([]string, error) {
	var names []string
	for _, prefix := range []string{PrefixLast, PrefixRun, PrefixPause, PrefixRequest} {
		first := tuple.MustEncode(prefix)
		for lo, hi := first, tuple.RangeEnd(first); ; {
			res, err := s.Decide(ctx, libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT 1`, lo, hi))
			if err != nil {
				return nil, fmt.Errorf("list schedules: %w", err)
			}
			if len(res[0].Rows) == 0 {
				break
			}
			k, _ := res[0].Rows[0][0].([]byte)
			lo = append(slices.Clone(k), 0)
			if key, err := tuple.Decode(k); err == nil && len(key) > 1 {
				if name, ok := key[1].(string); ok {
					names = append(names, name)
					lo = tuple.RangeEnd(tuple.MustEncode(prefix, name))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Info is what an operator sees of a schedule. Times are epoch milliseconds by
// the primary's clock.
type Info struct {
	Name string `json:"name"`
	// Schedule and Zone are those of the newest run, empty without one.
	Schedule string `json:"schedule"`
	Zone     string `json:"zone"`
	// Next is the next occurrence, 0 when it is not known or the schedule is paused.
	Next int64 `json:"next,omitempty"`
	// Last is the newest run, and Running are those under way.
	Last     *Run   `json:"last"`
	Running  []Run  `json:"running"`
	Requests int64  `json:"requests"`
	Paused   bool   `json:"paused"`
	PausedBy string `json:"paused_by,omitempty"`
	PausedAt int64  `json:"paused_at,omitempty"`
	// NowMs is the primary's clock.
	NowMs int64 `json:"-"`
}

// A Run is a line of the history. Times are epoch milliseconds by the primary's
// clock.
type Run struct {
	// At is the occurrence, and Attempt which run of it this is: 0 was not run.
	// Request tells that an operator asked for it.
	At      int64  `json:"at"`
	Request bool   `json:"request,omitempty"`
	Attempt int    `json:"attempt"`
	Replica string `json:"replica,omitempty"`
	// StartedAt is 0 of what was not run, and FinishedAt of what runs.
	StartedAt  int64 `json:"started_at,omitempty"`
	FinishedAt int64 `json:"finished_at,omitempty"`
	// Outcome is ok, failed, interrupted, skipped or missed, or running.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
}

// Running is the outcome that an operator is shown of a run under way.
const Running = "running"

type pause struct {
	By string `json:"by"`
	At int64  `json:"at"` // epoch milliseconds
}

// Inspect looks at a schedule.
func Inspect(ctx context.Context, s *kv.Store, name string) (Info, error) {
	requests := tuple.MustEncode(PrefixRequest, name)
	res, err := s.Decide(ctx, append(look([]string{name}),
		libsql.S(`SELECT v FROM kv WHERE k = ? AND `+kv.Live, tuple.MustEncode(PrefixPause, name)),
		libsql.S(`SELECT count(*) FROM kv WHERE k >= ? AND k < ? AND `+kv.Live, requests, tuple.RangeEnd(requests)),
		history(name, 20))...)
	if err != nil {
		return Info{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	list, now := readLook(res, 1)
	i := Info{Name: name, Running: []Run{}, NowMs: now, Paused: list[0].paused}
	if l := list[0].last; l != nil {
		i.Schedule, i.Zone = l.Schedule, l.Zone
	}
	for _, r := range list[0].running {
		if r.Until > now {
			i.Running = append(i.Running, Run{At: r.at, Attempt: r.Attempt, Replica: r.Replica, StartedAt: r.StartedAt, Outcome: Running})
		}
	}
	if len(res[2].Rows) == 1 {
		var p pause
		text, _ := res[2].Rows[0][0].(string)
		_ = json.Unmarshal([]byte(text), &p) // whatever it says, it is a pause
		i.PausedBy, i.PausedAt = p.By, p.At
	}
	i.Requests, _ = res[3].Rows[0][0].(int64)
	for _, row := range res[4].Rows {
		if r, ok := readRun(row, now); ok && r.StartedAt > 0 {
			i.Last = &r
			break
		}
	}
	return i, nil
}

// history selects the runs of a schedule, newest first, and, of those without
// an outcome, when the claim ends.
func history(name string, limit int) libsql.Statement {
	prefix := tuple.MustEncode(PrefixRun, name)
	return libsql.S(`SELECT h.k, h.v, (SELECT `+number("e", "until")+` FROM kv e WHERE `+field("h", "outcome")+` IS NULL
		AND e.k = CAST(? || substr(h.k, ?, 9) AS BLOB) AND `+running("e")+` AND `+field("e", "attempt")+` = `+field("h", "attempt")+`)
	FROM kv h WHERE h.k > ? AND h.k < ? AND `+live("h")+` ORDER BY h.k DESC LIMIT ?`,
		tuple.MustEncode(PrefixOccurrence, name), len(prefix)+1, prefix, tuple.RangeEnd(prefix), limit)
}

// readRun reads a row of history; ok is false for what is no run.
func readRun(row libsql.Row, now int64) (r Run, ok bool) {
	k, _ := row[0].([]byte)
	text, _ := row[1].(string)
	key, err := tuple.Decode(k)
	if err != nil || len(key) != 4 || json.Unmarshal([]byte(text), &r) != nil {
		return r, false
	}
	at, _ := key[2].(float64)
	n, _ := key[3].(float64)
	r.At, r.Attempt = int64(at), int(n)
	if until, _ := row[2].(int64); r.Outcome == "" {
		r.Outcome = Interrupted
		if until > now {
			r.Outcome = Running
		}
	}
	return r, true
}

// Runs yields the history of a schedule, newest first, at most limit of it.
func Runs(ctx context.Context, s *kv.Store, name string, limit int) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		res, err := s.Decide(ctx, libsql.S(`SELECT `+kv.Now), history(name, limit))
		if err != nil {
			yield(Run{}, fmt.Errorf("history of schedule %s: %w", name, err))
			return
		}
		now, _ := res[0].Rows[0][0].(int64)
		for _, row := range res[1].Rows {
			if r, ok := readRun(row, now); ok && !yield(r, nil) {
				return
			}
		}
	}
}

// Pause stops a schedule in the whole fleet; what runs is finished.
func Pause(ctx context.Context, s *kv.Store, name, by string) error {
	now, err := s.Now(ctx)
	if err != nil {
		return fmt.Errorf("pause schedule %s: %w", name, err)
	}
	_, err = s.Set(ctx, tuple.Key{PrefixPause, name}, pause{by, now.UnixMilli()}, 0)
	return err
}

// Resume ends a pause and reports whether there was one. What has occurred
// during it is not made up for.
func Resume(ctx context.Context, s *kv.Store, name string) (bool, error) {
	p := kv.NewPlan()
	key := tuple.MustEncode(PrefixPause, name)
	p.Add(`UPDATE kv SET v = json_set(v, '$.since', `+kv.Now+`) WHERE k = ? AND `+object("kv")+` AND EXISTS (SELECT 1 FROM kv p WHERE p.k = ? AND `+live("p")+`) AND `+kv.OK,
		tuple.MustEncode(PrefixLast, name), key)
	n := p.Add(`DELETE FROM kv WHERE k = ? AND `+kv.Live+` AND `+kv.OK+` RETURNING 1`, key)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return false, fmt.Errorf("resume schedule %s: %w", name, err)
	}
	return len(v.Results[n].Rows) > 0, nil
}

// Request asks the replicas to run an occurrence, or, when at is zero, the
// present instant. It returns the id of the request, which is gone when a
// replica has begun.
func Request(ctx context.Context, s *kv.Store, name, by string, at time.Time) (id string, err error) {
	value := map[string]any{"by": by}
	if !at.IsZero() && (ms(at) < minMs || ms(at) > maxMs) {
		return "", fmt.Errorf("request a run of schedule %s at %s: %w", name, at.UTC().Format(time.RFC3339), durable.ErrInvalid)
	}
	if !at.IsZero() {
		value["bucket"] = at.UnixMilli()
	}
	id = uuid.NewString()
	if _, err := s.Set(ctx, tuple.Key{PrefixRequest, name, id}, value, RequestTTL); err != nil {
		return "", fmt.Errorf("request a run of schedule %s: %w", name, err)
	}
	return id, nil
}
