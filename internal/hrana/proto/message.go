package proto

import (
	"errors"
	"fmt"
	"strconv"
)

// A Message is the body of a pipeline, which has requests, or of a cursor, which
// has a batch. What is nil was missing or null.
type Message struct {
	Baton    *string
	Requests []Request
	Batch    *Batch
}

// A Request is one of the stream requests; which members it has depends on its
// type.
type Request struct {
	Type  string
	Stmt  *Statement
	Batch *Batch
	SQL   *string
	SQLID *int32
}

// A Statement is one to execute.
type Statement struct {
	SQL       *string
	SQLID     *int32
	Args      []any // nil, int64, float64, string or []byte
	NamedArgs []NamedArg
	WantRows  *bool
}

// A NamedArg is an argument with the name of its parameter.
type NamedArg struct {
	Name  string
	Value any
}

// A Batch is a list of statements.
type Batch struct{ Steps []Step }

// A Step is a statement of a batch that may depend on those before it.
type Step struct {
	Condition *Condition
	Stmt      Statement
}

// A Condition is what a step depends on; which members it has depends on its
// type.
type Condition struct {
	Type  string
	Step  *int
	Cond  *Condition
	Conds []Condition
}

// A sqlText is a text as it was written, in the memory of the message. Steps
// that load rows repeat it.
type sqlText struct {
	raw  []byte
	text *string
}

// ParseMessage reads a message as sqld does: members of unknown names are passed
// over, those that are missing and may not be, or come twice, are errors. Nothing
// in the message shares memory with in, and what it takes is a small multiple of
// len(in).
func ParseMessage(in []byte) (*Message, error) {
	s := scanner{in: in}
	m := &Message{}
	err := s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "baton":
			m.Baton, err = s.optionalText()
			return 1, err
		case "requests":
			return 2, s.optionalList(func() error {
				m.Requests = append(m.Requests, Request{})
				return s.request(&m.Requests[len(m.Requests)-1])
			})
		case "batch":
			m.Batch, err = s.batch()
			return 3, err
		}
		return 0, nil
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// object calls member with the name of each member. It reads the value and
// returns a number from 1 to 31 by which it is known, or 0 when it has read
// nothing.
func (s *scanner) object(member func(name []byte) (id int, err error)) error {
	if err := s.open('{'); err != nil {
		return err
	}
	seen := uint32(0)
	for n := 0; ; n++ {
		name, ok, err := s.member(n)
		if !ok || err != nil {
			return err
		}
		at := s.at
		id, err := member(name)
		if err == nil && id == 0 {
			_, err = s.skip()
		}
		switch {
		case err != nil:
			return err
		case id > 0 && seen&(1<<id) != 0:
			return fmt.Errorf("the member %.40q comes twice, at byte %d again", name, at)
		}
		seen |= 1 << id
	}
}

func (s *scanner) optionalList(each func() error) error {
	if s.null() {
		return nil
	}
	return s.list(each)
}

func (s *scanner) optionalText() (*string, error) {
	if s.null() {
		return nil, nil
	}
	t, err := s.text()
	return &t, err
}

// optionalSQL is optionalText for a text that mostly is the one before.
func (s *scanner) optionalSQL() (*string, error) {
	if s.null() {
		return nil, nil
	}
	raw, escaped, err := s.token()
	if err != nil {
		return nil, err
	}
	if s.sql.text != nil && string(raw) == string(s.sql.raw) {
		return s.sql.text, nil
	}
	text := raw
	if escaped {
		if text, err = unescape(raw); err != nil {
			return nil, err
		}
	}
	t := string(text)
	s.sql = sqlText{raw, &t}
	return &t, nil
}

func (s *scanner) integer(bits int) (int64, error) {
	raw, err := s.number()
	if err != nil {
		return 0, err
	}
	i, err := strconv.ParseInt(string(raw), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("not an integer of %d bits: %.40s", bits, raw)
	}
	return i, nil
}

