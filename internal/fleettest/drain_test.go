package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// drainAnswer is what drain writes.
type drainAnswer struct {
	Replicas []struct{ ID, Outcome, State, Detail string }
}

// drain runs the command and returns the outcome of its only replica.
func (f *Fleet) drain(r *Replica, want int, args ...string) (outcome, detail string) {
	f.t.Helper()
	outcome, detail, _ = f.follow(r, want, args...)
	return outcome, detail
}

// follow is drain, which also returns what was said meanwhile.
func (f *Fleet) follow(r *Replica, want int, args ...string) (outcome, detail, notes string) {
	f.t.Helper()
	res := f.Command(append([]string{"drain", r.ID, "--yes", "--interval", "50ms", "-o", "json"}, args...)...)
	if res.Code != want {
		f.t.Fatalf("drain %v: exit %d, want %d: %s", args, res.Code, want, res.Stderr)
	}
	var a drainAnswer
	if err := json.Unmarshal([]byte(res.Stdout), &a); err != nil || len(a.Replicas) != 1 || a.Replicas[0].ID != r.ID {
		f.t.Fatalf("drain %v: %v in %s", args, err, res.Stdout)
	}
	return a.Replicas[0].Outcome, a.Replicas[0].Detail, res.Stderr
}

// wantExit waits for the end of a replica.
func wantExit(t *testing.T, r *Replica, want int) {
	t.Helper()
	if code := r.Wait(); code != want {
		t.Errorf("%s: exit code %d, want %d", r.Name, code, want)
	}
}

// wantNoTrace fails the test when an entry of a kind that goes with replicas is
// left.
func wantNoTrace(t *testing.T, f *Fleet, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		if r := f.Command("kv", "list", "--prefix", `["`+prefix+`"]`, "-o", "json"); strings.TrimSpace(r.Stdout) != "[]" {
			t.Errorf("%s is left: %s", prefix, r.Stdout)
		}
	}
}

// wantNoLease fails the test when a replica has left a lease.
func wantNoLease(t *testing.T, f *Fleet, r *Replica) {
	t.Helper()
	for _, l := range f.Leases() {
		if l.Replica == r.ID {
			t.Errorf("a lease of %s is left: %+v", r.Name, l)
		}
	}
}

// stateOf is the state of a replica in the registry, or "".
func (f *Fleet) stateOf(r *Replica) string {
	f.t.Helper()
	for _, s := range f.status().Replicas {
		if s.ID == r.ID {
			return s.State
		}
	}
	return ""
}

func (f *Fleet) waitState(r *Replica, state string) {
	f.t.Helper()
	Eventually(f.t, r.Name+" is "+state, func() bool { return f.stateOf(r) == state })
}

// The command follows a replica to its end, which leaves nothing.
func TestDrainCommand(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind, steadyLeases)
		asleep := a.Sleep("n", 3*time.Second)
		if r := f.Command("drain", a.ID, "nobody", "--yes"); r.Code != 3 || f.stateOf(a) != "ready" {
			t.Errorf("%+v", r)
		}
		if outcome, detail := f.drain(a, 0, "--wait", "--grace", "1s"); outcome != "finished" || detail != "" {
			t.Error(outcome, detail)
		}
		wantExit(t, a, 0)
		if ans := <-asleep; ans.Status != http.StatusOK {
			t.Error(ans)
		}
		wantNothingLeft(t, a)
		wantNoTrace(t, f, "dwk_lease", "dwk_drain")
		if f.stateOf(a) != "" || f.stateOf(b) != "ready" {
			t.Errorf("%+v", f.status())
		}
		if log := a.Log(); !strings.Contains(log, `"grace":"1s"`) || !strings.Contains(log, "@") {
			t.Error("the log does not say who asked for what")
		}
	})
}

// keepsConnections reports whether a replica leaves a connection to its client.
func keepsConnections(t *testing.T, r *Replica) bool {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(r.Public + "/lab/whoami")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return !res.Close
}

