package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite configs/dwk.yaml")

var referencePath = filepath.Join("..", "..", "configs", "dwk.yaml")

func TestReferenceFileIsGenerated(t *testing.T) {
	if *update {
		if err := os.MkdirAll(filepath.Dir(referencePath), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(referencePath, Reference(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, Reference()) {
		t.Errorf("%s is not what Reference returns: run go test ./internal/config -update", referencePath)
	}
}

func TestReferenceIsTheDefault(t *testing.T) {
	c, err := Load(Options{File: referencePath, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	c.file, c.origins = want.file, want.origins
	if !reflect.DeepEqual(c, want) {
		t.Errorf("loaded\n%+v\nwant\n%+v", c, want)
	}
}

func TestReferenceHasEveryKey(t *testing.T) {
	doc, err := parseDocument("", uncommentElements(Reference()))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for key := range doc.lines {
		have[listIndex.ReplaceAllString(key, "[]")] = true
	}
	for _, info := range Keys() {
		if !have[info.Key] {
			t.Errorf("%s is missing", info.Key)
		}
		if info.Help == "" {
			t.Errorf("%s has no help", info.Key)
		}
	}
}

// uncommentElements makes the elements of empty lists real.
func uncommentElements(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, " []")
		if rest, ok := strings.CutPrefix(line, "#   "); ok {
			lines[i] = "  " + rest
		}
	}
	return []byte(strings.Join(lines, "\n"))
}
