package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// A ticker runs a schedule as a replica does, when it is told to poll.
type ticker struct {
	*cron.Runner
	f *fixture
}

func (f *fixture) ticker(name string, fn func() error) *ticker {
	f.t.Helper()
	r := cron.NewRunner(cron.Config{Replica: "0123456789abcdef", Store: f.stores.KV, Commits: f.stores.KV, TTL: time.Minute, Wake: func() {}, WakeAt: func(time.Time) {}},
		slog.New(slog.NewTextHandler(f.t.Output(), nil)))
	err := r.Add(name, cron.Options{Schedule: "@every 24h", Zone: "UTC", Timeout: time.Minute}, nil,
		func(context.Context, durable.Env, durable.Occurrence) error { return fn() })
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	return &ticker{r, f}
}

func (k *ticker) poll(ctx context.Context) {
	sent := time.Now()
	res, _, err := k.f.stores.KV.Write(ctx, k.Poll(1<<20)...)
	k.Polled(res, err, sent)
}

// start polls until the test ends.
func (k *ticker) start() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.poll(context.Background())
			time.Sleep(10 * time.Millisecond)
		}
	}()
	k.f.t.Cleanup(func() { stop(); <-done })
}

func TestCron(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var fail error
		k := f.ticker("nightly", func() error { return fail })
		k.poll(t.Context())
		k.poll(t.Context())
		var list []cronInfo
		f.json(&list, "cron", "list")
		if len(list) != 2 || list[0].Name != "every-five" || list[0].App != "lab" || list[0].Schedule != "@every 5s" || list[0].Next%5000 != 0 || list[0].Last != nil {
			t.Fatalf("%+v", list)
		}
		if n := list[1]; n.Name != "nightly" || n.App != "" || n.Schedule != "@every 24h" || n.Next%86_400_000 != 0 || n.Next == 0 || n.Running == nil {
			t.Errorf("%+v", n)
		}
		k.start()
		var r requestedRun
		f.json(&r, "cron", "run", "nightly", "--wait", "--yes")
		if r.Run == nil || r.Run.Outcome != cron.OK || r.Run.Attempt != 1 || r.Run.At != r.At || r.Request == "" {
			t.Fatalf("%+v", r)
		}
		fail = errors.New("no disk")
		if res := f.run("cron", "run", "nightly", "--at", "2026-03-01T00:00:00Z", "--wait", "--yes"); res.code != exitFailed || !strings.Contains(res.err, "no disk") || !strings.Contains(res.out, "failed") {
			t.Error(res)
		}
		var runs []cron.Run
		f.json(&runs, "cron", "history", "nightly")
		if len(runs) != 2 || runs[0].At != r.At || runs[1].Outcome != cron.Failed || runs[1].Error != "no disk" || runs[1].At != time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli() || runs[0].FinishedAt < runs[0].StartedAt {
			t.Errorf("%+v", runs)
		}
		if res := f.run("cron", "history", "nightly", "--limit", "1"); res.code != 0 || strings.Count(res.out, "\n") != 2 || !strings.Contains(res.err, "more runs than 1") {
			t.Error(res)
		}
		f.json(&list, "cron", "list")
		if n := list[1]; n.Last == nil || n.Last.Replica != "0123456789abcdef" || n.Last.Outcome != cron.OK {
			t.Errorf("%+v", n)
		}
		var p pausedJSON
		f.json(&p, "cron", "pause", "nightly", "--yes")
		list = nil
		f.json(&list, "cron", "list")
		if n := list[1]; !p.Paused || !p.Changed || !n.Paused || n.Next != 0 || n.PausedAt == 0 {
			t.Errorf("%+v %+v", p, n)
		}
		if out := f.ok("cron", "list"); !strings.Contains(out, "by ") || !strings.HasPrefix(out, "NAME") {
			t.Error(out)
		}
		f.json(&p, "cron", "pause", "nightly")
		if !p.Paused || p.Changed {
			t.Errorf("%+v", p)
		}
		f.json(&p, "cron", "resume", "nightly", "--yes")
		f.json(&p, "cron", "resume", "nightly")
		if p.Paused || p.Changed {
			t.Errorf("%+v", p)
		}
		if out := f.ok("__complete", "cron", "history", ""); !strings.Contains(out, "every-five\nnightly\n") {
			t.Errorf("%q", out)
		}
	})
}

