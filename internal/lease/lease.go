// Package lease is the fleet-wide right to run the events of one object: a
// coordination entry with holder, TTL and versionstamp. The stamp is the
// fencing token; every guard compares stamp and holder.
//
// A lease is taken by an [Attempt] with a holder id of its own. An attempt
// whose answer was lost is given up: its holder id is handed to the next
// attempt, which may then replace it, and so fences whatever of it may still
// arrive. That is the one way out of doubt.
package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Prefix is the first element of the keys of all leases.
const Prefix = "dwk_lease"

// The kinds of events that take a lease.
const (
	EventRequest  = "request"
	EventAlarm    = "alarm"
	EventSocket   = "socket"
	EventOperator = "operator"
)

// Value is the stored JSON. An older host wrote Holder only.
type Value struct {
	Holder     string `json:"holder"`
	Replica    string `json:"replica,omitempty"`
	Event      string `json:"event,omitempty"`
	AcquiredAt int64  `json:"acquired_at,omitempty"`
	RequestID  string `json:"request_id,omitempty"`
	// Wanted is when another replica first asked for the lease, or 0.
	Wanted int64 `json:"wanted,omitempty"`
}

// Info is a live lease. Times are epoch milliseconds by the primary's clock.
type Info struct {
	Class string `json:"class"`
	ID    string `json:"id"`
	Value
	Stamp     kv.Versionstamp `json:"stamp"`
	ExpiresAt int64           `json:"expires_at"`
	// NowMs is the primary's clock when the lease was seen.
	NowMs int64 `json:"now"`
}

// Remaining is the time that the lease had left when it was seen.
func (i Info) Remaining() time.Duration { return time.Duration(i.ExpiresAt-i.NowMs) * time.Millisecond }

// Key returns the encoded key of an object's lease.
func Key(class, id string) []byte { return tuple.MustEncode(Prefix, class, id) }

// An Attempt is one try to take a lease.
type Attempt struct {
	Class, ID, Holder, Replica, Event, RequestID string
	// GivenUp are the holder ids that this replica no longer uses; a live lease
	// of theirs is replaced.
	GivenUp []string
	TTL     time.Duration
	// DeadlineMs is when, by the primary's clock, the attempt takes nothing
	// any more, in epoch milliseconds.
	DeadlineMs int64
	// Want marks the live lease as wanted when the attempt is refused.
	Want bool
}

