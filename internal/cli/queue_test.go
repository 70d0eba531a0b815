package cli

import (
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/queue"
)

// send sends bodies and returns their ids.
func (f *fixture) send(name string, bodies ...any) (ids []string) {
	f.t.Helper()
	msgs, err := queue.Encode(name, bodies, durable.SendOptions{})
	if err == nil {
		_, err = queue.Send(f.t.Context(), f.stores.KV, msgs)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// bury stores dead letters.
func (f *fixture) bury(name string, ids ...string) {
	f.t.Helper()
	p := kv.NewPlan()
	for _, id := range ids {
		p.Set(tuple.MustEncode(queue.PrefixDead, name, 1000, id), `{"body":{"n":1},"attempts":5,"error":"it failed"}`, 0)
	}
	if _, err := f.stores.KV.Commit(f.t.Context(), p); err != nil {
		f.t.Fatal(err)
	}
}

func TestQueueListAndPeek(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		ids := f.send("jobs", 1, "two", map[string]int{"three": 3})
		f.ok("queue", "send", "jobs", `{"later": true}`, "--delay", "1h", "--yes")
		f.bury("jobs", "x", "y")
		var list []queue.Info
		f.json(&list, "queue", "list")
		if len(list) != 2 || list[0].Queue != "default" || list[0].Due != 0 || list[0].OldestMs != nil {
			t.Fatalf("%+v", list)
		}
		if j := list[1]; j.Queue != "jobs" || j.Due != 3 || j.Delayed != 1 || j.Claimed != 0 || j.Dead != 2 || j.OldestMs == nil || j.Paused {
			t.Errorf("%+v", j)
		}
		if out := f.ok("queue", "list"); !strings.HasPrefix(out, "QUEUE    DUE  DELAYED  CLAIMED  DEAD  OLDEST DUE  PAUSED\ndefault    0        0        0     0") {
			t.Errorf("%q", out)
		}
		var seen []queue.Seen
		f.json(&seen, "queue", "peek", "jobs")
		if len(seen) != 4 || seen[0].ID != ids[0] || string(seen[1].Body) != `"two"` || string(seen[3].Body) != `{"later":true}` || seen[3].At-seen[3].SentAt != 3600_000 {
			t.Errorf("%+v", seen)
		}
		f.json(&seen, "queue", "peek", "jobs", "--dead", "--limit", "0")
		if len(seen) != 2 || seen[0].Error != "it failed" || seen[0].Attempts != 5 {
			t.Errorf("%+v", seen)
		}
		if r := f.run("queue", "peek", "jobs", "--limit", "2"); r.code != 0 || !strings.Contains(r.err, "more messages than 2") || strings.Count(r.out, "\n") != 3 {
			t.Error(r)
		}
		if out := f.ok("queue", "peek", "default", "-o", "json"); strings.TrimSpace(out) != "[]" {
			t.Errorf("%q", out)
		}
		f.fails(exitNotFound, `no queue "nope"|dwk queue list`, "queue", "peek", "nope")
		f.fails(exitUsage, "--limit", "queue", "peek", "jobs", "--limit", "-1")
		f.fails(exitUsage, "queue name", "queue", "peek", "")
	})
}

func TestQueueSend(t *testing.T) {
	f := newFixture(t)
	f.fails(exitUsage, "--yes", "queue", "send", "default", "1")
	f.fails(exitUsage, "not JSON|quotes", "queue", "send", "default", "hello", "--yes")
	f.fails(exitUsage, "too large|131072", "queue", "send", "default", `"`+strings.Repeat("a", queue.MaxBody)+`"`, "--yes")
	f.fails(exitUsage, "BODY is missing", "queue", "send", "default", "--yes")
	if r := f.ask(strings.NewReader("n\n"), "queue", "send", "default", "1"); r.code != exitFailed {
		t.Error(r)
	}
	var sent sentMessage
	f.json(&sent, "queue", "send", "default", "12345678901234567890", "--yes")
	r := f.run("queue", "send", "elsewhere", "1", "--yes")
	if r.code != 0 || !strings.Contains(r.err, `no queue "elsewhere" is configured`) {
		t.Error(r)
	}
	var seen []queue.Seen
	f.json(&seen, "queue", "peek", "default")
	if len(seen) != 1 || seen[0].ID != sent.ID || string(seen[0].Body) != "12345678901234567890" || sent.Queue != "default" {
		t.Errorf("%+v %+v", sent, seen)
	}
}

func TestQueueRedriveAndPurge(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.bury("default", "a", "b", "c")
		var r redriven
		f.json(&r, "queue", "redrive", "default", "--dry-run")
		if !r.DryRun || r.Redriven != 3 {
			t.Errorf("%+v", r)
		}
		f.fails(exitUsage, "--yes", "queue", "redrive", "default")
		f.fails(exitNotFound, "no dead letter z", "queue", "redrive", "default", "--id", "z", "--yes")
		if r := f.ask(strings.NewReader("y\n"), "queue", "redrive", "default", "--id", "b"); r.code != 0 || !strings.Contains(r.err, "it failed") {
			t.Error(r)
		}
		f.json(&r, "queue", "redrive", "default", "--yes")
		if r.DryRun || r.Redriven != 2 {
			t.Errorf("%+v", r)
		}
		var seen []queue.Seen
		f.json(&seen, "queue", "peek", "default")
		if len(seen) != 3 || seen[0].Attempts != 0 || seen[0].Error != "" || string(seen[0].Body) != `{"n":1}` {
			t.Errorf("%+v", seen)
		}
		f.bury("default", "d")
		var p purged
		f.json(&p, "queue", "purge", "default", "--dry-run")
		if p.Purged != 3 || !p.DryRun || p.Dead {
			t.Errorf("%+v", p)
		}
		f.fails(exitUsage, "--yes", "queue", "purge", "default")
		f.json(&p, "queue", "purge", "default", "--yes")
		if p.Purged != 3 {
			t.Errorf("%+v", p)
		}
		if out := f.ok("queue", "purge", "default", "--dead", "--yes"); out != "purged  1\n" {
			t.Errorf("%q", out)
		}
	})
}

func TestQueuePause(t *testing.T) {
	f := newFixture(t)
	f.environ = append(f.environ, "USER=jo")
	f.fails(exitUsage, "--yes", "queue", "pause", "default")
	var p pausedJSON
	for _, want := range []struct {
		verb string
		is   pausedJSON
	}{
		{"pause", pausedJSON{Queue: "default", Paused: true, Changed: true}}, {"pause", pausedJSON{Queue: "default", Paused: true, Changed: false}},
		{"resume", pausedJSON{Queue: "default", Paused: false, Changed: true}}, {"resume", pausedJSON{Queue: "default", Paused: false, Changed: false}},
	} {
		f.json(&p, "queue", want.verb, "default", "--yes")
		if p != want.is {
			t.Errorf("%s: %+v", want.verb, p)
		}
		if want.verb == "pause" {
			if out := f.ok("queue", "list"); !strings.Contains(out, "by jo at 20") {
				t.Error(out)
			}
		}
	}
	f.fails(exitNotFound, "nope", "queue", "pause", "nope", "--yes")
}

func TestQueueCompletion(t *testing.T) {
	f := newFixture(t)
	f.send("jobs", 1)
	if out := f.ok("__complete", "queue", "peek", ""); !strings.HasPrefix(out, "default\njobs\n:") {
		t.Errorf("%q", out)
	}
	if out := f.ok("__complete", "queue", "send", "jobs", ""); !strings.HasPrefix(out, ":") {
		t.Errorf("%q", out)
	}
}
