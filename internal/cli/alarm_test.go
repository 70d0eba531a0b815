package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

func (f *fixture) plan(add func(p *kv.Plan)) {
	f.t.Helper()
	p := kv.NewPlan()
	add(p)
	if v, err := f.stores.KV.Commit(f.t.Context(), p); err != nil || !v.OK {
		f.t.Fatal(v.OK, err)
	}
}

func TestAlarmCommands(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		id := durable.IDFromName("front").String()
		f.log("C", id, "front", counting[0])
		f.log("D", "0a", "", counting[0])
		var list []alarmOfJSON
		if f.json(&list, "alarm", "list"); len(list) != 0 {
			t.Error(list)
		}
		f.fails(exitNotFound, "no alarm", "alarm", "show", "C", "--name", "front")
		f.fails(exitNotFound, "no alarm", "alarm", "cancel", "C", id, "--yes")
		f.fails(exitNotFound, "neither pending nor given up", "alarm", "retry", "C", id, "--yes")

		var changed alarmChangedJSON
		f.json(&changed, "alarm", "set", "C", "--name", "front", "--in", "1h", "--yes")
		if changed.Changed != "set" || changed.ID != id || changed.Before != nil || changed.Alarm == nil || changed.Alarm.DueInMs < 3500_000 || changed.Alarm.DueInMs > 3600_000 {
			t.Errorf("%+v", changed)
		}
		f.ok("alarm", "set", "D", "0a", "--at", "2100-01-01T00:00:00Z", "--yes", "--wait", "0s")
		f.json(&list, "alarm", "list", "--class", "C")
		if len(list) != 1 || list[0].Class != "C" || list[0].ID != id || list[0].Retries != 0 || list[0].At != changed.Alarm.At {
			t.Errorf("%+v", list)
		}
		r := f.run("alarm", "list", "--limit", "1")
		if !strings.HasPrefix(r.out, "CLASS  ID") || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "in 59m") && !strings.Contains(r.out, "in 1h") || !strings.Contains(r.err, "more alarms than 1") {
			t.Error(r)
		}
		f.json(&changed, "alarm", "retry", "C", id, "--yes")
		if changed.Changed != "retried" || changed.Alarm.DueInMs > 0 || changed.Alarm.Asked != changed.Before.At {
			t.Errorf("%+v", changed)
		}
		if out := f.ok("alarm", "list"); !strings.Contains(out, "overdue by") && !strings.Contains(out, "in 0s") {
			t.Error(out)
		}
		f.json(&changed, "alarm", "cancel", "C", id, "--yes")
		if changed.Changed != "cancelled" || changed.Alarm != nil || changed.Before == nil {
			t.Errorf("%+v", changed)
		}
	})
}

