package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

var (
	// ErrTooLarge: a statement would have made the database larger than
	// Config.MaxSize. The statement did nothing.
	ErrTooLarge = fmt.Errorf("database size limit: %w", durable.ErrTooLarge)
	// ErrEntryTooLarge: the changes since the last Confirm do not fit into one
	// entry of Config.MaxEntry bytes. They are still there and must be undone.
	ErrEntryTooLarge = fmt.Errorf("too many changes for one commit: %w", durable.ErrTooLarge)
	// ErrDiskFull: the local disk is full. The statement did nothing.
	ErrDiskFull = fmt.Errorf("local disk is full: %w", durable.ErrUnavailable)
	// ErrOpenTx: changes cannot be captured within an open transaction.
	ErrOpenTx = errors.New("a transaction is still open")
	// ErrTxLost: the transaction of Begin has been rolled back by an earlier
	// error, such as a cancelled context or a full disk.
	ErrTxLost = errors.New("the transaction was rolled back by an earlier error")
	// ErrNested: Begin within a transaction.
	ErrNested = fmt.Errorf("a transaction is open: %w", durable.ErrNested)
	// ErrStopped: the rows of a query were cut off, because the connection was
	// closed or reset while they were being read.
	ErrStopped = errors.New("query stopped: its connection was closed")
	// ErrStaleMark: the mark is from before a Confirm, Undo, Apply or Discard.
	ErrStaleMark = errors.New("mark is no longer valid")

	// ErrDiscarded is part of every error that left the mirror without files,
	// at the zero position: it must be rebuilt from the log.
	ErrDiscarded = errors.New("mirror discarded")
	// ErrDiverged: an entry or the file is not what its checksums say. The
	// mirror has been discarded.
	ErrDiverged = fmt.Errorf("database does not match its log: %w", ErrDiscarded)
	// ErrCapture: the WAL is not what SQLite says it is. The mirror has been
	// discarded.
	ErrCapture = fmt.Errorf("changes could not be captured: %w", ErrDiscarded)
	// ErrNoDatabase: Export of an object that has no database at its position.
	ErrNoDatabase = errors.New("object has no database")
	// ErrBadEntry: bytes that are not a valid entry.
	ErrBadEntry = errors.New("invalid log entry")
)

// A DeniedError is the refusal of a statement that an object may not run.
type DeniedError struct {
	// What names the refused thing, as in "PRAGMA journal_mode".
	What string
}

func (e *DeniedError) Error() string { return e.What + " is not allowed in an object's database" }

// A SQLError is an error of SQLite.
type SQLError struct {
	// Code is SQLite's extended result code.
	Code int
	Msg  string
}

func (e *SQLError) Error() string { return fmt.Sprintf("sqlite: %s (%d)", e.Msg, e.Code) }

// primary returns the code without its extension.
func (e *SQLError) primary() int { return e.Code & 0xff }

// damaged reports whether the error says something about the files rather than
// about the statement.
func (e *SQLError) damaged() bool {
	switch e.primary() {
	case sqlite.Corrupt:
		// Virtual tables report inconsistent content of their own this way.
		return e.Code != sqlite.CorruptVTab
	case sqlite.IOErr, sqlite.NotADB, sqlite.CantOpen, sqlite.Protocol:
		return true
	}
	return false
}

// interrupted returns what a statement reports whose context has ended.
func interrupted(ctx context.Context) error {
	return fmt.Errorf("statement interrupted: %w", ctx.Err())
}
