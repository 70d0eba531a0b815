package fleettest

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// failpoints are the points of the object runtime, in the order of an event.
var failpoints = []string{
	"object.acquire.before", "object.acquire.after",
	"object.run.before", "object.run.after",
	"object.commit.before", "object.commit.after",
	"object.answer.before", "object.answer.after",
	"object.release.before", "object.release.after",
}

// A replica that dies at any point of an event loses nothing that was answered
// and repeats nothing; the fleet goes on, and so does the object on the replica
// that takes its place.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		survivor := f.Start()
		ledgers, victims := make([]*Ledger, len(failpoints)), make([]*Replica, len(failpoints))
		for i, point := range failpoints {
			ledgers[i] = NewLedger(point)
			if a := ledgers[i].Append(survivor); a.Status != http.StatusOK {
				t.Fatal(a)
			}
			env := []string{"DWK_FAILPOINTS=" + point + "=5*kill"}
			if strings.Contains(point, "acquire") || strings.Contains(point, "release") {
				env = append(env, "DWK_OBJECTS_LINGER=0s") // else a lease that lingers keeps it from getting there
			}
			victims[i] = f.Launch(env...)
		}
		for _, victim := range victims {
			victim.WaitReady()
		}
		var wg sync.WaitGroup
		for i, victim := range victims {
			wg.Go(func() { useUntilDeath(t, ledgers[i], victim) })
		}
		wg.Wait()
		for i, victim := range victims {
			if code, hits := victim.Wait(), victim.Hits(failpoints[i]); code != -1 || hits != 1 {
				t.Errorf("%s: exit code %d after %d hits, want a death at the point", failpoints[i], code, hits)
			}
			wg.Go(func() { // it waits for the lease to end
				if a := ledgers[i].Append(survivor); a.Status != http.StatusOK {
					t.Errorf("%s: the survivor answered %v", failpoints[i], a)
				}
			})
		}
		wg.Wait()
		next := f.Start()
		for i, l := range ledgers {
			if a := l.Append(next); a.Status != http.StatusOK {
				t.Errorf("%s: a new replica answered %v", failpoints[i], a)
			}
			n := l.Check(t, survivor)
			t.Logf("%s: %d ops, answers %v", failpoints[i], n, l.Statuses())
		}
		f.WaitFree()
	})
}

// useUntilDeath appends to a ledger and reads it until the replica dies.
func useUntilDeath(t *testing.T, l *Ledger, r *Replica) {
	for i := range 100 {
		var a Answer
		if i%2 == 0 {
			a = l.Append(r)
		} else {
			_, a = l.Read(r)
		}
		if a.Err != nil {
			return
		}
		// A machine that stalls may cost a lease.
		if a.Status != http.StatusOK && !a.Refused() {
			t.Errorf("%s: answered %v before its death", l.Name, a)
		}
	}
	t.Errorf("%s: %s is still alive", l.Name, r.Name)
}