func TestCronMistakes(t *testing.T) {
	f := newFixture(t)
	f.fails(exitNotFound, `no schedule "nope"|dwk cron list`, "cron", "history", "nope")
	f.fails(exitNotFound, `no schedule "nope"`, "cron", "pause", "nope", "--yes")
	f.fails(exitUsage, "schedule name", "cron", "run", "")
	f.fails(exitUsage, "--limit", "cron", "history", "every-five", "--limit", "-1")
	f.fails(exitUsage, "--at|not a time", "cron", "run", "every-five", "--at", "yesterday", "--yes")
	f.fails(exitUsage, "not past", "cron", "run", "every-five", "--at", "2038-01-01T00:00:00Z", "--yes")
	f.fails(exitUsage, "--yes", "cron", "run", "every-five")
	f.fails(exitUsage, "--yes", "cron", "pause", "every-five")
	if out := f.ok("cron", "history", "every-five", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("%q", out)
	}
	if r := f.ask(strings.NewReader("n\n"), "cron", "run", "every-five"); r.code != exitFailed {
		t.Error(r)
	}
	if out := f.ok("cron", "run", "every-five", "--yes"); !strings.Contains(out, "dwk cron history every-five") {
		t.Error(out)
	}
	// A run of a replica that is gone.
	at := tuple.Millis(1_700_000_000_000)
	if _, err := f.stores.KV.Set(t.Context(), tuple.Key{cron.PrefixRun, "every-five", at, 1}, map[string]any{"replica": "r", "started_at": 1_700_000_000_001}, 0); err != nil {
		t.Fatal(err)
	}
	if out := f.ok("cron", "history", "every-five"); !strings.Contains(out, "interrupted") {
		t.Error(out)
	}
}

// Who waits for a run is told when it was cut off for good, and when nobody runs
// it.
func TestCronRunIsNeverFinished(t *testing.T) {
	f := newFixture(t)
	request := func() (key tuple.Key) {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			for e, err := range f.stores.KV.List(t.Context(), kv.ListOptions{Prefix: tuple.Key{cron.PrefixRequest}}) {
				if err != nil {
					t.Fatal(err)
				}
				return e.Key
			}
			if time.Now().After(deadline) {
				t.Fatal("nobody asks for a run")
			}
		}
	}
	const at = 1_700_000_000_000
	f.set([]any{cron.PrefixLast, "every-five"}, map[string]any{"since": 1}, 0)
	for _, c := range []struct {
		words string
		lines bool
	}{{"was interrupted", true}, {"not begun within 1h", false}} {
		done := make(chan result)
		go func() {
			done <- f.run("cron", "run", "every-five", "--at", time.UnixMilli(at).UTC().Format(time.RFC3339), "--wait", "--yes")
		}()
		key := request()
		if c.lines { // won, cut off, and closed
			f.set([]any{cron.PrefixOccurrence, "every-five", tuple.Millis(at)}, map[string]any{"state": "running", "until": 1, "holder": "h"}, time.Hour)
			f.set([]any{cron.PrefixRun, "every-five", tuple.Millis(at), 1}, map[string]any{"replica": "r", "started_at": 5}, time.Hour)
			f.remove(key...)
			select {
			case r := <-done:
				t.Errorf("it does not wait for the repeat: %+v", r)
			case <-time.After(3 * runPause):
			}
			f.remove(cron.PrefixOccurrence, "every-five", tuple.Millis(at))
		} else {
			f.remove(key...)
		}
		if r := <-done; r.code != exitFailed || !strings.Contains(r.err, c.words) {
			t.Errorf("%+v", r)
		}
	}
}
