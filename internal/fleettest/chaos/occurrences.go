package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// every is the schedule's time between two occurrences, in milliseconds.
const every = 1000

// A cronLine is a line of the history of the schedule.
type cronLine struct {
	At      int64  `json:"at"`
	Attempt int    `json:"attempt"`
	Replica string `json:"replica"`
	Outcome string `json:"outcome"`
}

// A cronRun is what the lab has recorded of a run.
type cronRun struct {
	At      int64
	Attempt int
	Replica string
	Ended   *int64
}

// checkOccurrences compares the history of the schedule with the runs that the
// lab has recorded.
func (w *world) checkOccurrences() {
	res := w.fleet.CommandEnv([]string{"DWK_LIBSQL_TIMEOUT=1m"}, "cron", "history", "every-five", "--limit", "0", "-o", "json")
	var list []cronLine
	if err := json.Unmarshal([]byte(res.Stdout), &list); res.Code != 0 || err != nil {
		w.Errorf("dwk cron history: exit %d: %s", res.Code, res.Stderr)
		return
	}
	a := lastReader{w}.Do(http.MethodGet, "cron/runs", "")
	var runs struct{ Runs []cronRun }
	if err := json.Unmarshal([]byte(a.Body), &runs); err != nil || a.Status != http.StatusOK {
		w.violate("answers", "quiet", "cron/runs", "the last read: %v", a)
		return
	}
	slices.Reverse(list)
	lines := map[string]int{}
	for _, l := range list {
		lines[l.Outcome]++
	}
	for _, problem := range cronProblems(list, runs.Runs) {
		w.violate("cron", "occurrence", "every-five", "%s", problem)
	}
	w.note(func(r *figures.Robustness) {
		r.OccurrenceLines = lines
		r.Occurrences = lines["ok"]
		r.Operations["occurrence"] = lines["ok"] + lines["failed"]
	})
}

// cronProblems tells what is wrong with a history, oldest first, and the runs
// that the application saw: an occurrence that was finished twice or of which
// nothing tells, more runs of it than one and its repeat, a run that the history
// has otherwise or not at all, and one that was made twice.
func cronProblems(list []cronLine, runs []cronRun) (out []string) {
	wrong := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	finished, attempts, seen := map[int64]int{}, map[int64]int{}, map[int64]bool{}
	known := map[string]bool{}
	for _, l := range list {
		seen[l.At] = true
		known[fmt.Sprint(l.At, l.Attempt, l.Replica)] = true
		switch l.Outcome {
		case "ok", "failed":
			finished[l.At]++
			attempts[l.At]++
		case "interrupted", "running":
			attempts[l.At]++
		case "skipped", "missed":
			if l.Attempt != 0 {
				wrong("%+v", l)
			}
		default:
			wrong("%+v", l)
		}
	}
	for at, n := range attempts {
		if finished[at] > 1 || n > 2 {
			wrong("occurrence %d: %d runs, %d of them finished", at, n, finished[at])
		}
	}
	if len(list) > 0 {
		for at := list[0].At; at <= list[len(list)-1].At; at += every {
			if !seen[at] {
				wrong("nothing tells of occurrence %d", at)
			}
		}
	}
	made := map[string]bool{}
	for _, r := range runs {
		key := fmt.Sprint(r.At, r.Attempt)
		if made[key] {
			wrong("attempt %d of occurrence %d was made twice", r.Attempt, r.At)
		}
		made[key] = true
		// The newest may have begun when the history had been read.
		if len(list) > 0 && r.At <= list[len(list)-1].At && !known[fmt.Sprint(r.At, r.Attempt, r.Replica)] {
			wrong("the application saw %+v, of which the history tells nothing", r)
		}
	}
	return out
}
