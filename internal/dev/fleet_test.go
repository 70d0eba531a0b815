package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestReplica is no test: it is the process that the others run.
func TestReplica(t *testing.T) {
	kind := os.Getenv("DWK_TEST_REPLICA")
	switch kind {
	case "":
		return
	case "fails":
		fmt.Fprint(os.Stderr, "no such thing")
		os.Exit(3)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	address := strings.TrimPrefix(web.URL, "http://")
	json.NewEncoder(os.Stdout).Encode(Addresses{Public: address, Admin: address})
	fmt.Fprintln(os.Stderr, "it runs")
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(1) }()
	for range signals {
		switch kind {
		case "runs":
			os.Exit(0)
		case "ends badly":
			os.Exit(7)
		} // or it never ends
	}
}

// A journal is what a fleet told.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.lines, func(l string) bool { return strings.Contains(l, text) })
}

// startFleet runs replicas of kinds.
func startFleet(patience time.Duration, kinds ...string) (*Fleet, *journal) {
	j := &journal{}
	return Start(Config{
		Replicas: len(kinds), Patience: patience, Notef: j.add,
		Command: func(n int) *exec.Cmd {
			cmd := exec.Command(os.Args[0], "-test.run=^TestReplica$")
			cmd.Env = append(os.Environ(), "DWK_TEST_REPLICA="+kinds[n-1])
			return cmd
		},
		Line: func(n int, line []byte) { j.add("%s: %s", Name(n), line) },
	}), j
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestFleet(t *testing.T) {
	f, j := startFleet(time.Minute, "runs", "runs")
	stopped := false
	defer func() {
		if !stopped {
			f.Stop()
		}
	}()
	if err := f.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := f.Processes()
	if len(before) != 2 || before[1].Name != "r2" || before[0].PID == before[1].PID || len(f.Ready()) != 2 || f.Ready()[1] != before[1].Public {
		t.Errorf("%+v, ready %v", before, f.Ready())
	}
	eventually(t, "both have said that they run", func() bool { return j.has("r1: it runs") && j.has("r2: it runs") })
	// One that is killed is soon not used, and comes again.
	if err := syscall.Kill(before[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a killed replica is used", func() bool { return !slices.Contains(f.Ready(), before[0].Public) })
	if err := f.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := f.Processes()
	if after[0].PID == before[0].PID || after[1] != before[1] || !j.has("replica r1 ended (signal: killed)") {
		t.Errorf("%+v, then %+v: %v", before, after, j.lines)
	}
	stopped = true
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	for _, p := range append(before, after...) {
		if syscall.Kill(p.PID, 0) == nil {
			t.Errorf("process %d is left", p.PID)
		}
	}
}

func TestFleetStartsNot(t *testing.T) {
	f, j := startFleet(time.Minute, "runs", "fails")
	if err := f.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "replica r2 ended at its start: exit status 3") {
		t.Error(err)
	}
	if !j.has("r2: no such thing") {
		t.Error(j.lines)
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
}

func TestFleetStopsBadly(t *testing.T) {
	f, _ := startFleet(3*time.Second, "ends badly", "hangs", "runs") // time for the first to end by itself
	if err := f.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := f.Stop()
	if err == nil || !strings.Contains(err.Error(), "replica r1: exit status 7") || !strings.Contains(err.Error(), "replica r2: signal: killed") {
		t.Error(err)
	}
}

func TestWaitReadyEnds(t *testing.T) {
	f, _ := startFleet(time.Minute, "runs")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.WaitReady(ctx); err == nil && len(f.Ready()) == 0 {
		t.Error("it waited for nothing")
	}
	if err := f.Stop(); err != nil {
		t.Error(err) // it may have ended before it could hear
	}
}

// However a text comes, its lines do, but for empty ones; long ones are cut.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n")), 0, 60, -1).Draw(t, "text")
		most := rapid.IntRange(1, 10).Draw(t, "max")
		var got []string
		l := &lines{max: most, take: func(line []byte) { got = append(got, string(line)) }}
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if wrote, err := l.Write(rest[:n]); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		l.flush()
		var want []string
		for line := range strings.SplitSeq(text, "\n") {
			for line != "" {
				n := min(most, len(line))
				want = append(want, line[:n])
				line = line[n:]
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q in lines of %d: %q, want %q", text, most, got, want)
		}
		if bytes.Contains(l.buf, []byte("\n")) {
			t.Fatal("an end is left")
		}
	})
}
