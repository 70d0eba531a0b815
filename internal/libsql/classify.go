package libsql

import (
	"context"
	"errors"
	"strings"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

func refused(kind Kind, err error) *Error {
	return &Error{Outcome: Refused, Kind: kind, Statement: -1, Err: err}
}

func refusedAt(i int, err error) *Error {
	return &Error{Outcome: Refused, Kind: KindSQL, Statement: i, Err: err}
}

// fromSQLite makes an error of one of SQLite's. An interrupt is always that of
// ctx.
func fromSQLite(ctx context.Context, outcome Outcome, statement int, err error) *Error {
	e := &Error{Outcome: outcome, Statement: statement, Err: err}
	s, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return e
	}
	e.Code = s.Name()
	e.Kind = classify(e.Code, s.Message)
	if s.Primary() == sqlite.Interrupt && ctx.Err() != nil {
		e.Err = ctx.Err()
	}
	return e
}

// classify returns the kind of an SQL error from its code, a name of SQLite or
// of sqld, or where that is missing or says nothing from its message.
func classify(code, message string) Kind {
	switch code {
	case "SQLITE_BUSY", "SQLITE_LOCKED", "TRANSACTION_BUSY", "TRANSACTION_TIMEOUT":
		return KindBusy
	case "SQLITE_FULL":
		return KindFull
	case "SQLITE_READONLY", "BLOCKED":
		return KindReadOnly
	case "SQLITE_AUTH", "SQLITE_PERM":
		return KindAuth
	case "SQLITE_TOOBIG", "RESPONSE_TOO_LARGE":
		return KindTooLarge
	case "SQLITE_INTERRUPT":
		return KindTimeout
	case "SQLITE_CANTOPEN", "SQLITE_IOERR", "PROXY_ERROR":
		return KindUnreachable
	}
	if strings.HasPrefix(code, "SQLITE_CONSTRAINT") {
		return KindConstraint
	}
	if code != "" && code != "SQLITE_UNKNOWN" && code != "UNKNOWN" {
		return KindSQL
	}
	for _, m := range messages {
		if strings.Contains(message, m.text) {
			return m.kind
		}
	}
	return KindSQL
}

// messages are parts of SQLite's and sqld's texts, for servers that drop the
// code.
var messages = []struct {
	text string
	kind Kind
}{
	{"constraint failed", KindConstraint},
	{"database is locked", KindBusy},
	{"database table is locked", KindBusy},
	{"Transaction timed out", KindBusy},
	{"database or disk is full", KindFull},
	{"attempt to write a readonly database", KindReadOnly},
	{"string or blob too big", KindTooLarge},
	{"Response is too large", KindTooLarge},
	{"not authorized", KindAuth},
	{"unable to open database file", KindUnreachable},
	{"disk I/O error", KindUnreachable},
}