func (s *scanner) optionalID() (*int32, error) {
	if s.null() {
		return nil, nil
	}
	i, err := s.integer(32)
	id := int32(i)
	return &id, err
}

func (s *scanner) optionalBool() (*bool, error) {
	if s.null() {
		return nil, nil
	}
	yes := s.word("true")
	if !yes && !s.word("false") {
		return nil, s.fail("no boolean")
	}
	return &yes, nil
}

func (s *scanner) request(q *Request) error {
	err := s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "type":
			q.Type, err = s.text()
			return 1, err
		case "stmt":
			if s.null() {
				return 2, nil
			}
			q.Stmt = &Statement{}
			return 2, s.statement(q.Stmt)
		case "batch":
			q.Batch, err = s.batch()
			return 3, err
		case "sql":
			q.SQL, err = s.optionalSQL()
			return 4, err
		case "sql_id":
			q.SQLID, err = s.optionalID()
			return 5, err
		}
		return 0, nil
	})
	if err == nil && q.Type == "" {
		err = errors.New("a request without a type")
	}
	return err
}

func (s *scanner) batch() (*Batch, error) {
	if s.null() {
		return nil, nil
	}
	b := &Batch{}
	return b, s.object(func(name []byte) (int, error) {
		if string(name) != "steps" {
			return 0, nil
		}
		return 1, s.optionalList(func() error {
			b.Steps = append(b.Steps, Step{})
			return s.step(&b.Steps[len(b.Steps)-1])
		})
	})
}

func (s *scanner) step(step *Step) error {
	has := false
	err := s.object(func(name []byte) (int, error) {
		switch string(name) {
		case "stmt":
			has = true
			return 1, s.statement(&step.Stmt)
		case "condition":
			if s.null() {
				return 2, nil
			}
			step.Condition = &Condition{}
			return 2, s.condition(step.Condition)
		}
		return 0, nil
	})
	if err == nil && !has {
		err = errors.New("a step without a statement")
	}
	return err
}

func (s *scanner) statement(q *Statement) error {
	return s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "sql":
			q.SQL, err = s.optionalSQL()
			return 1, err
		case "sql_id":
			q.SQLID, err = s.optionalID()
			return 2, err
		case "args":
			if s.null() {
				return 3, nil
			}
			q.Args, err = s.values(false)
			return 3, err
		case "named_args":
			return 4, s.optionalList(func() error {
				q.NamedArgs = append(q.NamedArgs, NamedArg{})
				return s.namedArg(&q.NamedArgs[len(q.NamedArgs)-1])
			})
		case "want_rows":
			q.WantRows, err = s.optionalBool()
			return 5, err
		}
		return 0, nil
	})
}

func (s *scanner) namedArg(a *NamedArg) error {
	seen := 0
	err := s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "name":
			a.Name, err = s.text()
			seen++
			return 1, err
		case "value":
			a.Value, err = s.value(false)
			seen++
			return 2, err
		}
		return 0, nil
	})
	if err == nil && seen != 2 {
		err = errors.New("a named argument without a name or value")
	}
	return err
}

func (s *scanner) condition(c *Condition) error {
	err := s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "type":
			c.Type, err = s.text()
			return 1, err
		case "step":
			if s.null() {
				return 2, nil
			}
			i, err := s.integer(strconv.IntSize)
			step := int(i)
			c.Step = &step
			return 2, err
		case "cond":
			if s.null() {
				return 3, nil
			}
			c.Cond = &Condition{}
			return 3, s.condition(c.Cond)
		case "conds":
			return 4, s.optionalList(func() error {
				c.Conds = append(c.Conds, Condition{})
				return s.condition(&c.Conds[len(c.Conds)-1])
			})
		}
		return 0, nil
	})
	if err == nil && c.Type == "" {
		err = errors.New("a condition without a type")
	}
	return err
}
