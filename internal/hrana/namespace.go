package hrana

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// defaultNamespace is the name of the database that a request means when it
// names none.
const defaultNamespace = "default"

const namespaceSuffix = ".sqlite"

// namespacePattern are the names that are file names everywhere.
var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// namespaces are the databases of a server by their names.
type namespaces struct {
	dir  string // "" when there is only the default one
	open func(path string) *database

	mu     sync.Mutex
	byName map[string]*database
}

// load finds the namespaces that were created before.
func (n *namespaces) load() error {
	if n.dir == "" {
		return nil
	}
	if err := os.MkdirAll(n.dir, 0o777); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(n.dir, "*"+namespaceSuffix))
	if err != nil {
		return err
	}
	for _, path := range files {
		if name := strings.TrimSuffix(filepath.Base(path), namespaceSuffix); namespacePattern.MatchString(name) && name != defaultNamespace {
			n.byName[name] = n.open(path)
		}
	}
	return nil
}

func (n *namespaces) get(name string) *database {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byName[name]
}

func (n *namespaces) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for d := range maps.Values(n.byName) {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// CreateNamespace makes a database of this name, unless there is one. A request
// that names another one is answered 404.
func (s *Server) CreateNamespace(name string) error {
	n := s.namespaces
	switch {
	case n.dir == "":
		return errors.New("hrana: the server has no namespaces")
	case !namespacePattern.MatchString(name):
		return fmt.Errorf("hrana: %q is not the name of a namespace: letters, digits, _ and -", name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byName[name] != nil {
		return nil
	}
	path := filepath.Join(n.dir, name+namespaceSuffix)
	d := n.open(path)
	if err := d.check(); err != nil {
		return fmt.Errorf("hrana: opening %s: %w", path, err)
	}
	n.byName[name] = d
	return nil
}

// namespaceOf returns the namespace of a request: that of its path, of a
// header, or the first label of its host. A host without a dot means the
// default one; that an address such as 127.0.0.1 names the namespace "127" is
// what sqld does too.
func namespaceOf(r *http.Request, inPath string) (string, error) {
	if inPath != "" {
		return inPath, nil
	}
	if text := r.Header.Get("X-Namespace-Bin"); text != "" {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return "", errors.New("x-namespace-bin is not base64")
		}
		return string(b), nil
	}
	if name := r.Header.Get("X-Namespace"); name != "" {
		return name, nil
	}
	if name, _, ok := strings.Cut(r.Host, "."); ok {
		return name, nil
	}
	return defaultNamespace, nil
}

// database returns the database of a request; false after it has answered with
// an error.
func (s *Server) database(w http.ResponseWriter, r *http.Request, inPath string) (*database, bool) {
	name := defaultNamespace
	if s.cfg.Namespaces != "" {
		var err error
		if name, err = namespaceOf(r, inPath); err != nil {
			sendError(w, http.StatusBadRequest, err.Error())
			return nil, false
		}
	}
	d := s.namespaces.get(name)
	if d == nil {
		sendError(w, http.StatusNotFound, "Namespace `"+name+"` doesn't exist")
	}
	return d, d != nil
}
