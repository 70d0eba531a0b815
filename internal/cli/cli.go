// Package cli is the command line: a file a command. It is the only place that
// prints for people, and it decides exit codes in one function.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/term"
)

// Options are everything that a run of the program depends on.
type Options struct {
	// Args are the arguments without the program's name.
	Args     []string
	In       io.Reader
	Out, Err io.Writer
	// Environ is the environment as "NAME=value".
	Environ []string
	// Apps are the applications that mounts may name.
	Apps []durable.App

	interactive bool       // there is somebody to ask, whatever the streams are
	last        *lastWords // said before the process ends at once; may be nil
}

// Main runs the program on the process's arguments and streams, and exits.
func Main(apps ...durable.App) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	last := &lastWords{}
	go watch(signals, cancel, func(code int) { last.say(); os.Exit(code) })
	os.Exit(Run(ctx, Options{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Apps: apps, last: last,
	}))
}

// lastWords tell what a command has not finished when it is ended at once.
type lastWords struct{ f atomic.Pointer[func()] }

// set has f tell it.
func (w *lastWords) set(f func()) {
	if w != nil {
		w.f.Store(&f)
	}
}

// say says them, but does not hold up the end.
func (w *lastWords) say() {
	f := w.f.Load()
	if f == nil {
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); (*f)() }()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// sameSignal is how close together two signals count as one: who signals a
// process and then its group sends two.
const sameSignal = 50 * time.Millisecond

// watch has the first signal end the command in order and the second end the
// process at once.
func watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, exit func(int)) {
	cancel(interrupted{<-signals})
	same := time.After(sameSignal)
	for waiting := true; waiting; {
		select {
		case <-signals:
		case <-same:
			waiting = false
		}
	}
	<-signals
	exit(exitFailed)
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return i.String() }

// Run runs one command and returns the exit code. It keeps nothing running.
func Run(ctx context.Context, o Options) int {
	e := &env{opts: o, term: term.New(o.In, o.Out, o.Err, getenv(o.Environ))}
	e.term.Interactive = e.term.Interactive || o.interactive
	root := newRoot(e)
	root.SetArgs(append([]string{}, o.Args...))
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !e.ran { // the flags and arguments that would say so may not have been read
		e.term.JSON = e.term.JSON || asksForJSON(o.Args)
		err = asUsage(err)
	}
	return report(ctx, e.term, cmd.CommandPath(), err)
}

func getenv(environ []string) func(string) string {
	return func(name string) string {
		for _, entry := range environ {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value
			}
		}
		return ""
	}
}
