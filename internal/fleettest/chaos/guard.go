// Package chaos runs a fleet of real processes under a drawn load and a drawn
// schedule of faults, and checks afterwards that every promise held.
//
// A seed decides both. What the fleet was asked, what it answered and what is
// stored in the end are compared by checkers that know nothing of the program:
// a broken promise is a violation, and everything else that goes wrong, such as
// a server of the harness that does not start, leaves the verdict open.
package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
)

// A guard is a testing.TB outside of a test: the harness of fleettest reports to
// it. What fails there is no violation.
type guard struct {
	testing.TB // nil: for methods that are not there
	ctx        context.Context
	out        io.Writer
	dir        string

	mu       sync.Mutex
	failures []string
	cleanups []func()
	temps    int
}

func newGuard(ctx context.Context, dir string, out io.Writer) *guard {
	return &guard{ctx: ctx, dir: dir, out: out}
}

func (g *guard) Helper()                  {}
func (g *guard) Name() string             { return "chaos" }
func (g *guard) Context() context.Context { return g.ctx }

func (g *guard) Log(args ...any)                 { fmt.Fprintln(g.out, args...) }
func (g *guard) Logf(format string, args ...any) { fmt.Fprintf(g.out, format+"\n", args...) }

func (g *guard) Fail() { g.fail("failed") }

func (g *guard) fail(text string) {
	g.mu.Lock()
	g.failures = append(g.failures, text)
	g.mu.Unlock()
	g.Log("harness:", text)
}

func (g *guard) Error(args ...any)                 { g.fail(fmt.Sprint(args...)) }
func (g *guard) Errorf(format string, args ...any) { g.fail(fmt.Sprintf(format, args...)) }
func (g *guard) FailNow()                          { g.fail("failed"); runtime.Goexit() }
func (g *guard) Fatal(args ...any)                 { g.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (g *guard) Fatalf(format string, args ...any) {
	g.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (g *guard) Failed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.failures) > 0
}

// trouble is the first failure of the harness, "" without one.
func (g *guard) trouble() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failures) == 0 {
		return ""
	}
	return g.failures[0]
}

func (g *guard) Cleanup(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cleanups = append(g.cleanups, f)
}

// cleanup runs what was registered, the last first.
func (g *guard) cleanup() {
	for {
		g.mu.Lock()
		n := len(g.cleanups)
		if n == 0 {
			g.mu.Unlock()
			return
		}
		f := g.cleanups[n-1]
		g.cleanups = g.cleanups[:n-1]
		g.mu.Unlock()
		f()
	}
}

func (g *guard) TempDir() string {
	g.mu.Lock()
	g.temps++
	dir := fmt.Sprintf("%s/t%d", g.dir, g.temps)
	g.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		g.Fatal(err)
	}
	return dir
}
