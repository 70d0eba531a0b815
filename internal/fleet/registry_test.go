package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/mode"
)

// A rig is a registry on a store, whose polls the test makes itself.
type rig struct {
	t         *testing.T
	store     *kv.Store
	reg       *fleet.Registry
	withdrawn int
	drains    []fleet.DrainRequest
	refused   []error
	load      fleet.Load
	step      string
}

var replicaKey = tuple.Key{fleet.ReplicaPrefix, "r1"}

func eachRig(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, store: kv.New(place(t).Open(t))}
			if err := r.store.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			id, err := mode.Ensure(t.Context(), r.store)
			if err != nil {
				t.Fatal(err)
			}
			r.reg = fleet.NewRegistry(fleet.RegistryConfig{
				ID: "r1", Host: "h", PID: 7, Version: "1.2.3", Public: "http://h:1", StoreID: id.ID, TTL: time.Hour,
				Load: func() fleet.Load { return r.load }, Step: func() string { return r.step }, Wake: func() {},
				OnWithdrawn: func() { r.withdrawn++ },
				OnDrain:     func(d fleet.DrainRequest) { r.drains = append(r.drains, d) },
				OnRefused:   func(err error) { r.refused = append(r.refused, err) },
			}, r.store, slog.New(slog.NewTextHandler(t.Output(), nil)))
			test(t, r)
		})
	}
}

// poll makes one poll and returns whether another is wanted, and how many
// statements it had.
func (r *rig) poll() (again bool, n int) {
	r.t.Helper()
	stmts, sent := r.reg.Poll(0), time.Now()
	res, _, err := r.store.Write(r.t.Context(), stmts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.reg.Polled(res, nil, sent), len(stmts)
}

func (r *rig) entry() (fleet.Replica, kv.Entry, bool) {
	r.t.Helper()
	e, ok, err := r.store.Get(r.t.Context(), replicaKey)
	if err != nil {
		r.t.Fatal(err)
	}
	var v fleet.Replica
	if ok {
		if err := json.Unmarshal(e.Value, &v); err != nil {
			r.t.Fatal(err)
		}
	}
	return v, e, ok
}

// become changes the state, with the polls that it takes.
func (r *rig) become(s fleet.State) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel() // nobody polls meanwhile
	if err := r.reg.SetState(ctx, s); !errors.Is(err, context.Canceled) {
		r.t.Fatalf("the state is stored before it can be: %v", err)
	}
	if again, _ := r.poll(); again {
		r.t.Fatal("one poll was not enough")
	}
	if err := r.reg.SetState(ctx, s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, _, err := r.store.Write(r.t.Context(), libsql.S(sql, args...)); err != nil {
		r.t.Fatal(err)
	}
}

func TestRegistryStates(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		v, first, _ := r.entry()
		if v.State != fleet.Starting || v.Host != "h" || v.PID != 7 || v.Version != "1.2.3" || v.Layout != mode.Layout || v.Public != "http://h:1" {
			t.Errorf("%+v", v)
		}
		if now := time.Now().UnixMilli(); max(now-v.HeartbeatAt, now-v.StartedAt, v.HeartbeatAt-now) > time.Hour.Milliseconds() || first.ExpiresAt-v.HeartbeatAt != time.Hour.Milliseconds() {
			t.Errorf("%+v, expires %d", v, first.ExpiresAt)
		}
		last := first.Stamp
		for _, s := range []fleet.State{fleet.Ready, fleet.Draining, fleet.Stopping} {
			r.become(s)
			v, e, _ := r.entry()
			if v.State != s || e.Stamp <= last {
				t.Errorf("%s: %+v, stamp %v after %v", s, v, e.Stamp, last)
			}
			last = e.Stamp
		}
		r.exec(`INSERT INTO kv VALUES (?, '{}', 1, NULL)`, tuple.MustEncode(fleet.DrainPrefix, "r1"))
		if err := r.reg.Remove(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for e, err := range r.store.List(t.Context(), kv.ListOptions{}) {
			if err != nil || strings.HasPrefix(e.Key.String(), `["dwk_meta"`) {
				continue
			}
			t.Errorf("left: %v", e.Key)
		}
	})
}

