package fleettest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Replica is one process of a fleet.
type Replica struct {
	// Name is what the test's output calls it: "r1", "r2" and so on.
	Name string
	// ID is its replica id, and Public and Admin are the URLs of its listeners.
	ID, Public, Admin string

	t         testing.TB
	cmd       *exec.Cmd
	log, hits string        // files
	done      chan struct{} // closed when the process has ended
}

// Start starts a replica and waits until it is ready. Env is added to the
// environment of the fleet.
func (f *Fleet) Start(env ...string) *Replica {
	f.t.Helper()
	r := f.Launch(env...)
	r.WaitReady()
	return r
}

// Launch starts a replica.
func (f *Fleet) Launch(env ...string) *Replica {
	t := f.t
	t.Helper()
	f.replicas++
	r := &Replica{Name: fmt.Sprintf("r%d", f.replicas), t: t, done: make(chan struct{})}
	r.log, r.hits = filepath.Join(f.Dir, r.Name+".log"), filepath.Join(f.Dir, r.Name+".hits")
	r.cmd = f.program(append(env, "DWK_FAILPOINT_LOG="+r.hits), "serve")
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Stderr = log
	if err := start(r.cmd); err != nil {
		t.Fatalf("start %s: %v", r.Name, err)
	}
	go func() {
		r.cmd.Wait() //nolint:errcheck // it is in ProcessState
		close(r.done)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill() //nolint:errcheck // it may be gone
		<-r.done
		if t.Failed() {
			t.Logf("log of %s (replica %s), %v:\n%s", r.Name, r.ID, r.cmd.ProcessState, tail(r.Log()))
		}
	})
	return r
}

// tail is the end of a log.
func tail(log string) string {
	const keep = 24 << 10
	if len(log) <= keep {
		return log
	}
	return "...\n" + log[len(log)-keep:]
}

// WaitReady waits until the replica has said where it listens and is ready.
func (r *Replica) WaitReady() {
	r.t.Helper()
	Eventually(r.t, r.Name+" starts", func() bool {
		if r.Exited() {
			r.t.Fatalf("%s ended at its start: %v", r.Name, r.cmd.ProcessState)
		}
		return r.readStarted()
	})
	r.WaitStatus(http.StatusOK)
}

// Ready reports whether the replica has started and is ready now.
func (r *Replica) Ready() bool {
	return (r.ID != "" || r.readStarted()) && send(r.t.Context(), http.MethodGet, r.Admin+"/readyz", "").Status == http.StatusOK
}

func (r *Replica) readStarted() bool {
	for line := range strings.Lines(r.Log()) {
		var l struct{ Msg, Replica, Public, Admin string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "serve.started" {
			r.ID, r.Public, r.Admin = l.Replica, "http://"+l.Public, "http://"+l.Admin
			return true
		}
	}
	return false
}

// WaitStatus waits until /readyz answers with the status.
func (r *Replica) WaitStatus(status int) {
	r.t.Helper()
	Eventually(r.t, fmt.Sprintf("/readyz of %s is %d", r.Name, status), func() bool {
		return send(r.t.Context(), http.MethodGet, r.Admin+"/readyz", "").Status == status
	})
}

// Log returns what the replica has logged so far.
func (r *Replica) Log() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Errorf("log of %s: %v", r.Name, err)
	}
	return string(b)
}

// Hits returns how often the failpoint has acted in this process.
func (r *Replica) Hits(failpoint string) int {
	b, err := os.ReadFile(r.hits)
	if err != nil && !os.IsNotExist(err) {
		r.t.Errorf("failpoints of %s: %v", r.Name, err)
	}
	return strings.Count(string(b), failpoint+"\n")
}

// WaitHit waits until the failpoint has acted n times.
func (r *Replica) WaitHit(failpoint string, n int) {
	r.t.Helper()
	Eventually(r.t, fmt.Sprintf("%s reaches %s", r.Name, failpoint), func() bool { return r.Hits(failpoint) >= n })
}

// Dir is the replica's own directory in its replica_dir, the one of the fleet
// unless a variable has set another.
func (r *Replica) Dir() string {
	base := filepath.Join(r.cmd.Dir, "data", "mirrors")
	for _, v := range r.cmd.Env {
		if dir, ok := strings.CutPrefix(v, "DWK_REPLICA_DIR="); ok {
			base = dir
		}
	}
	return filepath.Join(base, r.ID)
}

func (r *Replica) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Errorf("%v to %s: %v", s, r.Name, err)
	}
}

// Kill ends the process at once, and waits for its end.
func (r *Replica) Kill() {
	r.t.Helper()
	r.signal(syscall.SIGKILL)
	r.Wait()
}

// Stop stops the process where it is, until Continue.
func (r *Replica) Stop() { r.t.Helper(); r.signal(syscall.SIGSTOP) }

// Continue lets a stopped process go on.
func (r *Replica) Continue() { r.t.Helper(); r.signal(syscall.SIGCONT) }

// Terminate asks the process to end in order.
func (r *Replica) Terminate() { r.t.Helper(); r.signal(syscall.SIGTERM) }

// TerminateAgain asks the process that was asked to stop to do so at once. Signals
// that come too close together count as one, so it asks until the process ends.
func (r *Replica) TerminateAgain() {
	r.t.Helper()
	Eventually(r.t, r.Name+" ends", func() bool {
		r.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		r.exitsWithin(100 * time.Millisecond)
		return r.Exited()
	})
}

// Exited reports whether the process has ended.
func (r *Replica) Exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// ExitCode is that of a process that has ended, -1 for one that a signal ended.
func (r *Replica) ExitCode() int { <-r.done; return r.cmd.ProcessState.ExitCode() }

// exitsWithin waits for the end of the process, for a while.
func (r *Replica) exitsWithin(d time.Duration) {
	select {
	case <-r.done:
	case <-time.After(d):
	}
}

// Wait waits for the end of the process and returns its exit code, -1 for one
// that a signal ended.
func (r *Replica) Wait() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Errorf("%s has not ended within %v", r.Name, patience)
		return -2
	}
	return r.cmd.ProcessState.ExitCode()
}
