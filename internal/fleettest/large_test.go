package fleettest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A large object is created, handed over and brought back in bounded memory.
func TestLargeObject(t *testing.T) {
	t.Parallel()
	const perEvent = 50 // MB
	events := Long(21, 2)
	f := New(t, File, steadyLeases, "DWK_EVENT_TIMEOUT=10m", "DWK_LEASE_ACQUIRE_TIMEOUT=9m")
	a, b := f.Start(), f.Start()
	for i := range events {
		ans := runSQL(a, "large", statement{SQL: `CREATE TABLE IF NOT EXISTS big(n INTEGER PRIMARY KEY, b)`}, statement{SQL: fmt.Sprintf(`WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < %d)
	INSERT INTO big(b) SELECT randomblob(1000000) FROM c`, perEvent)})
		if ans.Status != http.StatusOK {
			t.Fatalf("event %d: %v", i, ans)
		}
	}
	const sum = `SELECT count(*), sum(length(b)) FROM big`
	want := fmt.Sprintf(`"rows":[[%d,%d]]`, events*perEvent, events*perEvent*1_000_000)
	has := func(r *Replica, want string) {
		t.Helper()
		if ans := runSQL(r, "large", statement{SQL: sum}); ans.Status != http.StatusOK || !strings.Contains(ans.Body, want) {
			t.Errorf("%s: %v, want %s", r.Name, ans, want)
		}
	}
	has(b, want)
	before := b.Get("note/large").Txid()
	if ans := runSQL(b, "large", statement{SQL: `DELETE FROM big WHERE n % 2 = 0`}); ans.Status != http.StatusOK {
		t.Errorf("delete: %v", ans)
	}
	peak := f.watch("object", "restore", "Note", "--name", "large", "--to", fmt.Sprint(before), "--yes")
	has(a, want)
	has(b, want)
	const allowed = 400 << 10 // KiB, whatever the size
	for name, kib := range map[string]int{"first replica": peakMemory(a.cmd.Process.Pid), "second replica": peakMemory(b.cmd.Process.Pid), "restore": peak} {
		t.Logf("%s: %d MiB at most", name, kib>>10)
		if kib > allowed {
			t.Errorf("%s took %d KiB for an object of %d MB", name, kib, events*perEvent)
		}
	}
}

// watch runs a command that must succeed, and returns the most memory that it
// had, in KiB.
func (f *Fleet) watch(args ...string) (peak int) {
	t := f.t
	t.Helper()
	cmd := f.program(nil, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("dwk %v: %v %s", args, err, &stderr)
			}
			return peak
		case <-time.After(10 * time.Millisecond):
			peak = max(peak, peakMemory(cmd.Process.Pid))
		}
	}
}
