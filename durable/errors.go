package durable

import (
	"errors"
	"fmt"
)

// Errors of the host. All but ErrUnknownOutcome and ErrHandlerFailed mean that
// nothing of the event was applied and that it is safe to repeat.
var (
	// ErrOverloaded: too many events of the object wait already.
	ErrOverloaded = errors.New("object overloaded")
	// ErrFenced: the event lost its object's lease; its commit was refused.
	ErrFenced = errors.New("lease lost, nothing was applied")
	// ErrUnavailable: a store could not be reached.
	ErrUnavailable = errors.New("store unavailable, nothing was applied")
	// ErrDraining: the replica is stopping.
	ErrDraining = errors.New("replica is draining")
	// ErrUnknownOutcome: it could not be found out in time whether the event
	// was applied.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrHandlerFailed: the handler failed or panicked; what it did since its
	// last commit was undone.
	ErrHandlerFailed = errors.New("handler failed")
	// ErrRevoked: a State was used outside an event of its object.
	ErrRevoked = errors.New("state used outside its event")
	// ErrCycle: an object called itself, or a chain of calls came back to it.
	ErrCycle = errors.New("call would wait for itself")
	// ErrNested: a Tx, flush or call out within a Tx.
	ErrNested = errors.New("not allowed within a transaction")
	// ErrTooLarge: a write, message or body is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrNotFound: a bucket has no such key.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: a binding refuses an argument: a key, metadata or option of a
	// bucket, a statement of a database.
	ErrInvalid = errors.New("invalid argument")
	// ErrPrecondition: a conditional put found the key taken.
	ErrPrecondition = errors.New("precondition failed")
	// ErrReadOnly: the configuration allows no changes of the bucket.
	ErrReadOnly = errors.New("the bucket is read-only")
)

// A ContendedError says that an event did not get its turn in time. Nothing
// was applied.
type ContendedError struct {
	Class, ID string
	// Holder is the holder id of the lease that was in the way, and Replica the
	// replica it belongs to. Both are empty when events of this replica were.
	Holder, Replica string
}

func (e *ContendedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("object %s/%s is busy with earlier events", e.Class, e.ID)
	}
	return fmt.Sprintf("object %s/%s is held by %s of replica %s", e.Class, e.ID, e.Holder, e.Replica)
}

// A Constraint is a kind of rule that a database keeps.
type Constraint string

// The kinds of constraints.
const (
	Unique     Constraint = "UNIQUE" // primary keys included
	NotNull    Constraint = "NOT NULL"
	Check      Constraint = "CHECK"
	ForeignKey Constraint = "FOREIGN KEY"
	// OtherConstraint is any other, such as a type of a STRICT table or a
	// trigger's RAISE.
	OtherConstraint Constraint = ""
)

// A ConstraintError says that a statement of a [Database] would have broken a
// constraint. Nothing of the call was applied.
type ConstraintError struct {
	Constraint Constraint
	// Statement is the index of the statement in its Batch; 0 in other calls. It
	// is -1 when all statements were right and their commit was not, as with
	// deferred foreign keys.
	Statement int
	// Err is the database's own error, which names the columns.
	Err error
}

func (e *ConstraintError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ConstraintError) Unwrap() error { return e.Err }
