// Package migrate moves a local data directory, as a single-process host leaves
// it, into the stores of a fleet, and back. It reads and writes both sides and
// decides nothing about terminals, flags or exit codes.
//
// Nothing is moved twice and nothing by halves. An object is one commit under
// its lease, with its alarm; a message is one commit with a marker that is
// derived from where it came from; a body is one put; a SQL database is copied
// by batches that keep their own position. What was moved and verified is noted
// in a journal in the coordination store, so that a run that was killed goes on
// where it stopped, and a run over a finished move only looks at the files'
// times. What is at the target already and equal is taken as moved; what
// differs is a conflict.
//
// The source is not changed, but for messages that are marked as imported.
// Databases are copied with their WAL before they are opened.
package migrate

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/migrate/sqlcopy"
	"github.com/davidwkeith/dwk/internal/objectops"
)

// A Kind is a kind of things that move.
type Kind string

// The kinds, which are also the folders of a data directory.
const (
	SQL     Kind = "d1"
	Buckets Kind = "r2"
	Objects Kind = "do"
	Queues  Kind = "queue"
)

// Kinds are all kinds in the order of a move: messages come last, as they are
// about the others.
var Kinds = []Kind{SQL, Objects, Buckets, Queues}

// Verify says how what was moved is compared with where it came from.
type Verify string

// Ways to verify.
const (
	// VerifyFull compares every row, byte and alarm.
	VerifyFull Verify = "full"
	// VerifyCounts compares numbers of rows, sizes, checksums that the stores
	// keep, and alarms.
	VerifyCounts Verify = "counts"
	// VerifyNone compares nothing.
	VerifyNone Verify = "none"
)

// OnConflict says what becomes of an item for which the target holds something
// else.
type OnConflict string

// Ways out of a conflict.
const (
	// ConflictFail moves nothing when the plan finds a conflict, and stops at
	// one that is found later.
	ConflictFail OnConflict = "fail"
	// ConflictSkip leaves the target as it is.
	ConflictSkip OnConflict = "skip"
	// ConflictReplace makes the target what the source is.
	ConflictReplace OnConflict = "replace"
)

// A Database is a SQL binding.
type Database interface {
	sqlcopy.Target
	String() string
}

// A Target is the opened store set.
type Target struct {
	// Store is the coordination store; nil when the store set has never been
	// used, which only a dry run is told. StoreID is its identity.
	Store   *kv.Store
	StoreID string
	// Primary is the address of the coordination store, for the proof.
	Primary string
	// Objects work on the objects of the store set.
	Objects *objectops.Ops
	// Databases and Buckets are the bindings of the configuration, by name; the
	// values are nil where Store is.
	Databases map[string]Database
	Buckets   map[string]durable.Bucket
}

// Config is what a move works on.
type Config struct {
	// Dir is the local data directory, and QueueFile the queue backlog; empty is
	// queue.sqlite in Dir.
	Dir, QueueFile string
	// Host is the name of this machine; with the path of Dir it names the source.
	Host string

	Target

	// Only are the kinds that move; empty is all of them.
	Only []Kind
	// Map gives bindings other names: from the name in Dir to that of the
	// configuration.
	Map map[string]string
	// Jobs is how many items move at a time; 0 is 4.
	Jobs       int
	OnConflict OnConflict // empty is ConflictFail
	Verify     Verify     // empty is VerifyFull
	DryRun     bool
	// Proof gets a line of JSON for each item and what became of it; nil is
	// nobody.
	Proof io.Writer
	// TempDir is where copies of databases are opened; empty is the system's
	// place. It has room for one database a job.
	TempDir string
}

const (
	defaultJobs = 4
	// pageItems is how many items are looked up in one round trip.
	pageItems = 256
	// leaseWait is how long an object's lease is waited for: that of a run that
	// was killed ends by itself.
	leaseWait = 30 * time.Second
)

// Errors.
var (
	// ErrRefused is part of errors about a directory or store set that must not
	// be worked on as it is.
	ErrRefused = errors.New("refused")
	// ErrConflict is part of errors about a target that holds something else.
	ErrConflict = errors.New("the target holds something else")
	// ErrChanged is part of errors about a source that changed while it was read.
	ErrChanged = errors.New("the source changed while it was read")
)

func (c *Config) setDefaults() {
	if c.Jobs <= 0 {
		c.Jobs = defaultJobs
	}
	if c.OnConflict == "" {
		c.OnConflict = ConflictFail
	}
	if c.Verify == "" {
		c.Verify = VerifyFull
	}
	if len(c.Only) == 0 {
		c.Only = Kinds
	}
}

func (c *Config) has(k Kind) bool {
	for _, o := range c.Only {
		if o == k {
			return true
		}
	}
	return false
}

// target is the binding to which a name of the data directory moves.
func (c *Config) target(name string) string {
	if to, ok := c.Map[name]; ok {
		return to
	}
	return name
}

// source is the name of the data directory for a binding.
func (c *Config) source(binding string) string {
	for from, to := range c.Map {
		if to == binding {
			return from
		}
	}
	return binding
}

// interrupted reports whether a move has to end: its context has, so that the
// error of the item at hand says nothing about the item.
func interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
