package mirror

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A stmt is one use of a prepared statement.
type stmt struct {
	*sqlite.Stmt // nil when closed, or for text without a statement
	c            *conn
	readonly     bool
}

// prepare compiles the first statement of query and returns the rest of the
// text. The statement is empty when the text holds only blanks and comments.
func (c *conn) prepare(ctx context.Context, query string) (s *stmt, rest string, err error) {
	if strings.IndexByte(query, 0) >= 0 {
		return nil, "", errors.New("NUL in statement")
	}
	if ctx.Err() != nil {
		return nil, "", interrupted(ctx)
	}
	p := c.Cached(query)
	if p == nil {
		stop := c.Watch(ctx)
		p, rest, err = c.Prepare(query)
		stop()
		if err != nil {
			return nil, "", c.err(ctx, err)
		}
		if p == nil {
			return &stmt{c: c}, rest, nil
		}
		if repeatable(p) {
			c.Keep(query, p, rest)
		}
	}
	s = &stmt{Stmt: p, c: c, readonly: p.ReadOnly()}
	c.stmts[s] = struct{}{}
	return s, rest, nil
}

// repeatable reports whether a statement may be run without asking the
// authorizer again: what it may do does not depend on the moment.
func repeatable(s *sqlite.Stmt) bool {
	switch s.Verb() {
	case "SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE":
		return true
	}
	return false
}

// own prepares one of the mirror's own statements. They are cached under texts
// that the application cannot have.
func (c *conn) own(text string) (*stmt, error) {
	key := "\x00" + text
	p := c.Cached(key)
	if p == nil {
		var err error
		if p, _, err = c.Prepare(text); err != nil {
			return nil, sqlError(err)
		}
		c.Keep(key, p, "")
	}
	s := &stmt{Stmt: p, c: c}
	c.stmts[s] = struct{}{}
	return s, nil
}

// empty reports whether there is nothing to run.
func (s *stmt) empty() bool { return s.Stmt == nil }

// close ends the statement. It may be called again.
func (s *stmt) close() error {
	if s.Stmt == nil {
		return nil
	}
	err := s.Done()
	s.Stmt = nil
	delete(s.c.stmts, s)
	return sqlError(err)
}

// step runs the statement up to its next row.
func (s *stmt) step(ctx context.Context) (row bool, err error) {
	if s.Stmt == nil {
		return false, ErrStopped
	}
	// Short statements never reach the progress handler.
	if ctx.Err() != nil {
		return false, interrupted(ctx)
	}
	stop := s.c.Watch(ctx)
	row, err = s.Step()
	stop()
	if err != nil {
		return false, s.c.err(ctx, err)
	}
	return row, nil
}

// err gives an error of a call that the end of ctx may have interrupted, or the
// authorizer refused, its meaning.
func (c *conn) err(ctx context.Context, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Primary() == sqlite.Interrupt && ctx.Err() != nil:
		return interrupted(ctx)
	case e.Primary() == sqlite.Auth && c.denied != "":
		what := c.denied
		c.denied = ""
		return &DeniedError{What: what}
	}
	return sqlError(err)
}

// bind binds the parameters: those with a name to the [sql.NamedArg] of that
// name, the others to args in their order. It returns the args that it did not
// use.
func (s *stmt) bind(args []any) (rest []any, err error) {
	used := 0 // positional arguments
	for i := 1; i <= s.Params(); i++ {
		name := s.ParamName(i)
		var v any
		if arg, ok := named(args, name); ok {
			v = arg
		} else if i > len(args) || isNamed(args[i-1]) {
			return nil, fmt.Errorf("no argument for parameter %d %s", i, name)
		} else {
			v, used = args[i-1], i
		}
		if v, err = stored(v); err == nil {
			err = sqlError(s.Bind(i, v))
		}
		if err != nil {
			return nil, fmt.Errorf("parameter %d %s: %w", i, name, err)
		}
	}
	return args[used:], nil
}

func named(args []any, name string) (any, bool) {
	if name == "" {
		return nil, false
	}
	for _, arg := range args {
		if a, ok := arg.(sql.NamedArg); ok && a.Name == name[1:] {
			return a.Value, true
		}
	}
	return nil, false
}

func isNamed(arg any) bool {
	_, ok := arg.(sql.NamedArg)
	return ok
}

// stored turns any value that database/sql would take into one that SQLite
// stores.
func stored(v any) (any, error) {
	v, err := driver.DefaultParameterConverter.ConvertValue(v)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) {
			return nil, errors.New("NaN cannot be stored")
		}
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	case []byte:
		if v == nil {
			return nil, nil
		}
	}
	return v, nil
}
