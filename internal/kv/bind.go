package kv

import (
	"regexp"

	"github.com/davidwkeith/dwk/internal/libsql"
)

var parameter = regexp.MustCompile(`:[a-z]+`)

// Bind makes a statement of SQL with parameters named like :this, of lower-case
// letters, for long statements that use some of them often. It panics when one
// has no argument.
func Bind(sql string, args map[string]any) libsql.Statement {
	var values []any
	sql = parameter.ReplaceAllStringFunc(sql, func(name string) string {
		v, ok := args[name]
		if !ok {
			panic("kv: no argument for " + name)
		}
		values = append(values, v)
		return "?"
	})
	return libsql.S(sql, values...)
}
