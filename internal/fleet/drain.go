package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A DrainRequest is the stored JSON of an operator's wish that a replica stops.
type DrainRequest struct {
	RequestedAt int64  `json:"requested_at"`
	By          string `json:"by"`
	// TimeoutMs bounds the whole drain; 0 leaves it to the replica's
	// configuration, as a GraceMs that is nil does.
	TimeoutMs int64  `json:"timeout_ms"`
	GraceMs   *int64 `json:"grace_ms,omitempty"`
	// Left is what had not finished when the replica ended.
	Left string `json:"left,omitempty"`
}

// DrainTTL is how long a request waits for its replica.
const DrainTTL = time.Hour

// ErrWithdrawn says that a replica is asked to stop no more.
var ErrWithdrawn = errors.New("the request to stop was withdrawn")

// Bounds returns the grace and the timeout of a drain, given the configured ones.
// A grace that is asked for without a timeout leaves the rest as much time as it
// has otherwise.
func (d DrainRequest) Bounds(grace, timeout time.Duration) (time.Duration, time.Duration) {
	if d.GraceMs != nil {
		rest := timeout - grace
		grace = milliseconds(*d.GraceMs)
		timeout = grace + rest
	}
	if d.TimeoutMs > 0 {
		timeout = milliseconds(d.TimeoutMs)
	}
	return min(grace, timeout), timeout
}

// milliseconds is a number that anybody may have written.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), DrainTTL.Milliseconds())) * time.Millisecond
}

// RequestDrain asks replicas to stop, all in one commit, and returns which: those
// that are still registered. A request replaces the one before.
func RequestDrain(ctx context.Context, s *kv.Store, d DrainRequest, ids ...string) (asked []string, err error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	p := kv.NewPlan().Stamped()
	for _, id := range ids {
		p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, json_set(?, '$.requested_at', `+kv.Now+`), seq, `+kv.Now+` + ? FROM kv_meta
		WHERE id = 0 AND ok = 1 AND EXISTS (SELECT 1 FROM kv WHERE k = ? AND `+kv.Live+`)
		ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`,
			tuple.MustEncode(DrainPrefix, id), string(text), DrainTTL.Milliseconds(), tuple.MustEncode(ReplicaPrefix, id))
	}
	v, err := s.Commit(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("ask replicas to stop: %w", err)
	}
	for i, id := range ids {
		if v.Results[i].Changes > 0 {
			asked = append(asked, id)
		}
	}
	return asked, nil
}

// CancelDrain withdraws the request to a replica, when there is one, and the
// replica is registered and not stopping yet.
func CancelDrain(ctx context.Context, s *kv.Store, id string) (ok bool, err error) {
	key := tuple.MustEncode(DrainPrefix, id)
	p := kv.NewPlan().
		Require(`EXISTS (SELECT 1 FROM kv WHERE k = ? AND `+kv.Live+`)`, key).
		Require(`EXISTS (SELECT 1 FROM kv WHERE k = ? AND CASE WHEN json_valid(v) THEN json_extract(v, '$.state') ELSE '' END <> ? AND `+kv.Live+`)`, tuple.MustEncode(ReplicaPrefix, id), string(Stopping)).
		Delete(key)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return false, fmt.Errorf("withdraw the request to replica %s: %w", id, err)
	}
	return v.OK, nil
}

// A Drainee is a replica as far as its drain goes.
type Drainee struct {
	// Live is nil when the replica is not registered.
	Live *Live
	// Request is nil when none is stored.
	Request *DrainRequest
}

// Drainees looks at all replicas and requests, in one round trip, and from one
// moment.
func Drainees(ctx context.Context, s *kv.Store) (map[string]Drainee, error) {
	lo := tuple.MustEncode(DrainPrefix)
	res, err := s.Decide(ctx, replicasStatement(),
		libsql.S(`SELECT k, v FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT ?`, lo, tuple.RangeEnd(lo), maxReplicas))
	if err != nil {
		return nil, fmt.Errorf("look at the replicas: %w", err)
	}
	list, err := readReplicas(res[0])
	if err != nil {
		return nil, err
	}
	all := map[string]Drainee{}
	for _, l := range list {
		all[l.ID] = Drainee{Live: &l}
	}
	for _, row := range res[1].Rows {
		k, _ := row[0].([]byte)
		v, _ := row[1].(string)
		key, err := tuple.Decode(k)
		if err != nil || len(key) != 2 {
			continue // it asks nobody
		}
		id, _ := key[1].(string)
		d := Drainee{Live: all[id].Live, Request: &DrainRequest{}}
		if err := json.Unmarshal([]byte(v), d.Request); err != nil {
			return nil, fmt.Errorf("entry %s: %w", key, err)
		}
		all[id] = d
	}
	return all, nil
}
