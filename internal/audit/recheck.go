package audit

import (
	"context"
	"slices"
	"time"
)

// suspectsAtOnce bounds what waits for its second look.
const suspectsAtOnce = 500

// A twice looks at things, and again at those that look wrong: what is wrong
// both times is reported.
type twice[T any] struct {
	a *auditor
	// look returns the findings of each of the things, all that belong to one
	// read in one transaction.
	look  func(ctx context.Context, things []T) ([][]Finding, error)
	wrong []T
	found [][]Finding
}

// first looks at some things for the first time.
func (t *twice[T]) first(ctx context.Context, things []T) error {
	if len(things) == 0 {
		return nil
	}
	found, err := t.look(ctx, things)
	if err != nil {
		return err
	}
	for i, list := range found {
		// What would not be shown any more is counted as it was seen.
		list, err := t.count(list)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			t.wrong, t.found = append(t.wrong, things[i]), append(t.found, list)
		}
	}
	if len(t.wrong) >= suspectsAtOnce {
		return t.flush(ctx)
	}
	return nil
}

func (t *twice[T]) count(list []Finding) (rest []Finding, err error) {
	for _, f := range list {
		if !t.a.report.full(f.Check) {
			rest = append(rest, f)
		} else if err := t.a.report.add(f); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// flush looks again at what was wrong.
func (t *twice[T]) flush(ctx context.Context) error {
	wrong, found := t.wrong, t.found
	t.wrong, t.found = nil, nil
	if len(wrong) == 0 {
		return nil
	}
	if err := pause(ctx, t.a.Settle); err != nil {
		return err
	}
	t.a.again = true // what is looked at twice counts once
	again, err := t.look(ctx, wrong)
	t.a.again = false
	if err != nil {
		return err
	}
	for i, list := range again {
		for _, f := range list {
			if slices.ContainsFunc(found[i], f.is) {
				if err := t.a.report.add(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pause waits for d, or fails when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
