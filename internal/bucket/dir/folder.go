package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A folder is an open directory of the bucket. Names in it stay in it, also
// when another directory takes its place.
type folder struct {
	*os.Root
	self *os.File // to be read, locked and brought to disk
}

// folder opens the directory of keys that begin with parent, which is empty or
// ends at a slash.
func (b *Bucket) folder(parent string) (*folder, error) { return subFolder(b.root, parent) }

func subFolder(root *os.Root, parent string) (*folder, error) {
	// With the dot a file in the place of the directory is ENOTDIR; without, the
	// error has no type.
	sub, err := root.OpenRoot(parent + ".")
	if err != nil {
		return nil, err
	}
	self, err := sub.Open(".")
	if err != nil {
		sub.Close()
		return nil, err
	}
	return &folder{sub, self}, nil
}

func (f *folder) close() {
	f.self.Close()
	f.Close()
}

func (f *folder) sync() error {
	if err := f.self.Sync(); err != nil {
		return fmt.Errorf("bring directory to disk: %w", err)
	}
	return nil
}

// list reads the folder. One that was removed is empty.
func (f *folder) list() ([]os.DirEntry, error) {
	if _, err := f.self.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	list, err := f.self.ReadDir(-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// lock waits for the lock of the folder. The function that it returns gives it
// back.
func (f *folder) lock(ctx context.Context) (unlock func(), err error) {
	const longest = 50 * time.Millisecond
	// The lock is of the open file, and each operation opens its own.
	fd := int(f.self.Fd())
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		// A call that blocks could not be given up when the context ends.
		err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		switch err {
		case nil:
			return func() { syscall.Flock(fd, syscall.LOCK_UN) }, nil //nolint:errcheck // closing gives it back too
		case syscall.EINTR, syscall.EWOULDBLOCK:
		default:
			return nil, fmt.Errorf("lock directory: %w", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("lock directory: %w", context.Cause(ctx))
		}
	}
}

// open opens the body of a key and the sidecar that belongs to it. The error is
// fs.ErrNotExist when one of them is missing.
func (f *folder) open(ctx context.Context, name string) (*os.File, sidecar, error) {
	for {
		if ctx.Err() != nil {
			return nil, sidecar{}, context.Cause(ctx)
		}
		s, err := f.sidecar(name)
		if err != nil {
			return nil, sidecar{}, err
		}
		file, bodyErr := f.openBody(name, &s)
		now, err := f.sidecar(name)
		switch {
		case err != nil || now.Version != s.Version: // somebody put or deleted in between
		case bodyErr != nil:
			return nil, sidecar{}, bodyErr
		default:
			info, err := file.Stat()
			if err == nil && info.Size() != s.Size {
				err = fmt.Errorf("the body has %d bytes, its %s file says %d", info.Size(), sidecarSuffix, s.Size)
			}
			if err != nil {
				file.Close()
				return nil, sidecar{}, err
			}
			return file, s, nil
		}
		if file != nil {
			file.Close()
		}
	}
}

// openBody opens the temporary file of a put that is between its two steps, or
// the file of the key.
func (f *folder) openBody(name string, s *sidecar) (*os.File, error) {
	if temp := s.temp(); temp != "" {
		if file, err := f.openFile(temp); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return f.openFile(name)
}

func (f *folder) sidecar(name string) (sidecar, error) {
	file, err := f.openFile(name + sidecarSuffix)
	if err != nil {
		return sidecar{}, err
	}
	defer file.Close()
	return readSidecar(file)
}

func (f *folder) openFile(name string) (*os.File, error) {
	if err := f.regular(name); err != nil {
		return nil, err
	}
	return f.Open(name)
}

// regular returns nil when there is a file of this name. Another kind counts as
// missing.
func (f *folder) regular(name string) error {
	info, err := f.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return err
}

// has reports whether there is a file of this name.
func (f *folder) has(name string) (bool, error) {
	err := f.regular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// settle ends what a crash has interrupted, under the lock. It reports whether
// the key exists.
func (f *folder) settle(name string) (exists bool, err error) {
	s, err := f.sidecar(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, errSidecar):
		return true, nil
	case err != nil:
		return false, err
	}
	if temp := s.temp(); temp != "" {
		pending, err := f.has(temp)
		if err != nil {
			return false, err
		}
		if pending {
			return true, errors.Join(f.Rename(temp, name), f.sync())
		}
	}
	if exists, err = f.has(name); exists || err != nil {
		return exists, err
	}
	// A sidecar without its body must not become that of the next one.
	if err := f.Remove(name + sidecarSuffix); err != nil {
		return false, err
	}
	return false, f.sync()
}

// delete removes a key, and what is left of one.
func (f *folder) delete(ctx context.Context, name string) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := f.settle(name); err != nil {
		return err
	}
	for _, n := range []string{name + sidecarSuffix, name} {
		there, err := f.has(n)
		if there {
			err = f.Remove(n)
		}
		if err != nil {
			return err
		}
	}
	return f.sync()
}

// isFileAbove reports whether a part of a path is a file.
func isFileAbove(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
