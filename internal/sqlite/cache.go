package sqlite

import (
	"errors"
	"strings"
)

const (
	// The texts of a program repeat for ever, and compiling them costs more
	// than running most of them.
	cachedStatements = 128
	cachedTextLimit  = 32 << 10
)

// Errors of Statement.
var (
	ErrNoStatement    = errors.New("SQL string does not contain any statement")
	ErrManyStatements = errors.New("SQL string contains more than one statement")
)

// LimitCache bounds the statements that the connection keeps.
func (c *Conn) LimitCache(n int) { c.limit = n }

// Statements returns the number of cached statements.
func (c *Conn) Statements() int { return len(c.stmts) }

// Statement compiles a text of exactly one statement, or takes it from the
// connection's cache. The caller ends its use by Done, after which another
// call for the same text may return it.
func (c *Conn) Statement(sql string) (*Stmt, error) {
	if s := c.Cached(sql); s != nil {
		return s, nil
	}
	s, tail, err := c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, ErrNoStatement
	}
	if tail != "" {
		if next, _, err := c.Prepare(tail); next != nil || err != nil {
			if next != nil {
				next.Close() //nolint:errcheck // not run
			}
			s.Close() //nolint:errcheck // not run
			return nil, ErrManyStatements
		}
		tail = ""
	}
	c.Keep(sql, s, tail)
	return s, nil
}

// Cached returns the statement that was kept for a text, unless it is in use;
// nil when there is none. SQLite compiles it anew by itself when the schema has
// changed since.
func (c *Conn) Cached(sql string) *Stmt {
	s := c.stmts[sql]
	if s == nil || s.taken {
		return nil
	}
	s.taken = true
	return s
}

// Keep caches a statement of Prepare, in use until its Done, as that of a text
// which it is all of: blank is what Prepare left over. It does nothing for long
// texts, and for texts whose statement is in use.
func (c *Conn) Keep(sql string, s *Stmt, blank string) {
	if len(sql) > cachedTextLimit || c.stmts[sql] != nil || strings.TrimSpace(blank) != "" {
		return
	}
	if len(c.stmts) >= c.limit {
		for sql, old := range c.stmts {
			if !old.taken {
				old.finalize() //nolint:errcheck // not running
				delete(c.stmts, sql)
			}
		}
	}
	s.text, s.taken = sql, true
	c.stmts[sql] = s
}

// ForgetStatements closes all cached statements, those in use too.
func (c *Conn) ForgetStatements() {
	for _, s := range c.stmts {
		s.finalize() //nolint:errcheck // repeats the error of the last step
	}
	clear(c.stmts)
}

// Done ends a use of the statement, and returns the error that it ended with:
// that of the last step or, when rows were left, of ending it.
func (s *Stmt) Done() error {
	if !s.taken {
		return s.Close()
	}
	s.taken = false
	return s.Reset()
}
