package cli

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/mode"
)

func drainRequest(t *testing.T, f *fixture, id string) *fleet.DrainRequest {
	t.Helper()
	all, err := fleet.Drainees(t.Context(), f.stores.KV)
	if err != nil {
		t.Fatal(err)
	}
	return all[id].Request
}

func TestDrainAsks(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.fails(exitUsage, "which replicas", "drain")
		f.fails(exitUsage, "which replicas", "drain", "r1", "--all")
		f.fails(exitUsage, "--cancel", "drain", "r1", "--cancel", "--wait")
		f.fails(exitUsage, "a part of it", "drain", "r1", "--grace", "5s", "--drain-timeout", "5s")
		f.fails(exitUsage, "1h0m0s", "drain", "r1", "--grace", "1h")
		f.fails(exitUsage, "longer than 0", "drain", "r1", "--drain-timeout", "0s")
		f.fails(exitUsage, "--interval", "drain", "r1", "--wait", "--interval", "1ms")
		f.fails(exitNotFound, "no replica r1|nothing was done", "drain", "r1", "--yes")
		f.replica("r1", fleet.Ready, "1")
		f.replica("r2", fleet.Ready, "1")
		f.replica("r3", fleet.Ready, "1")
		f.fails(exitNotFound, "no replica r9", "drain", "r1", "r9", "--yes")
		f.fails(exitNotFound, "no replica r9", "drain", "--all-but", "r9", "--yes")
		f.fails(exitUsage, "--yes", "drain", "r1")
		if r := f.ask(strings.NewReader("n\n"), "drain", "r1"); r.code != exitFailed || !strings.Contains(r.err, "Stop 1 replica: r1 (2 other replicas ready)") {
			t.Error(r)
		}
		var got drained
		f.json(&got, "drain", "--all", "--dry-run")
		if !got.DryRun || len(got.Replicas) != 3 || got.Replicas[0].Outcome != "would be asked" {
			t.Errorf("%+v", got)
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			if d := drainRequest(t, f, id); d != nil {
				t.Fatalf("%s was asked: %+v", id, d)
			}
		}
		f.json(&got, "drain", "--all-but", "r2", "--yes", "--grace", "0s", "--drain-timeout", "7s")
		if got.DryRun || len(got.Replicas) != 2 || got.Replicas[1].ID != "r3" || got.Replicas[1].Outcome != drainAsked {
			t.Errorf("%+v", got)
		}
		d := drainRequest(t, f, "r3")
		if d == nil || d.TimeoutMs != 7000 || d.GraceMs == nil || *d.GraceMs != 0 || !strings.Contains(d.By, "@") || d.RequestedAt < 1e12 || drainRequest(t, f, "r2") != nil {
			t.Errorf("%+v", d)
		}
		if r := f.ask(strings.NewReader("y\n"), "drain", "r2"); r.code != exitOK {
			t.Error(r)
		}
		if d := drainRequest(t, f, "r2"); d == nil || d.TimeoutMs != 0 || d.GraceMs != nil {
			t.Errorf("%+v", d)
		}
		if out := f.ok("__complete", "drain", "r1", ""); !strings.Contains(out, "r2\tready on h") || strings.Contains(out, "r1\t") {
			t.Error(out)
		}
	})
}

// progress starts the command and returns the lines that it notes.
func progress(t *testing.T, f *fixture, ctx context.Context, args ...string) (*lineSink, <-chan result) {
	t.Helper()
	sink, out := newLineSink(), newLineSink()
	done := make(chan result, 1)
	go func() {
		code := Run(ctx, Options{Args: append(args, "--interval", "10ms", "-o", "json"), In: strings.NewReader(""), Out: out, Err: sink, Environ: f.environ})
		var text strings.Builder
		for len(out.lines) > 0 {
			text.WriteString(<-out.lines)
		}
		done <- result{code: code, out: text.String()}
	}()
	return sink, done
}

