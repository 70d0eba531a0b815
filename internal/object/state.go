package object

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

// state implements durable.State for one instance.
type state struct{ i *instance }

func (s *state) ID() durable.ID   { return s.i.id }
func (s *state) SQL() durable.SQL { return sqlDB{i: s.i} }
func (s *state) Now() time.Time   { return s.i.a.rt.store.Clock() }

// sqlDB implements durable.SQL on the mirror, within an event.
type sqlDB struct{ i *instance }

// A use is one use of the mirror by the running event. The mirror is the one
// that the event began with: a handler that outlives its event cannot reach
// the next event's.
type use struct {
	ev     *event
	mirror *mirror.Mirror
	// ctx ends with the caller's context and with the event, so that no
	// statement outlives it.
	ctx    context.Context
	cancel func()
}

func (i *instance) use(ctx context.Context) (use, error) {
	i.mu.Lock()
	u := use{ev: i.ev, mirror: i.mirror, ctx: ctx, cancel: func() {}}
	ectx := i.ctx
	i.mu.Unlock()
	if u.ev == nil {
		return use{}, durable.ErrRevoked
	}
	if ectx.Err() != nil {
		return use{}, context.Cause(ectx)
	}
	if ctx != ectx {
		merged, end := context.WithCancelCause(ctx)
		stop := context.AfterFunc(ectx, func() { end(context.Cause(ectx)) })
		u.ctx, u.cancel = merged, func() { stop(); end(nil) }
	}
	return u, nil
}

// Exec implements durable.SQL.
func (d sqlDB) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	u, err := d.i.use(ctx)
	if err != nil {
		return durable.Result{}, err
	}
	defer u.cancel()
	return u.mirror.Exec(u.ctx, query, args...)
}

// Query implements durable.SQL.
func (d sqlDB) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		u, err := d.i.use(ctx)
		if err != nil {
			yield(durable.Row{}, err)
			return
		}
		defer u.cancel()
		for row, err := range u.mirror.Query(u.ctx, query, args...) {
			if d.i.current() != u.ev {
				yield(durable.Row{}, durable.ErrRevoked)
				return
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// Tx implements durable.SQL.
func (d sqlDB) Tx(ctx context.Context, fn func(durable.SQL) error) (err error) {
	u, err := d.i.use(ctx)
	if err != nil {
		return err
	}
	defer u.cancel()
	if err := u.mirror.Begin(u.ctx); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			err = errors.Join(err, u.mirror.Rollback())
		}
	}()
	if err := fn(d); err != nil {
		return err
	}
	done = true // a failed commit has rolled back
	return u.mirror.Commit(u.ctx)
}
