package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// An alarmRef is an alarm as the slots or the due index have it.
type alarmRef struct {
	class, id string
	ms        int64
	// indexed tells that it is from the due index.
	indexed bool
}

// A pair is an alarm as one transaction saw it.
type pair struct {
	nowMs       int64
	slot, due   json.RawMessage // nil when there is none
	held        bool
	lease       lease.Value
	leaseEnds   int64
	head, grave bool
}

// alarms looks at all slots and the whole due index.
func (a *auditor) alarms(ctx context.Context) error {
	t := twice[alarmRef]{a: a, look: a.lookAlarms}
	for _, indexed := range []bool{false, true} {
		prefix := []any{alarm.SlotPrefix}
		if indexed {
			prefix[0] = alarm.DuePrefix
		}
		if a.Class != "" {
			prefix = append(prefix, a.Class)
		}
		lo, hi := bounds(prefix...)
		err := a.each(ctx, lo, hi, func(keys [][]byte) error {
			refs, err := a.alarmRefs(ctx, keys, indexed)
			if err != nil {
				return err
			}
			if !indexed {
				a.sum.Alarms += int64(len(refs))
			}
			return t.first(ctx, refs)
		})
		if err != nil {
			return err
		}
	}
	return t.flush(ctx)
}

// alarmRefs reads what the keys, of slots or of the due index, stand for. What
// cannot be read was reported with the entries.
func (a *auditor) alarmRefs(ctx context.Context, keys [][]byte, indexed bool) (refs []alarmRef, err error) {
	var slots map[string]stored
	if !indexed {
		if slots, err = a.read(ctx, keys); err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		key, err := tuple.Decode(k)
		if kind, _ := kindOf(key); err != nil || !kind.fits(key) {
			continue
		}
		ref := alarmRef{indexed: indexed}
		ref.class, _ = key[1].(string)
		ref.id, _ = key[len(key)-1].(string)
		if indexed {
			ms, _ := key[2].(float64)
			ref.ms = int64(ms)
		} else if s, ok := readSlot(slots[string(k)].value); ok {
			ref.ms = s.EpochMs
		} else {
			continue
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

func readSlot(v json.RawMessage) (alarm.Slot, bool) {
	var s alarm.Slot
	return s, v != nil && json.Unmarshal(v, &s) == nil
}

var pairSQL = `SELECT f.key, s.v, d.v, l.v, l.expires_at, h.txid, h.deleted_at, ` + kv.Now + ` FROM json_each(?) f
	LEFT JOIN kv s ON s.k = unhex(f.value->>0) AND ` + live("s") + `
	LEFT JOIN kv d ON d.k = unhex(f.value->>1) AND ` + live("d") + `
	LEFT JOIN kv l ON l.k = unhex(f.value->>2) AND ` + live("l") + `
	LEFT JOIN obj_head h ON h.class = f.value->>3 AND h.id = f.value->>4`

func (a *auditor) lookAlarms(ctx context.Context, refs []alarmRef) ([][]Finding, error) {
	list := make([][]string, len(refs))
	for i, r := range refs {
		list[i] = []string{
			hex.EncodeToString(alarm.SlotKey(r.class, r.id)),
			hex.EncodeToString(alarm.DueKey(r.class, r.ms, r.id)),
			hex.EncodeToString(lease.Key(r.class, r.id)), r.class, r.id,
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	res, err := a.Store.Decide(ctx, libsql.S(pairSQL, string(text)))
	if err != nil {
		return nil, fmt.Errorf("read alarms: %w", err)
	}
	found := make([][]Finding, len(refs))
	for _, row := range res[0].Rows {
		i := num(row[0])
		p := readPair(row)
		if refs[i].indexed {
			found[i] = a.judgeIndexed(refs[i], p)
		} else {
			found[i] = a.judgeSlot(refs[i], p)
		}
	}
	return found, nil
}

func readPair(row libsql.Row) pair {
	p := pair{leaseEnds: num(row[4]), head: row[5] != nil, grave: row[6] != nil, nowMs: num(row[7])}
	if v := text(row[1]); v != "" {
		p.slot = json.RawMessage(v)
	}
	if v := text(row[2]); v != "" {
		p.due = json.RawMessage(v)
	}
	p.held = row[3] != nil
	_ = json.Unmarshal([]byte(text(row[3])), &p.lease) // reported with the entries
	return p
}

// judgeIndexed looks at an entry of the due index.
func (a *auditor) judgeIndexed(r alarmRef, p pair) []Finding {
	s, ok := readSlot(p.slot)
	f := r.finding(AlarmDueStray, "")
	switch {
	case p.due == nil, ok && s.EpochMs == r.ms:
		return nil
	case p.slot == nil:
		f.Message = fmt.Sprintf("the due index has the object at %s, and there is no alarm", instant(r.ms))
	case !ok:
		return nil
	default:
		f.Message = fmt.Sprintf("the due index has the object at %s, its alarm is at %s", instant(r.ms), instant(s.EpochMs))
	}
	f.Key = tuple.Key{alarm.DuePrefix, r.class, tuple.Millis(r.ms), r.id}
	return []Finding{f}
}

func (r alarmRef) finding(check, format string, args ...any) Finding {
	return Finding{Check: check, Class: r.class, ID: r.id, Message: fmt.Sprintf(format, args...), same: fmt.Sprint(r.ms)}
}

// judgeSlot looks at a slot and what belongs to it.
func (a *auditor) judgeSlot(r alarmRef, p pair) (out []Finding) {
	s, ok := readSlot(p.slot)
	if !ok || s.EpochMs != r.ms {
		return nil // it has changed, so somebody works on it
	}
	add := func(check, format string, args ...any) { out = append(out, r.finding(check, format, args...)) }
	switch {
	case p.due == nil:
		add(AlarmDueMissing, "the alarm at %s is not in the due index: it never fires", instant(r.ms))
	case !sameJSON(p.slot, p.due):
		add(AlarmDueDiffers, "the alarm is %s, the due index has %s", p.slot, p.due)
	}
	if !p.head || p.grave {
		add(AlarmNoObject, "the alarm at %s never fires: %s", instant(r.ms), noObject(p.grave))
		return out
	}
	late := p.nowMs - r.ms
	ours := s.Claim != "" && p.held && p.lease.Holder == s.Claim
	switch {
	case ours && r.ms != p.leaseEnds:
		add(AlarmClaim, "the alarm is claimed until %s, the lease of its run ends at %s", instant(r.ms), instant(p.leaseEnds))
	case s.Claim != "" && -late > a.LeaseTTL.Milliseconds():
		add(AlarmClaim, "the alarm is claimed until %s, which is longer than a lease lasts", instant(r.ms))
	case s.Claim != "" && late > a.Overdue.Milliseconds():
		add(AlarmClaim, "the lease of the alarm's run ended %s ago, and nobody took it up again", span(late))
		out[len(out)-1].Reason = a.whyLate(r, p)
	case late > a.Overdue.Milliseconds() && p.due != nil:
		add(AlarmOverdue, "the alarm was due %s ago", span(late))
		out[len(out)-1].Reason = a.whyLate(r, p)
	}
	return out
}

func noObject(deleted bool) string {
	if deleted {
		return "its object was deleted"
	}
	return "its object has no log, as those of an older host"
}

// whyLate says what the stores tell about an alarm that has not fired.
func (a *auditor) whyLate(r alarmRef, p pair) string {
	switch {
	case p.held:
		who := "somebody"
		if p.lease.Replica != "" {
			who = "replica " + p.lease.Replica
		}
		return fmt.Sprintf("the object is leased by %s (%s), which has to run it next", who, p.lease.Event)
	case a.replicas == 0:
		return "no replica is registered"
	}
	return fmt.Sprintf("replicas are registered: %d; whether one of them serves the class %s, the stores do not tell", a.replicas, r.class)
}

// sameJSON reports whether two texts are the same JSON.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
