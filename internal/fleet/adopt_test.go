package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/mode"
)

func TestFence(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		seq := func() int64 {
			res, err := r.store.Decide(t.Context(), libsql.S(`SELECT seq FROM kv_meta`))
			if err != nil {
				t.Fatal(err)
			}
			return res[0].Rows[0][0].(int64)
		}
		r.set(tuple.Key{"dwk_lease", "A", "0a"}, "x", time.Hour)
		r.set(tuple.Key{"dwk_lease", "B", "0a"}, "x", time.Hour)
		r.set(tuple.Key{"other"}, "x", time.Hour)
		r.poll() // a replica registers
		before := seq()
		if _, err := fleet.Fence(t.Context(), r.store, false); !errors.Is(err, fleet.ErrInUse) {
			t.Fatal(err)
		}
		if st := r.look(); seq() != before || st.Leases != 2 {
			t.Error("a refused fence changed something")
		}
		got, err := fleet.Fence(t.Context(), r.store, true)
		if err != nil || got.Leases != 2 || int64(got.Before) != before || int64(got.After) != seq() || seq() != before+fleet.FenceStep {
			t.Errorf("%+v, %v; was %d, is %d", got, err, before, seq())
		}
		stamp, err := r.store.Set(t.Context(), tuple.Key{"new"}, 1, 0)
		if err != nil || stamp <= got.After || r.look().Leases != 0 {
			t.Errorf("%v, %v", stamp, err)
		}
		if _, ok, err := r.store.Get(t.Context(), tuple.Key{"other"}); !ok || err != nil {
			t.Error("a fence removed something else")
		}
		if err := r.reg.Remove(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := fleet.Fence(t.Context(), r.store, false); err != nil {
			t.Error(err)
		}
	})
}

// olderStore is what an older host has left: no logs, no index, no identity.
func olderStore(t *testing.T, place libsqltest.Place) *kv.Store {
	t.Helper()
	db := place.Open(t)
	for _, q := range kv.Schema[:3] {
		libsqltest.MustBatch(t, db, libsql.Write, libsql.S(q))
	}
	s := kv.New(db)
	for key, value := range map[string]any{"mode": "central"} {
		if _, err := s.Set(t.Context(), tuple.Key{"dwk_meta", key}, value, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestAdopt(t *testing.T) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			s := olderStore(t, place(t))
			set := func(key tuple.Key, v any, ttl time.Duration) {
				t.Helper()
				if _, err := s.Set(t.Context(), key, v, ttl); err != nil {
					t.Fatal(err)
				}
			}
			survey := func() fleet.Survey {
				t.Helper()
				v, err := fleet.Inspect(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			for i := range 1200 {
				set(tuple.Key{"dwk_alarm_by_id", "A", fmt.Sprintf("%04x", i)}, map[string]any{"epochMs": 1_700_000_000_000 + i, "retryCount": 0}, 0)
			}
			set(tuple.Key{"dwk_lease", "A", "0a"}, map[string]string{"holder": "x"}, time.Hour)
			if err := survey().Adoptable(); !errors.Is(err, fleet.ErrInUse) {
				t.Errorf("with a lease: %v", err)
			}
			if err := s.Delete(t.Context(), tuple.Key{"dwk_lease", "A", "0a"}); err != nil {
				t.Fatal(err)
			}
			set(tuple.Key{fleet.ReplicaPrefix, "r"}, fleet.Replica{}, time.Hour)
			if err := survey().Adoptable(); !errors.Is(err, fleet.ErrInUse) {
				t.Errorf("with a replica: %v", err)
			}
			if err := s.Delete(t.Context(), tuple.Key{fleet.ReplicaPrefix, "r"}); err != nil {
				t.Fatal(err)
			}
			v := survey()
			if err := v.Adoptable(); err != nil || v.OrphanCount != 1200 || len(v.Orphans) != 1000 || v.Orphans[1] != (fleet.Orphan{Class: "A", ID: "0001", DueAt: 1_700_000_000_001}) {
				t.Fatalf("%v, %d orphans, %v", err, v.OrphanCount, v.Orphans[1])
			}
			// Somebody comes between the look and the deed.
			set(tuple.Key{"dwk_lease", "A", "0a"}, map[string]string{"holder": "x"}, time.Hour)
			if _, err := fleet.Adopt(t.Context(), s, v); !errors.Is(err, fleet.ErrInUse) {
				t.Errorf("with a new lease: %v", err)
			}
			if err := s.Delete(t.Context(), tuple.Key{"dwk_lease", "A", "0a"}); err != nil {
				t.Fatal(err)
			}
			set(mode.ModeKey, "central", 0)
			if _, err := fleet.Adopt(t.Context(), s, v); !errors.Is(err, fleet.ErrInUse) {
				t.Errorf("with a new marker: %v", err)
			}
			if marker, _, _ := mode.Read(t.Context(), s); marker != "central" {
				t.Fatalf("a refused adoption left the mode %q", marker)
			}
			id, err := fleet.Adopt(t.Context(), s, survey())
			if err != nil || id.ID == "" {
				t.Fatal(err)
			}
			if got, err := mode.Ensure(t.Context(), s); err != nil || got != id {
				t.Errorf("%+v, %v", got, err)
			}
			v = survey()
			if err := v.Adoptable(); !errors.Is(err, fleet.ErrNothingToAdopt) || v.OrphanCount != 1200 {
				t.Errorf("%v, %d orphans", err, v.OrphanCount)
			}
			// An alarm whose object is here is no orphan.
			if _, _, err := s.Write(t.Context(), libsql.S(`INSERT INTO obj_head(class, id, txid, checksum, last_commit, page_size, pages, epoch, created_at, updated_at)
			VALUES ('A', '0001', 1, '', '', 4096, 1, 1, 1, 1)`)); err != nil {
				t.Fatal(err)
			}
			if v = survey(); v.OrphanCount != 1199 {
				t.Errorf("%d orphans", v.OrphanCount)
			}
		})
	}
}

func TestAdoptableModes(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		for marker, want := range map[string]error{mode.Marker: fleet.ErrNothingToAdopt, "migrating:x": mode.ErrRefused, "central/9": mode.ErrRefused, "central": nil} {
			r.set(mode.ModeKey, marker, 0)
			v, err := fleet.Inspect(t.Context(), r.store)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Adoptable(); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %v, want %v", marker, err, want)
			}
		}
	})
}
