package sqlite

import "errors"

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

// Statement compiles a text of exactly one statement, or takes it from the
// connection's cache. The caller gives it back by done, after which another
// call for the same text may return it.
func (c *Conn) Statement(sql string) (s *Stmt, done func(), err error) {
	if s := c.stmts[sql]; s != nil && !s.taken {
		s.taken = true
		return s, s.giveBack, nil
	}
	s, tail, err := c.Prepare(sql)
	if err != nil {
		return nil, nil, err
	}
	if s == nil {
		return nil, nil, ErrNoStatement
	}
	if tail != "" {
		if next, _, err := c.Prepare(tail); next != nil || err != nil {
			if next != nil {
				next.Close()
			}
			s.Close()
			return nil, nil, ErrManyStatements
		}
	}
	if len(sql) > cachedTextLimit || c.stmts[sql] != nil {
		return s, s.Close, nil
	}
	if len(c.stmts) >= cachedStatements {
		for sql, old := range c.stmts {
			if !old.taken {
				old.Close()
				delete(c.stmts, sql)
			}
		}
	}
	c.stmts[sql] = s
	s.taken = true
	return s, s.giveBack, nil
}

func (s *Stmt) giveBack() {
	s.Reset()
	s.taken = false
}