// A request that is withdrawn during the grace leaves a replica that serves, and
// that can be drained again.
func TestDrainCancelled(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		a := f.Start()
		f.drain(a, 0, "--grace", "10m")
		f.waitState(a, "draining")
		a.WaitStatus(http.StatusServiceUnavailable)
		if ans := addRow(a, "n"); ans.Status != http.StatusOK {
			t.Errorf("during the grace: %v", ans)
		}
		if keepsConnections(t, a) {
			t.Error("clients keep their connections during the grace")
		}
		if outcome, _ := f.drain(a, 0, "--cancel"); outcome != "withdrawn" {
			t.Error(outcome)
		}
		a.WaitStatus(http.StatusOK)
		if ans := addRow(a, "n"); ans.Status != http.StatusOK {
			t.Error(ans)
		}
		if !keepsConnections(t, a) {
			t.Error("it serves again, and closes connections")
		}
		if !strings.Contains(a.Log(), `"msg":"drain.withdrawn"`) {
			t.Error("no drain.withdrawn was logged")
		}
		// A new request replaces the one before.
		f.drain(a, 0, "--grace", "10m")
		f.waitState(a, "draining")
		if outcome, _ := f.drain(a, 0, "--grace", "0s", "--wait"); outcome != "finished" {
			t.Error(outcome)
		}
		wantExit(t, a, 0)
		wantNoTrace(t, f, "dwk_lease", "dwk_drain", "dwk_replica")
	})
}

// A replica that is going to stop keeps no lease behind an event, from when it is
// asked to. One that then stays does again.
func TestDrainEndsLingering(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_OBJECTS_LINGER=10s")
	a := f.Start()
	add := func() {
		if ans := addRow(a, "n"); ans.Status != http.StatusOK {
			t.Error(ans)
		}
	}
	lingers := func() bool {
		add()
		add()
		return len(f.Leases()) == 1
	}
	Eventually(t, "a lease lingers", lingers)
	f.drain(a, 0, "--grace", "10m")
	f.waitState(a, "draining")
	f.WaitFree()
	for range 3 {
		add()
	}
	if l := f.Leases(); len(l) > 0 {
		t.Errorf("kept while draining: %+v", l)
	}
	f.drain(a, 0, "--cancel")
	a.WaitStatus(http.StatusOK)
	Eventually(t, "a lease lingers", lingers)
	a.Terminate()
	wantExit(t, a, 0)
	wantNoLease(t, f, a)
}

// A signal and POST /drain make a long grace short, and are not withdrawn.
func TestDrainByOthersIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_DRAIN_GRACE=4s") // a command takes its time
	for name, trigger := range map[string]func(*Replica){
		"signal":    (*Replica).Terminate,
		"interrupt": func(r *Replica) { r.signal(syscall.SIGINT) },
		"post": func(r *Replica) {
			if a := send(t.Context(), http.MethodGet, r.Admin+"/drain", ""); a.Status != http.StatusMethodNotAllowed {
				t.Error(a)
			}
			a := send(t.Context(), http.MethodPost, r.Admin+"/drain", "")
			if want := fmt.Sprintf(`{"replica":"%s","status":"draining"}`, r.ID); a.Status != http.StatusAccepted || strings.TrimSpace(a.Body) != want {
				t.Errorf("%v, want %s", a, want)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.Start()
			f.drain(a, 0, "--grace", "30m")
			f.waitState(a, "draining")
			trigger(a)
			if outcome, detail := f.drain(a, 1, "--cancel"); outcome != "not finished" && outcome != "refused" {
				t.Error(outcome, detail)
			}
			wantExit(t, a, 0)
		})
	}
	wantNoTrace(t, f, "dwk_lease", "dwk_drain", "dwk_replica")
}

