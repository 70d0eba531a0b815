// Package archtest holds the rules of the architecture as tests.
package archtest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/davidwkeith/dwk"

// layers are the packages from the bottom up: a package imports only from
// lower layers, or what its own entry allows. Every package has a place.
var layers = [][]string{
	{
		"durable",
		"internal/kv/tuple",
		"internal/clock",
		"internal/event",
		"internal/failpoint",
		"internal/config",
		"internal/spool",
		"internal/guard",
		"internal/hrana/proto",
		"internal/term",
		"internal/sqlite",
	},
	{
		"internal/libsql",
		"internal/hrana",
		"internal/server",
		"internal/bucket",
		"apps/lab",
		"apps/remotestorage",
		"examples/room",
		"internal/metrics",
		"internal/cache",
		"internal/object/socket",
	},
	{
		"internal/kv",
		"internal/object/mirror",
		"internal/bucket/dir",
		"apps",
		"internal/sqldb",
		"internal/migrate/sqlcopy",
		"internal/bucket/s3",
	},
	{
		"internal/lease",
		"internal/mode",
		"internal/object/objlog",
		"internal/queue",
		"internal/cron",
		"internal/backlog",
		"internal/holders",
	},
	{
		"internal/object/keeper",
		"internal/alarm",
	},
	{
		"internal/fleet",
		"internal/object",
		"internal/objectops",
		"internal/probe",
		"internal/bench",
	},
	{
		"internal/host",
		"internal/audit",
		"internal/dev",
		"internal/migrate",
	},
	{
		"internal/cli",
	},
	{
		".",
	},
	{
		"cmd/dwk",
		"examples/room/cmd/room",
	},
}

// testOnly are packages that only tests import; they may import anything. Those
// in bench and in tools are modules of their own.
var testOnly = []string{
	"bench",
	"durable/durabletest",
	"internal/archtest",
	"internal/bucket/buckettest",
	"internal/bucket/s3test",
	"internal/fleettest",
	"internal/fleettest/chaos",
	"internal/fleettest/chaos/robustness",
	"internal/fleettest/figures",
	"internal/kv/kvtest",
	"internal/libsql/libsqltest",
	"internal/migrate/migratetest",
	"internal/mutants",
	"internal/object/mirror/mirrortest",
	"internal/sim",
	"tools",
}

// only says which packages may import something.
var only = map[string][]string{
	"modernc.org/": {"internal/sqlite", "internal/sqldb"},
	"github.com/tursodatabase/libsql-client-go": {"internal/sqldb"},
	"github.com/minio/minio-go":                 {"internal/bucket/s3"},
	"github.com/johannesboyne/gofakes3":         {"internal/dev"},
	"github.com/netresearch/go-cron":            {"internal/cron"},
	"github.com/gorilla/websocket":              {"internal/object/socket"},
	"github.com/spf13/cobra":                    {"internal/cli"},
	"github.com/spf13/viper":                    {"internal/config"},
	"github.com/charmbracelet/lipgloss":         {"internal/term"},
	"github.com/prometheus":                     {"internal/metrics"},
	"testing":                                   {},
	module + "/internal/config":                 {"internal/host", "internal/cli"},
}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func layer(name string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
}

func isTestOnly(name string) bool {
	return slices.ContainsFunc(testOnly, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if isTestOnly(name) || len(p.GoFiles) == 0 {
			continue
		}
		mine := layer(name)
		if mine < 0 {
			t.Errorf("%s has no place in the layers", name)
			continue
		}
		for _, imp := range p.Imports {
			dep := short(imp)
			switch {
			case !strings.HasPrefix(imp, module):
				if (name == "durable") && strings.Contains(strings.Split(imp, "/")[0], ".") {
					t.Errorf("durable imports %s: it has the standard library only", imp)
				}
			case isTestOnly(dep):
				t.Errorf("%s imports %s, which is for tests only", name, dep)
			case (strings.HasPrefix(name, "apps/") || name == "examples/room") && dep != "durable":
				t.Errorf("%s imports %s: an application sees only the contract", name, dep)
			case layer(dep) >= mine:
				t.Errorf("%s (layer %d) imports %s (layer %d)", name, mine, dep, layer(dep))
			}
			for what, who := range only {
				if (imp == what || strings.HasPrefix(imp, what) && (strings.HasSuffix(what, "/") || strings.HasPrefix(imp, what+"/"))) && !slices.Contains(who, name) {
					t.Errorf("%s imports %s, which is for %v", name, imp, who)
				}
			}
		}
	}
}

// TestCalls looks for calls that have one place: the machine's clock, exits
// and prints.
func TestCalls(t *testing.T) {
	banned := map[string]map[string][]string{ // package, function: who may
		"time": {"Now": {"internal/clock"}, "Since": {"internal/clock"}, "Until": {"internal/clock"}},
		"os":   {"Exit": {"internal/cli", "."}, "Stdout": {"internal/cli", "internal/term", "."}},
		"fmt":  {"Print": {}, "Println": {}, "Printf": {}},
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != "../..") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, _ := filepath.Rel("../..", filepath.Dir(path))
		if isTestOnly(rel) {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			n := p[strings.LastIndex(p, "/")+1:]
			if i.Name != nil {
				n = i.Name.Name
			}
			names[n] = p
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					if who, ok := banned[names[x.Name]][s.Sel.Name]; ok && !slices.Contains(who, rel) {
						t.Errorf("%s uses %s.%s, which is for %v", path, x.Name, s.Sel.Name, who)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
