package fleettest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A devFleet is a process of dwk dev.
type devFleet struct {
	*Replica // its front listener
	replicas []struct {
		Name  string
		PID   int
		Admin string
	}
	vars string
}

// startDev starts dwk dev and waits until it says that it is ready.
func (f *Fleet) startDev() *devFleet {
	t := f.t
	t.Helper()
	f.replicas++
	d := &devFleet{Replica: &Replica{Name: "dev", t: t, done: make(chan struct{}), log: filepath.Join(f.Dir, "dev.log")}}
	d.cmd = f.program(nil, "dev", "--replicas", "2", "-o", "json")
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	answer, err := os.Create(d.log + ".answer")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	d.cmd.Stderr, d.cmd.Stdout = log, answer
	if err := start(d.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.cmd.Wait() //nolint:errcheck // it is in ProcessState
		close(d.done)
	}()
	t.Cleanup(func() {
		d.cmd.Process.Kill() //nolint:errcheck // it may be gone
		<-d.done
		if t.Failed() {
			for _, r := range d.replicas {
				syscall.Kill(r.PID, syscall.SIGKILL) //nolint:errcheck // it may be gone
			}
			t.Logf("log of dwk dev, %v:\n%s", d.cmd.ProcessState, tail(d.Log()))
		}
	})
	Eventually(t, "dwk dev is ready", func() bool {
		b, err := os.ReadFile(d.log + ".answer")
		if err != nil || d.Exited() {
			t.Fatalf("dwk dev ended at its start: %v", d.cmd.ProcessState)
		}
		if !bytes.HasSuffix(b, []byte("\n")) {
			return false
		}
		var a struct {
			URL, Environment string
			Replicas         json.RawMessage
		}
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		if err := json.Unmarshal(a.Replicas, &d.replicas); err != nil || len(d.replicas) != 2 {
			t.Fatalf("%v in %s", err, b)
		}
		d.Public, d.vars = a.URL, filepath.Join(f.Dir, a.Environment)
		return true
	})
	var c cage
	for _, v := range d.environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasSuffix(name, "_TOKEN") || strings.HasSuffix(name, "_ACCESS_KEY") {
			c = append(c, value)
		}
	}
	if len(c) < 3 {
		t.Errorf("secrets %q", c)
	}
	c.check(t, "the log of dwk dev", d.Log())
	c.checkCommandLine(t, "dwk dev", d.cmd.Process.Pid)
	for _, r := range d.replicas {
		c.checkCommandLine(t, r.Name, r.PID)
	}
	return d
}

// environ are the variables for commands.
func (d *devFleet) environ() []string {
	d.t.Helper()
	b, err := os.ReadFile(d.vars)
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(b), "'", "")), "\n")
}

// until sends until it is not refused: a replica that has just been killed may
// still hold a lease.
func (d *devFleet) until(method, path, body string) Answer {
	d.t.Helper()
	var a Answer
	Eventually(d.t, method+" "+path+" is done", func() bool {
		a = d.Do(method, path, body)
		return a.Status/100 == 2
	})
	return a
}