// From when the listener may be closed, the stop goes on.
func TestDrainCancelledTooLate(t *testing.T) {
	t.Parallel()
	f, a, _ := startPair(t, Wire)
	asleep := a.Sleep("n", 12*time.Second)
	f.drain(a, 0)
	f.waitState(a, "stopping")
	if outcome, detail := f.drain(a, 1, "--cancel"); outcome != "refused" || !strings.Contains(detail, "stopping") {
		t.Error(outcome, detail)
	}
	if ans := <-asleep; ans.Status != http.StatusOK {
		t.Error(ans)
	}
	wantExit(t, a, 0)
	if r := f.Command("drain", a.ID, "--cancel", "--yes"); r.Code != 3 {
		t.Errorf("%+v", r)
	}
}

// What does not end in time is named, by the replica and by the command, and ends
// with 1.
func TestDrainOfAStuckHandler(t *testing.T) {
	t.Parallel()
	f, a, b := startPair(t, Wire)
	asleep := a.Sleep("n", 25*time.Second)
	outcome, detail, notes := f.follow(a, 1, "--wait", "--drain-timeout", "2s")
	if outcome != "not finished" || !strings.Contains(detail, "requests: ") {
		t.Error(outcome, detail)
	}
	if !strings.Contains(notes, a.ID+": stopping (requests), 1 request, ") {
		t.Errorf("the command does not say what the replica waits for:\n%s", notes)
	}
	wantExit(t, a, 1)
	wantNoLease(t, f, a) // it can commit no more
	if log := a.Log(); !strings.Contains(log, "not everything had finished") {
		t.Error("the log does not say what had not finished")
	}
	if ans := <-asleep; ans.Status == http.StatusOK {
		t.Error(ans)
	}
	if ans := addRow(b, "n"); ans.Status != http.StatusOK {
		t.Error(ans)
	}
	wantNoSleeps(t, b)
}

// A replica that dies during its drain has not finished.
func TestDrainOfAReplicaThatDies(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, shortHeartbeats)
	a := f.Start()
	done := make(chan Result, 1)
	go func() { done <- f.Command("drain", a.ID, "--yes", "--wait", "--grace", "10m", "-q") }()
	f.waitState(a, "draining")
	a.Kill()
	if r := <-done; r.Code != 1 || !strings.Contains(r.Stderr, a.ID+": not finished: it died") {
		t.Errorf("%+v", r)
	}
}

// A store that is away when a replica stops does not keep it, which says what it
// could not do; one that comes back in time changes nothing.
func TestDrainWithoutStore(t *testing.T) {
	t.Parallel()
	down := func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{CutBefore: true} }
	start := func(t *testing.T) (*Fleet, *Replica) {
		f := New(t, Wire, shortHeartbeats, "DWK_LIBSQL_TIMEOUT=2s")
		return f, f.Start()
	}
	t.Run("during the drain", func(t *testing.T) {
		t.Parallel()
		f, a := start(t)
		f.drain(a, 0, "--grace", "5s", "--drain-timeout", "12s")
		f.waitState(a, "draining")
		f.Server.SetHook(down)
		wantExit(t, a, 1)
		f.Server.SetHook(nil)
		if log := a.Log(); !strings.Contains(log, "registry: ") {
			t.Error("the log does not say that the registry entry is left")
		}
		wantNothingLeft(t, a)
		wantNoTrace(t, f, "dwk_lease")
	})
	t.Run("before the signal", func(t *testing.T) {
		t.Parallel()
		f, a := start(t)
		f.Server.SetHook(down)
		if r := f.Command("drain", a.ID, "--yes"); r.Code != 5 {
			t.Errorf("a request cannot be made: %+v", r)
		}
		a.Terminate()
		wantExit(t, a, 1)
		f.Server.SetHook(nil)
		if log := a.Log(); !strings.Contains(log, "leases: ") || !strings.Contains(log, "registry: ") {
			t.Error("the log does not say what is left")
		}
		wantNothingLeft(t, a)
	})
	t.Run("and back in time", func(t *testing.T) {
		t.Parallel()
		f, a := start(t)
		done := make(chan Result, 1)
		go func() { done <- f.Command("drain", a.ID, "--yes", "--wait", "--interval", "50ms", "--grace", "5s") }()
		f.waitState(a, "draining")
		f.Server.SetHook(down)
		Eventually(t, "the store is missed", func() bool { return strings.Contains(a.Log(), `"msg":"fleet.poll.failed"`) })
		f.Server.SetHook(nil)
		wantExit(t, a, 0)
		if r := <-done; r.Code != 0 || !strings.Contains(r.Stderr, "store: ") {
			t.Errorf("the command that followed it: %+v", r)
		}
		wantNothingLeft(t, a)
		wantNoTrace(t, f, "dwk_lease", "dwk_drain", "dwk_replica")
	})
}

