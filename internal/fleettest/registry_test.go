package fleettest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// heartbeatTTL is that of the fleets of these tests.
const heartbeatTTL = 6 * time.Second

const shortHeartbeats = "DWK_FLEET_HEARTBEAT_TTL=6s"

// fleetStatus is what fleet status writes.
type fleetStatus struct {
	OK       bool
	Verdict  string
	Replicas []struct {
		ID, State, Version, Host, Public string
		PID                              int
		Objects, Sockets                 int
		HeartbeatAgeMs                   int64 `json:"heartbeat_age_ms"`
	}
}

func (f *Fleet) status() fleetStatus {
	f.t.Helper()
	var s fleetStatus
	f.JSON(&s, "fleet", "status")
	return s
}

// Replicas are listed while they live, and for a TTL after they died.
func TestRegistry(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortHeartbeats)
		a, b := f.Start(), f.Start()
		if r := f.Command("fleet", "wait", "--ready", "2", "--for", "1m"); r.Code != 0 {
			t.Fatal(r)
		}
		s := f.status()
		if len(s.Replicas) != 2 || !s.OK {
			t.Fatalf("%+v", s)
		}
		for _, r := range s.Replicas {
			of := map[string]*Replica{a.ID: a, b.ID: b}[r.ID]
			if of == nil || r.State != "ready" || r.Public != of.Public || r.PID != of.cmd.Process.Pid || r.Host == "" || r.Version == "" {
				t.Errorf("%+v", r)
			}
		}
		killed := time.Now()
		a.Kill()
		if s := f.status(); len(s.Replicas) != 2 && time.Since(killed) < heartbeatTTL/2 {
			t.Errorf("gone at once: %+v", s)
		}
		Eventually(t, "the dead replica is gone", func() bool { s = f.status(); return len(s.Replicas) == 1 })
		if s.Replicas[0].ID != b.ID {
			t.Errorf("the wrong one is gone: %+v", s)
		}
		// In order, the entry goes with the replica, and no TTL has to pass.
		b.Terminate()
		if code := b.Wait(); code != 0 {
			t.Errorf("exit %d", code)
		}
		if s := f.status(); len(s.Replicas) != 0 || s.OK || !strings.Contains(s.Verdict, "no replica") {
			t.Errorf("%+v", s)
		}
	})
}

// The entry tells how far the stop is, and lives through it.
func TestRegistryWhileStopping(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, shortHeartbeats, "DWK_DRAIN_GRACE=5s")
	a := f.Start()
	a.Terminate()
	seen := ""
	Eventually(t, "it is draining", func() bool {
		if s := f.status(); len(s.Replicas) == 1 {
			seen = s.Replicas[0].State
		}
		return seen == "draining"
	})
	if code := a.Wait(); code != 0 || len(f.status().Replicas) != 0 {
		t.Errorf("exit %d, left %+v", code, f.status())
	}
	// A long event keeps it in "stopping", for longer than the TTL.
	b := f.Start("DWK_DRAIN_GRACE=0s", Tracked)
	asleep := b.Sleep("n", 2*heartbeatTTL+4*time.Second)
	b.Terminate()
	Eventually(t, "it is stopping", func() bool { s := f.status(); return len(s.Replicas) == 1 && s.Replicas[0].State == "stopping" })
	select {
	case <-asleep:
		t.Fatal("the event is over too soon for this test")
	case <-time.After(heartbeatTTL + time.Second):
	}
	if s := f.status(); len(s.Replicas) != 1 && !b.Exited() {
		t.Errorf("the entry of a replica that finishes its work is gone: %+v", s)
	}
	if a := <-asleep; a.Status != http.StatusOK {
		t.Error(a)
	}
	if code := b.Wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A request to stop comes through the store.
func TestDrainRequest(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		a, b := f.Start(), f.Start()
		if r := f.Command("kv", "set", `["dwk_drain","`+a.ID+`"]`, `{"requested_at":1,"by":"test","timeout_ms":20000}`, "--ttl", "1h", "--yes"); r.Code != 0 {
			t.Fatal(r)
		}
		if code := a.Wait(); code != 0 {
			t.Errorf("exit %d", code)
		}
		if s := f.status(); len(s.Replicas) != 1 || s.Replicas[0].ID != b.ID {
			t.Errorf("%+v", s)
		}
		if r := f.Command("kv", "get", `["dwk_drain","`+a.ID+`"]`); r.Code != 3 {
			t.Errorf("the request is left: %+v", r)
		}
	})
}

// A store that is away for longer than the TTL is no reason to restart.
func TestStoreComesBack(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, shortHeartbeats)
	a := f.Start()
	f.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{CutBefore: true} })
	a.WaitStatus(http.StatusServiceUnavailable)
	time.Sleep(heartbeatTTL + time.Second)
	f.Server.SetHook(nil)
	a.WaitStatus(http.StatusOK)
	Eventually(t, "it is registered again", func() bool {
		s := f.status()
		return s.OK && len(s.Replicas) == 1 && s.Replicas[0].ID == a.ID && s.Replicas[0].State == "ready"
	})
	for _, event := range []string{"fleet.poll.failed", "fleet.poll.recovered", "fleet.replica.lost"} {
		if !strings.Contains(a.Log(), `"msg":"`+event+`"`) {
			t.Errorf("no %s was logged", event)
		}
	}
	a.Terminate()
	if code := a.Wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A replica that has nothing to do costs the store its polls, which come a second
// apart at least: asking for its readiness costs nothing more.
func TestIdleRoundTrips(t *testing.T) {
	t.Parallel()
	f := New(t, Wire)
	a := f.Start()
	// On a machine that stalls a poll may be late, and readiness asks instead.
	for range 2 {
		if n, limit := idleRoundTrips(t, f, a); n > 0 && n <= limit {
			return
		}
	}
	if n, limit := idleRoundTrips(t, f, a); n > limit || n == 0 {
		t.Errorf("%d round trips, want at most %d", n, limit)
	}
}

// idleRoundTrips counts the round trips of ten seconds, and how many those may be.
func idleRoundTrips(t *testing.T, f *Fleet, a *Replica) (n, limit int64) {
	t.Helper()
	var trips atomic.Int64
	f.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { trips.Add(1); return hrana.Fault{} })
	defer f.Server.SetHook(nil)
	begun := time.Now()
	for range 10 {
		if ans := send(t.Context(), http.MethodGet, a.Admin+"/readyz", ""); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
		time.Sleep(time.Second)
	}
	took := time.Since(begun)
	n = trips.Load()
	t.Logf("%d round trips in %v", n, took)
	return n, int64(took.Seconds()) + 2
}

// A replica does not go on in a store set that has become something else.
func TestModeChangesUnderAReplica(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortHeartbeats)
		a := f.Start()
		if r := f.Command("kv", "set", `["dwk_meta","mode"]`, `"migrating:test"`, "--yes"); r.Code != 0 {
			t.Fatal(r)
		}
		if code := a.Wait(); code != 1 {
			t.Errorf("exit %d, want 1", code)
		}
		if log := a.Log(); !strings.Contains(log, `"msg":"fleet.mode.refused"`) || !strings.Contains(log, "a migration of the store set is under way") {
			t.Error("the log does not say why")
		}
		if r := f.Command("kv", "list", "--prefix", `["dwk_replica"]`, "-o", "json"); strings.TrimSpace(r.Stdout) != "[]" {
			t.Errorf("left: %s", r.Stdout)
		}
	})
}
