package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
)

// countedAtMost bounds how many messages of a queue are counted.
const countedAtMost = 100_000

// queues looks at how late the messages of each queue are.
func (a *auditor) queues(ctx context.Context) error {
	if a.Class != "" {
		return nil // queues belong to no class
	}
	t := twice[string]{a: a, look: a.lookQueues}
	err := a.eachName(ctx, queue.PrefixDue, func(name string) error {
		a.sum.Queues++
		return t.first(ctx, []string{name})
	})
	if err == nil {
		err = t.flush(ctx)
	}
	if err != nil {
		return err
	}
	return a.eachName(ctx, queue.PrefixDead, func(name string) error { return a.deadMessages(ctx, name) })
}

// eachName calls f with each text that stands behind the kind in keys.
func (a *auditor) eachName(ctx context.Context, kind string, f func(name string) error) error {
	lo, hi := bounds(kind)
	for {
		res, err := a.Store.Decide(ctx, libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT 1`, lo, hi))
		if err != nil {
			return fmt.Errorf("list what begins with %s: %w", kind, err)
		}
		if len(res[0].Rows) == 0 {
			return nil
		}
		k, _ := res[0].Rows[0][0].([]byte)
		key, err := tuple.Decode(k)
		name, ok := "", false
		if err == nil && len(key) > 1 {
			name, ok = key[1].(string)
		}
		if !ok { // reported with the entries
			lo = after(k)
			continue
		}
		if err := f(name); err != nil {
			return err
		}
		_, lo = bounds(kind, name)
	}
}

// lookQueues finds the oldest message of each queue that is overdue, and how
// many there are.
func (a *auditor) lookQueues(ctx context.Context, names []string) ([][]Finding, error) {
	found := make([][]Finding, len(names))
	for i, name := range names {
		lo, _ := bounds(queue.PrefixDue, name)
		overdue := `k >= ? AND k < CAST(? || ` + kv.KeyNum(kv.Now+` - ?`) + ` AS BLOB) AND ` + kv.Live
		args := []any{append(lo[:len(lo):len(lo)], 0x03), lo, a.Overdue.Milliseconds()} // 03 begins a number
		res, err := a.Store.Decide(ctx,
			libsql.S(`SELECT count(*) FROM (SELECT 1 FROM kv WHERE `+overdue+` LIMIT ?)`, append(args, countedAtMost)...),
			libsql.S(`SELECT k, CASE WHEN json_valid(v) THEN json_extract(v, '$.claim') END, `+kv.Now+` FROM kv WHERE `+overdue+` ORDER BY k LIMIT 1`, args...),
			libsql.S(`SELECT v FROM kv WHERE k = ? AND `+kv.Live, tuple.MustEncode(queue.PrefixPause, name)))
		if err != nil {
			return nil, fmt.Errorf("look at queue %s: %w", name, err)
		}
		if len(res[1].Rows) > 0 {
			found[i] = []Finding{a.overdueQueue(name, num(res[0].Rows[0][0]), res[1].Rows[0], res[2])}
		}
	}
	return found, nil
}

func (a *auditor) overdueQueue(name string, count int64, oldest libsql.Row, pause libsql.Result) Finding {
	f := Finding{Check: MessageOverdue, Queue: name, Count: count}
	k, _ := oldest[0].([]byte)
	f.Key, _ = tuple.Decode(k)
	ms := 0.0
	if len(f.Key) > 2 {
		ms, _ = f.Key[2].(float64)
	}
	f.same = f.Key.String()
	many := fmt.Sprintf("%d messages are", count)
	switch count {
	case 1:
		many = "1 message is"
	case countedAtMost:
		many = fmt.Sprintf("%d messages or more are", count)
	}
	f.Message = fmt.Sprintf("%s overdue, the oldest by %s", many, span(num(oldest[2])-int64(ms)))
	switch {
	case len(pause.Rows) > 0:
		var p struct {
			By string `json:"by"`
			At int64  `json:"at"`
		}
		_ = json.Unmarshal([]byte(text(pause.Rows[0][0])), &p) // says that it is paused, whatever it is
		f.Reason = fmt.Sprintf("the queue is paused, by %s at %s", p.By, instant(p.At))
	case a.replicas == 0:
		f.Reason = "no replica is registered"
	default:
		f.Reason = fmt.Sprintf("replicas are registered: %d; whether one of them consumes the queue, and how fast, the stores do not tell", a.replicas)
	}
	if oldest[1] != nil {
		f.Reason = "the oldest was being consumed by somebody who died; " + f.Reason
	}
	return f
}

// deadMessages tells of the dead letters of a queue.
func (a *auditor) deadMessages(ctx context.Context, name string) error {
	lo, hi := bounds(queue.PrefixDead, name)
	res, err := a.Store.Decide(ctx,
		libsql.S(`SELECT count(*) FROM (SELECT 1 FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` LIMIT ?)`, lo, hi, countedAtMost),
		libsql.S(`SELECT k, CASE WHEN json_valid(v) THEN json_extract(v, '$.error') END FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k DESC LIMIT 1`, lo, hi))
	if err != nil {
		return fmt.Errorf("look at dead letters of queue %s: %w", name, err)
	}
	if len(res[1].Rows) == 0 {
		return nil
	}
	f := Finding{Check: MessageDead, Queue: name, Count: num(res[0].Rows[0][0]), Reason: text(res[1].Rows[0][1])}
	k, _ := res[1].Rows[0][0].([]byte)
	f.Key, _ = tuple.Decode(k)
	ms := 0.0
	if len(f.Key) > 2 {
		ms, _ = f.Key[2].(float64)
	}
	f.Message = fmt.Sprintf("messages that were given up: %d, the last one at %s", f.Count, instant(int64(ms)))
	return a.report.add(f)
}
