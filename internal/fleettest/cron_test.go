package fleettest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// claimTTL is that of the fleets of these tests: runs that were cut off are
// repeated soon. What a stall costs them is seen by stood.
const claimTTL = 2 * time.Second

const shortClaims = "DWK_LEASE_TTL=2s"

// setSchedule has the fleet run the lab's schedule like this, each run taking
// so long. Settings are more of the schedule.
func (f *Fleet) setSchedule(schedule string, takes time.Duration, settings ...string) {
	f.t.Helper()
	b, err := os.ReadFile(f.config())
	if err == nil {
		b = fmt.Appendf(b, `crons: [{%s}]
mounts: [{path: /lab, app: lab, settings: {cron_sleep_ms: %d}}]
`, strings.Join(append([]string{"app: lab, name: every-five", fmt.Sprintf("schedule: %q", schedule)}, settings...), ", "), takes.Milliseconds())
		err = os.WriteFile(f.config(), b, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// A cronRun is a line of dwk cron history.
type cronRun struct {
	At         int64  `json:"at"`
	Attempt    int    `json:"attempt"`
	Replica    string `json:"replica"`
	StartedAt  int64  `json:"started_at"`
	FinishedAt int64  `json:"finished_at"`
	Outcome    string `json:"outcome"`
}

// cronHistory is the history of the schedule, oldest first.
func (f *Fleet) cronHistory() []cronRun {
	f.t.Helper()
	res := f.Command("cron", "history", "every-five", "--limit", "0", "-o", "json")
	var list, out []cronRun
	if err := json.Unmarshal([]byte(res.Stdout), &list); res.Code != 0 || err != nil {
		f.t.Fatalf("exit %d: %s: %v", res.Code, res.Stderr, err)
	}
	for i := range list {
		out = append(out, list[len(list)-1-i])
	}
	return out
}

// labRun is a line of what the lab has recorded itself.
type labRun struct {
	At, Attempt, Began int64
	Replica            string
	Ended              *int64
}

func labRuns(t *testing.T, r *Replica) (out struct{ Runs []labRun }) {
	t.Helper()
	a := send(t.Context(), http.MethodGet, r.Public+"/lab/cron/runs", "")
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
	return out
}

// outcomes counts the lines of a history by outcome.
func outcomes(list []cronRun) map[string]int {
	out := map[string]int{}
	for _, r := range list {
		out[r.Outcome]++
	}
	return out
}

// checkOccurrences checks that each occurrence was finished once, or is listed
// as not run, and that none is left out.
func checkOccurrences(t *testing.T, list []cronRun, every time.Duration) {
	t.Helper()
	finished, attempts, seen := map[int64]int{}, map[int64]int{}, map[int64]bool{}
	var first, last int64
	for _, r := range list {
		if first == 0 {
			first = r.At
		}
		last = r.At
		seen[r.At] = true
		switch r.Outcome {
		case "ok":
			finished[r.At]++
		case "interrupted":
		case "running":
			continue
		case "skipped", "missed":
			if r.Attempt != 0 {
				t.Errorf("%+v", r)
			}
			continue
		default:
			t.Errorf("%+v", r)
		}
		attempts[r.At]++
	}
	for at, n := range attempts {
		if at == last && n == 1 && finished[at] == 0 && stood(list) {
			continue // cut off while the last replica stopped: nobody was left to repeat it
		}
		// Two deaths in a row end an occurrence.
		if finished[at] != 1 && n != 2 || n > 2 {
			t.Errorf("occurrence %d: %d runs, %d of them finished", at, n, finished[at])
		}
	}
	for at := first; at <= last; at += every.Milliseconds() {
		if !seen[at] {
			t.Errorf("nothing tells of occurrence %d", at)
		}
	}
}

// eachCron runs a test on both kinds of stores in a long run, and else on one.
func eachCron(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, kind := range []Kind{Wire, File}[:Long(2, 1)] {
		t.Run(string(kind), func(t *testing.T) { t.Parallel(); test(t, kind) })
	}
}

// Each occurrence is run once, however often the replica that has won one dies,
// or twice when two die in a row.
func TestCronKilled(t *testing.T) {
	t.Parallel()
	eachCron(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortClaims)
		const every = time.Second
		f.setSchedule("@every 1s", 200*time.Millisecond)
		points := []string{"cron.run.after", "cron.run.before", "cron.end.before", "cron.end.after"}[:Long(4, 1)]
		for _, point := range points {
			// Both are killed when they run something for the second time.
			victims := []*Replica{f.Launch("DWK_FAILPOINTS=" + point + "=2*kill"), f.Launch("DWK_FAILPOINTS=" + point + "=2*kill")}
			for _, v := range victims {
				v.Wait()
				if v.Hits(point) != 1 {
					t.Errorf("%s: no death at the point", point)
				}
			}
		}
		survivor := f.Start()
		n := len(f.cronHistory())
		Eventually(t, "more runs", func() bool { return outcomes(f.cronHistory()[n:])["ok"] >= 2 })
		survivor.Terminate()
		if code := survivor.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		list := f.cronHistory()
		checkOccurrences(t, list, every)
		count := outcomes(list)
		// A death behind the end of a run interrupts nothing.
		if count["interrupted"] < Long(3, 1) || count["running"] != 0 || count["failed"] != 0 {
			t.Errorf("%v", count)
		}
		checkOverlaps(t, list)
		t.Logf("%d lines: %v", len(list), count)
	})
}

// checkOverlaps checks that no run began before the one before it had ended.
func checkOverlaps(t *testing.T, list []cronRun) {
	t.Helper()
	for _, a := range list {
		for _, b := range list {
			if a.StartedAt > 0 && b.StartedAt > a.StartedAt && b.StartedAt < a.FinishedAt {
				t.Errorf("%+v overlaps %+v", b, a)
			}
		}
	}
}

// newStopped makes a store set for replicas that stand still: one may hold the
// lock of a file, so that the others cannot go on.
func newStopped(t *testing.T) *Fleet {
	f := New(t, Wire, shortClaims)
	f.Env = append(f.Env, "DWK_DATABASE_LAB_DB_URL="+startServer(t, hrana.Config{Path: filepath.Join(f.Dir, "server", "lab.db")}).URL)
	return f
}

// A replica that stands still for longer than its claim runs nothing when it
// goes on; what the others have run agrees with what the application has seen.
func TestCronStopped(t *testing.T) {
	t.Parallel()
	f := newStopped(t)
	f.setSchedule("@every 1s", 300*time.Millisecond)
	replicas := []*Replica{f.Launch("DWK_FAILPOINTS=cron.run.before=1*stop"), f.Launch("DWK_FAILPOINTS=cron.run.before=2*stop"), f.Start()}
	for _, r := range replicas[:2] {
		r.WaitHit("cron.run.before", 1)
		n := len(f.cronHistory())
		Eventually(t, "the others go on", func() bool { return outcomes(f.cronHistory()[n:])["ok"] >= 2 })
		r.Continue()
		r.WaitReady()
	}
	n := len(f.cronHistory())
	Eventually(t, "all go on", func() bool { return outcomes(f.cronHistory()[n:])["ok"] >= 2 })
	for _, r := range replicas[1:] {
		r.Terminate()
		if code := r.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	n = len(f.cronHistory())
	Eventually(t, "one goes on", func() bool { return outcomes(f.cronHistory()[n:])["ok"] >= 1 })
	runs := labRuns(t, replicas[0]).Runs
	replicas[0].Terminate()
	if code := replicas[0].Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	list := f.cronHistory()
	checkOccurrences(t, list, time.Second)
	checkOverlaps(t, list)
	count := outcomes(list)
	if count["running"] != 0 || count["failed"] != 0 || count["interrupted"] < 2 || count["interrupted"] > 2 && !stood(list) {
		t.Errorf("%v", count)
	}
	checkApplication(t, list, runs)
	for _, r := range replicas[:2] {
		at, attempt := notBegun(t, r)
		for _, run := range runs {
			if run.Replica == r.ID && run.At == at && run.Attempt == attempt {
				t.Errorf("the application saw %+v, which %s had lost", run, r.Name)
			}
		}
	}
	t.Logf("%d lines: %v", len(list), count)
}

// notBegun is the first run that a replica has won and not begun, as it had stood
// still meanwhile.
func notBegun(t *testing.T, r *Replica) (at, attempt int64) {
	t.Helper()
	for line := range strings.Lines(r.Log()) {
		var l struct {
			Msg     string
			At      time.Time
			Attempt int64
			Begun   *bool
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "cron.claim.lost" && l.Begun != nil && !*l.Begun {
			return l.At.UnixMilli(), l.Attempt
		}
	}
	t.Errorf("%s has not noticed that it stood still", r.Name)
	return 0, 0
}

// When the whole fleet was down over three occurrences, the newest is run and
// the others are listed as missed.
func TestCronFleetDown(t *testing.T) {
	t.Parallel()
	eachCron(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortClaims)
		f.setSchedule("@every 3s", 0)
		r := f.Start()
		Eventually(t, "a run", func() bool { return outcomes(f.cronHistory())["ok"] >= 1 })
		r.Terminate()
		if code := r.Wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		before := f.cronHistory()
		last := before[len(before)-1].At
		// Down until the third occurrence has come and gone; the clocks of the test
		// and of the store are the same.
		time.Sleep(time.Until(time.UnixMilli(last + 9000 + 200)))
		next := f.Start()
		Eventually(t, "a run", func() bool {
			return len(labRuns(t, next).Runs) > len(before) && !strings.Contains(f.Command("cron", "history", "every-five", "-o", "json").Stdout, "running")
		})
		list := f.cronHistory()[len(before):]
		var missed, ran []int64
		for _, r := range list {
			if r.Outcome == "missed" {
				missed = append(missed, r.At)
			} else if len(ran) == 0 {
				ran = append(ran, r.At)
			}
		}
		// A machine that stalls misses more.
		if len(missed) < 2 || len(ran) != 1 || missed[0] != last+3000 || missed[1] != last+6000 || ran[0] != missed[len(missed)-1]+3000 {
			t.Errorf("%+v behind %d", list, last)
		}
		if !strings.Contains(next.Log(), "cron.run.missed") {
			t.Error("the log does not tell")
		}
	})
}
