package hrana

import "github.com/davidwkeith/dwk/internal/hrana/proto"

// A message is the body of a pipeline (requests) or cursor (batch).
type message struct {
	Baton    *string   `json:"baton"`
	Requests []request `json:"requests"`
	Batch    *batch    `json:"batch"`
}

// A request is one of the stream requests; which members it has depends on its
// type.
type request struct {
	Type  string     `json:"type"`
	Stmt  *statement `json:"stmt"`
	Batch *batch     `json:"batch"`
	SQL   *string    `json:"sql"`
	SQLID *int32     `json:"sql_id"`
}

type statement struct {
	SQL       *string         `json:"sql"`
	SQLID     *int32          `json:"sql_id"`
	Args      proto.Arguments `json:"args"`
	NamedArgs []struct {
		Name  string         `json:"name"`
		Value proto.Argument `json:"value"`
	} `json:"named_args"`
	WantRows *bool `json:"want_rows"`
}

type batch struct {
	Steps []struct {
		Condition *condition `json:"condition"`
		Stmt      statement  `json:"stmt"`
	} `json:"steps"`
}

type condition struct {
	Type  string      `json:"type"`
	Step  *int        `json:"step"`
	Cond  *condition  `json:"cond"`
	Conds []condition `json:"conds"`
}

// check reports a message that is no message of this version: sqld refuses it
// as a whole, before anything is executed.
func (q *request) check(version int) error {
	switch q.Type {
	case "close":
		return nil
	case "execute":
		if q.Stmt == nil {
			return protocolError("missing field `stmt`")
		}
		return nil
	case "batch":
		if q.Batch == nil {
			return protocolError("missing field `batch`")
		}
		return q.Batch.check(version)
	case "sequence", "describe":
		return nil
	case "store_sql":
		if q.SQLID == nil || q.SQL == nil {
			return protocolError("missing field `sql_id` or `sql`")
		}
		return nil
	case "close_sql":
		if q.SQLID == nil {
			return protocolError("missing field `sql_id`")
		}
		return nil
	case "get_autocommit":
		if version >= 3 {
			return nil
		}
	}
	return protocolError("unknown type of request " + quoted(q.Type))
}

func (b *batch) check(version int) error {
	for i, step := range b.Steps {
		if err := step.Condition.check(version, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// check reports conditions about the step itself or later ones, among others.
func (c *condition) check(version, step, depth int) error {
	if c == nil {
		return nil
	}
	if depth > 100 {
		return protocolError("conditions are nested too deeply")
	}
	switch c.Type {
	case "ok", "error":
		if c.Step == nil || *c.Step < 0 || *c.Step >= step {
			return protocolError("Invalid reference to step in a batch condition")
		}
		return nil
	case "not":
		if c.Cond == nil {
			return protocolError("missing field `cond`")
		}
		return c.Cond.check(version, step, depth+1)
	case "and", "or":
		for i := range c.Conds {
			if err := c.Conds[i].check(version, step, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "is_autocommit":
		if version >= 3 {
			return nil
		}
	}
	return protocolError("unknown type of condition " + quoted(c.Type))
}

func quoted(s string) string { return string(proto.AppendString(nil, s[:min(len(s), 40)])) }

// appendSQL appends the texts of the request.
func (q *request) appendSQL(to []string) []string {
	text := func(sql *string) {
		if sql == nil {
			sql = new(string)
		}
		to = append(to, *sql)
	}
	switch {
	case q.Stmt != nil:
		text(q.Stmt.SQL)
	case q.Batch != nil:
		for _, step := range q.Batch.Steps {
			text(step.Stmt.SQL)
		}
	case q.SQL != nil:
		text(q.SQL)
	}
	return to
}
