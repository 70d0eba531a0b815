package fleettest

import (
	"fmt"
	"testing"
	"time"
)

// Three replicas share the occurrences of a schedule, and four times the one
// that has won dies: each occurrence has one finished run, none overlaps
// another, and the history shows those that were cut off.
func TestCronWinnersKilled(t *testing.T) {
	t.Parallel()
	eachCron(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortClaims)
		// Longer than it takes to notice a death and to repeat the run.
		every := time.Duration(Long(6, 4)) * time.Second
		f.setSchedule("@every "+every.String(), 300*time.Millisecond)
		points := []string{"cron.run.before", "cron.run.after", "cron.end.before", "cron.run.after"}[4-Long(4, 1):]
		var all []*Replica
		for i, point := range points {
			// One that dies, so that nothing is cut off twice.
			victim := f.Launch("DWK_FAILPOINTS=" + point + "=1*kill")
			for len(all) < 2 {
				all = append(all, f.Start())
			}
			within(t, 5*time.Minute, point+" is reached", victim.Exited)
			if victim.Hits(point) != 1 {
				t.Fatalf("%s: no death at the point", point)
			}
			within(t, 2*time.Minute, "the run is repeated", func() bool {
				return settledAfterCut(f.cronHistory()) > i
			})
		}
		all = append(all, f.Start())
		within(t, 5*time.Minute, "enough runs", func() bool { return len(finished(f.cronHistory())) >= Long(20, 3) })
		for i, r := range all[1:] {
			r.Terminate()
			if code := r.Wait(); code != 0 {
				t.Errorf("%d: exit code %d", i, code)
			}
		}
		Eventually(t, "all has ended", func() bool { return outcomes(f.cronHistory())["running"] == 0 })
		runs := labRuns(t, all[0]).Runs
		all[0].Terminate()
		all[0].Wait()
		list := f.cronHistory()
		checkAllRan(t, list, every)
		checkOverlaps(t, list)
		checkApplication(t, list, runs)
		if n := outcomes(list)["interrupted"]; n < len(points) || n > len(points) && !stood(list) {
			t.Errorf("%d runs are shown as interrupted, %d were", n, len(points))
		}
		t.Logf("%d lines: %v", len(list), outcomes(list))
	})
}

// within waits for what takes longer than things do that should happen at once.
func within(t *testing.T, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// settledAfterCut counts the occurrences with a run that was cut off, and one
// that ended: the repeat, or a second one that was cut off.
func settledAfterCut(list []cronRun) (n int) {
	cut, done := map[int64]int{}, finished(list)
	for _, r := range list {
		if r.Outcome == "interrupted" {
			cut[r.At]++
		}
	}
	for at, k := range cut {
		if done[at] > 0 || k > 1 {
			n++
		}
	}
	return n
}

// stood reports whether the machine stood still or was so slow that claims were
// lost: something took seconds that takes none.
func stood(list []cronRun) bool {
	const long = 1500 * time.Millisecond // a poll comes every 1.2 s at the latest
	var end int64
	for _, r := range list {
		if r.StartedAt == 0 {
			continue
		}
		took := long
		if r.Outcome == "interrupted" {
			took += claimTTL
		}
		if r.StartedAt-max(r.At, end) > long.Milliseconds() && end > 0 || r.FinishedAt-r.StartedAt > took.Milliseconds() {
			return true
		}
		end = max(end, r.FinishedAt)
	}
	return false
}

// finished are the occurrences that were run to their end, with how often.
func finished(list []cronRun) map[int64]int {
	out := map[int64]int{}
	for _, r := range list {
		if r.Outcome == "ok" {
			out[r.At]++
		}
	}
	return out
}

// checkAllRan checks that each occurrence has one finished run. One may be left
// out when the machine stood still meanwhile.
func checkAllRan(t *testing.T, list []cronRun, every time.Duration) {
	t.Helper()
	checkOccurrences(t, list, every)
	for at, n := range finished(list) {
		if n != 1 {
			t.Errorf("occurrence %d was finished %d times", at, n)
		}
	}
	for _, r := range list {
		if r.Attempt == 0 && !stood(list) {
			t.Errorf("%+v", r)
		}
	}
}

// checkApplication compares the history with what the application itself has
// recorded: no run that the history has not, and none twice. Its times are
// estimates of the primary's, so that they cannot tell what overlaps.
func checkApplication(t *testing.T, list []cronRun, runs []labRun) {
	t.Helper()
	known := map[string]string{}
	for _, r := range list {
		known[fmt.Sprint(r.At, r.Attempt, r.Replica)] = r.Outcome
	}
	for _, r := range runs {
		k := fmt.Sprint(r.At, r.Attempt, r.Replica)
		if known[k] != "ok" && known[k] != "interrupted" {
			t.Errorf("the application saw %+v, which the history has as %q", r, known[k])
		}
		delete(known, k)
	}
}

// A replica that stands still between its look and its claim, for longer than
// the occurrence may be begun, wins nothing with it.
func TestCronWindowIsOver(t *testing.T) {
	t.Parallel()
	f := newStopped(t)
	f.setSchedule("@every 2s", 0, "catch_up: 0s")
	r := f.Launch("DWK_FAILPOINTS=cron.take.before=2*stop")
	r.WaitHit("cron.take.before", 1)
	n := len(f.cronHistory())
	time.Sleep(5 * time.Second)
	woke := time.Now() // by the clock of the store too
	r.Continue()
	r.WaitReady()
	Eventually(t, "a run", func() bool { return outcomes(f.cronHistory()[n:])["ok"] >= 1 })
	missed := 0
	for _, l := range f.cronHistory()[n:] {
		if l.At+2000 > woke.UnixMilli() {
			continue
		}
		if missed++; l.Attempt > 0 { // missed, or skipped when the run before was slow
			t.Errorf("%+v", l)
		}
	}
	if missed < 2 {
		t.Errorf("%d were missed", missed)
	}
	r.Terminate()
	if code := r.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Replicas whose clocks are an hour wrong run what is due by the primary's, alone
// and together.
func TestCronWrongClocks(t *testing.T) {
	t.Parallel()
	eachCron(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, shortClaims)
		f.setSchedule("@every 1s", 0)
		var last *Replica
		began := time.Now()
		more := func(n int) {
			t.Helper()
			before := len(finished(f.cronHistory()))
			Eventually(t, "more runs", func() bool { return len(finished(f.cronHistory())) >= before+n })
		}
		for _, shift := range []string{"1h", "-1h"} {
			r := f.Start("DWK_CLOCK_SHIFT=" + shift)
			if last != nil {
				more(Long(5, 2)) // together
				last.Terminate()
				last.Wait()
			}
			more(Long(5, 2)) // alone
			last = r
		}
		f.Start()
		more(Long(10, 2))
		last.Terminate()
		if code := last.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		list := f.cronHistory()
		checkOccurrences(t, list, time.Second)
		checkOverlaps(t, list)
		for _, r := range list {
			if at := time.UnixMilli(r.At); at.Before(began.Add(-time.Second)) || at.After(time.Now()) || r.StartedAt > 0 && r.StartedAt < r.At {
				t.Errorf("%+v", r)
			}
			if (r.Attempt > 1 || r.Outcome == "interrupted") && !stood(list) {
				t.Errorf("%+v", r)
			}
		}
	})
}
