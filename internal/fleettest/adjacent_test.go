package fleettest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// release builds the last release of releases.txt from the project's history.
func release(t *testing.T) (version, program string) {
	t.Helper()
	list, err := os.ReadFile("../../releases.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(list)), "\n")
	version, commit, _ := strings.Cut(lines[len(lines)-1], " ")
	dir := t.TempDir()
	program = filepath.Join(dir, "dwk")
	for _, args := range [][]string{
		{"git", "worktree", "add", "--detach", filepath.Join(dir, "src"), commit},
		{"go", "-C", filepath.Join(dir, "src"), "build", "-o", program, "./cmd/dwk"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		if args[0] == "git" {
			t.Cleanup(func() {
				exec.Command("git", "-C", "../..", "worktree", "remove", "--force", filepath.Join(dir, "src")).Run() //nolint:errcheck // a temporary directory
			})
		}
	}
	return version, program
}

// A pair is a fleet of two replicas, one of each program.
type pair struct {
	*Fleet
	t *testing.T
	// last is the program of the last release, and old whether a replica runs it.
	last string
	old  map[*Replica]bool
}

// as has commands and replicas be of one program for a while.
func (p *pair) as(old bool, f func()) {
	p.t.Helper()
	if p.Program = ""; old {
		p.Program = p.last
	}
	defer func() { p.Program = "" }()
	f()
}

func (p *pair) start(old bool) (r *Replica) {
	p.t.Helper()
	p.as(old, func() { r = p.Start() })
	p.old[r] = old
	return r
}

// by runs a command of a replica's program, which must succeed.
func (p *pair) by(r *Replica, args ...string) (res Result) {
	p.t.Helper()
	p.as(p.old[r], func() { res = p.Command(args...) })
	if res.Code != 0 {
		p.t.Errorf("%s by the program of %s: %+v", strings.Join(args, " "), r.Name, res)
	}
	return res
}

// This build and the last release serve one store set together, whichever was
// there first, with all that the lab does, and either goes on alone.
func TestAdjacentReleases(t *testing.T) {
	t.Parallel()
	if os.Getenv("DWK_TEST_LONG") == "" {
		t.Skip("it builds the last release; set DWK_TEST_LONG=1")
	}
	version, program := release(t)
	Each(t, func(t *testing.T, kind Kind) {
		for _, oldFirst := range []bool{true, false} {
			name := "this build first"
			if oldFirst {
				name = version + " first"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newQueueFleet(t, kind, "batch: 4, concurrency: 1, visibility: 3s")
				f.Env = append(f.Env, "DWK_LEASE_TTL=10s")
				f.setSchedule("@every 5s", 200*time.Millisecond)
				p := &pair{f, t, program, map[*Replica]bool{}}
				first := p.start(oldFirst)
				second := p.start(!oldFirst)
				p.suite("1", first, second)
				p.suite("2", second, first)
				p.both(first, second)
				// Either is asked to stop by the other's command, and the other goes on.
				p.handOver(first, second)
				again := p.start(oldFirst)
				p.suite("3", again, second)
				p.handOver(second, again)
				p.alone(again)
			})
		}
	})
}

// suite has one replica write and the other read, with all that the lab has.
func (p *pair) suite(run string, x, y *Replica) {
	p.t.Helper()
	p.counters(run, x, y)
	p.notes(run, x, y)
	p.database(run, x, y)
	p.files(run, x, y)
	p.alarms(run, x, y)
	p.messages(run, x, y)
	p.schedule(x, y)
	p.leases(run, x, y)
	p.commands(x, y)
}

// handOver stops a replica by a command of the other's program.
func (p *pair) handOver(from, to *Replica) {
	t := p.t
	t.Helper()
	// What it leaves behind is the other's.
	for _, r := range []struct{ path, body string }{
		{"queue/default/send?delay=1s", `{"left":"` + from.Name + `"}`}, {"alarm/left-" + from.Name + "?in=2s", ""}, {"counter/left/add", ""},
	} {
		if a := from.Post(r.path, r.body); a.Status != http.StatusOK {
			t.Fatal(r.path, a)
		}
	}
	// A request that is withdrawn by the other program changes nothing.
	p.by(to, "drain", from.ID, "--yes", "--grace", "10m")
	p.waitState(from, "draining")
	p.by(to, "drain", from.ID, "--yes", "--cancel")
	p.waitState(from, "ready")
	p.by(to, "drain", from.ID, "--yes", "--wait", "--grace", "0s")
	wantExit(t, from, 0)
	wantNothingLeft(t, from)
	to.fired("left-" + from.Name)
	Eventually(t, "the message that was left", func() bool { return delivered(t, to)[`{"left":"`+from.Name+`"}`] == 1 })
	p.counters("left-"+from.Name, to, to)
}

// both waits until each of two replicas has had messages and occurrences, and
// checks the schedule.
func (p *pair) both(x, y *Replica) {
	t := p.t
	t.Helper()
	n := 0
	Eventually(t, "both have had messages", func() bool {
		for range 20 {
			n++
			if a := x.Post("queue/default/send", fmt.Sprintf(`{"both":%d}`, n)); a.Status != http.StatusOK {
				t.Fatal(a)
			}
		}
		return len(consumers(t, y)) == 2
	})
	Eventually(t, "both have run the schedule", func() bool {
		by := map[string]bool{}
		for _, r := range labRuns(t, y).Runs {
			by[r.Replica] = true
		}
		return by[x.ID] && by[y.ID]
	})
}

// alone checks what is left when one replica is, and stops it.
func (p *pair) alone(r *Replica) {
	t := p.t
	t.Helper()
	p.waitQuiet()
	r.Terminate()
	wantExit(t, r, 0)
	checkSchedule(t, p.Fleet, 5*time.Second)
	p.as(true, func() { checkSchedule(t, p.Fleet, 5*time.Second) })
	for _, old := range []bool{true, false} {
		p.as(old, func() {
			if res := p.Command("audit", "--deep"); res.Code != 0 {
				t.Errorf("audit, of the last release: %v: %+v", old, res)
			}
		})
	}
	wantNoTrace(t, p.Fleet, "dwk_lease", "dwk_drain", "dwk_replica", "dwk_queue_due", "dwk_queue_dead", "dwk_alarm_due", "dwk_alarm_dead")
}
