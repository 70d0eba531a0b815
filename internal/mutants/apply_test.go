package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/davidwkeith/dwk"

// TestMutantsApply: each mutant finds its place and is a program. Whether it is
// found is seen by make mutants.
func TestMutantsApply(t *testing.T) {
	all := load(t)
	b := newBuilder(t, all)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			files, err := m.files()
			if err != nil {
				t.Fatal(err)
			}
			for _, folder := range m.folders() {
				if err := b.check(folder, files); err != nil {
					t.Errorf("mutant %s no longer compiles: %v", m.name, err)
				}
			}
		})
	}
}

func TestPatchNoLongerApplies(t *testing.T) {
	for _, text := range []string{
		"# w\n# by: b\n--- go.mod\n-modul github.com/davidwkeith/dwk\n",
		"# w\n# by: b\n--- go.mod\n-module github.com/davidwkeith\n",
		"# w\n# by: b\n--- internal/mutants/patch_test.go\n-\t\tif err != nil {\n",
		"# w\n# by: b\n--- nowhere.go\n-x\n",
	} {
		m, err := parse("m", text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.files(); err == nil || !strings.Contains(err.Error(), "mutant m no longer applies") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A builder compiles changed packages as far as types go, against what their
// imports are built as.
type builder struct {
	files  map[string][]string // by folder
	export map[string]string   // by import path
	fset   *token.FileSet
	types  types.Importer
}

func newBuilder(t *testing.T, all []mutant) *builder {
	t.Helper()
	var folders []string
	for _, m := range all {
		for _, f := range m.folders() {
			folders = append(folders, "./"+f)
		}
	}
	slices.Sort(folders)
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}, slices.Compact(folders)...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	b := &builder{files: map[string][]string{}, export: map[string]string{}, fset: token.NewFileSet()}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b.export[p.ImportPath] = p.Export
		if folder, ok := strings.CutPrefix(p.ImportPath, module+"/"); ok {
			b.files[folder] = p.GoFiles
		}
	}
	b.types = importer.ForCompiler(b.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(b.export[path]) })
	return b
}

// check compiles a folder with changed files.
func (b *builder) check(folder string, changed map[string]string) error {
	var parsed []*ast.File
	for _, name := range b.files[folder] {
		path := filepath.Join(folder, name)
		var src any
		if text, ok := changed[path]; ok {
			src = text
		}
		f, err := parser.ParseFile(b.fset, filepath.Join(root, path), src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
	}
	var all []error
	cfg := types.Config{Importer: b.types, Error: func(err error) { all = append(all, err) }}
	_, _ = cfg.Check(module+"/"+folder, b.fset, parsed, nil)
	return errors.Join(all...)
}
