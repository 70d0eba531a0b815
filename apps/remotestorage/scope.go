package remotestorage

import (
	"fmt"
	"slices"
	"strings"
)

// A permission is one part of a scope: what an application may do in one
// module, or in all with the name "*".
type permission struct {
	module string
	write  bool
}

func (p permission) String() string {
	if p.write {
		return p.module + ":rw"
	}
	return p.module + ":r"
}

// A scope is what an application is, or asks to be, let in to.
type scope []permission

const maxScope = 1 << 10 // bytes

// parseScope reads a scope as applications send it.
func parseScope(text string) (scope, error) {
	if len(text) > maxScope {
		return nil, fmt.Errorf("the scope is over %d bytes", maxScope)
	}
	var s scope
	for part := range strings.FieldsSeq(text) {
		module, level, _ := strings.Cut(part, ":")
		if level != "r" && level != "rw" || module == "public" || module != "*" && !isModule(module) {
			return nil, fmt.Errorf("bad scope %q", part)
		}
		s = append(s, permission{module, level == "rw"})
	}
	if len(s) == 0 {
		return nil, fmt.Errorf("the scope is empty")
	}
	slices.SortFunc(s, func(a, b permission) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(s), nil
}

// isModule: names of letters, digits, '-', '_' and '.', which every application
// in use keeps to.
func isModule(name string) bool {
	if name == "" || len(name) > 64 || name == "." || name == ".." {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func (s scope) String() string {
	parts := make([]string, len(s))
	for i, p := range s {
		parts[i] = p.String()
	}
	return strings.Join(parts, " ")
}

// allows reports whether a path may be read, or written.
func (s scope) allows(p docPath, write bool) bool {
	module := p.module()
	return slices.ContainsFunc(s, func(have permission) bool {
		return (have.write || !write) && (have.module == "*" || module != "" && have.module == module)
	})
}