// A second signal ends a replica at once, which says what it was doing.
func TestDrainAbandoned(t *testing.T) {
	t.Parallel()
	_, a, b := startPair(t, Wire)
	asleep := a.Sleep("n", 20*time.Second)
	a.Terminate()
	Eventually(t, "it stops", func() bool { return strings.Contains(a.Log(), `"step":"poller"`) })
	a.TerminateAgain()
	wantExit(t, a, 1)
	if log := a.Log(); !strings.Contains(log, `"msg":"drain.abandoned"`) || !strings.Contains(log, `"step":"requests","requests":1,"events":1`) {
		t.Error("the log does not say what it was doing")
	}
	if ans := <-asleep; ans.Err == nil {
		t.Error(ans)
	}
	wantNoSleeps(t, b)
}

// The first signal makes the drain that was asked for final, the second ends it.
func TestDrainAskedAndAbandoned(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, shortHeartbeats)
	a := f.Start(Tracked)
	asleep := a.Sleep("n", 25*time.Second)
	done := make(chan Result, 1)
	go func() { done <- f.Command("drain", a.ID, "--yes", "--wait", "--grace", "10m", "--interval", "50ms") }()
	f.waitState(a, "draining")
	a.Terminate()
	f.waitState(a, "stopping")
	if outcome, _ := f.drain(a, 1, "--cancel"); outcome != "refused" {
		t.Error(outcome)
	}
	a.TerminateAgain()
	wantExit(t, a, 1)
	if !strings.Contains(a.Log(), `"msg":"drain.abandoned"`) {
		t.Error("the log does not say what it was doing")
	}
	if ans := <-asleep; ans.Err == nil {
		t.Error(ans)
	}
	if r := <-done; r.Code != 1 || !strings.Contains(r.Stderr, "not finished: it died") {
		t.Errorf("%+v", r)
	}
}

// A consumer that ends when it is told to has its messages handed back, and a
// stuck one is named.
func TestDrainOfConsumers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  string
		exit int
	}{
		"slow":  {"DWK_FAILPOINTS=queue.consume.before=sleep:0s", 0},
		"stuck": {"DWK_FAILPOINTS=queue.consume.before=sleep:1h", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQueueFleet(t, Wire, "batch: 1, concurrency: 1, visibility: 3s")
			a := f.Start(c.env)
			if ans := a.Post("queue/default/send", `{"sleep":25000}`); ans.Status != http.StatusOK {
				t.Fatal(ans)
			}
			a.WaitHit("queue.consume.before", 1)
			outcome, detail := f.drain(a, c.exit, "--wait", "--drain-timeout", "4s")
			if stuck := c.exit == 1; stuck != (outcome == "not finished") || stuck != strings.Contains(detail, "queue default: 1 consumers still run") {
				t.Error(outcome, detail)
			}
			wantExit(t, a, c.exit)
			// Whatever it was, somebody else gets the message.
			b := f.Start("DWK_FAILPOINTS=queue.consume.before=sleep:0s")
			b.WaitHit("queue.consume.before", 1)
			wantNoTrace(t, f, "dwk_lease")
		})
	}
}
