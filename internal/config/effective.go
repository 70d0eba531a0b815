package config

import (
	"reflect"
)

// Origins of values. A file's and a variable's are followed by its name.
const (
	originDefault = "default"
	originFile    = "file:"
	originEnv     = "env:"
	originFlag    = "flag"
)

// Entry is one effective value.
type Entry struct {
	Key    string `json:"key"`    // dotted; "queues[0].batch" in lists
	Value  string `json:"value"`  // secrets hidden
	Origin string `json:"origin"` // default, file:PATH, env:NAME or flag
}

// Effective lists every value and where it comes from, in the order of the
// reference file. A list without elements is one entry, "[]".
func (c *Config) Effective() []Entry {
	return c.entries(schema(), reflect.ValueOf(c).Elem(), "")
}

func (c *Config) entries(nodes []*node, v reflect.Value, path string) []Entry {
	var out []Entry
	for _, n := range nodes {
		key := joinKey(path, n.name)
		switch {
		case n.scalar():
			value := v.FieldByIndex(n.index)
			out = append(out, Entry{key, n.format(value), c.origin(key)})
		case n.list:
			out = append(out, c.listEntries(n, v.FieldByIndex(n.index))...)
		default:
			out = append(out, c.entries(n.children, v, key)...)
		}
	}
	return out
}

func (c *Config) listEntries(list *node, v reflect.Value) []Entry {
	if v.Len() == 0 {
		return []Entry{{list.key, "[]", c.origin(list.key)}}
	}
	var out []Entry
	for i := range v.Len() {
		out = append(out, c.entries(list.children, v.Index(i), elementKey(list.key, i))...)
	}
	return out
}

func (c *Config) origin(key string) string {
	if origin, ok := c.origins[key]; ok {
		return origin
	}
	return originDefault
}
