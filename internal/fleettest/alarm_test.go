package fleettest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// A firing is one run of a lab alarm. Times are epoch milliseconds.
type firing struct {
	At, Due, Retry int64
	Replica        string
}

// An alarm is what the lab shows of one.
type alarm struct {
	Pending           *int64
	Firings, Attempts []firing
}

// setAlarm sets the alarm of a lab object.
func (r *Replica) setAlarm(name string, in time.Duration, query ...string) {
	r.t.Helper()
	url := fmt.Sprintf("%s/lab/alarm/%s?in=%s&%s", r.Public, name, max(0, in), strings.Join(query, "&"))
	if a := send(r.t.Context(), http.MethodPost, url, ""); a.Status != http.StatusOK {
		r.t.Errorf("set alarm %s: %v", name, a)
	}
}

// alarm reads the alarm of a lab object.
func (r *Replica) alarm(name string) alarm {
	r.t.Helper()
	var out alarm
	Eventually(r.t, "the alarm of "+name+" is shown", func() bool {
		a := send(r.t.Context(), http.MethodGet, r.Public+"/lab/alarm/"+name, "")
		if a.Status == http.StatusServiceUnavailable {
			return false
		}
		out = alarm{}
		if err := json.Unmarshal([]byte(a.Body), &out); err != nil || a.Status != http.StatusOK {
			r.t.Fatalf("alarm of %s: %v", name, a)
		}
		return true
	})
	return out
}

// fired waits until the alarm has fired and is gone, and checks that it was
// committed once.
func (r *Replica) fired(name string) alarm {
	r.t.Helper()
	var a alarm
	Eventually(r.t, "the alarm of "+name+" fires", func() bool {
		a = r.alarm(name)
		return a.Pending == nil && len(a.Firings) > 0
	})
	if len(a.Firings) != 1 {
		r.t.Errorf("%s fired %d times: %+v", name, len(a.Firings), a)
	}
	if len(a.Attempts) == 0 {
		r.t.Errorf("%s fired without an attempt: %+v", name, a)
	}
	return a
}

// lateness is how long after they were due the alarms fired, sorted.
func lateness(alarms []alarm) []time.Duration {
	var late []time.Duration
	for _, a := range alarms {
		for _, f := range a.Firings {
			late = append(late, time.Duration(f.At-f.Due)*time.Millisecond)
		}
	}
	slices.Sort(late)
	return late
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// Every alarm has one run, though all replicas poll, some of them with a clock
// that is an hour wrong.
func TestAlarmsOnAFleet(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		fleet := []*Replica{f.Start("DWK_CLOCK_SHIFT=1h"), f.Start(), f.Start("DWK_CLOCK_SHIFT=-1h")}
		list := names("a", Long(200, 30))
		for i, name := range list {
			fleet[i%3].setAlarm(name, time.Duration(rand.IntN(1500))*time.Millisecond)
		}
		var all []alarm
		by := map[string]int{}
		for i, name := range list {
			a := fleet[(i+1)%3].fired(name)
			if len(a.Attempts) != 1 || a.Attempts[0].Retry != 0 {
				t.Errorf("%s: %+v, want one attempt", name, a)
			}
			by[a.Firings[0].Replica]++
			all = append(all, a)
		}
		late := lateness(all)
		if late[0] < 0 {
			t.Errorf("an alarm fired %v before it was due", -late[0])
		}
		t.Logf("late: median %v, last %v; by replica %v", late[len(late)/2], late[len(late)-1], by)
		f.WaitFree()
		for _, r := range fleet {
			r.Terminate()
			if code := r.Wait(); code != 0 {
				t.Errorf("%s ends with %d", r.Name, code)
			}
		}
	})
}

// Alarms that are due while no replica runs fire when one starts.
func TestAlarmsOfAFleetThatWasDown(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	r := f.Start()
	list := names("a", 10)
	due := time.Now().Add(3 * time.Second)
	for _, name := range list {
		r.setAlarm(name, 3*time.Second)
	}
	r.Kill()
	early := time.Now().Before(due) // else one of them may have been cut off in a run
	time.Sleep(3 * time.Second)
	r = f.Start()
	for _, name := range list {
		if a := r.fired(name); len(a.Attempts) != 1 && early {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// alarmPoints are those that an alarm passes on the replica that takes it.
var alarmPoints = []string{
	"object.take.after", "object.alarm.before",
	"object.run.before", "object.run.after", "object.commit.before", "object.commit.after",
	"object.alarm.after", "object.alarm.settled",
}

// A replica dies at each point of an alarm; the alarm has one committed run on
// another one, and is run again only where it had been begun.
func TestKilledInAnAlarm(t *testing.T) {
	t.Parallel()
	for _, point := range alarmPoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := New(t, File, "DWK_ALARMS_BACKOFF=100ms")
			other := f.Start()
			for round := range Long(20, 1) {
				victim := f.Start("DWK_FAILPOINTS=" + point + "=kill")
				var list []string
				// The other one must stand still when they are due, and not with the lock of
				// the file: it may take more than one try on a slow machine.
				for try := 0; !victim.Exited() && try < 5; try++ {
					for _, name := range names(fmt.Sprintf("r%d-%d-", round, try), 3) {
						if victim.Exited() { // a poll of its own has killed it
							break
						}
						query := "fail=0"
						if point == "object.alarm.settled" {
							query = "fail=1"
						}
						other.setAlarm(name, time.Second, query)
						list = append(list, name)
					}
					other.Stop()
					victim.exitsWithin(8 * time.Second)
					other.Continue()
				}
				code := victim.Wait()
				if code != -1 || victim.Hits(point) == 0 { // alarms run beside each other
					t.Fatalf("%s: exit code %d after %d hits, want a death at the point", point, code, victim.Hits(point))
				}
				again := 0
				for _, name := range list {
					a := other.alarm(name)
					if a.Pending == nil && len(a.Attempts) == 0 {
						continue // the victim had died before it was set
					}
					again += len(other.fired(name).Attempts) - 1
				}
				t.Logf("%d attempts more than alarms", again)
				if again > len(list)*2 {
					t.Errorf("%d attempts more than alarms", again)
				}
			}
			other.Terminate()
			other.Wait()
			if left := f.Command("kv", "list", "--prefix", `["dwk_alarm_due"]`); strings.Contains(left.Stdout, "Timer") || left.Code != 0 {
				t.Errorf("left in the index: %+v", left)
			}
		})
	}
}

