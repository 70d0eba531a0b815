package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
)

const now = `CAST(round(unixepoch('subsec')*1000) AS INTEGER)`

// texts reads one text of each live entry with a prefix.
func (w *world) texts(what string, key ...any) ([]string, error) {
	prefix := tuple.MustEncode(key...)
	res, err := w.store.Decide(w.ctx, libsql.S(`SELECT `+what+` FROM kv WHERE k >= ? AND k < ? AND (expires_at IS NULL OR expires_at > `+now+`)`, prefix, tuple.RangeEnd(prefix)))
	if err != nil {
		return nil, fmt.Errorf("list %v: %w", key, err)
	}
	var out []string
	for _, row := range res[0].Rows {
		out = append(out, fmt.Sprint(row[0]))
	}
	return out, nil
}

// leasesOf names the leases that a replica has.
func (w *world) leasesOf(replica string) string {
	res, err := w.store.Decide(w.ctx, libsql.S(`SELECT CAST(v AS TEXT) FROM kv WHERE k >= ? AND k < ? AND expires_at > `+now+` AND json_extract(CAST(v AS TEXT), '$.replica') = ?`,
		tuple.MustEncode(lease.Prefix), tuple.RangeEnd(tuple.MustEncode(lease.Prefix)), replica))
	if err != nil {
		w.Errorf("list leases: %v", err)
		return ""
	}
	var b strings.Builder
	for _, row := range res[0].Rows {
		fmt.Fprintln(&b, row[0])
	}
	return b.String()
}

// remaining says what is still to be done, "" when nothing is.
func (w *world) remaining() string {
	var out []string
	for _, c := range []struct {
		what string
		key  []any
	}{
		{"leases", []any{lease.Prefix}},
		{"alarms", []any{alarm.SlotPrefix}},
		{"messages", []any{queue.PrefixDue, "default"}},
	} {
		list, err := w.texts("CAST(v AS TEXT)", c.key...)
		if err != nil {
			return err.Error()
		}
		list = slices.DeleteFunc(list, farOff)
		if len(list) > 0 {
			out = append(out, fmt.Sprintf("%d %s, such as %s", len(list), c.what, list[0]))
		}
	}
	return strings.Join(out, "; ")
}

// farOff reports whether an alarm is one that was set far off, and whose second
// setting came to nothing.
func farOff(value string) bool {
	var slot struct{ EpochMs int64 }
	return json.Unmarshal([]byte(value), &slot) == nil && slot.EpochMs > time.Now().Add(10*time.Minute).UnixMilli()
}

// quiet ends all faults and waits until nothing is left to be done.
func (w *world) quiet() {
	w.fleet.Server.SetHook(nil)
	w.lab.SetHook(nil)
	w.storeFault.Store(nil)
	for _, s := range w.slots {
		for _, p := range []*pipe{s.sql, s.lab, s.obj} {
			p.set(passes)
		}
	}
	begun := time.Now()
	for {
		left := w.remaining()
		if left == "" {
			break
		}
		if time.Since(begun) > patience {
			w.violate("nothing stops in silence", "quiet", "", "%v after the last fault there are %s", patience, left)
			break
		}
		if !w.sleep(50 * time.Millisecond) {
			return
		}
	}
	w.Logf("quiet after %v", time.Since(begun).Round(time.Millisecond))
}

// finish ends all replicas in order.
func (w *world) finish() {
	var wg sync.WaitGroup
	for _, s := range w.slots {
		wg.Go(func() {
			r, _ := s.get()
			if r.Exited() {
				return
			}
			s.put(r, false)
			w.end(r)
			r.Terminate()
			w.drained(r.ID, r.Name, r.Wait(), r.Log)
		})
	}
	wg.Wait()
}