func TestDeadAlarmCommands(t *testing.T) {
	f := newFixture(t)
	f.log("C", "0a", "", counting[0])
	i := f.hold("C", "0a", "r1", lease.EventAlarm, time.Minute)
	h := lease.Held{Class: "C", ID: "0a", Holder: i.Holder, Stamp: i.Stamp}
	f.plan(func(p *kv.Plan) { alarm.AddSet(p, "C", "0a", time.UnixMilli(1700000000000)); alarm.AddClaim(p, h, nil) })
	var list []alarmOfJSON
	if f.json(&list, "alarm", "list"); len(list) != 1 || list[0].ClaimedBy != "r1" || list[0].Asked != 1700000000000 || list[0].DueInMs <= 0 {
		t.Errorf("%+v", list)
	}
	var shown alarmShownJSON
	if f.json(&shown, "alarm", "show", "C", "0a"); !shown.Exists || shown.Alarm.ClaimedBy != "r1" || shown.Lease.Replica != "r1" || shown.Dead != nil {
		t.Errorf("%+v", shown)
	}
	if out := f.ok("alarm", "list"); !strings.Contains(out, "replica r1") {
		t.Error(out)
	}
	f.fails(exitFailed, "dwk lease inspect C 0a|--wait", "alarm", "cancel", "C", "0a", "--yes", "--wait", "0s")
	f.plan(func(p *kv.Plan) {
		alarm.AddRun(p, "C", "0a", 1700000001500, alarm.Run{Due: 1700000000000, Replica: "r1", Outcome: alarm.OutcomeFailed, Error: "too\nbad"})
		alarm.AddDead(p, h, "too\nbad")
		h.AddRelease(p)
	})
	if f.json(&shown, "alarm", "show", "C", "0a"); shown.Alarm != nil || shown.Dead == nil || shown.Dead.Error != "too\nbad" || len(shown.Runs) != 1 || shown.Runs[0].StartedAt != 1700000001500 {
		t.Errorf("%+v", shown)
	}
	out := f.ok("alarm", "show", "C", "0a")
	for _, want := range []string{"no alarm", `too\u000abad`, "1.5s", "failed", "2023-11-14T22:13:20.000Z"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var dead []deadAlarmOfJSON
	if f.json(&dead, "alarm", "list", "--dead"); len(dead) != 1 || dead[0].Asked != 1700000000000 || dead[0].DiedAt == 0 {
		t.Errorf("%+v", dead)
	}
	if out := f.ok("alarm", "list", "--dead"); !strings.Contains(out, `too\u000abad`) {
		t.Error(out)
	}
	r := f.ask(strings.NewReader("n\n"), "alarm", "retry", "C", "0a")
	if r.code != exitFailed || !strings.Contains(r.err, "It was given up at") {
		t.Error(r)
	}
	if r = f.ask(strings.NewReader("yes\n"), "alarm", "retry", "C", "0a"); r.code != exitOK || !strings.HasPrefix(r.out, "retried    C/0a") {
		t.Error(r)
	}
	if f.json(&dead, "alarm", "list", "--dead"); len(dead) != 0 {
		t.Errorf("%+v", dead)
	}
	// It is what was asked about that is changed, and nothing else.
	input := &hook{text: "yes\n", first: func() { f.ok("alarm", "set", "C", "0a", "--in", "1h", "--yes") }}
	f.failed(f.ask(input, "alarm", "cancel", "C", "0a"), exitFailed, "changed meanwhile|look again", "alarm", "cancel")
}

// A hook does something before it is read from.
type hook struct {
	text  string
	first func()
}

func (h *hook) Read(b []byte) (int, error) {
	h.first()
	return copy(b, h.text), nil
}

func TestAlarmUsage(t *testing.T) {
	f := newFixture(t)
	f.log("C", "0a", "", counting[0])
	for args, words := range map[string]string{
		"set C 0a --yes": "one of --at and --in",
		"set C 0a --in 1h --at 2100-01-01T00:00:00Z --yes": "one of --at and --in",
		"set C 0a --at tomorrow":                           "--at|2006",
		"set C 0a --in -1h":                                "--in",
		"set C --in 1h":                                    "ID is missing",
		"set C 0a --at 9000-01-01T00:00:00Z --yes":         "the latest is 2109",
		"set C 0a --in 1h":                                 "--yes",
		"cancel C 0A":                                      "ID",
		"retry":                                            "CLASS",
		"show C":                                           "ID is missing",
		"list C":                                           "unexpected",
		"list --limit -1":                                  "--limit",
		"lost":                                             "list",
	} {
		f.fails(exitUsage, words, append([]string{"alarm"}, strings.Fields(args)...)...)
	}
	f.ok("kv", "set", `["dwk_alarm_by_id","C","0b"]`, `{"epochMs":1700000000000,"retryCount":0}`, "--yes")
	f.fails(exitNotFound, "no object C/0b", "alarm", "cancel", "C", "0b", "--yes")
	if out := f.ok("alarm", "show", "C", "0b"); !strings.Contains(out, "never run") {
		t.Error(out)
	}
}
