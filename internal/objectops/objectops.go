// Package objectops is what operators do with stored objects: list them, look
// into them, export them, bring them back to an earlier state, delete them. It
// works on the stores alone; no replica need run.
//
// What only looks takes no lease. What changes an object takes its lease, like
// an event, so that it never runs beside one, and adds one commit to its log:
// everything happens or nothing does.
package objectops

import (
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/object/keeper"
)

var (
	// ErrNotFound is part of errors about objects and positions that do not
	// exist, or are no longer kept.
	ErrNotFound = errors.New("not found")
	// ErrNotKept is part of errors about positions of an object that exists.
	ErrNotKept = fmt.Errorf("not kept: %w", ErrNotFound)
	// ErrDamaged is part of errors about a log or a database that is not what
	// its checksums say, or that SQLite finds fault with.
	ErrDamaged = errors.New("damaged")
	// ErrChanged is part of the error of a change that was decided on another
	// state of the object than it has.
	ErrChanged = errors.New("changed meanwhile, nothing was done")
	// ErrTooLarge is part of the error of a restore to a database that is larger
	// than Config.MaxSize.
	ErrTooLarge = errors.New("too large")
)

// A missingError says what there is not. It wraps a kind of error without
// repeating it.
type missingError struct {
	text string
	kind error
}

func (e missingError) Error() string { return e.text }
func (e missingError) Unwrap() error { return e.kind }

func notFound(format string, args ...any) error {
	return missingError{fmt.Sprintf(format, args...), ErrNotFound}
}

func notKept(format string, args ...any) error {
	return missingError{fmt.Sprintf(format, args...), ErrNotKept}
}

// Config is what the operations work with. Store must be set; for operations
// that read databases Blobs too, and for those that change objects all but Dir.
type Config struct {
	Store *kv.Store
	// Blobs hold the large entries of the logs.
	Blobs keeper.Blobs
	// StoreID is the store set's identity.
	StoreID string
	// Dir is where databases are put together; empty is the system's place.
	Dir string
	// LeaseTTL is that of the leases of operators, which are renewed.
	LeaseTTL time.Duration
	// InlineLimit is the largest entry that a row of the log holds itself, in
	// bytes.
	InlineLimit int64
	// MaxSize bounds the database that an object is given, in bytes; 0 is no
	// bound.
	MaxSize int64
	// Group, unless it is nil, commits restores to small databases whose head is
	// expected, in company and without a lease of their own.
	Group *kv.Group
}

// Ops are the operations on the objects of one store set.
type Ops struct {
	Config
}

// New returns the operations.
func New(cfg Config) *Ops { return &Ops{cfg} }

// In returns the same operations with a group.
func (o *Ops) In(g *kv.Group) *Ops {
	cfg := o.Config
	cfg.Group = g
	return New(cfg)
}

// reader reads databases out of logs, with its temporary files in dir.
func (o *Ops) reader(dir string) keeper.Reader {
	return keeper.Reader{Store: o.Store, Blobs: o.Blobs, Dir: dir}
}
