// Package bench loads a fleet or a store and measures what it does: a load
// generator with a closed and an open loop, latencies in histograms of bounded
// size, and the disk's own speed to compare with.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is what one operation does.
type Kind string

// The kinds of operations.
const (
	Increment Kind = "increment" // adds 1 to a counter
	Read      Kind = "read"      // reads a counter
	WriteNote Kind = "note"      // replaces the body of a note
	Commit    Kind = "commit"    // sets an entry of the coordination store
	// CreateCounter and CreateNote make an object that is loaded later.
	CreateCounter Kind = "create-counter"
	CreateNote    Kind = "create-note"
)

// An Op is one operation on one of the objects 0 to Objects-1.
type Op struct {
	Kind   Kind
	Object int
}

// An Answer is how an operation ended.
type Answer struct {
	// OK says that it was done. Otherwise Status is why not: an HTTP status, or
	// a word for a request that got no answer.
	OK     bool
	Status string
	// Replica is who answered, if it told.
	Replica string
}

// A Target takes operations. Do is called by many clients at a time; each has
// a number from 0 and one operation under way.
type Target interface {
	Do(ctx context.Context, client int, op Op) Answer
}

// A Mix is which operations a load consists of.
type Mix string

// The mixes of the lab, and Commits, that of the coordination store.
const (
	Counters Mix = "counters" // increments only
	Notes    Mix = "notes"    // notes only
	Reads    Mix = "reads"    // reads only
	Mixed    Mix = "mixed"    // 6 reads to 3 increments to 1 note
	Commits  Mix = "commits"  // commits only
)

// Mixes are the mixes of the lab.
func Mixes() []string {
	return []string{string(Counters), string(Notes), string(Reads), string(Mixed)}
}

// kinds are the operations of a mix, each as often as its share is.
var kinds = map[Mix][]Kind{
	Counters: {Increment}, Notes: {WriteNote}, Reads: {Read}, Commits: {Commit},
	Mixed: {Read, Read, Read, Read, Read, Read, Increment, Increment, Increment, WriteNote},
}

// Bounds of a load.
const (
	maxObjects = 1_000_000
	maxClients = 10_000
	maxRate    = 1_000_000 // a second
)

// A Load says what is sent, by how many and for how long.
type Load struct {
	Mix              Mix
	Objects, Clients int
	// Duration or Requests ends it, whichever is reached first; one of them is
	// not 0.
	Duration time.Duration
	Requests int64
	// Rate is the number of operations a second that are begun, evenly spaced,
	// however long they take: an open loop. 0 is a closed loop, in which each
	// client begins its next operation when the last one has ended.
	Rate float64
	// Seed decides the operations of each client.
	Seed uint64
}

// Check names what is wrong with a load.
func (l Load) Check() error {
	switch {
	case kinds[l.Mix] == nil:
		return fmt.Errorf("no mix is called %q; there are %v", l.Mix, Mixes())
	case l.Objects < 1 || l.Objects > maxObjects:
		return fmt.Errorf("the number of objects must be from 1 to %d", maxObjects)
	case l.Clients < 1 || l.Clients > maxClients:
		return fmt.Errorf("the number of clients must be from 1 to %d", maxClients)
	case l.Duration < 0 || l.Requests < 0 || l.Duration == 0 && l.Requests == 0:
		return fmt.Errorf("a duration or a number of requests must be given, and positive")
	case l.Rate < 0 || l.Rate > maxRate:
		return fmt.Errorf("the rate must be from 1 to %d a second", maxRate)
	}
	return nil
}

// picker returns the choice of one client's operations. Client and seed decide
// them all.
func (l Load) picker(client int) func(int64) Op {
	list, random := kinds[l.Mix], rand.New(rand.NewPCG(l.Seed, uint64(client)))
	return func(int64) Op { return Op{list[random.IntN(len(list))], random.IntN(l.Objects)} }
}

// creations are how the objects of each mix come to be.
var creations = map[Mix][]Kind{
	Counters: {CreateCounter}, Reads: {CreateCounter}, Notes: {CreateNote}, Mixed: {CreateCounter, CreateNote},
}

// Populate creates the objects that a load works on, so that their creation is
// no part of what is measured. It fails when one cannot be created.
func Populate(ctx context.Context, l Load, t Target) error {
	for _, kind := range creations[l.Mix] {
		all := Load{Clients: min(l.Clients, l.Objects), Requests: int64(l.Objects)}
		r, err := run(ctx, all, t, func(int) func(int64) Op {
			return func(n int64) Op { return Op{kind, int(n)} }
		})
		if err != nil {
			return err
		}
		for status, n := range r.Errors {
			return fmt.Errorf("%d of %d objects could not be created: %s", n, l.Objects, status)
		}
	}
	return nil
}
