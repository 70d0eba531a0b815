package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
)

// replica registers a replica for a while.
func (f *fixture) replica(id string, state fleet.State, version string) {
	f.t.Helper()
	f.set([]any{fleet.ReplicaPrefix, id}, fleet.Replica{State: state, Host: "h", Version: version, Layout: mode.Layout, StartedAt: 1, HeartbeatAt: 2}, time.Hour)
}

func (f *fixture) set(key []any, value any, ttl time.Duration) {
	f.t.Helper()
	if _, err := f.stores.KV.Set(f.t.Context(), key, value, ttl); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(key ...any) {
	f.t.Helper()
	if err := f.stores.KV.Delete(f.t.Context(), key); err != nil {
		f.t.Fatal(err)
	}
}

func TestFleetStatus(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if out := f.ok("fleet", "status"); !strings.Contains(out, "no replica is ready") || !strings.Contains(out, "mode central/2") {
			t.Error(out)
		}
		f.replica("r1", fleet.Ready, "1.0.0")
		f.replica("r2", fleet.Draining, "0.9.0")
		f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
		f.set([]any{"dwk_queue_due", "mail", 1_700_000_000_000.0, "m"}, "x", 0)
		f.set([]any{"dwk_alarm_dead", "A", "0a"}, "x", time.Hour)
		f.set([]any{"dwk_queue_pause", "mail"}, "x", 0)
		var got statusJSON
		f.json(&got, "fleet", "status")
		if !got.OK || got.Verdict != "all right: 1 replica ready; 1 dead letter; 1 paused queue" || got.Mode != mode.Marker || got.StoreID == "" || got.Leases != 1 || got.LeftOver != 0 {
			t.Errorf("%+v", got)
		}
		if len(got.Replicas) != 2 || got.Replicas[1].ID != "r2" || got.Replicas[1].State != fleet.Draining || got.Replicas[0].UptimeMs < got.Replicas[0].HeartbeatAgeMs || got.Replicas[0].ExpiresInMs <= 0 {
			t.Errorf("%+v", got.Replicas)
		}
		if len(got.Messages) != 1 || got.Messages[0].Overdue != 1 || !got.Messages[0].Paused || len(got.Alarms) != 1 || got.Alarms[0].Dead != 1 {
			t.Errorf("%+v %+v", got.Messages, got.Alarms)
		}
		out := f.ok("fleet", "status")
		for _, want := range []string{"REPLICA  STATE     VERSION", "r2       draining  0.9.0", "messages  mail", "paused", "verdict", "all right"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		// Not well: which promise is at risk, why, and what to do, the same in both.
		f.remove("dwk_queue_pause", "mail")
		f.set([]any{"dwk_cron_last", "every-five"}, map[string]any{"since": 1_700_000_000_000}, 0)
		f.set([]any{"dwk_cron_last", "gone"}, map[string]any{"since": 1_700_000_000_000, "schedule": "@daily", "zone": "UTC", "bucket": 1, "started_at": 2, "finished_at": 3, "outcome": "ok"}, 0)
		f.json(&got, "fleet", "status")
		if got.OK || len(got.Risks) != 2 || got.Risks[0].Promise != fleet.PromiseMessage || got.Risks[1].Promise != fleet.PromiseOccurrence {
			t.Errorf("%+v", got.Risks)
		}
		if len(got.Schedules) != 2 || !got.Schedules[0].Known || got.Schedules[0].OverdueMs == 0 || got.Schedules[1].Known || got.Schedules[1].OverdueMs != 0 || got.Schedules[1].Outcome != "ok" {
			t.Errorf("%+v", got.Schedules)
		}
		out = f.ok("fleet", "status")
		for _, r := range got.Risks {
			for _, want := range []string{r.Promise, r.Advice} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		}
		if !strings.Contains(out, "not in this configuration") || strings.Count(out, "\n") > 24 {
			t.Errorf("%d lines\n%s", strings.Count(out, "\n"), out)
		}
		f.fails(exitUsage, "--interval", "fleet", "status", "--watch", "--interval", "1ms")
	})
}

