package migrate

import (
	"errors"
	"fmt"
)

// A sourceError is about an item of the source, and concerns no other.
type sourceError struct{ err error }

func (e sourceError) Error() string { return e.err.Error() }
func (e sourceError) Unwrap() error { return e.err }

// A conflictError says what the target holds in place of an item.
type conflictError struct{ what string }

func (e conflictError) Error() string { return fmt.Sprintf("%v: %s", ErrConflict, e.what) }
func (e conflictError) Unwrap() error { return ErrConflict }

// A skipError says why an item cannot be moved as it is.
type skipError struct{ reason string }

func (e skipError) Error() string { return e.reason }

// errDeletedSince says that an item was moved, and that the fleet has deleted it.
var errDeletedSince = skipError{"it was moved before and is gone there: the fleet has deleted it since, and it is not brought back but with --on-conflict replace"}

// deletedSince reports whether an item that is not at the target was there: a
// run that looks at it again, as it is to verify more, must not bring it back.
func (m *mover) deletedSince(f found, e entry) bool {
	return e.State != "" && e.State != stateBegun && e.Print == f.print && m.cfg.OnConflict != ConflictReplace
}

// outcomeOf is what became of an item that ended with an error.
func outcomeOf(err error) Outcome {
	if _, ok := errors.AsType[skipError](err); ok {
		return Skipped
	}
	switch {
	case errors.Is(err, ErrConflict):
		return Conflict
	case errors.Is(err, errEmpty):
		return Left
	}
	return Failed
}
