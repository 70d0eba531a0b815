package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A reportFile is the file of a proof. Until it is kept the proof of an earlier
// run has its name, and it lies beside that.
type reportFile struct {
	path string
	f    *os.File
	// beside says that f has a name of its own, and kept that it gets the other.
	beside, kept bool
}

// openReport opens the file of the proof; nil is none.
func (o *migrateFlags) openReport() (*reportFile, error) {
	if o.report == "" {
		return nil, nil
	}
	r := &reportFile{path: o.report}
	info, err := os.Stat(o.report)
	if r.beside = errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular(); r.beside {
		if path, err := filepath.EvalSymlinks(o.report); err == nil {
			r.path = path
		}
		r.f, err = os.CreateTemp(filepath.Dir(r.path), filepath.Base(r.path)+".*.part")
	} else { // a pipe or a device
		r.f, err = os.OpenFile(o.report, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return r, nil
}

// writer is nil without a file.
func (r *reportFile) writer() io.Writer {
	if r == nil {
		return nil
	}
	return r.f
}

// keep has the proof replace an earlier one when it is closed.
func (r *reportFile) keep() {
	if r != nil {
		r.kept = true
	}
}

// close ends the file, and removes one that is not kept.
func (r *reportFile) close() error {
	if r == nil {
		return nil
	}
	var err error
	if r.beside && r.kept {
		err = r.f.Sync()
	}
	err = errors.Join(err, r.f.Close())
	switch {
	case !r.beside:
	case r.kept && err == nil:
		err = os.Rename(r.f.Name(), r.path)
	case !r.kept:
		err = errors.Join(err, os.Remove(r.f.Name()))
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
