package fleettest

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// commandTime bounds a command: longer than any that works.
const commandTime = 2 * time.Minute

// A Result is what a command left.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Command runs a command of the program on the stores of the fleet.
func (f *Fleet) Command(args ...string) Result {
	f.t.Helper()
	return f.CommandEnv(nil, args...)
}

// CommandEnv is Command with an addition to the environment of the fleet.
func (f *Fleet) CommandEnv(env []string, args ...string) Result {
	f.t.Helper()
	cmd := f.program(env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := start(cmd); err != nil {
		f.t.Errorf("dwk %s: %v", strings.Join(args, " "), err) // not Fatal: it is used on other goroutines too
		return Result{Code: -1}
	}
	timer := time.AfterFunc(commandTime, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer timer.Stop()
	cmd.Wait() //nolint:errcheck // it is in ProcessState
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// JSON runs a command that must succeed, with -o json, and decodes its answer.
func (f *Fleet) JSON(into any, args ...string) {
	f.t.Helper()
	r := f.Command(append(args, "-o", "json")...)
	if r.Code != 0 {
		f.t.Fatalf("dwk %s: exit %d: %s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		f.t.Fatalf("dwk %s: %v in %s", strings.Join(args, " "), err, r.Stdout)
	}
}

// A Lease is an element of what lease list writes.
type Lease struct {
	Class, ID, Holder, Replica string
}

// Leases lists the live leases.
func (f *Fleet) Leases() []Lease {
	f.t.Helper()
	var list []Lease
	f.JSON(&list, "lease", "list")
	return list
}

// WaitFree waits until nobody holds a lease.
func (f *Fleet) WaitFree() {
	f.t.Helper()
	Eventually(f.t, "all leases end", func() bool { return len(f.Leases()) == 0 })
}

// entries lists what is in the coordination store, without what replicas write
// there at regular times.
func (f *Fleet) entries() string {
	f.t.Helper()
	r := f.Command("kv", "list")
	if r.Code != 0 {
		f.t.Fatalf("dwk kv list: exit %d: %s", r.Code, r.Stderr)
	}
	var out strings.Builder
	for line := range strings.Lines(r.Stdout) {
		key, _, _ := strings.Cut(line, " ")
		if key == "KEY" || strings.HasPrefix(key, `["dwk_cron`) || strings.HasPrefix(key, `["dwk_replica`) {
			continue // the widths of columns depend on them too
		}
		out.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return out.String()
}
