package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// opBatch bounds the messages that one statement of an operator changes.
const opBatch = 1000

// Names returns the queues that have messages, dead letters or a pause.
func Names(ctx context.Context, s *kv.Store) ([]string, error) {
	var names []string
	for _, prefix := range []string{PrefixDue, PrefixDead, PrefixPause} {
		first := tuple.MustEncode(prefix)
		for lo, hi := first, tuple.RangeEnd(first); ; {
			res, err := s.Decide(ctx, libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT 1`, lo, hi))
			if err != nil {
				return nil, fmt.Errorf("list queues: %w", err)
			}
			if len(res[0].Rows) == 0 {
				break
			}
			k, _ := res[0].Rows[0][0].([]byte)
			queue, end, ok := nameIn(k, len(first))
			if ok {
				names = append(names, queue)
			}
			lo = end
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// nameIn returns the queue's name in a key, and where the keys of the next
// queue begin.
func nameIn(k []byte, prefix int) (queue string, next []byte, ok bool) {
	for end := prefix; end <= len(k); end++ {
		key, err := tuple.Decode(k[prefix:end])
		if err == nil && len(key) == 1 {
			queue, ok = key[0].(string)
			return queue, tuple.RangeEnd(k[:end]), ok
		}
	}
	return "", append(bytes.Clone(k), 0), false // no key of ours
}

// Info is what an operator sees of a queue. Times are epoch milliseconds by
// the primary's clock.
type Info struct {
	Queue string `json:"queue"`
	// Due messages wait for a consumer, Delayed ones for their time; Claimed
	// ones are being delivered.
	Due     int64 `json:"due"`
	Delayed int64 `json:"delayed"`
	Claimed int64 `json:"claimed"`
	Dead    int64 `json:"dead"`
	// OldestMs is how long the oldest due message has been due, and OldestClaimMs
	// in how much time the first claim ends; both are null without one.
	OldestMs  *int64 `json:"oldest_ms"`
	ClaimEnds *int64 `json:"claim_ends_in_ms"`
	Paused    bool   `json:"paused"`
	PausedBy  string `json:"paused_by,omitempty"`
	PausedAt  int64  `json:"paused_at,omitempty"`
}

// Inspect counts the messages of a queue.
func Inspect(ctx context.Context, s *kv.Store, queue string) (Info, error) {
	dead := deadKey(queue)
	later := `k >= CAST(` + at(kv.Now+` + 1`) + ` AS BLOB) AND k < ?3`
	res, err := s.Decide(ctx,
		libsql.S(`SELECT (SELECT count(*) FROM kv WHERE `+due+`), (SELECT k FROM kv WHERE `+due+` ORDER BY k LIMIT 1), `+kv.Now,
			dueKey(queue), low(queue)),
		libsql.S(`SELECT count(*), count(`+claimOf+`), min(CASE WHEN `+claimOf+` IS NOT NULL THEN k END), `+kv.Now+` FROM kv WHERE ?2 IS NOT NULL AND `+later,
			dueKey(queue), low(queue), tuple.RangeEnd(dueKey(queue))),
		libsql.S(`SELECT count(*) FROM kv WHERE k >= ? AND k < ? AND `+kv.Live, dead, tuple.RangeEnd(dead)),
		libsql.S(`SELECT v FROM kv WHERE k = ? AND `+kv.Live, pauseKey(queue)))
	if err != nil {
		return Info{}, fmt.Errorf("count queue %s: %w", queue, err)
	}
	num := func(r libsql.Row, i int) int64 { n, _ := r[i].(int64); return n }
	now, future := res[0].Rows[0], res[1].Rows[0]
	i := Info{Queue: queue, Due: num(now, 0), Claimed: num(future, 1), Delayed: num(future, 0) - num(future, 1), Dead: num(res[2].Rows[0], 0)}
	if k, ok := now[1].([]byte); ok {
		ms, _ := split(k, len(dueKey(queue)))
		ms = max(0, num(now, 2)-ms)
		i.OldestMs = &ms
	}
	if k, ok := future[2].([]byte); ok {
		ms, _ := split(k, len(dueKey(queue)))
		ms -= num(future, 3)
		i.ClaimEnds = &ms
	}
	if len(res[3].Rows) == 1 {
		var p pause
		text, _ := res[3].Rows[0][0].(string)
		_ = json.Unmarshal([]byte(text), &p) // whatever it says, it is a pause
		i.Paused, i.PausedBy, i.PausedAt = true, p.By, p.At
	}
	return i, nil
}

// A Seen message is one that an operator looks at. Times are epoch
// milliseconds by the primary's clock; At is when it is due, or when its claim
// ends, or when it died.
type Seen struct {
	ID        string          `json:"id"`
	At        int64           `json:"at"`
	Attempts  int             `json:"attempts"`
	Crashes   int             `json:"crashes,omitempty"`
	SentAt    int64           `json:"sent_at,omitempty"`
	Claim     string          `json:"claim,omitempty"`
	ClaimedBy string          `json:"claimed_by,omitempty"`
	Error     string          `json:"error,omitempty"`
	Body      json.RawMessage `json:"body"`
}

// Peek yields messages of a queue without claiming them, or its dead letters,
// in the order of their times; all of them when limit is 0.
func Peek(ctx context.Context, s *kv.Store, queue string, dead bool, limit int) iter.Seq2[Seen, error] {
	prefix := PrefixDue
	if dead {
		prefix = PrefixDead
	}
	return func(yield func(Seen, error) bool) {
		for e, err := range s.List(ctx, kv.ListOptions{Prefix: tuple.Key{prefix, queue}, Limit: limit}) {
			if err != nil {
				yield(Seen{}, err)
				return
			}
			k, err := e.Key.Encode()
			if err != nil {
				yield(Seen{}, err)
				return
			}
			var m Seen
			m.At, m.ID = split(k, len(tuple.MustEncode(prefix, queue)))
			v, err := parse(string(e.Value))
			if err != nil { // no message, but what is in the way is what one wants to see
				v.Body, v.Error = json.RawMessage(encoded(string(e.Value))), "not a message"
			}
			m.Attempts, m.Crashes, m.SentAt, m.Claim, m.ClaimedBy, m.Error, m.Body = v.Attempts, v.Crashes, v.SentAt, v.Claim, v.ClaimedBy, v.Error, v.Body
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Redrive makes the dead letters of a queue messages again, due at once and
// never delivered: all that have died by now, or the one with the id. It
// returns how many it was, also when it fails half-way.
func Redrive(ctx context.Context, s *kv.Store, queue, id string) (int, error) {
	from, to := dueKey(queue), deadKey(queue)
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	args := []any{from, to, append(tuple.MustEncode(PrefixDead, queue, tuple.Millis(now.UnixMilli())), 0xFF), nil, opBatch}
	if id != "" {
		args[3] = tuple.MustEncode(id)
	}
	return repeat(ctx, s, "redrive queue "+queue, `UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now)+` || `+rest(len(to))+` AS BLOB), expires_at = NULL, ver = (SELECT seq FROM kv_meta),
	v = json_remove(json_set(v, '$.attempts', 0), '$.crashes', '$.error', '$.claim', '$.claimed_by')
	WHERE k IN (SELECT k FROM kv WHERE k >= ?2 AND k <= ?3 AND `+kv.Live+` AND `+sound+` AND (?4 IS NULL OR `+rest(len(to))+` = ?4) ORDER BY k LIMIT ?5) AND `+kv.OK, args...)
}

// Hurry makes the messages of a queue that wait for their time due now. Those that
// are being delivered stay. It returns how many it was, also when it fails half-way.
func Hurry(ctx context.Context, s *kv.Store, queue string) (int, error) {
	from := dueKey(queue)
	return repeat(ctx, s, "hurry queue "+queue, `UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now)+` || `+rest(len(from))+` AS BLOB), ver = (SELECT seq FROM kv_meta)
	WHERE k IN (SELECT k FROM kv WHERE k >= CAST(`+at(kv.Now+` + 1`)+` AS BLOB) AND k < ?2 AND `+claimOf+` IS NULL ORDER BY k LIMIT ?3) AND `+kv.OK,
		from, tuple.RangeEnd(from), opBatch)
}

// Purge removes all messages of a queue, those that are being delivered too,
// or its dead letters. It returns how many it was, also when it fails half-way.
func Purge(ctx context.Context, s *kv.Store, queue string, dead bool) (int, error) {
	prefix := dueKey(queue)
	if dead {
		prefix = deadKey(queue)
	}
	return repeat(ctx, s, "purge queue "+queue, `DELETE FROM kv WHERE k IN (SELECT k FROM kv WHERE k >= ?1 AND k < ?2 ORDER BY k LIMIT ?3) AND `+kv.OK,
		prefix, tuple.RangeEnd(prefix), opBatch)
}

// repeat runs a statement as a commit of its own until it changes fewer rows
// than its bound.
func repeat(ctx context.Context, s *kv.Store, what, sql string, args ...any) (total int, err error) {
	for {
		p := kv.NewPlan().Stamped()
		n := p.Add(sql+` RETURNING 1`, args...)
		v, err := s.Commit(ctx, p)
		if err != nil {
			return total, fmt.Errorf("%s: %w", what, err)
		}
		total += len(v.Results[n].Rows)
		if len(v.Results[n].Rows) < opBatch {
			return total, nil
		}
	}
}

type pause struct {
	By string `json:"by"`
	At int64  `json:"at"` // epoch milliseconds
}

// Pause stops the deliveries of a queue in the whole fleet; what is being
// delivered is finished. Sending goes on.
func Pause(ctx context.Context, s *kv.Store, queue, by string) error {
	now, err := s.Now(ctx)
	if err != nil {
		return fmt.Errorf("pause queue %s: %w", queue, err)
	}
	_, err = s.Set(ctx, tuple.Key{PrefixPause, queue}, pause{by, now.UnixMilli()}, 0)
	return err
}

// Resume ends a pause and reports whether there was one.
func Resume(ctx context.Context, s *kv.Store, queue string) (bool, error) {
	p := kv.NewPlan()
	n := p.Add(`DELETE FROM kv WHERE k = ? AND `+kv.OK+` RETURNING 1`, pauseKey(queue))
	v, err := s.Commit(ctx, p)
	if err != nil {
		return false, fmt.Errorf("resume queue %s: %w", queue, err)
	}
	return len(v.Results[n].Rows) > 0, nil
}
