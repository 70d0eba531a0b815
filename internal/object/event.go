package object

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/spool"
)

// errTooLong ends the context of an event whose deadline has passed.
var errTooLong = errors.New("event ran over its deadline, nothing was applied")

// The states of an event. A waiting event is either taken by its object's
// loop or dropped by its caller, never both.
const (
	waiting int32 = iota
	taken
	dropped
)

// An event is one delivery to an object. Its caller waits for the gate.
type event struct {
	actor *actor
	kind  string
	// ctx is the caller's.
	ctx       context.Context
	requestID string
	// arrived is when the event was submitted: only statements sent later tell
	// whether it may be answered.
	arrived time.Time
	state   atomic.Int32
	// chain are the objects that wait for this event, outermost first.
	chain []key
	name  string
	run   func(ctx context.Context, o durable.Object) error
	gate  *gate
	// body is the request's, if it has one.
	body *spool.Spool

	// What follows belongs to the object's loop and to the running handler.

	// found and built mark the mirror's state before and after the object was
	// constructed.
	found, built mirror.Mark
	// epoch is the stamp of the lease that it ran under.
	epoch int64
	// commits counts the commits that the event made while it ran, and refused
	// is the error that one of them ended with.
	commits int
	refused error
	// after is the work that begins when the event has been committed.
	after []func(context.Context)
	effects
	socketEffects
	// in and running are the instance and the context that the handler runs with.
	in      *instance
	running context.Context
	// firing is set for the run of an alarm.
	firing *firing
	// err is the error that the event was answered with.
	err error
}

func newEvent(ctx context.Context, kind string, g *gate) *event {
	return &event{kind: kind, ctx: ctx, arrived: clock.Now(), gate: g}
}

func (e *event) take() bool { return e.state.CompareAndSwap(waiting, taken) }
func (e *event) drop() bool { return e.state.CompareAndSwap(waiting, dropped) }

// finish answers the caller and frees the request's body.
func (e *event) finish(err error, header http.Header) {
	e.err = err
	e.gate.finish(err, header)
	e.closeBody()
}

// close frees what an event that never ran holds.
func (e *event) close() {
	e.gate.finish(durable.ErrRevoked, nil)
	e.gate.body.Close()
	e.closeBody()
}

func (e *event) closeBody() {
	if e.body != nil {
		e.body.Close()
	}
}

// within returns ctx bounded by what is left until d after the event's arrival.
func (e *event) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d-clock.Since(e.arrived))
}

// serveHTTP is the run function of a request.
func serveHTTP(g *gate, r *http.Request) func(context.Context, durable.Object) error {
	return func(ctx context.Context, o durable.Object) error {
		o.ServeHTTP(g, r.WithContext(ctx))
		return nil
	}
}
