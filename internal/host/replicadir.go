package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A replicaDir is this process's own directory for mirrors, under a lock that
// ends with the process, however it ends.
type replicaDir struct {
	path string
	lock *os.File
}

// openReplicaDir makes the directory of a replica in base, and removes those
// that processes left which are gone: the ones whose lock is free. Mirrors are
// a cache; nothing in them is missed.
func openReplicaDir(base, rid string) (*replicaDir, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("replica directory: %w", err)
	}
	// One process at a time cleans and creates: a directory that has just been
	// made and is not locked yet must not look abandoned.
	gate, err := lockFile(filepath.Join(base, ".lock"), true)
	if err != nil {
		return nil, fmt.Errorf("replica directory: %w", err)
	}
	defer gate.Close()
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, fmt.Errorf("replica directory: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeAbandoned(filepath.Join(base, e.Name())); err != nil {
				return nil, fmt.Errorf("replica directory: %w", err)
			}
		}
	}
	d := &replicaDir{path: filepath.Join(base, rid)}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("replica directory: %w", err)
	}
	if d.lock, err = lockFile(filepath.Join(d.path, lockName), true); err != nil {
		return nil, fmt.Errorf("replica directory: %w", err)
	}
	return d, nil
}

const lockName = "lock"

// removeAbandoned removes a replica's directory unless its process lives. What
// has no lock file is not ours to remove.
func removeAbandoned(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, lockName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := lockFile(filepath.Join(dir, lockName), false)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return os.RemoveAll(dir)
}

// lockFile takes an exclusive lock that lasts until the file is closed or the
// process ends.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// remove removes the directory and lets its lock go.
func (d *replicaDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
