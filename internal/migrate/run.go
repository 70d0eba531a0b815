package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// A task is an item that a worker moves.
type task struct {
	f    found
	e    entry
	head objlog.Head
	// Of a move to a directory: the alarm, and what is known of the item from
	// when it came.
	slot  alarm.Shown
	facts entry
}

// A moved is what became of a task.
type moved struct {
	f   found
	l   Line
	e   entry
	err error
}

// maxFailures in a row that are not the items' own end a run: something is wrong
// with the target.
const maxFailures = 20

// run has workers move what produce emits, and then last, alone. It notes what
// becomes of each in the journal.
func (m *mover) run(ctx context.Context, produce func(ctx context.Context, emit func(task) error) error,
	move func(context.Context, task) (Line, entry, error), last func(ctx context.Context, emit func(found, Line, error))) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tasks, results := make(chan task), make(chan moved, m.cfg.Jobs)
	var workers, recorder sync.WaitGroup
	for range m.cfg.Jobs {
		workers.Go(func() {
			for t := range tasks {
				if ctx.Err() != nil {
					continue
				}
				l, e, err := m.try(ctx, t, move)
				results <- moved{t.f, l, e, err}
			}
		})
	}
	var recordErr error
	recorder.Go(func() { recordErr = m.record(ctx, cancel, results) })
	err := produce(ctx, func(t task) error {
		if e := t.e; m.finished(t.f, e) {
			m.progress.item(t.f.kind)
			m.progress.skip(t.f.kind, t.f.size)
			m.tally.sum(t.f.kind, t.f.size)
			m.tally.add(Line{Kind: t.f.kind, Item: t.f.item, Outcome: Already, Verified: verifiedAs(e.State), Bytes: e.Bytes, Source: &Side{SHA256: e.SHA256, Bytes: e.Bytes}})
			return nil
		}
		select {
		case tasks <- t:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	close(tasks)
	workers.Wait()
	if err == nil && ctx.Err() == nil {
		last(ctx, func(f found, l Line, err error) { results <- moved{f, l, entry{}, err} })
	}
	close(results)
	recorder.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return errors.Join(err, recordErr)
}

// Something that failed because a store was out of reach for a moment is tried
// again.
const (
	tries     = 3
	firstWait = 200 * time.Millisecond
)

// try moves a task, again when it is likely to help.
func (m *mover) try(ctx context.Context, t task, move func(context.Context, task) (Line, entry, error)) (Line, entry, error) {
	for n := 1; ; n++ {
		l, e, err := move(ctx, t)
		if n == tries || !momentary(err) {
			return l, e, err
		}
		select {
		case <-time.After(firstWait << n):
		case <-ctx.Done():
			return l, e, err
		}
		// It may have been done.
		entries, jerr := m.journal.get(ctx, []string{t.f.item})
		if jerr != nil {
			return l, e, err
		}
		t.e = entries[t.f.item]
		if t.f.kind == Objects {
			known, herr := heads(ctx, m.cfg.Store, []found{t.f})
			if herr != nil {
				return l, e, err
			}
			t.head = known[t.f.item]
		}
	}
}

// momentary reports whether an error is about a store that was out of reach or
// busy.
func momentary(err error) bool {
	if errors.Is(err, durable.ErrUnavailable) {
		return true
	}
	kind, ok := libsql.KindOf(err)
	return ok && (kind == libsql.KindUnreachable || kind == libsql.KindBusy || kind == libsql.KindTimeout)
}

func verifiedAs(state string) Verify {
	switch state {
	case stateVerified:
		return VerifyFull
	case stateCounted:
		return VerifyCounts
	}
	return VerifyNone
}

const (
	recordEvery = time.Second
	recordItems = 128
)

// record notes what becomes of items, some in one commit. What was not noted
// when the process died is compared again by the next run.
func (m *mover) record(ctx context.Context, stop context.CancelCauseFunc, results <-chan moved) (err error) {
	notes := map[string]any{}
	flush := func() {
		if len(notes) == 0 || err != nil {
			return
		}
		// Also when the run is interrupted: it has been done.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		failpoint.Hit("migrate.journal.before")
		if err = m.journal.set(call, notes); err != nil {
			stop(err)
		}
		failpoint.Hit("migrate.journal.after")
		clear(notes)
	}
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case r, ok := <-results:
			if !ok {
				flush()
				return err
			}
			m.note(ctx, stop, r, notes, &failures)
			if len(notes) >= recordItems {
				flush()
			}
		case <-tick.C:
			flush()
		}
	}
}

// recordTimeout bounds one write of the journal.
const recordTimeout = 30 * time.Second

func (m *mover) note(ctx context.Context, stop context.CancelCauseFunc, r moved, notes map[string]any, failures *int) {
	l := r.l
	l.Kind, l.Item = r.f.kind, r.f.item
	m.progress.item(r.f.kind)
	m.tally.sum(r.f.kind, r.f.size)
	if r.err == nil {
		*failures = 0
		m.tally.add(l)
		if r.f.kind != Queues {
			r.e.At = m.journal.store.Clock().UnixMilli()
			notes[r.f.item] = r.e
		}
		return
	}
	l.Verified = ""
	if ctx.Err() != nil {
		l.Outcome, l.Reason = Failed, "the run was ended: "+context.Cause(ctx).Error()
		m.tally.add(l)
		return
	}
	l.Outcome, l.Reason = outcomeOf(r.err), r.err.Error()
	m.tally.add(l)
	own := l.Outcome != Failed
	if _, ok := errors.AsType[sourceError](r.err); ok {
		own = true
	}
	if own {
		*failures = 0
	} else {
		*failures++
	}
	switch {
	case l.Outcome == Conflict && m.cfg.OnConflict == ConflictFail:
		stop(fmt.Errorf("%s: %w", r.f.item, r.err))
	case *failures >= maxFailures:
		stop(fmt.Errorf("%d items in a row could not be moved, the last was %s: %w", *failures, r.f.item, r.err))
	}
}
