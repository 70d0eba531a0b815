package hrana

import (
	"context"
	"errors"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// A stepState is how a step of a batch ended.
type stepState uint8

const (
	stepSkipped stepState = iota
	stepOK
	stepError
)

// batch calls execute for each step in order, with nil for one whose condition
// is not met. An error of a statement is the step's, any other ends the batch.
func (st *stream) batch(ctx context.Context, b *proto.Batch, execute func(int, *proto.Statement) error) error {
	states := make([]stepState, len(b.Steps))
	for i := range b.Steps {
		step := &b.Steps[i]
		if !st.holds(step.Condition, states) {
			if err := execute(i, nil); err != nil {
				return err
			}
			continue
		}
		// A client that is gone wants no more steps.
		if err := ctx.Err(); err != nil {
			return err
		}
		err := execute(i, &step.Stmt)
		switch e, ok := errors.AsType[*proto.Error](err); {
		case err == nil:
			states[i] = stepOK
		case ok && e != errTooLarge:
			states[i] = stepError
		default:
			return err
		}
	}
	return nil
}

// holds evaluates a checked condition. A skipped step is neither ok nor failed.
func (st *stream) holds(c *proto.Condition, states []stepState) bool {
	if c == nil {
		return true
	}
	switch c.Type {
	case "ok":
		return states[*c.Step] == stepOK
	case "error":
		return states[*c.Step] == stepError
	case "not":
		return !st.holds(c.Cond, states)
	case "and":
		for i := range c.Conds {
			if !st.holds(&c.Conds[i], states) {
				return false
			}
		}
		return true
	case "or":
		for i := range c.Conds {
			if st.holds(&c.Conds[i], states) {
				return true
			}
		}
		return false
	default: // is_autocommit
		return st.conn.Autocommit()
	}
}
