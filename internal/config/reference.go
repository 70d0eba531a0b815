package config

import (
	"bytes"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineWidth is where comments of the reference are wrapped.
const lineWidth = 78

const referenceHead = `# The configuration of dwk: every key, with its default.
#
# Every key may be left out. A scalar can also be set by an environment variable,
# DWK_ and the path of its key in capitals (DWK_LEASE_TTL for lease.ttl), or by a
# flag of "dwk serve"; flags win over the environment, the environment wins over
# this file. Durations are written as in 1h30m, sizes as in 256KiB. A secret may
# be the value itself, env:NAME for an environment variable, or file:/path for
# the contents of a file. A list replaces the default list; the lists below are
# those of the lab application and go with it, except for the queue.
`

// Reference returns a commented configuration file with every key at its
// default. Loading it gives the defaults.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString(referenceHead)
	w := referenceWriter{&b}
	w.section(schema(), reflect.ValueOf(Default()).Elem(), "")
	return b.Bytes()
}

type referenceWriter struct{ *bytes.Buffer }

func (w referenceWriter) section(nodes []*node, v reflect.Value, indent string) {
	for _, n := range nodes {
		if indent == "" {
			w.WriteByte('\n')
		}
		w.comments(indent, n)
		switch {
		case n.scalar():
			w.line(indent, n.name+": "+n.yaml(v.FieldByIndex(n.index)))
		case n.list:
			w.list(n, v.FieldByIndex(n.index))
		default:
			w.line(indent, n.name+":")
			w.section(n.children, v, indent+"  ")
		}
	}
}

// list writes the elements of a list, or a commented element if it has none.
func (w referenceWriter) list(n *node, v reflect.Value) {
	if v.Len() == 0 {
		w.line("", n.name+": []")
		elem := reflect.New(n.typ.Elem()).Elem()
		setDefaults(elem, n.children)
		w.element(n, elem, "# ")
		return
	}
	w.line("", n.name+":")
	for i := range v.Len() {
		w.element(n, v.Index(i), "")
	}
}

func (w referenceWriter) element(list *node, v reflect.Value, prefix string) {
	for i, n := range list.children {
		indent, lead := prefix+"    ", prefix+"    "
		if i == 0 { // its comment stands before the dash
			indent, lead = prefix+"  ", prefix+"  - "
		}
		w.comments(indent, n)
		w.line(lead, n.name+": "+n.yaml(v.FieldByIndex(n.index)))
	}
}

// comments writes what a key means.
func (w referenceWriter) comments(indent string, n *node) {
	w.comment(indent, n.help)
	if len(n.oneOf) > 0 {
		w.comment(indent, "One of "+strings.Join(n.oneOf, ", ")+".")
	}
}

// comment writes text in lines of comments.
func (w referenceWriter) comment(indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > lineWidth {
			w.line("", line)
			line = indent + "#"
		}
		line += " " + word
	}
	w.line("", line)
}

func (w referenceWriter) line(indent, text string) { w.WriteString(indent + text + "\n") }

// yaml returns a value as it is written in a file. Secrets have none.
func (n *node) yaml(v reflect.Value) string {
	text := n.format(v)
	if v.Kind() != reflect.String {
		if n.typ == secretType {
			return `""`
		}
		return text
	}
	b, err := yaml.Marshal(text)
	if err != nil {
		panic("config: " + n.key + ": " + err.Error())
	}
	return strings.TrimSuffix(string(b), "\n")
}
