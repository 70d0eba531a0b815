package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/probe"
	"github.com/davidwkeith/dwk/internal/term"
)

// Exit codes. They are a contract with scripts.
const (
	exitOK          = 0
	exitFailed      = 1   // the operation failed or found something wrong
	exitUsage       = 2   // wrong usage or configuration
	exitNotFound    = 3   // the named thing does not exist
	exitPartly      = 4   // at least one item done, others failed or skipped
	exitUnreachable = 5   // a store could not be reached
	exitInterrupted = 130 // by a signal
)

// kinds are the codes' names in errors that are written as JSON.
var kinds = map[int]string{
	exitFailed: "failed", exitUsage: "usage", exitNotFound: "not_found", exitPartly: "partly",
	exitUnreachable: "unreachable", exitInterrupted: "interrupted",
}

// A usageError is a wrong flag, argument or combination of them.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage makes a usage error of what the parsing of the command line failed
// with.
func asUsage(err error) error {
	if _, ok := errors.AsType[usageError](err); ok {
		return err
	}
	return usageError{err}
}

// errNotFound is part of errors about something that does not exist.
var errNotFound = errors.New("not found")

// A notFoundError says what does not exist.
type notFoundError string

func notFoundf(format string, args ...any) error { return notFoundError(fmt.Sprintf(format, args...)) }

func (e notFoundError) Error() string   { return string(e) }
func (notFoundError) Is(err error) bool { return err == errNotFound }

// A partlyError is a failure after something had been done.
type partlyError struct {
	done string
	err  error
}

func (e partlyError) Error() string { return e.done + ", and then: " + e.err.Error() }
func (e partlyError) Unwrap() error { return e.err }

// A hinted error says what to do.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

func withHint(err error, format string, args ...any) error {
	return hinted{err, fmt.Sprintf(format, args...)}
}

// exitCode decides what the process exits with.
func exitCode(ctx context.Context, err error) int {
	if _, ok := errors.AsType[interrupted](context.Cause(ctx)); ok && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return exitInterrupted
	}
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, term.ErrNotAsked) {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitUsage
	}
	if errors.Is(err, durable.ErrInvalid) {
		return exitUsage
	}
	if errors.Is(err, errNotFound) || errors.Is(err, objectops.ErrNotFound) || errors.Is(err, host.ErrNoStore) || errors.Is(err, durable.ErrNotFound) {
		return exitNotFound
	}
	if _, ok := errors.AsType[partlyError](err); ok {
		return exitPartly
	}
	if e, ok := errors.AsType[*probe.Error](err); ok {
		if e.Unreachable() {
			return exitUnreachable
		}
		return exitFailed
	}
	if probe.Unreachable(err) || errors.Is(err, durable.ErrUnavailable) {
		return exitUnreachable
	}
	return exitFailed
}

// hint says what to do about an error, or nothing.
func hint(code int, command string, err error) string {
	if h, ok := errors.AsType[hinted](err); ok {
		return h.hint
	}
	kind, database := libsql.KindOf(err)
	_, cfg := errors.AsType[*config.Error](err)
	_, probed := errors.AsType[*probe.Error](err)
	switch {
	case code == exitInterrupted:
		return ""
	case errors.Is(err, term.ErrNotAsked):
		return "pass --yes to do it without being asked"
	case cfg:
		return "list and check settings with: dwk config check"
	case code == exitUsage:
		return "see: " + command + " --help"
	case errors.Is(err, host.ErrNoStore):
		return "look where the stores are with: dwk config show; the first dwk serve creates them"
	case database && kind == libsql.KindAuth:
		return "check libsql.token"
	case database && kind == libsql.KindBusy:
		return "another process holds the write lock; try again"
	case code == exitUnreachable && !probed:
		return "check that the store runs and is reachable with: dwk probe"
	}
	return ""
}

// report writes one line about an error, and with it the chain of its causes
// when it is to be verbose, and returns the exit code.
func report(ctx context.Context, t *term.Term, command string, err error) int {
	code := exitCode(ctx, err)
	message, todo := oneLine(err.Error()), hint(code, command, err)
	if code == exitInterrupted {
		message = strings.TrimSuffix("interrupted: "+message, ": "+context.Canceled.Error())
	}
	var chain []string
	if t.Verbose && !t.Quiet {
		chain = causes(err)
	}
	if t.JSON {
		stderr := *t
		stderr.Out = t.Err
		_ = stderr.WriteLine(struct {
			Error   string   `json:"error"`
			Kind    string   `json:"kind"`
			Exit    int      `json:"exit"`
			Command string   `json:"command"`
			Hint    string   `json:"hint,omitempty"`
			Chain   []string `json:"chain,omitempty"`
		}{message, kinds[code], code, command, todo, chain})
		return code
	}
	if todo != "" {
		message += "; " + todo
	}
	fmt.Fprintln(t.Err, term.Clean(command+": "+message))
	for _, c := range chain {
		fmt.Fprintln(t.Err, term.Clean("  "+c))
	}
	return code
}

// oneLine joins the lines of a message.
func oneLine(s string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case strings.HasSuffix(b.String(), ":"):
			b.WriteString(" ")
		case b.Len() > 0:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// causes lists the errors that an error wraps, with their types.
func causes(err error) []string {
	var out []string
	var walk func(error)
	walk = func(err error) {
		line := fmt.Sprintf("%T: %s", err, oneLine(err.Error()))
		if e, ok := err.(*libsql.Error); ok { //nolint:errorlint // each link by itself
			line += fmt.Sprintf(" (outcome %s, kind %s, code %q)", e.Outcome, e.Kind, e.Code)
		}
		out = append(out, line)
		switch e := err.(type) { //nolint:errorlint // each link by itself
		case interface{ Unwrap() error }:
			if next := e.Unwrap(); next != nil {
				walk(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range e.Unwrap() {
				walk(next)
			}
		}
	}
	walk(err)
	return out
}