// Add adds the attempt to a plan: the plan's verdict is whether the lease was
// taken. It returns the index of the result for [Read].
func (a Attempt) Add(p *kv.Plan) (result int, err error) {
	givenUp, err := json.Marshal(append([]string{}, a.GivenUp...))
	if err != nil {
		return 0, err
	}
	value, err := json.Marshal(Value{Holder: a.Holder, Replica: a.Replica, Event: a.Event, RequestID: a.RequestID})
	if err != nil {
		return 0, err
	}
	key := Key(a.Class, a.ID)
	p.Require(`NOT EXISTS (SELECT 1 FROM kv WHERE k = ? AND `+kv.Live+`
	AND json_extract(v, '$.holder') NOT IN (SELECT value FROM json_each(?)))`, key, string(givenUp))
	p.Require(kv.Now+` <= ?`, a.DeadlineMs)
	p.Stamped()
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, json_set(?, '$.acquired_at', `+kv.Now+`), seq, `+kv.Now+` + ? FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`, key, string(value), a.TTL.Milliseconds())
	if a.Want {
		p.Add(`UPDATE kv SET v = json_set(v, '$.wanted', `+kv.Now+`) WHERE k = ? AND `+kv.Live+` AND json_extract(v, '$.wanted') IS NULL
		AND (SELECT ok FROM kv_meta WHERE id = 0) = 0`, key)
	}
	return p.Add(`SELECT v, ver, expires_at, `+kv.Now+` FROM kv WHERE k = ? AND `+kv.Live, key), nil
}

// RequireFree demands, within a plan, that nobody holds the object's lease, and
// that it is not later than deadlineMs by the primary's clock: then the plan is
// alone with the object for as long as its transaction takes.
func RequireFree(p *kv.Plan, class, id string, deadlineMs int64) {
	p.Require(`NOT EXISTS (SELECT 1 FROM kv WHERE k = ? AND `+kv.Live+`)`, Key(class, id))
	p.Require(kv.Now+` <= ?`, deadlineMs)
}

// Read returns the live lease that a result of this package's statements
// shows; ok is false when it shows none.
func Read(class, id string, r libsql.Result) (Info, bool, error) {
	if len(r.Rows) == 0 {
		return Info{}, false, nil
	}
	row := r.Rows[0]
	v, _ := row[0].(string)
	info := Info{Class: class, ID: id}
	if err := json.Unmarshal([]byte(v), &info.Value); err != nil {
		return Info{}, false, fmt.Errorf("lease of %s/%s: %w", class, id, err)
	}
	ver, _ := row[1].(int64)
	info.Stamp = kv.Versionstamp(ver)
	info.ExpiresAt, _ = row[2].(int64)
	info.NowMs, _ = row[3].(int64)
	return info, true, nil
}

// A Committer runs plans: a kv.Store, or a kv.Group on it.
type Committer interface {
	Commit(ctx context.Context, p *kv.Plan) (kv.Verdict, error)
}

// Held is a lease that this process took: what every guard compares.
type Held struct {
	Class, ID, Holder string
	Stamp             kv.Versionstamp
}

// Require demands, within a plan, that the lease is live and still ours.
func (h Held) Require(p *kv.Plan) {
	p.Require(`EXISTS (SELECT 1 FROM kv WHERE k = ? AND ver = ? AND json_extract(v, '$.holder') = ? AND expires_at > `+kv.Now+`)`,
		Key(h.Class, h.ID), int64(h.Stamp), h.Holder)
}

const held = ` WHERE k = ? AND ver = ? AND json_extract(v, '$.holder') = ?`

// AddRelease ends the lease when the plan is applied.
func (h Held) AddRelease(p *kv.Plan) {
	p.Add(`DELETE FROM kv`+held+` AND `+kv.OK, Key(h.Class, h.ID), int64(h.Stamp), h.Holder)
}

// AddExtend extends the lease to ttl from now, stamp unchanged, when the plan
// is applied.
func (h Held) AddExtend(p *kv.Plan, ttl time.Duration) {
	p.Add(`UPDATE kv SET expires_at = `+kv.Now+` + ?`+held+` AND `+kv.OK, ttl.Milliseconds(), Key(h.Class, h.ID), int64(h.Stamp), h.Holder)
}

// AddShow returns the index of a result for [Read]: the lease after the plan.
func (h Held) AddShow(p *kv.Plan) int {
	return p.Add(`SELECT v, ver, expires_at, `+kv.Now+` FROM kv WHERE k = ? AND `+kv.Live, Key(h.Class, h.ID))
}

// is reports whether the lease that was seen is this one.
func (h Held) is(i Info) bool { return i.Holder == h.Holder && i.Stamp == h.Stamp }

// Confirm asks the primary whether the lease is live and still ours.
func (h Held) Confirm(ctx context.Context, s *kv.Store) (Info, bool, error) {
	res, err := s.Decide(ctx, libsql.S(`SELECT v, ver, expires_at, `+kv.Now+` FROM kv WHERE k = ? AND `+kv.Live, Key(h.Class, h.ID)))
	if err != nil {
		return Info{}, false, fmt.Errorf("confirm lease of %s/%s: %w", h.Class, h.ID, err)
	}
	i, ok, err := Read(h.Class, h.ID, res[0])
	return i, ok && h.is(i), err
}

// Extend extends the lease to ttl from now, its stamp unchanged, when it is
// live and still ours, and so confirms it as well.
func (h Held) Extend(ctx context.Context, s Committer, ttl time.Duration) (Info, bool, error) {
	p := kv.NewPlan()
	h.Require(p)
	h.AddExtend(p, ttl)
	show := h.AddShow(p)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return Info{}, false, fmt.Errorf("extend lease of %s/%s: %w", h.Class, h.ID, err)
	}
	i, ok, err := Read(h.Class, h.ID, v.Results[show])
	return i, v.OK && ok && h.is(i), err
}

// Release ends the lease when it is still ours; ok tells whether it was. It
// may be repeated.
func (h Held) Release(ctx context.Context, s Committer) (ok bool, err error) {
	ok, _, err = h.End(ctx, s)
	return ok, err
}

// End is Release that also tells whether another replica had asked for the lease.
func (h Held) End(ctx context.Context, s Committer) (ok, wanted bool, err error) {
	p := kv.NewPlan()
	n := p.Add(`DELETE FROM kv`+held+` RETURNING 1, json_extract(v, '$.wanted')`, Key(h.Class, h.ID), int64(h.Stamp), h.Holder)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return false, false, fmt.Errorf("release lease of %s/%s: %w", h.Class, h.ID, err)
	}
	rows := v.Results[n].Rows
	return len(rows) == 1, len(rows) == 1 && rows[0][1] != nil, nil
}

// Inspect returns the live lease of one object.
func Inspect(ctx context.Context, s *kv.Store, class, id string) (Info, bool, error) {
	return first(Held{Class: class, ID: id}.Confirm(ctx, s))
}

func first(i Info, _ bool, err error) (Info, bool, error) { return i, i.Stamp != 0, err }

// List yields the live leases, of one class unless class is empty. A value that
// cannot be read is an error behind which it goes on.
func List(ctx context.Context, s *kv.Store, class string) iter.Seq2[Info, error] {
	prefix := tuple.Key{Prefix}
	if class != "" {
		prefix = append(prefix, class)
	}
	return func(yield func(Info, error) bool) {
		for e, err := range s.List(ctx, kv.ListOptions{Prefix: prefix}) {
			if err != nil {
				yield(Info{}, err)
				return
			}
			i := Info{Stamp: e.Stamp, ExpiresAt: e.ExpiresAt, NowMs: s.Clock().UnixMilli()}
			if len(e.Key) != 3 {
				continue
			}
			i.Class, _ = e.Key[1].(string)
			i.ID, _ = e.Key[2].(string)
			if err := json.Unmarshal(e.Value, &i.Value); err != nil {
				if !yield(i, fmt.Errorf("lease of %s/%s: %w", i.Class, i.ID, err)) {
					return
				}
				continue
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}