// Replicas die at random while alarms run.
func TestKilledAtRandomWithAlarms(t *testing.T) {
	t.Parallel()
	f := New(t, File, "DWK_ALARMS_BACKOFF=100ms", "DWK_ALARMS_RETRIES=50")
	steady := f.Start()
	list := names("a", Long(300, 20))
	for _, name := range list {
		steady.setAlarm(name, time.Duration(rand.IntN(Long(30000, 2000)))*time.Millisecond)
	}
	for range Long(60, 3) {
		r := f.Start()
		time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
		r.Kill()
	}
	again := 0
	for _, name := range list {
		again += len(steady.fired(name).Attempts) - 1
	}
	t.Logf("%d alarms, each with one committed run, %d attempts more", len(list), again)
}

// An alarm that kills every replica that runs it is given up, and the fleet
// lives.
func TestDeadlyAlarm(t *testing.T) {
	t.Parallel()
	f := New(t, File, "DWK_ALARMS_RETRIES=1")
	r := f.Start()
	r.setAlarm("bomb", 2*time.Second)
	r.Kill()      // before it runs it
	for range 2 { // the run and its retry, each after the lease of the one before
		victim := f.Launch("DWK_FAILPOINTS=object.alarm.before=kill")
		if code := victim.Wait(); code != -1 || victim.Hits("object.alarm.before") != 1 {
			t.Fatalf("exit code %d after %d hits", code, victim.Hits("object.alarm.before"))
		}
	}
	r = f.Start()
	Eventually(t, "it is given up", func() bool { return r.alarm("bomb").Pending == nil })
	if a := r.alarm("bomb"); len(a.Firings) != 0 {
		t.Errorf("%+v", a)
	}
	if dead := f.Command("kv", "list", "--prefix", `["dwk_alarm_dead"]`); !strings.Contains(dead.Stdout, durable.IDFromName("bomb").String()) {
		t.Errorf("dead letters: %s %s", dead.Stdout, dead.Stderr)
	}
	r.setAlarm("tea", 0)
	r.fired("tea")
}

// Steady traffic keeps the lease; the alarm waits for the running event only.
func TestAlarmUnderTraffic(t *testing.T) {
	t.Parallel()
	f := New(t, File, steadyLeases)
	r := f.Start()
	r.setAlarm("busy", 500*time.Millisecond)
	stop := make(chan bool)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.alarm("busy")
				}
			}
		})
	}
	a := r.fired("busy")
	close(stop)
	wg.Wait()
	t.Logf("late: %v", lateness([]alarm{a}))
}

// The store is away while alarms are due: nothing fires twice for it.
func TestAlarmsWithoutTheStore(t *testing.T) {
	t.Parallel()
	f := New(t, Wire)
	a, b := f.Start(), f.Start()
	list := names("a", 10)
	for _, name := range list {
		a.setAlarm(name, 3*time.Second)
	}
	f.Server.Restart(time.Duration(Long(10, 4)) * time.Second) // before the first is due
	for _, name := range list {
		if got := b.fired(name); len(got.Attempts) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What an older host has left is served when it has a log, and reported when it
// has none.
func TestAlarmsOfAnOlderHost(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	r := f.Start()
	r.setAlarm("old", time.Hour)
	id, none := durable.IDFromName("old").String(), durable.IDFromName("none").String()
	set := func(key, value string) {
		if res := f.Command("kv", "set", key, value, "--yes"); res.Code != 0 {
			t.Fatalf("%+v", res)
		}
	}
	for _, id := range []string{id, none} {
		value := `{"epochMs":1700000000000,"retryCount":0}`
		set(fmt.Sprintf(`["dwk_alarm_by_id","Timer",%q]`, id), value)
		set(fmt.Sprintf(`["dwk_alarm_due","Timer",1700000000000,%q]`, id), value)
	}
	if a := r.fired("old"); a.Firings[0].Due != 1700000000000 {
		t.Errorf("%+v", a)
	}
	time.Sleep(500 * time.Millisecond)
	if got := f.Command("kv", "get", fmt.Sprintf(`["dwk_alarm_by_id","Timer",%q]`, none)); !strings.Contains(got.Stdout, "1700000000000") {
		t.Errorf("the alarm without a log: %+v", got)
	}
}

// Many alarms that are due at the same moment are run by one replica.
func TestAlarmsDueAtOnce(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		r := f.Start()
		list := names("a", Long(1000, 100))
		due := time.Now().Add(time.Duration(Long(10, 2)) * time.Second)
		var wg sync.WaitGroup
		for part := range slices.Chunk(list, (len(list)+7)/8) {
			wg.Go(func() {
				for _, name := range part {
					r.setAlarm(name, time.Until(due))
				}
			})
		}
		wg.Wait()
		var all []alarm
		for _, name := range list {
			all = append(all, r.fired(name))
		}
		late := lateness(all)
		t.Logf("%d alarms due at once: median %v late, last %v", len(late), late[len(late)/2], late[len(late)-1])
	})
}
