package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// refuse names the binding, and the statement of a batch, in the error of what
// was not sent.
func (d *Database) refuse(statement int, err error) error {
	if statement >= 0 {
		return fmt.Errorf("SQL database %s: statement %d: %w", d.name, statement, err)
	}
	return fmt.Errorf("SQL database %s: %w", d.name, err)
}

// fail gives an error of the package libsql the meaning that applications know.
// The address is left out: it is the operator's. reads: there was nothing to
// apply. batch: the index of the statement says something.
func (d *Database) fail(err error, reads, batch bool) error {
	e, ok := errors.AsType[*libsql.Error](err)
	if !ok {
		return d.refuse(-1, err)
	}
	statement := e.Statement
	if !batch {
		statement = -1
	}
	return d.refuse(statement, meaning(e, reads))
}

func meaning(e *libsql.Error, reads bool) error {
	switch e.Kind {
	case libsql.KindConstraint:
		if e.Outcome == libsql.Unknown { // as OR ROLLBACK leaves it
			return fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, e.Err)
		}
		return &durable.ConstraintError{Constraint: constraint(e.Err.Error()), Statement: e.Statement, Err: e.Err}
	case libsql.KindTooLarge:
		if e.Outcome != libsql.Unknown || reads {
			return fmt.Errorf("%w: %w", durable.ErrTooLarge, e.Err)
		}
	case libsql.KindSQL:
		if e.Outcome != libsql.Unknown || reads {
			return e.Err
		}
	}
	if e.Outcome == libsql.Unknown && !reads {
		return fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, e.Err)
	}
	return fmt.Errorf("%w: %w", durable.ErrUnavailable, e.Err)
}

// constraint reads the kind from SQLite's text: servers keep nothing else of it.
func constraint(text string) durable.Constraint {
	for _, c := range []durable.Constraint{durable.Unique, durable.NotNull, durable.Check, durable.ForeignKey} {
		if strings.Contains(text, string(c)+" constraint failed") {
			return c
		}
	}
	return durable.OtherConstraint
}

// driverError reads the error of a database/sql driver, which has mostly only a
// text.
func driverError(err error) *libsql.Error {
	text := err.Error()
	e := &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindOfText(text), Statement: 0, Err: err}
	if status := statusPattern.FindStringSubmatch(text); status != nil {
		e.Kind, e.Outcome = libsql.KindUnreachable, libsql.Refused
		if strings.HasPrefix(status[1], "5") {
			e.Outcome = libsql.Unknown
		}
	}
	if u, ok := errors.AsType[*url.Error](err); ok { // without the URL
		e.Kind, e.Outcome, e.Err = libsql.KindUnreachable, libsql.Unknown, u.Err
		if _, ok := errors.AsType[*unsent](err); ok {
			e.Outcome = libsql.Refused
		}
	}
	if unreadable(err) {
		e.Kind, e.Outcome = libsql.KindProtocol, libsql.Unknown
	}
	switch {
	case errors.Is(err, errClosed):
		e.Kind, e.Outcome = libsql.KindUnreachable, libsql.Refused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind = libsql.KindTimeout
	}
	return e
}

// unreadable reports whether there was an answer, but not the whole of one that
// the driver understands.
func unreadable(err error) bool {
	_, lost := errors.AsType[*lostAnswer](err)
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, odd := errors.AsType[*json.UnmarshalTypeError](err)
	_, panicked := errors.AsType[*panicError](err)
	return lost || syntax || odd || panicked || strings.Contains(err.Error(), "no response received")
}

// statusPattern finds the HTTP status in a driver's text.
var statusPattern = regexp.MustCompile(`error code (\d{3})\b`)
