package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/fleet"
)

// cancel withdraws the requests, and waits until the replicas serve.
func (f *following) cancel(ctx context.Context) error {
	done := 0
	for _, id := range f.options.ids {
		ok, err := fleet.CancelDrain(ctx, f.store, id)
		switch {
		case err != nil && done > 0:
			return partlyError{fmt.Sprintf("withdrew %d of %d", done, len(f.options.ids)), err}
		case err != nil:
			return withHint(err, "whether it was withdrawn is not known; look with: dwk fleet status")
		}
		f.outcomes[id].Outcome = drainAsked
		if !ok {
			f.outcomes[id].Outcome = drainRefused
		}
		done++
	}
	if err := f.refusals(ctx); err != nil {
		return err
	}
	f.noted = map[string]string{}
	err := again(ctx, f.options.interval, func() (bool, error) { return f.returned(ctx) })
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, o := range f.outcomes {
		if o.Outcome == drainAsked {
			o.Outcome, o.Detail = drainLate, "the request is withdrawn, but it does not serve yet"
		}
	}
	return f.end()
}

// refusals says why requests could not be withdrawn.
func (f *following) refusals(ctx context.Context) error {
	found, err := fleet.Drainees(ctx, f.store)
	if err != nil {
		return err
	}
	for id, o := range f.outcomes {
		d := found[id]
		switch {
		case o.Outcome != drainRefused:
		case d.Live == nil:
			o.State, o.Detail = "", "it is gone"
		case d.Live.State == fleet.Stopping:
			o.State, o.Detail = d.Live.State, "it is stopping, and its listener may be closed"
		case d.Live.State == fleet.Draining:
			o.State, o.Detail = d.Live.State, "it was not asked through the store: a signal or POST /drain stops it"
		default:
			o.State, o.Detail = d.Live.State, "it is not asked to stop"
		}
	}
	return nil
}

// returned sees whether the replicas serve.
func (f *following) returned(ctx context.Context) (done bool, err error) {
	found, err := fleet.Drainees(ctx, f.store)
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return false, err
	}
	done = true
	for _, id := range f.options.ids {
		o, d := f.outcomes[id], found[id]
		if o.Outcome != drainAsked {
			continue
		}
		switch {
		case d.Live == nil || d.Live.State == fleet.Stopping:
			o.Outcome, o.State, o.Detail = drainLeft, "", "the request is withdrawn, but it stops for another reason"
		case d.Live.State == fleet.Draining:
			done = false
			f.note(id, "still draining")
		default:
			o.Outcome, o.State = drainServes, d.Live.State
		}
	}
	return done, nil
}
