package objectops

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// A Target says which state of an object is meant. The zero Target is the
// present one.
type Target struct {
	// TXID is the number of a commit.
	TXID uint64
	// Time means the last kept commit at or before it, and Ago the same so long
	// before now, both by the primary's clock.
	Time time.Time
	Ago  time.Duration
}

// ParseTarget reads the number of a commit, a time as in RFC 3339, or a
// duration, which means so long ago.
func ParseTarget(text string) (Target, error) {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil && n > 0 {
		return Target{TXID: n}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return Target{Time: at}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return Target{Ago: d}, nil
	}
	return Target{}, fmt.Errorf("%q is no commit such as 41, no time such as 2006-01-02T15:04:05Z, and no time ago such as 15m", text)
}

// History returns the positions that the object can be brought back to, the
// newest first, and whether there are more than limit; 0 is no limit.
func (o *Ops) History(ctx context.Context, class, id string, limit int) (positions []objlog.Position, more bool, err error) {
	if _, err := o.head(ctx, class, id); err != nil {
		return nil, false, err
	}
	n := 0 // of all positions; those at the end are kept, in turn in the same places
	for p, err := range objlog.Positions(ctx, o.Store, class, id) {
		if err != nil {
			return nil, false, err
		}
		if !p.Exists {
			continue
		}
		if limit == 0 || n < limit {
			positions = append(positions, p)
		} else {
			positions[n%limit] = p
		}
		n++
	}
	out := make([]objlog.Position, len(positions))
	for i := range out {
		out[i] = positions[(n-1-i)%len(positions)]
	}
	return out, n > len(out), nil
}

// resolve finds the position that is meant, of an object with the head h.
func (o *Ops) resolve(ctx context.Context, class, id string, h objlog.Head, t Target) (objlog.Position, error) {
	if t == (Target{}) || t.TXID == h.TXID {
		return objlog.Position{TXID: h.TXID, CommitID: h.CommitID, At: h.UpdatedAt, Exists: h.Checksum != 0}, nil
	}
	what := fmt.Sprintf("commit %d", t.TXID)
	until := t.Time
	if t.Ago > 0 {
		now, err := o.Store.Now(ctx)
		if err != nil {
			return objlog.Position{}, err
		}
		until = now.Add(-t.Ago)
	}
	if t.TXID == 0 {
		what = "a commit at or before " + instant(until.UnixMilli())
	}
	var found, oldest objlog.Position
	for p, err := range objlog.Positions(ctx, o.Store, class, id) {
		if err != nil {
			return objlog.Position{}, err
		}
		if !p.Exists {
			continue
		}
		if oldest.TXID == 0 {
			oldest = p
		}
		if t.TXID == p.TXID || t.TXID == 0 && p.At <= until.UnixMilli() {
			found = p
		}
		if t.TXID > 0 && p.TXID >= t.TXID {
			break
		}
	}
	switch {
	case found.TXID > 0:
		return found, nil
	case oldest.TXID == 0:
		return found, notKept("%s of %s/%s is not kept, and no other is", what, class, id)
	}
	return found, notKept("%s of %s/%s is not kept: the oldest kept is %d of %s, the newest %d", what, class, id, oldest.TXID, instant(oldest.At), h.TXID)
}

// instant writes epoch milliseconds as people read them.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
