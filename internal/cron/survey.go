package cron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Survey is what is stored of a schedule that was seen, at one moment. Times
// are epoch milliseconds by the primary's clock.
type Survey struct {
	Name string
	// Schedule and Zone are those of the replica that ran it last, or saw it first.
	Schedule, Zone string
	Paused         bool
	// Settled is the instant up to which occurrences are dealt with.
	Settled int64
	// Last is the newest occurrence that was run; its outcome is empty while it
	// runs.
	Last Run
	// Claims are the occurrences that were won and have not ended.
	Claims []Claim

	since, from int64
}

// A Claim is an occurrence that was won and has not ended.
type Claim struct {
	At      int64
	Attempt int
	Replica string
	// Until is when it ends unless it is renewed: one that has ended was cut off.
	Until int64
	// Listed tells that replicas can find it.
	Listed bool
}

// The statements of a survey go through the schedules whose last is in a range.
var (
	surveySQL = `SELECT l.k, l.v, EXISTS (SELECT 1 FROM kv p WHERE p.k = CAST(?3 || substr(l.k, length(?4) + 1) AS BLOB) AND ` + live("p") + `)
	FROM kv l WHERE l.k >= ?1 AND l.k < ?2 AND ` + live("l") + ` AND ` + object("l") + ` ORDER BY l.k LIMIT ?5`

	claimsSQL = `SELECT l.k, o.value, e.v FROM kv l CROSS JOIN ` + listed + `
	JOIN kv e ON e.k = ` + key(`CAST(?3 || substr(l.k, length(?4) + 1) AS BLOB)`, `o.value`) + `
	WHERE l.k >= ?1 AND l.k < ?2 AND o.type = 'integer' AND ` + running("e") + ` LIMIT ?5`
)

// SurveyStatements returns the statements that look at all schedules, at most so
// many, for [ReadSurvey].
func SurveyStatements(most int) []libsql.Statement {
	lo := tuple.MustEncode(PrefixLast)
	return surveyRange(lo, tuple.RangeEnd(lo), most)
}

func surveyRange(lo, hi []byte, most int) []libsql.Statement {
	last := tuple.MustEncode(PrefixLast)
	return []libsql.Statement{
		libsql.S(surveySQL, lo, hi, tuple.MustEncode(PrefixPause), last, most),
		libsql.S(claimsSQL, lo, hi, tuple.MustEncode(PrefixOccurrence), last, most*maxOverlap),
	}
}

// ReadSurvey reads the results of [SurveyStatements], in the order of the names.
func ReadSurvey(res []libsql.Result) []Survey {
	list := []Survey{}
	byKey := map[string]int{}
	for _, row := range res[0].Rows {
		k, _ := row[0].([]byte)
		text, _ := row[1].(string)
		paused, _ := row[2].(int64)
		parts, err := tuple.Decode(k)
		if err != nil || len(parts) != 2 {
			continue
		}
		var l last
		_ = json.Unmarshal([]byte(text), &l) // what can be had
		s := Survey{Schedule: l.Schedule, Zone: l.Zone, Paused: paused != 0, Settled: l.settled(), since: l.Since, from: l.From}
		s.Name, _ = parts[1].(string)
		if l.StartedAt > 0 {
			s.Last = Run{At: l.Bucket, Attempt: l.Attempt, Replica: l.Replica, StartedAt: l.StartedAt, FinishedAt: l.FinishedAt, Outcome: l.Outcome}
		}
		byKey[string(k)] = len(list)
		list = append(list, s)
	}
	for _, row := range res[1].Rows {
		k, _ := row[0].([]byte)
		at, _ := row[1].(int64)
		if i, ok := byKey[string(k)]; ok {
			if c, ok := readClaim(at, row[2]); ok {
				c.Listed = true
				list[i].Claims = append(list[i].Claims, c)
			}
		}
	}
	return list
}

func readClaim(at int64, v any) (Claim, bool) {
	var o occurrence
	text, _ := v.(string)
	if json.Unmarshal([]byte(text), &o) != nil {
		return Claim{}, false
	}
	return Claim{At: at, Attempt: o.Attempt, Replica: o.Replica, Until: o.Until}, true
}

