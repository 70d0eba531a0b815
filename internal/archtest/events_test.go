package archtest

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/event"
)

// logMethods are the methods of slog.Logger that log, with the place of the
// message in their arguments.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2,
}

// TestEvents sees to it that what the program logs are events: names that are
// constants of package event, each of them listed and used.
func TestEvents(t *testing.T) {
	names := eventNames(t)
	var listed []string
	for _, n := range names {
		listed = append(listed, n)
	}
	got := event.Names()
	slices.Sort(listed)
	slices.Sort(got)
	if !slices.Equal(got, listed) {
		t.Errorf("event.Names has %v, the constants are %v", got, listed)
	}
	used := map[string]bool{}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if rel, _ := filepath.Rel("../..", filepath.Dir(path)); isTestOnly(rel) || rel == "internal/event" {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range literals(f) {
			t.Errorf("%s: the message is a text; want the name of an event", fset.Position(at))
		}
		pkg := eventPackage(f)
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && pkg != "" && x.Name == pkg {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for constant, name := range names {
		if !used[constant] {
			t.Errorf("nothing logs %s (event.%s)", name, constant)
		}
	}
}

// eventNames are the names by their constants.
func eventNames(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../internal/event/event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && !strings.HasPrefix(v.Names[0].Name, "Key") {
			lit, _ := v.Values[0].(*ast.BasicLit)
			names[v.Names[0].Name] = constant.StringVal(constant.MakeFromLiteral(lit.Value, token.STRING, 0))
		}
		return true
	})
	if len(names) == 0 {
		t.Fatal("no events found")
	}
	return names
}

// eventPackage is what a file calls package event, or "".
func eventPackage(f *ast.File) string {
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == module+"/internal/event" {
			if i.Name != nil {
				return i.Name.Name
			}
			return "event"
		}
	}
	return ""
}

// literals are where a file logs a text.
func literals(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if i, ok := logMethods[s.Sel.Name]; ok && i < len(call.Args) && hasText(call.Args[i]) {
			at = append(at, call.Pos())
		}
		return true
	})
	return at
}

// hasText reports whether an expression is made of a text: alone, joined or
// formatted.
func hasText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		found = found || ok && lit.Kind == token.STRING
		return !found
	})
	return found
}

func TestEventsNoticesTexts(t *testing.T) {
	src := `package p
func f() {
	log.Info("started")
	log.Warn("a" + b, "k", 1)
	log.LogAttrs(ctx, level, fmt.Sprintf("%d", 1))
	log.ErrorContext(ctx, ` + "`raw`" + `)
	log.Info(event.ServeStarted, "k", "v")
	log.LogAttrs(ctx, level, name(err), slog.String("k", "v"))
	http.Error(w, "text", 500)
}`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := literals(f); len(got) != 4 {
		t.Errorf("%d texts found, want 4", len(got))
	}
}