// wantGone fails the test when one of the replicas' processes is still there.
func (d *devFleet) wantGone(pids ...int) {
	d.t.Helper()
	for _, r := range d.replicas {
		pids = append(pids, r.PID)
	}
	for _, pid := range pids {
		Eventually(d.t, "a replica's process is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// The whole of dwk dev: the lab through its front, commands, a replica that is
// killed, an orderly end that leaves nothing running, and a second start that
// finds everything.
func TestDev(t *testing.T) {
	t.Parallel()
	f := New(t, File, "DWK_FLEET_POLL_INTERVAL=100ms")
	d := f.startDev()
	type counter struct{ Value int64 }
	seen := map[string]bool{}
	for n := range int64(4) {
		a := d.Post("counter/a/add", "")
		var c counter
		if a.Decode(t, &c); c.Value != n+1 {
			t.Errorf("%v, want %d", a, n+1)
		}
		seen[a.Replica()] = true
	}
	if len(seen) != 2 {
		t.Errorf("requests went to %v", seen)
	}
	if n := addRow(d.Replica, "n"); n.Status != http.StatusOK {
		t.Error(n)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16) // larger than what goes in one part of a request
	if a := d.Do(http.MethodPut, "bucket/dir/large", large); a.Status/100 != 2 {
		t.Error(a)
	}
	if a := d.Post("sql", `[{"sql":"CREATE TABLE t AS SELECT 7 AS n"}]`); a.Status != http.StatusOK {
		t.Error(a)
	}
	if a := d.Post("queue/default/send", `{"n":0}`); a.Status != http.StatusOK {
		t.Error(a)
	}
	d.setAlarm("x", time.Second)
	d.fired("x")
	Eventually(t, "the message is delivered", func() bool { return delivered(t, d.Replica)[`{"n":0}`] == 1 })
	// Commands work on the stores while they are there.
	if r := f.CommandEnv(d.environ(), "fleet", "wait", "--ready", "2", "--for", "1m"); r.Code != 0 {
		t.Error(r)
	}
	// One replica dies, the other goes on, and it comes again.
	if err := syscall.Kill(d.replicas[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.until(http.MethodPost, "counter/a/add", "")
	Eventually(t, "a new replica", func() bool { return strings.Contains(d.Log(), "replica r1 ended (signal: killed)") })
	if r := f.CommandEnv(d.environ(), "fleet", "wait", "--ready", "2", "--for", "1m"); r.Code != 0 {
		t.Error(r)
	}
	if strings.Contains(d.Log(), `"bucket.sweep.failed"`) {
		t.Error("a bucket could not be swept")
	}
	vars := d.environ()
	d.signal(syscall.SIGINT)
	if code := d.Wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
	d.wantGone()
	if _, err := os.Stat(d.vars); !os.IsNotExist(err) {
		t.Errorf("the variables are left: %v", err)
	}
	if r := f.CommandEnv(vars, "lease", "list"); r.Code != 5 {
		t.Errorf("a store is left: %v", r)
	}
	d = f.startDev()
	var c counter
	d.until(http.MethodGet, "counter/a", "").Decode(t, &c)
	if c.Value < 5 {
		t.Errorf("the counter is %d after 5 increments", c.Value)
	}
	wantRows(t, d.Replica, "n", 1)
	if a := d.Get("bucket/dir/large"); a.Status != http.StatusOK || a.Body != large {
		t.Errorf("%d, %d bytes", a.Status, len(a.Body))
	}
	if a := d.Post("sql", `[{"sql":"SELECT n FROM t"}]`); !strings.Contains(a.Body, "[[7]]") {
		t.Error(a)
	}
	if n := len(delivered(t, d.Replica)); n != 1 {
		t.Errorf("%d messages", n)
	}
	// A second one on the same stores is refused.
	if r := f.CommandEnv(nil, "dev"); r.Code != 1 || !strings.Contains(r.Stderr, "in use by another process") {
		t.Error(r)
	}
	d.signal(syscall.SIGTERM)
	if code := d.Wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
	d.wantGone()
}

// However dwk dev ends, no replica is left.
func TestDevEndsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		f := New(t, File, "DWK_LOG_LEVEL=error") // or the end of their logs would end them
		d := f.startDev()
		d.Kill()
		d.wantGone()
		d = f.startDev() // over what it left
		d.signal(syscall.SIGINT)
		if code := d.Wait(); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("second signal", func(t *testing.T) {
		t.Parallel()
		f := New(t, File, "DWK_DRAIN_TIMEOUT=10m")
		d := f.startDev()
		asked := d.Go(http.MethodPost, "note/n/sleep?ms=25000", "")
		Eventually(t, "the event runs", func() bool { return strings.Contains(d.Log(), `"lease.acquire.ok"`) })
		d.signal(syscall.SIGINT)
		Eventually(t, "it stops", func() bool { return strings.Contains(d.Log(), "stopping 2 replicas") })
		for !d.Exited() {
			d.cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // it may have ended
			time.Sleep(20 * time.Millisecond)
		}
		if code := d.Wait(); code != 1 {
			t.Errorf("exit %d", code)
		}
		d.wantGone()
		if a := <-asked; a.Status == http.StatusOK {
			t.Errorf("%v", a)
		}
	})
}
