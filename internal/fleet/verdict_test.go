package fleet_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// The promises that an operator is told of are those of the README.
func TestPromisesAreThoseOfTheReadme(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	for _, p := range []string{fleet.PromiseServed, fleet.PromiseReplicas, fleet.PromiseWriter, fleet.PromiseAlarm, fleet.PromiseMessage, fleet.PromiseOccurrence} {
		if !strings.Contains(text, p) {
			t.Errorf("the README does not promise that %s", p)
		}
	}
}

func (r *rig) wantRisks(want ...string) {
	r.t.Helper()
	var got []string
	for _, x := range r.look().Risks() {
		got = append(got, x.Promise)
		if x.Problem == "" || x.Advice == "" || strings.Contains(x.Problem+x.Advice, "%!") {
			r.t.Errorf("%+v", x)
		}
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		r.t.Errorf("risks %q, want %q", got, want)
	}
}

func TestRisksOfSchedules(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		r.wantRisks()
		now := r.look().NowMs
		last := func(name string, settled int64, more string) {
			t.Helper()
			r.exec(`INSERT OR REPLACE INTO kv VALUES (?, json_patch(json_object('since', ?, 'schedule', '@every 1m', 'zone', 'UTC'), ?), 1, NULL)`, tuple.MustEncode(cron.PrefixLast, name), settled, more)
		}
		first := now - now%60_000 - 240_000 // the first minute that nobody has run
		last("s", first-30_000, `{}`)
		last("other", now-300_000, `{}`) // nobody here brings it
		r.wantRisks(fleet.PromiseOccurrence)
		st := r.look()
		age := (time.Duration(st.NowMs-first) * time.Millisecond).Round(time.Second)
		if _, text := st.Verdict(); !strings.Contains(text, "1 overdue schedule, the first since "+age.String()) {
			t.Errorf("since %s: %s", age, text)
		}
		entry := func(state string, until int64) {
			r.exec(`INSERT OR REPLACE INTO kv VALUES (?, json_object('holder', 'h', 'state', ?, 'until', ?), 1, ?)`, tuple.MustEncode(cron.PrefixOccurrence, "s", tuple.Millis(now-60_000)), state, until, now+3600_000)
			last("s", now, `{"open":[`+tuple.Key{tuple.Millis(now - 60_000)}.String()[1:]+`}`)
		}
		entry("running", now+3600_000)
		r.wantRisks()
		entry("running", r.look().NowMs-1_000)
		r.wantRisks()
		entry("running", now-60_000)
		r.wantRisks(fleet.PromiseOccurrence)
		r.wantVerdict(false, "1 schedule with a run that was cut off")
		r.set(tuple.Key{cron.PrefixPause, "s"}, "x", 0)
		r.wantVerdict(true, "all right", "1 paused schedule")
		last("other", now, `{"bucket":5,"started_at":6,"finished_at":7,"outcome":"failed"}`)
		r.wantVerdict(true, "1 failed schedule")
	})
}

func TestRisks(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.wantRisks(fleet.PromiseServed)
		r.poll() // registers it as starting
		r.wantRisks(fleet.PromiseServed)
		r.become(fleet.Ready)
		now := r.look().NowMs
		for _, class := range []string{"A", "B", "C", "D", "E"} {
			r.set(tuple.Key{"dwk_alarm_due", class, now - 60_000, "0a"}, "x", 0)
		}
		r.set(tuple.Key{"dwk_queue_due", "mail", now - 60_000, "m"}, "x", 0)
		r.set(tuple.Key{"dwk_lease", "A", "0b"}, map[string]string{"holder": "y", "replica": "gone"}, 3600_000_000_000)
		r.wantRisks(fleet.PromiseAlarm, fleet.PromiseMessage, fleet.PromiseReplicas)
		if advice := r.look().Risks()[0].Advice; !strings.Contains(advice, "A, B, C and 2 more") {
			t.Error(advice)
		}
	})
}
