package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEventLevels compares the levels at which events are logged with those that
// the operators' documentation has, where the source names both.
func TestEventLevels(t *testing.T) {
	names, documented := eventNames(t), documentedLevels(t)
	checked := 0
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, level := logged(call, eventPackage(f), names)
			if name == "" || level == "" {
				return true
			}
			checked++
			if !slices.Contains(documented[name], level) {
				t.Errorf("%s: %s at level %s, documented %v", fset.Position(call.Pos()), name, level, documented[name])
			}
			return true
		})
		return nil
	})
	if err != nil || checked < 20 {
		t.Fatalf("%d calls checked, %v", checked, err)
	}
}

// logged is the event and the level of a call that logs, each "" where the call
// does not name it.
func logged(call *ast.CallExpr, pkg string, names map[string]string) (name, level string) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	i, ok := logMethods[s.Sel.Name]
	if !ok || i >= len(call.Args) {
		return "", ""
	}
	level = strings.TrimSuffix(s.Sel.Name, "Context")
	if i == 2 {
		_, level, _ = strings.Cut(selector(call.Args[1], "slog"), "Level")
	}
	return names[selector(call.Args[i], pkg)], strings.ToLower(level)
}

// selector is the name of a selector of the package, or "".
func selector(e ast.Expr, pkg string) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
			return s.Sel.Name
		}
	}
	return ""
}

// documentedLevels are the levels by event. Where a row has several events and
// as many levels, they belong to each other in their order.
func documentedLevels(t *testing.T) map[string][]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string][]string{}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		events := strings.Split(strings.ReplaceAll(strings.TrimSpace(cells[1]), "`", ""), ", ")
		of := strings.Split(strings.TrimSpace(cells[2]), ", ")
		for i, e := range events {
			if levels[e] = of; len(events) > 1 && len(of) == len(events) {
				levels[e] = of[i : i+1]
			}
		}
	}
	return levels
}
