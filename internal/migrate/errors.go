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
