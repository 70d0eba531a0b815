//go:build faults

// Package failpoint marks the places where a test build can make the program
// die, stop or wait. In ordinary builds a point does nothing.
//
// In builds with the tag "faults" the environment variable DWK_FAILPOINTS
// names points and actions, as in "object.commit.before=kill,object.run.after=sleep:2s":
//
//	kill       the process dies at once, as by SIGKILL
//	stop       the process stops, as by SIGSTOP
//	sleep:D    the caller waits for the duration D
//
// An action with a leading "N*" takes effect at the Nth time only. With
// DWK_FAILPOINT_LOG set, the name of each point that acted is written to that
// file first, so that a test knows that it was reached.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopReach is how long a caller that stops the process waits for the stop to
// reach it.
const stopReach = 100 * time.Millisecond

type point struct {
	action string
	nth    int
	hits   int
}

var (
	mu     sync.Mutex
	points = parse(os.Getenv("DWK_FAILPOINTS"))
)

func parse(s string) map[string]*point {
	m := map[string]*point{}
	for part := range strings.SplitSeq(s, ",") {
		name, action, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		p := &point{action: action}
		if n, rest, ok := strings.Cut(action, "*"); ok {
			p.nth, _ = strconv.Atoi(n)
			p.action = rest
		}
		m[name] = p
	}
	return m
}

// Hit passes the point with this name.
func Hit(name string) {
	mu.Lock()
	p := points[name]
	if p == nil {
		mu.Unlock()
		return
	}
	p.hits++
	act := p.nth == 0 || p.hits == p.nth
	mu.Unlock()
	if !act {
		return
	}
	if f := os.Getenv("DWK_FAILPOINT_LOG"); f != "" {
		if w, err := os.OpenFile(f, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			w.WriteString(name + "\n")
			w.Close()
		}
	}
	kind, arg, _ := strings.Cut(p.action, ":")
	switch kind {
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stop":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		// The stop may reach other threads first: this one waits for it.
		time.Sleep(stopReach)
	case "sleep":
		d, _ := time.ParseDuration(arg)
		time.Sleep(d)
	}
}
