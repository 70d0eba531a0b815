package cli

import (
	"context"
	"errors"

	"github.com/davidwkeith/dwk/internal/migrate"
)

// A moveRun is what a move in one direction brings to the part that both have in
// common.
type moveRun struct {
	move interface {
		Plan(ctx context.Context) (*migrate.Result, error)
		Move(ctx context.Context) (*migrate.Result, error)
	}
	flags    migrateFlags
	report   *reportFile
	progress *migrate.Progress
	to       string // where it goes, for the question
	// conflicts says why a plan must not be carried out, and begin comes between
	// the answer to the question and the move; nil is nothing.
	conflicts func(plan *migrate.Result) error
	begin     func() error
}

// run plans the move, asks, and carries it out. The result is nil when it came to
// nothing.
func (m moveRun) run(ctx context.Context, e *env) (*migrate.Result, error) {
	plan, err := m.move.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if m.conflicts != nil {
		err = m.conflicts(plan)
	}
	if m.flags.dryRun {
		m.report.keep()
		return nil, errors.Join(showMove(e.term, plan), moveError(plan, err))
	}
	if err != nil {
		return nil, withHint(err, "see them all with --dry-run; choose with --on-conflict")
	}
	if err := e.confirm(ctx, m.flags.yes, "%s?", moveQuestion(plan, m.to)); err != nil {
		return nil, err
	}
	if m.begin != nil {
		if err := m.begin(); err != nil {
			return nil, err
		}
	}
	end := e.watchMove(m.progress)
	r, err := m.move.Move(ctx)
	end()
	if r.Begun {
		m.report.keep()
	}
	return r, errors.Join(showMove(e.term, r), moveError(r, err))
}