// expected returns the expression by which occurrences are expected: that of the
// options, if there are any, or that of the newest run.
func (s Survey) expected(o *Options) (Schedule, error) {
	if o != nil && o.Schedule != "" {
		return Parse(o.Schedule, o.Zone)
	}
	return Parse(s.Schedule, s.Zone)
}

// Overdue returns the first occurrence of those that are due and that nobody has
// begun, 0 without one: also when it waits for a run under way, or for the end of
// a pause. Options, unless nil, are those that replicas are configured with.
func (s Survey) Overdue(nowMs int64, o *Options) (at int64) {
	if s.Paused || o != nil && o.Paused || s.Settled <= 0 {
		return 0
	}
	allow := o != nil && o.Allow
	if !allow && slices.ContainsFunc(s.Claims, func(c Claim) bool { return c.Until > nowMs }) {
		return 0
	}
	e, err := s.expected(o)
	if err != nil {
		return 0
	}
	if next := e.Next(time.UnixMilli(s.Settled)); !next.IsZero() && ms(next) <= nowMs {
		return ms(next)
	}
	return 0
}

// CutOff are the claims that ended before an instant and were not taken up again,
// although no pause is in the way.
func (s Survey) CutOff(beforeMs int64) (list []Claim) {
	for _, c := range s.Claims {
		if c.Until < beforeMs && !s.Paused {
			list = append(list, c)
		}
	}
	return list
}

// An Examined schedule is a survey of one with its history, oldest first. Its
// claims are also those that replicas cannot find.
type Examined struct {
	Survey
	Lines []Run
	NowMs int64
}

// Examine reads all that is known of a schedule, in one transaction; ok is false
// when it was never seen.
func Examine(ctx context.Context, s *kv.Store, name string) (x Examined, ok bool, err error) {
	lo, entries := tuple.MustEncode(PrefixLast, name), tuple.MustEncode(PrefixOccurrence, name)
	res, err := s.Decide(ctx, append(surveyRange(lo, append(slices.Clone(lo), 0), 1),
		libsql.S(`SELECT e.k, e.v, `+kv.Now+` FROM kv e WHERE e.k > ? AND e.k < ? AND `+running("e")+` LIMIT ?`, entries, tuple.RangeEnd(entries), History),
		history(name, History), libsql.S(`SELECT `+kv.Now))...)
	if err != nil {
		return x, false, fmt.Errorf("schedule %s: %w", name, err)
	}
	list := ReadSurvey(res)
	if len(list) == 0 {
		return x, false, nil
	}
	x.Survey = list[0]
	x.NowMs, _ = res[4].Rows[0][0].(int64)
	for _, row := range res[2].Rows {
		k, _ := row[0].([]byte)
		parts, err := tuple.Decode(k)
		if err != nil || len(parts) != 3 {
			continue
		}
		at, _ := parts[2].(float64)
		known := slices.ContainsFunc(x.Claims, func(c Claim) bool { return c.At == int64(at) })
		if c, ok := readClaim(int64(at), row[1]); ok && !known {
			x.Claims = append(x.Claims, c)
		}
	}
	for _, row := range res[3].Rows {
		if r, ok := readRun(row, x.NowMs); ok {
			x.Lines = append(x.Lines, r)
		}
	}
	slices.Reverse(x.Lines)
	return x, true, nil
}

// maxHoles bounds how many holes of a history are counted.
const maxHoles = 1000

// Holes counts the occurrences that the history should have and has not, and
// returns the first one. It looks back as far as the expression, the last pause
// and the bounds of the history allow.
func (x Examined) Holes() (first int64, n int) {
	e, err := Parse(x.Schedule, x.Zone)
	if err != nil || x.from == 0 {
		return 0, 0
	}
	at := max(x.since, x.from-1, x.NowMs-Keep.Milliseconds())
	if len(x.Lines) >= History {
		at = max(at, x.Lines[0].At-1)
	}
	lines := x.Lines
	for n < maxHoles {
		next := e.Next(time.UnixMilli(at))
		if at = ms(next); next.IsZero() || at > x.Settled {
			break
		}
		i, found := slices.BinarySearchFunc(lines, at, func(r Run, at int64) int { return int(r.At - at) })
		lines = lines[i:]
		switch {
		case found:
		case len(lines) > 0 && lines[0].Error == othersBefore:
			at = lines[0].At
		default:
			if n++; n == 1 {
				first = at
			}
		}
	}
	return first, n
}
