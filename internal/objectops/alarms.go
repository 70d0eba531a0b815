package objectops

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// An Alarm is a pending alarm of a list.
type Alarm struct {
	Class, ID string
	alarm.Slot
	// Replica runs it, if it says so: it holds the lease that claims the alarm.
	Replica string
	// NowMs is when it was seen, in epoch milliseconds by the primary's clock.
	NowMs int64
}

// alarmPage is how many alarms one round trip returns.
const alarmPage = 500

// Alarms yields the pending alarms, of one class unless class is empty, by class
// and time: what is due first is run first. limit bounds them; 0 means all.
func (o *Ops) Alarms(ctx context.Context, class string, limit int) iter.Seq2[Alarm, error] {
	return func(yield func(Alarm, error) bool) {
		fail := func(err error) { yield(Alarm{}, fmt.Errorf("list alarms: %w", err)) }
		prefix := tuple.Key{alarm.DuePrefix}
		if class != "" {
			prefix = append(prefix, class)
		}
		lo, err := prefix.Encode()
		if err != nil {
			fail(err)
			return
		}
		hi := tuple.RangeEnd(lo)
		for left := limit; ; {
			page := alarmPage
			if limit > 0 {
				page = min(page, left)
			}
			res, err := o.Store.Decide(ctx, libsql.S(`SELECT k, v, `+kv.Now+` FROM kv WHERE k >= ? AND k < ? ORDER BY k LIMIT ?`, lo, hi, page))
			if err != nil {
				fail(err)
				return
			}
			alarms, err := readAlarms(res[0])
			if err == nil {
				err = o.findHolders(ctx, alarms)
			}
			if err != nil {
				fail(err)
				return
			}
			for _, a := range alarms {
				if !yield(a, nil) {
					return
				}
			}
			if left -= len(alarms); len(alarms) < page || limit > 0 && left == 0 {
				return
			}
			last, _ := res[0].Rows[len(alarms)-1][0].([]byte)
			lo = append(slices.Clone(last), 0)
		}
	}
}

func readAlarms(r libsql.Result) ([]Alarm, error) {
	out := make([]Alarm, len(r.Rows))
	for i, row := range r.Rows {
		k, _ := row[0].([]byte)
		key, err := tuple.Decode(k)
		if err == nil && len(key) != 4 {
			err = fmt.Errorf("not of the form that it should have")
		}
		if err != nil {
			return nil, fmt.Errorf("key %x: %w", k, err)
		}
		a := &out[i]
		a.Class, _ = key[1].(string)
		a.ID, _ = key[3].(string)
		v, _ := row[1].(string)
		if err := json.Unmarshal([]byte(v), &a.Slot); err != nil {
			return nil, fmt.Errorf("alarm of %s/%s: %w", a.Class, a.ID, err)
		}
		a.NowMs = num(row[2])
	}
	return out, nil
}

// findHolders looks who runs the alarms that are claimed.
func (o *Ops) findHolders(ctx context.Context, alarms []Alarm) error {
	var keys []string
	for _, a := range alarms {
		if a.Claim != "" {
			keys = append(keys, hex.EncodeToString(lease.Key(a.Class, a.ID)))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	res, err := o.Store.Decide(ctx, libsql.S(`SELECT v FROM json_each(?) f CROSS JOIN kv ON kv.k = unhex(f.value) WHERE `+kv.Live, string(list)))
	if err != nil {
		return err
	}
	replicas := map[string]string{}
	for _, row := range res[0].Rows {
		var l lease.Value
		text, _ := row[0].(string)
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
		replicas[l.Holder] = l.Replica
	}
	for i := range alarms {
		alarms[i].Replica = replicas[alarms[i].Claim]
	}
	return nil
}

// A DeadAlarm is an alarm that was given up.
type DeadAlarm struct {
	Class, ID string
	alarm.Dead
}

// DeadAlarms yields the alarms that were given up, of one class unless class is
// empty, by class and id. limit bounds them; 0 means all.
func (o *Ops) DeadAlarms(ctx context.Context, class string, limit int) iter.Seq2[DeadAlarm, error] {
	prefix := tuple.Key{alarm.DeadPrefix}
	if class != "" {
		prefix = append(prefix, class)
	}
	return func(yield func(DeadAlarm, error) bool) {
		for e, err := range o.Store.List(ctx, kv.ListOptions{Prefix: prefix, Limit: limit}) {
			var d DeadAlarm
			if err == nil && len(e.Key) == 3 {
				d.Class, _ = e.Key[1].(string)
				d.ID, _ = e.Key[2].(string)
				if err = json.Unmarshal(e.Value, &d.Dead); err != nil {
					err = fmt.Errorf("dead letter of %s/%s: %w", d.Class, d.ID, err)
				}
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// An AlarmRun is a run of an object's history.
type AlarmRun struct {
	// StartedMs is when it began, or when its crash was noticed.
	StartedMs int64
	alarm.Run
}

// An AlarmInfo is all that is known about the alarm of one object.
type AlarmInfo struct {
	AlarmState
	// Lease is the live one of the object, if Held.
	Lease lease.Info
	Held  bool
	// Head is the object's; it need not exist.
	Head objlog.Head
	// Runs are the last ones, the newest first.
	Runs  []AlarmRun
	NowMs int64
}

// Alarm looks at the alarm of one object. All is from one moment.
func (o *Ops) Alarm(ctx context.Context, class, id string) (AlarmInfo, error) {
	lo := tuple.MustEncode(alarm.RunPrefix, class, id)
	res, err := o.Store.Decide(ctx, alarm.ShowStatement(class, id), deadStatement(class, id),
		libsql.S(`SELECT v, ver, expires_at, `+kv.Now+` FROM kv WHERE k = ? AND `+kv.Live, lease.Key(class, id)), objlog.HeadStatement(class, id),
		libsql.S(`SELECT k, v FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k DESC LIMIT 20`, lo, tuple.RangeEnd(lo)), libsql.S(`SELECT `+kv.Now))
	if err != nil {
		return AlarmInfo{}, fmt.Errorf("look at alarm of %s/%s: %w", class, id, err)
	}
	i := AlarmInfo{NowMs: num(res[5].Rows[0][0])}
	if i.AlarmState, err = readAlarmState(class, id, res); err != nil {
		return i, err
	}
	if i.Lease, i.Held, err = lease.Read(class, id, res[2]); err != nil {
		return i, err
	}
	if i.Head, err = objlog.ReadHead(res[3]); err != nil {
		return i, fmt.Errorf("look at %s/%s: %w", class, id, err)
	}
	for _, row := range res[4].Rows {
		k, _ := row[0].([]byte)
		v, _ := row[1].(string)
		key, err := tuple.Decode(k)
		var r AlarmRun
		if err == nil {
			err = json.Unmarshal([]byte(v), &r.Run)
		}
		if err != nil {
			return i, fmt.Errorf("run of the alarm of %s/%s: %w", class, id, err)
		}
		ms, _ := key[len(key)-1].(float64)
		r.StartedMs = int64(ms)
		i.Runs = append(i.Runs, r)
	}
	if i.Nothing() && len(i.Runs) == 0 {
		return i, notFound("object %s/%s has no alarm, and none was run lately", class, id)
	}
	return i, nil
}
