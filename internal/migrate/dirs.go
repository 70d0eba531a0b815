package migrate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A dirMaker makes directories whose names outlive a crash, as each is brought to
// disk in the directory above it. Within the root that is done once for those
// that are there too: a run that was killed may have made them.
type dirMaker struct {
	root string
	sync func(dir string) error
	done sync.Map // the directories that need nothing more
}

// make makes a directory and those above it.
func (m *dirMaker) make(dir string) error {
	dir = filepath.Clean(dir)
	if _, ok := m.done.Load(dir); ok {
		return nil
	}
	rel, err := filepath.Rel(m.root, dir)
	within := err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
	_, err = os.Stat(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := filepath.Dir(dir); parent != dir && (within || err != nil) {
		if err := m.make(parent); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := m.sync(parent); err != nil {
			return err
		}
	}
	m.done.Store(dir, true)
	return nil
}

// place gives a complete file its name.
func (m *dirMaker) place(temp, path string) error {
	if err := m.make(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return m.sync(filepath.Dir(path))
}

// write writes a file that is there as a whole or not at all.
func (m *dirMaker) write(temp, path string, text []byte) error {
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return m.place(temp, path)
}
