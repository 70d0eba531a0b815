package hrana

import "github.com/davidwkeith/dwk/internal/hrana/proto"

// checkRequest reports a message that is no message of this version: sqld refuses it
// as a whole, before anything is executed.
func checkRequest(q *proto.Request, version int) error {
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
		return checkBatch(q.Batch, version)
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

func checkBatch(b *proto.Batch, version int) error {
	for i, step := range b.Steps {
		if err := checkCondition(step.Condition, version, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// checkCondition reports conditions about the step itself or later ones, among others.
func checkCondition(c *proto.Condition, version, step, depth int) error {
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
		return checkCondition(c.Cond, version, step, depth+1)
	case "and", "or":
		for i := range c.Conds {
			if err := checkCondition(&c.Conds[i], version, step, depth+1); err != nil {
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

// appendSQL appends the texts of a request.
func appendSQL(to []string, q *proto.Request) []string {
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
