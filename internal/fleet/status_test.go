package fleet_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/mode"
)

func (r *rig) set(key tuple.Key, value any, ttl time.Duration) {
	r.t.Helper()
	if _, err := r.store.Set(r.t.Context(), key, value, ttl); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) look() fleet.Status {
	r.t.Helper()
	st, err := fleet.Look(r.t.Context(), r.store, map[string]cron.Options{"s": {Schedule: "@every 1m", Zone: "UTC"}})
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r *rig) wantVerdict(ok bool, words ...string) {
	r.t.Helper()
	got, text := r.look().Verdict()
	if got != ok {
		r.t.Errorf("verdict %v: %s", got, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			r.t.Errorf("no %q in %q", w, text)
		}
	}
}

func TestStatus(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.wantVerdict(false, "no replica is ready")
		if st := r.look(); st.Mode != mode.Marker || st.Store.ID == "" || len(st.Replicas) != 0 || len(st.Alarms) != 0 || len(st.Messages) != 0 {
			t.Errorf("%+v", st)
		}
		r.poll()
		r.become(fleet.Ready)
		r.wantVerdict(true, "all right: 1 replica ready")
		r.set(tuple.Key{fleet.ReplicaPrefix, "r2"}, fleet.Replica{State: fleet.Draining, Version: "2", Layout: mode.Layout}, time.Hour)
		r.exec(`INSERT INTO kv VALUES (?, '{"state":"ready"}', 1, 1)`, tuple.MustEncode(fleet.ReplicaPrefix, "gone"))
		r.set(tuple.Key{"dwk_lease", "A", "0a"}, map[string]string{"holder": "x", "replica": "r1"}, time.Hour)
		r.wantVerdict(true)
		r.set(tuple.Key{"dwk_lease", "A", "0b"}, map[string]string{"holder": "y", "replica": "gone"}, time.Hour)
		r.set(tuple.Key{"dwk_lease", "A", "0c"}, map[string]string{"holder": "old"}, time.Hour)
		r.exec(`INSERT INTO kv VALUES (?, '{"holder":"z"}', 1, 1)`, tuple.MustEncode("dwk_lease", "A", "0d"))
		st := r.look()
		if len(st.Replicas) != 2 || st.Replicas[0].ID != "r1" || st.Replicas[1].State != fleet.Draining || st.Replicas[1].ExpiresAt <= st.NowMs {
			t.Errorf("%+v", st.Replicas)
		}
		if st.Leases != 3 || st.LeftOver != 2 || st.Expired != 2 || st.Ready("") != 1 || st.Ready("2") != 0 {
			t.Errorf("%+v", st)
		}
		r.wantVerdict(false, "2 leases of replicas that are gone")
	})
}

func TestStatusBacklogs(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		now := r.look().NowMs
		for i, ago := range []int64{60_000, 20_000, 1_000, -600_000} {
			r.set(tuple.Key{"dwk_alarm_due", "B", now - ago, fmt.Sprintf("%02x", i)}, "x", 0)
		}
		r.set(tuple.Key{"dwk_alarm_due", "A", now + 600_000, "0a"}, "x", 0)
		r.set(tuple.Key{"dwk_alarm_dead", "A", "0a"}, "x", time.Hour)
		r.set(tuple.Key{"dwk_alarm_dead", "A", "0b"}, "x", time.Hour)
		for _, name := range []string{"q", "q\x00\x03é", "qq", "paused"} {
			r.set(tuple.Key{"dwk_queue_due", name, now - 30_000, "m1"}, "x", 0)
			r.set(tuple.Key{"dwk_queue_due", name, now + 600_000, "m2"}, "x", 0)
		}
		r.set(tuple.Key{"dwk_queue_dead", "q", now - 5, "m3"}, "x", time.Hour)
		r.set(tuple.Key{"dwk_queue_dead", "only dead", now - 5, "m3"}, "x", time.Hour)
		r.exec(`INSERT INTO kv VALUES (?, 'x', 1, 1)`, tuple.MustEncode("dwk_queue_dead", "q", float64(now-6), "expired"))
		r.set(tuple.Key{"dwk_queue_pause", "paused"}, "x", 0)
		st := r.look()
		for _, list := range [][]fleet.Backlog{st.Alarms, st.Messages} {
			for i := range list {
				if (list[i].OldestMs > 0) != (list[i].Due > 0) || list[i].Overdue > 0 && list[i].OldestMs < 30_000 {
					t.Errorf("%+v", list[i])
				}
				list[i].OldestMs = 0
			}
		}
		if want := []fleet.Backlog{{Name: "A", Pending: 1, Dead: 2}, {Name: "B", Pending: 4, Due: 3, Overdue: 2}}; !reflect.DeepEqual(st.Alarms, want) {
			t.Errorf("%+v", st.Alarms)
		}
		b := fleet.Backlog{Pending: 2, Due: 1, Overdue: 1}
		named := func(name string, dead int64, paused bool) fleet.Backlog {
			b := b
			b.Name, b.Dead, b.Paused = name, dead, paused
			return b
		}
		want := []fleet.Backlog{{Name: "only dead", Dead: 1}, named("paused", 0, true), named("q", 1, false), named("q\x00\x03é", 0, false), named("qq", 0, false)}
		if !reflect.DeepEqual(st.Messages, want) {
			t.Errorf("%+v", st.Messages)
		}
		r.wantVerdict(false, "2 overdue alarms, the first since 1m", "3 overdue messages, the first since ", "4 dead letters")
	})
}

func TestVerdictOfAnotherMode(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		for _, key := range []tuple.Key{mode.ModeKey, mode.StoreKey} {
			if err := r.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		r.wantVerdict(false, "the store set is new")
		r.set(mode.StoreKey, mode.Store{ID: "x", Layout: mode.Layout}, 0)
		r.set(mode.ModeKey, "central", 0)
		r.wantVerdict(false, "older host")
		r.set(mode.ModeKey, mode.Marker, 0)
		r.set(tuple.Key{fleet.ReplicaPrefix, "r2"}, fleet.Replica{State: fleet.Ready, Layout: 2}, time.Hour)
		r.wantVerdict(false, "r2 writes layout 2")
	})
}

// Each name is found once, however many entries it has.
func TestStatusCountsByName(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		p := kv.NewPlan()
		for i := range 300 {
			if err := p.SetKey(tuple.Key{"dwk_queue_due", fmt.Sprint("q", i%7), float64(1_700_000_000_000 + i), fmt.Sprint(i)}, i, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.store.Commit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		st := r.look()
		var n int64
		for _, q := range st.Messages {
			n += q.Due
		}
		if len(st.Messages) != 7 || n != 300 {
			t.Errorf("%+v", st.Messages)
		}
	})
}
