package proto

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A node is a JSON value with all members of its objects.
type node struct {
	v    any // of what is no object or list
	obj  []member
	list []node
	kind json.Delim
}

type member struct {
	name string
	node
}

func readNode(d *json.Decoder, depth int) (n node, err error) {
	token, err := d.Token()
	if err != nil {
		return n, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return node{v: token}, nil
	}
	if depth++; depth > maxDepth {
		return n, errors.New("deep")
	}
	n.kind = delim
	for d.More() {
		m := member{}
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return n, err
			}
			m.name = name.(string)
		}
		if m.node, err = readNode(d, depth); err != nil {
			return n, err
		}
		if delim == '{' {
			n.obj = append(n.obj, m)
		} else {
			n.list = append(n.list, m.node)
		}
	}
	_, err = d.Token()
	return n, err
}

var (
	escapes  = regexp.MustCompile(`\\[^u]`)
	pairs    = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	halves   = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
	errOther = errors.New("not a message")
)

func slowMessage(in []byte) (m *Message, err error) {
	switch {
	case !json.Valid(in):
		return nil, errors.New("not JSON")
	case !utf8.Valid(in):
		return nil, errors.New("not UTF-8")
	case halves.Match(pairs.ReplaceAll(escapes.ReplaceAll(in, nil), nil)):
		return nil, errors.New("half a pair")
	}
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	n, err := readNode(d, 0)
	if err != nil {
		return nil, err
	}
	defer func() { // what is of another type than it should be
		switch r := recover(); r.(type) {
		case nil:
		case error:
			m, err = nil, errOther
		default:
			panic(r)
		}
	}()
	return n.message(), nil
}

// object calls f for each of the members that are named; what is not, is passed
// over.
func (n node) object(f func(name string, n node), names ...string) {
	if n.kind != '{' {
		panic(errOther)
	}
	seen := map[string]bool{}
	for _, m := range n.obj {
		for _, name := range names {
			if m.name != name {
				continue
			}
			if seen[name] {
				panic(errOther)
			}
			seen[name] = true
			f(name, m.node)
		}
	}
}

func (n node) null() bool { return n.kind == 0 && n.v == nil }

func (n node) each(f func(node)) {
	if n.kind != '[' {
		panic(errOther)
	}
	for _, e := range n.list {
		f(e)
	}
}

func pointer[T any](n node, f func(node) T) *T {
	if n.null() {
		return nil
	}
	v := f(n)
	return &v
}

func (n node) text() string { return n.v.(string) }
func (n node) bool() bool   { return n.v.(bool) }

func (n node) int64(bits int) int64 {
	i, err := strconv.ParseInt(string(n.v.(json.Number)), 10, bits)
	if err != nil {
		panic(err)
	}
	return i
}

func (n node) message() *Message {
	m := &Message{}
	n.object(func(name string, n node) {
		switch {
		case name == "baton":
			m.Baton = pointer(n, node.text)
		case name == "batch":
			m.Batch = pointer(n, node.batch)
		case !n.null():
			n.each(func(n node) { m.Requests = append(m.Requests, n.request()) })
		}
	}, "baton", "requests", "batch")
	return m
}

func (n node) request() (q Request) {
	n.object(func(name string, n node) {
		switch name {
		case "type":
			q.Type = n.text()
		case "stmt":
			q.Stmt = pointer(n, node.statement)
		case "batch":
			q.Batch = pointer(n, node.batch)
		case "sql":
			q.SQL = pointer(n, node.text)
		case "sql_id":
			q.SQLID = pointer(n, func(n node) int32 { return int32(n.int64(32)) })
		}
	}, "type", "stmt", "batch", "sql", "sql_id")
	if q.Type == "" {
		panic(errOther)
	}
	return q
}

func (n node) batch() (b Batch) {
	n.object(func(_ string, n node) {
		if n.null() {
			return
		}
		n.each(func(n node) {
			var s Step
			has := false
			n.object(func(name string, n node) {
				if name == "stmt" {
					s.Stmt, has = n.statement(), true
				} else {
					s.Condition = pointer(n, node.condition)
				}
			}, "stmt", "condition")
			if !has {
				panic(errOther)
			}
			b.Steps = append(b.Steps, s)
		})
	}, "steps")
	return b
}

func (n node) condition() (c Condition) {
	n.object(func(name string, n node) {
		switch {
		case name == "type":
			c.Type = n.text()
		case name == "step":
			c.Step = pointer(n, func(n node) int { return int(n.int64(strconv.IntSize)) })
		case name == "cond":
			c.Cond = pointer(n, node.condition)
		case !n.null():
			n.each(func(n node) { c.Conds = append(c.Conds, n.condition()) })
		}
	}, "type", "step", "cond", "conds")
	if c.Type == "" {
		panic(errOther)
	}
	return c
}

func (n node) statement() (q Statement) {
	n.object(func(name string, n node) {
		switch name {
		case "sql":
			q.SQL = pointer(n, node.text)
		case "sql_id":
			q.SQLID = pointer(n, func(n node) int32 { return int32(n.int64(32)) })
		case "want_rows":
			q.WantRows = pointer(n, node.bool)
		case "args":
			if !n.null() {
				q.Args = []any{}
				n.each(func(n node) { q.Args = append(q.Args, n.argument()) })
			}
		case "named_args":
			if n.null() {
				return
			}
			n.each(func(n node) {
				var a NamedArg
				has := 0
				n.object(func(name string, n node) {
					if has++; name == "name" {
						a.Name = n.text()
					} else {
						a.Value = n.argument()
					}
				}, "name", "value")
				if has != 2 {
					panic(errOther)
				}
				q.NamedArgs = append(q.NamedArgs, a)
			})
		}
	}, "sql", "sql_id", "args", "named_args", "want_rows")
	return q
}

func (n node) argument() (v any) {
	var kind string
	var value, blob node
	n.object(func(name string, n node) {
		switch name {
		case "type":
			kind = n.text()
		case "value":
			value = n
		default:
			blob = n
		}
	}, "type", "value", "base64")
	var err error
	switch kind {
	case "null":
	case "integer":
		if strings.HasPrefix(value.text(), "+") {
			panic(errOther)
		}
		v, err = strconv.ParseInt(value.text(), 10, 64)
	case "float":
		v, err = value.v.(json.Number).Float64()
	case "text":
		v = value.text()
	case "blob":
		text := blob.text()
		encoding := base64.RawStdEncoding
		if strings.HasSuffix(text, "=") {
			encoding = base64.StdEncoding
		}
		if strings.ContainsAny(text, "\r\n") {
			panic(errOther)
		}
		v, err = encoding.Strict().DecodeString(text)
	default:
		err = errOther
	}
	if err != nil {
		panic(err)
	}
	return v
}
