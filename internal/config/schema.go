package config

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

// A node is a key of the schema: a scalar, a section of further keys, or a list
// of named things, whose children are the keys of one element.
type node struct {
	key      string // dotted; "queues[].batch" for the key of an element
	name     string // last part of key
	help     string
	def      string // default of a scalar, as written in the file
	oneOf    []string
	min, max string // bounds of a quantity, as written in the file, or ""
	typ      reflect.Type
	index    []int // field, from Config or from the list's element
	list     bool
	children []*node
}

func (n *node) scalar() bool { return n.children == nil }

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[Secret]()
)

// schema returns the top-level keys in the order of the fields of Config.
var schema = sync.OnceValue(func() []*node {
	return nodesOf(reflect.TypeFor[Config](), "", nil)
})

func nodesOf(t reflect.Type, prefix string, index []int) []*node {
	var nodes []*node
	for _, f := range reflect.VisibleFields(t) {
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		n := &node{
			key:   prefix + name,
			name:  name,
			help:  f.Tag.Get("help"),
			def:   f.Tag.Get("default"),
			min:   f.Tag.Get("min"),
			max:   f.Tag.Get("max"),
			typ:   f.Type,
			index: append(index[:len(index):len(index)], f.Index...),
		}
		if oneOf := f.Tag.Get("oneof"); oneOf != "" {
			n.oneOf = strings.Split(oneOf, ",")
		}
		switch {
		case f.Type.Kind() == reflect.Slice:
			n.list = true
			n.children = nodesOf(f.Type.Elem(), n.key+"[].", nil)
		case f.Type.Kind() == reflect.Struct && f.Type != secretType:
			n.children = nodesOf(f.Type, n.key+".", n.index)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// scalars returns the scalar keys outside lists.
var scalars = sync.OnceValue(func() []*node {
	var out []*node
	var walk func(nodes []*node)
	walk = func(nodes []*node) {
		for _, n := range nodes {
			switch {
			case n.scalar():
				out = append(out, n)
			case !n.list:
				walk(n.children)
			}
		}
	}
	walk(schema())
	return out
})

// lists returns the lists, all of which are top-level keys.
var lists = sync.OnceValue(func() []*node {
	var out []*node
	for _, n := range schema() {
		if n.list {
			out = append(out, n)
		}
	}
	return out
})

// Default returns the configuration of an empty file.
func Default() *Config {
	c := &Config{origins: map[string]string{}}
	setDefaults(reflect.ValueOf(c).Elem(), scalars())
	c.setListDefaults()
	return c
}

// newElement returns an element of a list with its keys at their defaults.
func newElement[T any](name string) T {
	var elem T
	v := reflect.ValueOf(&elem).Elem()
	for _, list := range lists() {
		if list.typ.Elem() == v.Type() {
			setDefaults(v, list.children)
		}
	}
	v.FieldByName("Name").SetString(name)
	return elem
}

// setDefaults sets the fields of the struct v that nodes describe.
func setDefaults(v reflect.Value, nodes []*node) {
	for _, n := range nodes {
		if n.def == "" {
			continue
		}
		value, err := n.parse(n.def)
		if err != nil {
			panic("config: default of " + n.key + ": " + err.Error())
		}
		v.FieldByIndex(n.index).Set(reflect.ValueOf(value))
	}
}

// KeyInfo describes a key of the file.
type KeyInfo struct {
	Key     string   // dotted; "queues[].batch" for a key of a list's elements
	Type    string   // text, boolean, integer, number, duration, size, secret, mapping, section or list
	Default string   // as written in the file; "" for sections and lists
	OneOf   []string // all allowed values, or nil
	Env     string   // environment variable, or "" for sections and lists
	Help    string
}

// Keys returns all keys in the order of the reference file, each section and
// list before its keys.
func Keys() []KeyInfo {
	var keys []KeyInfo
	var walk func(nodes []*node, inList bool)
	walk = func(nodes []*node, inList bool) {
		for _, n := range nodes {
			info := KeyInfo{Key: n.key, Type: n.typeName(), Default: n.def, OneOf: n.oneOf, Help: n.help}
			if n.scalar() && !inList {
				info.Env = envName(n.key)
			}
			keys = append(keys, info)
			walk(n.children, n.list)
		}
	}
	walk(schema(), false)
	return keys
}

func (n *node) typeName() string {
	switch {
	case n.list:
		return "list"
	case !n.scalar():
		return "section"
	case n.typ == durationType:
		return "duration"
	case n.typ == sizeType:
		return "size"
	case n.typ == secretType:
		return "secret"
	}
	switch n.typ.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Int:
		return "integer"
	case reflect.Float64:
		return "number"
	default:
		return "mapping"
	}
}
