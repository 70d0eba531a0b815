package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../.."

// A mutant is one wrong change of the code.
type mutant struct {
	name, what, by string
	changes        []change
}

// A change is one of a file's lines.
type change struct{ file, old, new string }

// load reads all mutants, by name.
func load(t *testing.T) []mutant {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.patch")
	if err != nil || len(paths) == 0 {
		t.Fatal("no mutants", err)
	}
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(path), ".patch"), string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, m)
	}
	return all
}

func parse(name, text string) (mutant, error) {
	m := mutant{name: name}
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		rest := ""
		if line != "" {
			rest = line[1:] + "\n"
		}
		file, isFile := strings.CutPrefix(line, "--- ")
		by, isBy := strings.CutPrefix(line, "# by: ")
		var c *change
		if len(m.changes) > 0 {
			c = &m.changes[len(m.changes)-1]
		}
		switch {
		case isFile:
			m.changes = append(m.changes, change{file: file})
		case isBy:
			m.by = by
		case strings.HasPrefix(line, "# "):
			m.what = strings.TrimSpace(m.what + " " + line[2:])
		case c != nil && strings.HasPrefix(line, "-"):
			c.old += rest
		case c != nil && strings.HasPrefix(line, "+"):
			c.new += rest
		case c != nil && strings.HasPrefix(line, " "):
			c.old, c.new = c.old+rest, c.new+rest
		default:
			return m, fmt.Errorf("line %d is none of a mutant: %q", n+1, line)
		}
	}
	if m.what == "" || m.by == "" || len(m.changes) == 0 {
		return m, fmt.Errorf("it lacks what it does, what finds it, or a change")
	}
	return m, nil
}

// files returns the changed files by their paths below root.
func (m mutant) files() (map[string]string, error) {
	out := map[string]string{}
	for _, c := range m.changes {
		text, ok := out[c.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, fmt.Errorf("mutant %s no longer applies: %w", m.name, err)
			}
			text = string(b)
		}
		// Lines are whole lines.
		if n := strings.Count("\n"+text, "\n"+c.old); n != 1 || c.old == "" {
			return nil, fmt.Errorf("mutant %s no longer applies: %s has these lines %d times:\n%s", m.name, c.file, n, c.old)
		}
		out[c.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+c.old, "\n"+c.new, 1), "\n")
	}
	return out, nil
}

// folders are those with a change, sorted.
func (m mutant) folders() (out []string) {
	for _, c := range m.changes {
		out = append(out, filepath.Dir(c.file))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