func TestDrainWait(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"good", "left", "died"} {
		f.replica(id, fleet.Ready, "1")
	}
	notes, done := progress(t, f, t.Context(), "drain", "--all", "--wait", "--yes")
	notes.next(t, "good: ready")
	f.set([]any{fleet.ReplicaPrefix, "good"}, fleet.Replica{State: fleet.Draining, Layout: mode.Layout, Load: fleet.Load{InFlight: 1, Objects: 2}}, time.Hour)
	notes.next(t, "good: draining, 1 request, 2 objects in memory")
	f.set([]any{fleet.ReplicaPrefix, "good"}, fleet.Replica{State: fleet.Stopping, Step: "requests", Layout: mode.Layout, Load: fleet.Load{InFlight: 1, Objects: 2}}, time.Hour)
	notes.next(t, "good: stopping (requests), 1 request, 2 objects in memory")
	f.replica("good", fleet.Stopping, "1")
	notes.next(t, "good: stopping")
	f.remove(fleet.DrainPrefix, "good") // nothing stops it any more
	f.remove(fleet.ReplicaPrefix, "good")
	notes.next(t, "good: finished")
	d := drainRequest(t, f, "left")
	d.Left = "events: 2 run on"
	f.set([]any{fleet.DrainPrefix, "left"}, d, time.Hour)
	f.remove(fleet.ReplicaPrefix, "left")
	f.remove(fleet.ReplicaPrefix, "died")
	last := notes.next(t, `"kind":"failed"`)
	for _, want := range []string{"replica left: not finished: events: 2 run on", "replica died: not finished: it died"} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q in %s", want, last)
		}
	}
	r := <-done
	var got drained
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitFailed || len(got.Replicas) != 3 {
		t.Fatalf("exit %d, %v, %s", r.code, err, r.out)
	}
	if got.Replicas[1].Outcome != drainFinished || got.Replicas[2].Outcome != drainLeft || got.Replicas[0].Outcome != drainLeft {
		t.Error(r.out)
	}
	if out := f.ok("drain", "--all", "--wait", "--yes", "-o", "json"); !strings.Contains(out, `"replicas": []`) {
		t.Error(out)
	}
}

func TestDrainWaitEnds(t *testing.T) {
	f := newFixture(t)
	f.environ = append(f.environ, "DWK_FLEET_HEARTBEAT_TTL=3s", "DWK_LIBSQL_TIMEOUT=1s")
	f.replica("hung", fleet.Ready, "1")
	r := f.run("drain", "hung", "--wait", "--yes", "--grace", "0s", "--drain-timeout", "1ms", "--interval", "10ms", "-q")
	if r.code != exitFailed || !strings.Contains(r.err, "replica hung: late: not gone in time") || !strings.Contains(r.out, "late") {
		t.Error(r)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	notes, done := progress(t, f, ctx, "drain", "hung", "--wait", "--yes")
	notes.next(t, "hung: ready")
	cancel(interrupted{syscall.SIGINT})
	notes.next(t, "the requests stay")
	if r := <-done; r.code != exitInterrupted || drainRequest(t, f, "hung") == nil {
		t.Error(r)
	}
	notes, done = progress(t, f, t.Context(), "drain", "hung", "--wait", "--yes")
	notes.next(t, "hung: ready")
	f.remove(fleet.DrainPrefix, "hung")
	notes.next(t, "replica hung: not finished: the request was withdrawn, it serves on")
	if r := <-done; r.code != exitFailed {
		t.Error(r)
	}
}

func TestDrainCancel(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.replica("r1", fleet.Ready, "1")
		f.fails(exitNotFound, "no replica r9", "drain", "r9", "--cancel", "--yes")
		refused := func(why string) {
			t.Helper()
			r := f.run("drain", "r1", "--cancel", "--yes", "--interval", "10ms")
			if r.code != exitFailed || !strings.Contains(r.err, "replica r1: refused: "+why) || !strings.Contains(r.out, "refused") {
				t.Error(r)
			}
		}
		refused("it is not asked to stop")
		f.replica("r1", fleet.Draining, "1")
		refused("it was not asked through the store")
		f.ok("drain", "r1", "--yes")
		f.replica("r1", fleet.Stopping, "1")
		refused("it is stopping")
		if drainRequest(t, f, "r1") == nil {
			t.Error("refused and yet withdrawn")
		}
		f.replica("r1", fleet.Draining, "1")
		f.replica("r2", fleet.Ready, "1") // nobody has asked it
		f.fails(exitUsage, "--yes", "drain", "--all", "--cancel")
		notes, done := progress(t, f, t.Context(), "drain", "--all", "--cancel", "--yes")
		notes.next(t, "r1: still draining")
		f.replica("r1", fleet.Ready, "1")
		var got drained
		if r := <-done; json.Unmarshal([]byte(r.out), &got) != nil || r.code != exitOK || len(got.Replicas) != 1 || got.Replicas[0].Outcome != drainServes || got.Replicas[0].State != fleet.Ready {
			t.Error(r)
		}
		f.ok("drain", "r1", "--yes")
		f.replica("r1", fleet.Draining, "1")
		notes, done = progress(t, f, t.Context(), "drain", "r1", "--cancel", "--yes")
		notes.next(t, "r1: still draining")
		f.replica("r1", fleet.Stopping, "1")
		if r := <-done; r.code != exitFailed || !strings.Contains(r.out, "for another reason") {
			t.Error(r)
		}
	})
}
