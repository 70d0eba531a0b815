package cli

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

func TestLeaseList(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
		f.hold("A", "0b", "r2", lease.EventAlarm, time.Minute)
		f.hold("B", "0c", "r1", lease.EventSocket, time.Minute)
		if _, err := f.stores.KV.Set(t.Context(), []any{"dwk_lease", "C", "0d"}, map[string]string{"holder": "old"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		for args, want := range map[string]string{
			"":                       "0a 0b 0c 0d",
			"--class A":              "0a 0b",
			"--replica r1":           "0a 0c",
			"--class A --replica r1": "0a",
			"--older-than 1h":        "0d", // from a host that does not say when
			"--class None":           "",
		} {
			var got []leaseJSON
			f.json(&got, append([]string{"lease", "list"}, strings.Fields(args)...)...)
			var ids []string
			for _, l := range got {
				ids = append(ids, l.ID)
				if l.ExpiresInMs <= 0 || l.ExpiresInMs > 61_000 || len(l.Versionstamp) != 20 || (l.AgeMs == nil) != (l.ID == "0d") {
					t.Errorf("%+v", l)
				}
			}
			if strings.Join(ids, " ") != want {
				t.Errorf("%s: %v", args, ids)
			}
		}
		lines := strings.Split(f.ok("lease", "list", "--class", "A"), "\n")
		if !strings.HasPrefix(lines[0], "CLASS  ID  HOLDER        REPLICA  EVENT    AGE") || !strings.HasPrefix(lines[1], "A      0a  holder-of-r1  r1       request  ") {
			t.Errorf("%q", lines)
		}
	})
}

func TestLeaseInspect(t *testing.T) {
	f := newFixture(t)
	held := f.hold("A", durable.IDFromName("front").String(), "r1", lease.EventRequest, time.Minute)
	var got inspected
	f.json(&got, "lease", "inspect", "A", "--name", "front")
	if !got.Held || got.Holder != held.Holder || got.Versionstamp != held.Stamp.String() || !strings.Contains(got.Meaning, "replica r1 took it for an event (request)") {
		t.Errorf("%+v", got)
	}
	out := f.ok("lease", "inspect", "A", held.ID)
	for _, want := range []string{"holder        holder-of-r1\n", "versionstamp  " + held.Stamp.String() + "\n", "ends by itself in ", " ago)\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	f.fails(exitNotFound, "no lease on A/0b|no replica runs its events", "lease", "inspect", "A", "0b")
	r := f.run("lease", "inspect", "A", "0b", "-o", "json")
	if r.code != exitNotFound || !strings.Contains(r.err, `"kind":"not_found"`) || r.out != "" {
		t.Error(r)
	}

	want := kv.NewPlan()
	if _, err := (lease.Attempt{Class: "A", ID: held.ID, Holder: "other", TTL: time.Minute, DeadlineMs: 1 << 60, Want: true}).Add(want); err != nil {
		t.Fatal(err)
	}
	if _, err := f.stores.KV.Commit(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if out := f.ok("lease", "inspect", "A", held.ID); !strings.Contains(out, "another replica has asked for it") {
		t.Error(out)
	}
}

func TestLeaseWatch(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	sink := newLineSink()
	code := make(chan int)
	go func() {
		code <- Run(ctx, Options{Args: []string{"lease", "inspect", "A", "0a", "--watch", "--interval", "10ms", "-o", "json"}, Out: sink, Err: sink, Environ: f.environ})
	}()
	sink.next(t, `{"held":false,"class":"A","id":"0a"`)
	f.hold("A", "0a", "r1", lease.EventAlarm, time.Minute)
	line := sink.next(t, `"held":true`)
	var got inspected
	if err := json.Unmarshal([]byte(line), &got); err != nil || got.Replica != "r1" || got.Meaning == "" {
		t.Errorf("%v in %s", err, line)
	}
	f.ok("lease", "release", "A", "0a", "--yes")
	sink.next(t, `"held":false`)
	cancel(interrupted{syscall.SIGINT})
	sink.next(t, `"interrupted"`)
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit %d", c)
	}
	// It ends in order when its time is over.
	if out := f.ok("lease", "inspect", "A", "0a", "--watch", "--timeout", "2s", "--interval", "10ms"); !strings.Contains(out, "no replica runs its events") {
		t.Error(out)
	}
}

func TestLeaseRelease(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		held := f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
		f.fails(exitUsage, "--yes", "lease", "release", "A", "0a")
		f.fails(exitFailed, held.Stamp.String()+"|nothing was released", "lease", "release", "A", "0a", "--version", "1", "--yes")
		if r := f.ask(strings.NewReader("n\n"), "lease", "release", "A", "0a"); r.code != exitFailed || !strings.Contains(r.err, "holder-of-r1") || r.out != "" {
			t.Error(r)
		}
		f.ok("lease", "inspect", "A", "0a")
		var got released
		f.json(&got, "lease", "release", "A", "0a", "--version", held.Stamp.String(), "--yes")
		if !got.Released || got.Holder != held.Holder || !strings.Contains(got.Meaning, "replica r1 can neither commit") {
			t.Errorf("%+v", got)
		}
		f.fails(exitNotFound, "no lease on A/0a", "lease", "release", "A", "0a", "--yes")
	})
}

// What was confirmed is what was shown.
func TestLeaseReleaseRefusesAnotherLease(t *testing.T) {
	f := newFixture(t)
	first := f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
	replace := &meanwhile{func() {
		f.ok("lease", "release", "A", "0a", "--yes")
		f.hold("A", "0a", "r2", lease.EventRequest, time.Minute)
	}, strings.NewReader("yes\n")}
	r := f.ask(replace, "lease", "release", "A", "0a")
	if r.code != exitFailed || !strings.Contains(r.err, first.Stamp.String()) || !strings.Contains(r.err, "changed meanwhile, nothing was released: replica r2 holds it now") {
		t.Error(r)
	}
	end := &meanwhile{func() { f.ok("lease", "release", "A", "0a", "--yes") }, strings.NewReader("yes\n")}
	if r := f.ask(end, "lease", "release", "A", "0a"); r.code != exitFailed || !strings.Contains(r.err, "nothing was released: it has ended") {
		t.Error(r)
	}
	// A lease that was only marked as wanted is still the one that was shown.
	f.hold("A", "0a", "r1", lease.EventRequest, time.Minute)
	mark := &meanwhile{func() {
		p := kv.NewPlan()
		if _, err := (lease.Attempt{Class: "A", ID: "0a", Holder: "x", TTL: time.Minute, DeadlineMs: 1 << 60, Want: true}).Add(p); err != nil {
			t.Error(err)
		}
		if _, err := f.stores.KV.Commit(t.Context(), p); err != nil {
			t.Error(err)
		}
	}, strings.NewReader("y\n")}
	if r := f.ask(mark, "lease", "release", "A", "0a"); r.code != 0 {
		t.Error(r)
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1ms", 7249 * time.Millisecond: "7.2s", 61500 * time.Millisecond: "1m2s", 0: "0s", -1500 * time.Millisecond: "-1.5s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d: %s", d, got)
		}
	}
}
