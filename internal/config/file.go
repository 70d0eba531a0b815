package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// systemFile is the last place where a file is looked for.
	systemFile = "/etc/dwk/dwk.yaml"
	// localFile is looked for in the working directory.
	localFile = "dwk.yaml"

	maxFile  = 256 << 10 // bytes of a configuration file
	maxDepth = 8         // levels of nesting whose lines are remembered
	maxNear  = 100       // bytes of a name for which a resembling one is looked for
)

// A document is a configuration file as YAML reads it.
type document struct {
	path  string         // as shown, "" when there is no file
	root  map[string]any // not nil
	lines map[string]int // of every key, dotted and indexed
}

// findFile returns the file to read: the one that is asked for, that DWK_CONFIG
// names, or the first that exists; "" when there is none.
func findFile(explicit, dir string, env map[string]string, system string) (string, error) {
	if explicit != "" {
		return explicit, nil
	}
	if named := env["DWK_CONFIG"]; named != "" {
		return named, nil
	}
	for _, path := range []string{localFile, system} {
		f, err := os.Open(inDir(dir, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		f.Close()
		return path, nil
	}
	return "", nil
}

// inDir returns a path that is relative to dir as one of the process.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readDocument reads the file at path, which is relative to dir.
func readDocument(path, dir string) (*document, error) {
	b, err := readBounded(inDir(dir, path), maxFile)
	if err != nil {
		return nil, &Error{[]Problem{{Message: fmt.Sprintf("cannot read the file: %v", err)}}}
	}
	doc, err := parseDocument(path, b)
	if err != nil {
		return nil, &Error{[]Problem{{Where: path, Message: err.Error()}}}
	}
	return doc, nil
}

func parseDocument(path string, text []byte) (*document, error) {
	doc := &document{path: path, root: map[string]any{}, lines: map[string]int{}}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var tree yaml.Node
	if err := dec.Decode(&tree); err == io.EOF {
		return doc, nil // nothing but comments
	} else if err != nil {
		return nil, yamlError(err)
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		return nil, errors.New("more than one YAML document")
	}
	var root any
	if err := tree.Decode(&root); err != nil {
		return nil, yamlError(err)
	}
	switch root := root.(type) {
	case nil:
	case map[string]any:
		doc.root = root
	default:
		return nil, errNoMapping
	}
	doc.index(tree.Content[0], "", 0)
	return doc, nil
}

// quoted is how the YAML library shows values in errors. They may be secret.
var quoted = regexp.MustCompile("`[^`]*`")

func yamlError(err error) error {
	text := quoted.ReplaceAllString(err.Error(), "a value")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "yaml: "), "unmarshal errors:\n")
	return errors.New("not valid YAML: " + strings.Join(strings.Fields(text), " "))
}

// index remembers the lines of the keys below n. It follows no aliases, so that
// its work is bounded by the size of the file.
func (d *document) index(n *yaml.Node, path string, depth int) {
	if depth > maxDepth {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := joinKey(path, n.Content[i].Value)
			d.lines[key] = n.Content[i].Line
			d.index(n.Content[i+1], key, depth+1)
		}
	case yaml.SequenceNode:
		for i, elem := range n.Content {
			key := elementKey(path, i)
			d.lines[key] = elem.Line
			d.index(elem, key, depth+1)
		}
	}
}

// listIndex is an index in a key, which the schema writes as "[]".
var listIndex = regexp.MustCompile(`\[\d+\]`)

func joinKey(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func elementKey(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// where names the place of a key, for problems.
func (d *document) where(key string) string {
	if line := d.lines[key]; line > 0 {
		return d.path + ":" + strconv.Itoa(line)
	}
	return d.path
}

// keysInOrder returns the keys of m in the order of their lines.
func (d *document) keysInOrder(m map[string]any, path string) []string {
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, b string) int {
		return d.lines[joinKey(path, a)] - d.lines[joinKey(path, b)]
	})
	return names
}