// An idle poll reads; a heartbeat keeps the stamp; neither spoils what the
// verdicts of commits are written to.
func TestRegistryHeartbeat(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		_, before, _ := r.entry()
		if _, n := r.poll(); n != 1 {
			t.Errorf("an idle poll has %d statements", n)
		}
		r.load = fleet.Load{InFlight: 3, Objects: 4, Sockets: 5}
		r.reg.Late()
		if again, n := r.poll(); again || n != 4 {
			t.Errorf("a heartbeat has %d statements, again %v", n, again)
		}
		v, after, _ := r.entry()
		if v.Load != r.load || after.Stamp != before.Stamp || after.ExpiresAt < before.ExpiresAt || v.State != fleet.Ready {
			t.Errorf("%+v, stamp %v then %v", v, before.Stamp, after.Stamp)
		}
		res, err := r.store.Decide(t.Context(), libsql.S(`SELECT ok, seq FROM kv_meta`))
		if err != nil || res[0].Rows[0][0] == int64(2) || res[0].Rows[0][1] != int64(after.Stamp) {
			t.Errorf("%v, %v", res, err)
		}
	})
}

// A heartbeat does not bring back an entry that is gone: the replica registers
// again, with a new stamp.
func TestRegistryRegistersAgain(t *testing.T) {
	for name, lose := range map[string]string{
		"deleted": `DELETE FROM kv WHERE k = ?`,
		"expired": `UPDATE kv SET expires_at = 1 WHERE k = ?`,
	} {
		t.Run(name, func(t *testing.T) {
			eachRig(t, func(t *testing.T, r *rig) {
				r.poll()
				r.become(fleet.Ready)
				_, before, _ := r.entry()
				r.exec(lose, tuple.MustEncode(replicaKey...))
				if again, _ := r.poll(); again { // nothing is due
					t.Error("noticed without a heartbeat")
				}
				r.reg.Late()
				if again, _ := r.poll(); !again {
					t.Error("the loss was not noticed")
				}
				if _, _, ok := r.entry(); ok {
					t.Error("a heartbeat made an entry")
				}
				if again, _ := r.poll(); again {
					t.Error("not registered")
				}
				if v, after, ok := r.entry(); !ok || after.Stamp <= before.Stamp || v.State != fleet.Ready {
					t.Errorf("%v %+v, stamp %v", ok, v, after.Stamp)
				}
			})
		})
	}
}

// An entry that somebody else wrote is replaced by a compare-and-set.
func TestRegistryChangedByOthers(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		if _, err := r.store.Set(t.Context(), replicaKey, fleet.Replica{State: "odd"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		r.reg.Late()
		if again, _ := r.poll(); !again {
			t.Error("not noticed")
		}
		if v, _, _ := r.entry(); v.State != "odd" {
			t.Error("a heartbeat wrote over another's entry")
		}
		r.poll()
		if v, _, _ := r.entry(); v.State != fleet.Ready {
			t.Errorf("%+v", v)
		}
	})
}

// An answer that was lost is made up for by the next look.
func TestRegistryLostAnswer(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		stmts := r.reg.Poll(0)
		if _, _, err := r.store.Write(t.Context(), stmts...); err != nil {
			t.Fatal(err)
		}
		if r.reg.Polled(nil, &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindUnreachable}, time.Now()) {
			t.Error("a poll is wanted at once while the store is down")
		}
		_, before, _ := r.entry()
		if again, _ := r.poll(); again {
			t.Error("not settled")
		}
		r.become(fleet.Ready)
		if _, after, _ := r.entry(); after.Stamp != before.Stamp+1 {
			t.Errorf("stamp %v after %v", after.Stamp, before.Stamp)
		}
	})
}

func TestRegistryDrainRequest(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		ask := func(by string, ttl time.Duration) {
			if _, err := r.store.Set(t.Context(), tuple.Key{fleet.DrainPrefix, "r1"}, fleet.DrainRequest{By: by, TimeoutMs: 5}, ttl); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.store.Set(t.Context(), tuple.Key{fleet.DrainPrefix, "r2"}, fleet.DrainRequest{By: "other"}, 0); err != nil {
			t.Fatal(err)
		}
		r.poll()
		ask("a", time.Hour)
		r.poll()
		r.poll()
		ask("b", time.Hour)
		r.poll()
		if len(r.drains) != 2 || r.drains[0] != (fleet.DrainRequest{By: "a", TimeoutMs: 5}) || r.drains[1].By != "b" {
			t.Errorf("%+v", r.drains)
		}
	})
}