func TestFleetStatusWatch(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	sink := newLineSink()
	code := make(chan int)
	go func() {
		code <- Run(ctx, Options{Args: []string{"fleet", "status", "--watch", "--interval", "10ms", "-o", "json"}, Out: sink, Err: sink, Environ: f.environ})
	}()
	sink.next(t, `"replicas":[]`)
	f.replica("r1", fleet.Ready, "1")
	var got statusJSON
	if line := sink.next(t, `"ok":true`); json.Unmarshal([]byte(line), &got) != nil || len(got.Replicas) != 1 {
		t.Error(line)
	}
	cancel(interrupted{syscall.SIGINT})
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit %d", c)
	}
	if out := f.ok("fleet", "status", "--watch", "--timeout", "2s", "--interval", "10ms"); strings.Count(out, "verdict") < 1 {
		t.Error(out)
	}
}

func TestFleetWait(t *testing.T) {
	f := newFixture(t)
	wait := func(args ...string) []string {
		return append([]string{"fleet", "wait", "-q", "--interval", "10ms"}, args...)
	}
	f.fails(exitUsage, "what to wait for", wait()...)
	f.fails(exitUsage, "what to wait for", wait("--none", "--ready", "1")...)
	f.fails(exitUsage, "at least 1", wait("--ready", "0")...)
	f.ok(wait("--none")...)
	f.fails(exitFailed, "not in time|0 of 1 replicas ready", wait("--ready", "1", "--for", "50ms")...)
	f.replica("r1", fleet.Ready, "1")
	f.replica("r2", fleet.Ready, "2")
	f.fails(exitFailed, "2 replicas are left", wait("--none", "--for", "50ms")...)
	f.fails(exitFailed, "2 of 3", wait("--ready", "3", "--for", "50ms")...)
	f.fails(exitFailed, "1 of 1 replicas of version 2 ready, 1 of other versions", wait("--version", "2", "--for", "50ms")...)
	f.fails(exitFailed, "", wait("--ready", "3", "--timeout", "2s")...)
	done := make(chan result)
	go func() { done <- f.run(wait("--version", "2", "--ready", "1", "-o", "json")...) }()
	f.remove(fleet.ReplicaPrefix, "r1")
	r := <-done
	var got waited
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 || !got.Met || got.Ready != 1 || got.Replicas != 1 {
		t.Errorf("%v %+v", r, got)
	}
	f.fails(exitFailed, "1 of 2", wait("--version", "2", "--ready", "2", "--for", "50ms")...)
	f.ok(wait("--ready", "1")...)
}

func TestFleetFence(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
		f.replica("r1", fleet.Ready, "1")
		f.fails(exitFailed, "in use|dwk fleet wait --none|--force", "fleet", "fence", "--yes")
		var got fenced
		f.json(&got, "fleet", "fence", "--dry-run", "--force")
		if got.Fenced || !got.DryRun || got.Leases != 1 || got.Replicas != 1 {
			t.Errorf("%+v", got)
		}
		f.fails(exitUsage, "--yes", "fleet", "fence", "--force")
		f.remove(fleet.ReplicaPrefix, "r1")
		if r := f.ask(strings.NewReader("n\n"), "fleet", "fence"); r.code != exitFailed || !strings.Contains(r.err, "1 leases end") {
			t.Error(r)
		}
		if len(strings.Split(f.ok("lease", "list"), "\n")) != 3 {
			t.Error("the lease is gone before it was asked for")
		}
		f.json(&got, "fleet", "fence", "--yes")
		if !got.Fenced || got.Leases != 1 || got.After <= got.Before || len(got.After) != 20 {
			t.Errorf("%+v", got)
		}
		stamp, err := f.stores.KV.Set(t.Context(), []any{"x"}, 1, 0)
		if err != nil || stamp.String() <= got.After {
			t.Errorf("%v, %v", stamp, err)
		}
		f.set([]any{"dwk_meta", "mode"}, "migrating:x", 0)
		f.fails(exitFailed, "migration", "fleet", "fence", "--yes")
	})
}

