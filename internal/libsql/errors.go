package libsql

import (
	"errors"
	"fmt"
)

// Outcome says what is known about a batch that returned an error.
type Outcome uint8

const (
	// Unknown: it was sent, and no answer tells whether it was applied.
	Unknown Outcome = iota
	// Refused: it was surely not executed; safe to repeat.
	Refused
	// Failed: a statement failed and the whole batch was rolled back.
	Failed
)

func (o Outcome) String() string {
	switch o {
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	default:
		return "unknown"
	}
}

// Kind says why.
type Kind uint8

// The kinds of errors.
const (
	KindSQL         Kind = iota // the statement is wrong, or another SQL error
	KindBusy                    // the write lock was not had in time
	KindConstraint              // a constraint failed
	KindAuth                    // the token is missing, wrong or too weak
	KindUnreachable             // no connection, a cut one, or a gateway's error
	KindTooLarge                // an argument, row or answer is over a limit
	KindFull                    // disk full or over quota
	KindReadOnly                // the database takes no writes
	KindTimeout                 // the context or the configured timeout ended
	KindLimit                   // too many requests or streams
	KindProtocol                // an answer that could not be understood
)

func (k Kind) String() string {
	return [...]string{"sql", "busy", "constraint", "auth", "unreachable", "too large", "full", "read-only", "timeout", "limit", "protocol"}[k]
}

// An Error is what every call of this package fails with.
type Error struct {
	Outcome Outcome
	Kind    Kind
	// Code is the server's or SQLite's own name for it, such as
	// SQLITE_CONSTRAINT, or "".
	Code string
	// Statement is the index of the failed statement of the batch, or -1.
	Statement int
	// Addr is the database's address without secrets.
	Addr string
	Err  error
}

func (e *Error) Error() string {
	if e.Statement >= 0 {
		return fmt.Sprintf("database %s: statement %d: %v", e.Addr, e.Statement, e.Err)
	}
	return fmt.Sprintf("database %s: %v", e.Addr, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome that err tells; an error of another package
// tells nothing and is Unknown.
func OutcomeOf(err error) Outcome {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return Unknown
}

// KindOfText returns the kind that SQLite's and sqld's texts tell, for drivers
// that keep nothing else of an error.
func KindOfText(text string) Kind { return classify("", text) }

// KindOf returns the kind of err; ok is false for errors of other packages.
func KindOf(err error) (kind Kind, ok bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind, true
	}
	return 0, false
}