func TestRegistryWatchesTheMode(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *kv.Store) error{
		"migrating": func(t *testing.T, s *kv.Store) error {
			_, err := s.Set(t.Context(), mode.ModeKey, "migrating:x", 0)
			return err
		},
		"gone": func(t *testing.T, s *kv.Store) error { return s.Delete(t.Context(), mode.ModeKey) },
		"layout": func(t *testing.T, s *kv.Store) error {
			_, id, _ := mode.Read(t.Context(), s)
			id.Layout++
			_, err := s.Set(t.Context(), mode.StoreKey, id, 0)
			return err
		},
		"another store set": func(t *testing.T, s *kv.Store) error {
			_, err := s.Set(t.Context(), mode.StoreKey, mode.Store{ID: "other", Layout: mode.Layout}, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRig(t, func(t *testing.T, r *rig) {
				r.poll()
				r.reg.Late()
				r.poll()
				if len(r.refused) > 0 {
					t.Fatal(r.refused)
				}
				if err := change(t, r.store); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					r.reg.Late()
					r.poll()
				}
				if len(r.refused) != 1 || !errors.Is(r.refused[0], mode.ErrRefused) {
					t.Errorf("%v", r.refused)
				}
			})
		})
	}
}

func TestSweep(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		sweep := &fleet.Sweep{Batch: 10, Log: slog.New(slog.DiscardHandler)}
		for i := range 25 {
			r.exec(`INSERT INTO kv VALUES (?, 'x', 1, 1)`, tuple.MustEncode("old", i))
		}
		r.exec(`INSERT INTO kv VALUES (?, 'x', 1, 99999999999999)`, tuple.MustEncode("new"))
		for i, want := range []bool{true, true, false, false} {
			res, _, err := r.store.Write(t.Context(), sweep.Poll(0)...)
			if err != nil {
				t.Fatal(err)
			}
			if again := sweep.Polled(res, nil, time.Now()); again != want {
				t.Errorf("sweep %d: again %v", i, again)
			}
		}
		if n, err := r.store.CountExpired(t.Context()); n != 0 || err != nil {
			t.Errorf("%d left, %v", n, err)
		}
		if e, err := r.store.Decide(t.Context(), libsql.S(`SELECT count(*) FROM kv WHERE v = 'x'`)); err != nil || e[0].Rows[0][0] != int64(1) {
			t.Errorf("%v, %v", e, err)
		}
		if sweep.Polled(nil, errors.New("x"), time.Now()) {
			t.Error("again after a failure")
		}
	})
}

// What is polled when nothing is due changes no row.
func TestIdlePollWritesNothing(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		sweep := &fleet.Sweep{Batch: 10}
		for range 5 {
			res, _, err := r.store.Write(t.Context(), append(r.reg.Poll(0), sweep.Poll(0)...)...)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range res {
				if x.Changes > 0 {
					t.Errorf("statement %d changed %d rows", i, x.Changes)
				}
			}
		}
	})
}

// Whoever follows a replica that stops sees what it waits for with the next poll,
// and polls that have nothing new write nothing.
func TestRegistryShowsSteps(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		_, idle := r.poll()
		r.step, r.load.InFlight = "grace", 3
		if _, n := r.poll(); n != idle {
			t.Errorf("%d statements of a replica that serves, want %d", n, idle)
		}
		r.become(fleet.Draining)
		if v, _, _ := r.entry(); v.State != fleet.Draining || v.Step != "grace" || v.InFlight != 3 {
			t.Errorf("%+v", v)
		}
		if _, n := r.poll(); n != idle {
			t.Errorf("%d statements of a poll with nothing new, want %d", n, idle)
		}
		r.become(fleet.Stopping)
		_, before, _ := r.entry()
		for _, inFlight := range []int{3, 2} {
			r.step, r.load.InFlight = "requests", inFlight
			r.poll()
			if v, e, _ := r.entry(); v.Step != "requests" || v.InFlight != inFlight || e.Stamp != before.Stamp {
				t.Errorf("%+v, stamp %v, want %v", v, e.Stamp, before.Stamp)
			}
		}
		r.become(fleet.Ready)
		if v, _, _ := r.entry(); v.Step != "" {
			t.Errorf("a replica that serves shows the step %q", v.Step)
		}
	})
}