// older is a store set that an older host has left.
func older(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + filepath.Join(t.TempDir(), "data")}}
	cfg, err := config.Load(config.Options{Environ: f.environ})
	if err != nil {
		t.Fatal(err)
	}
	if f.stores, err = host.Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.stores.Close() })
	for _, q := range kv.Schema[:3] {
		if _, err := f.stores.DB.Batch(t.Context(), libsql.Write, libsql.S(q)); err != nil {
			t.Fatal(err)
		}
	}
	f.set(mode.ModeKey, "central", 0)
	return f
}

func TestFleetAdopt(t *testing.T) {
	f := older(t)
	f.set([]any{"dwk_alarm_by_id", "Pod", "0a"}, map[string]any{"epochMs": 1_700_000_000_000, "retryCount": 0}, 0)
	f.set([]any{"dwk_lease", "Pod", "0a"}, map[string]string{"holder": "x"}, time.Minute)
	f.fails(exitFailed, "in use|1 live lease|dwk lease list", "fleet", "adopt", "--yes")
	f.remove("dwk_lease", "Pod", "0a")
	var got adopted
	f.json(&got, "fleet", "adopt", "--dry-run")
	if !got.Adopted || !got.DryRun || got.Claimed || got.StoreID != "" || got.AlarmCount != 1 || len(got.Alarms) != 1 || got.Alarms[0] != (fleet.Orphan{Class: "Pod", ID: "0a", DueAt: 1_700_000_000_000}) {
		t.Errorf("%+v", got)
	}
	if marker, id, err := mode.Read(t.Context(), f.stores.KV); marker != "central" || id.ID != "" || err != nil {
		t.Errorf("a dry run left %q %+v, %v", marker, id, err)
	}
	f.fails(exitUsage, "--yes", "fleet", "adopt")
	if r := f.ask(strings.NewReader("n\n"), "fleet", "adopt"); r.code != exitFailed || !strings.Contains(r.err, "older host") || !strings.Contains(r.err, "1 alarms of objects that are not here") {
		t.Error(r)
	}
	out := f.ok("fleet", "adopt", "--yes")
	for _, want := range []string{"taken over: mode central becomes central/2", "Pod/0a, due 2023-11-14"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	marker, id, err := mode.Read(t.Context(), f.stores.KV)
	if err != nil || mode.Check(marker, id) != nil {
		t.Errorf("%q %+v %v", marker, id, err)
	}
	f.ok("fleet", "status") // it has all tables
	f.fails(exitFailed, "nothing to adopt", "fleet", "adopt", "--yes")
}

// An object store of another store set is taken over on purpose.
func TestFleetAdoptObjectStore(t *testing.T) {
	f := newFixture(t)
	_, id, err := mode.Read(t.Context(), f.stores.KV)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.stores.ClaimObjectStore(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	f.replica("r1", fleet.Ready, "1")
	f.fails(exitFailed, "in use|stop all replicas", "fleet", "adopt", "--yes")
	f.remove(fleet.ReplicaPrefix, "r1")
	var got adopted
	f.json(&got, "fleet", "adopt", "--dry-run")
	if got.Adopted || !got.Claimed || got.Owner != "another" || got.StoreID != id.ID {
		t.Errorf("%+v", got)
	}
	if owner, _, err := f.stores.ObjectStoreOwner(t.Context()); owner != "another" || err != nil {
		t.Errorf("a dry run left %q, %v", owner, err)
	}
	if r := f.ask(strings.NewReader("n\n"), "fleet", "adopt"); r.code != exitFailed || !strings.Contains(r.err, "Take the object store") {
		t.Error(r)
	}
	f.ok("fleet", "adopt", "--yes")
	if owner, primary, err := f.stores.ObjectStoreOwner(t.Context()); owner != id.ID || primary != f.stores.DB.String() || err != nil {
		t.Errorf("%q %q, %v", owner, primary, err)
	}
	f.fails(exitFailed, "nothing to adopt", "fleet", "adopt", "--yes")
}

func TestFleetOnNoStore(t *testing.T) {
	dir := t.TempDir()
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + filepath.Join(dir, "data")}}
	for _, args := range [][]string{{"status"}, {"wait", "--none"}, {"adopt", "--yes"}, {"fence", "--yes"}} {
		f.fails(exitNotFound, "no replica has ever run", append([]string{"fleet"}, args...)...)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
