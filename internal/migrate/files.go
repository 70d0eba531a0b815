package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// databaseSuffixes are those of files that belong to a database file.
var databaseSuffixes = []string{"", "-wal", "-journal"}

// fingerprint tells whether files are what they were: sizes, times and the
// files themselves. The first must be there.
func fingerprint(paths ...string) (print string, size int64, err error) {
	var b strings.Builder
	for i, p := range paths {
		info, err := os.Stat(p)
		switch {
		case i > 0 && errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", 0, err
		case !info.Mode().IsRegular():
			return "", 0, fmt.Errorf("%s is no file", p)
		case i > 0 && info.Size() == 0:
			continue
		}
		size += info.Size()
		fmt.Fprintf(&b, "%d.%d.%d.%d ", i, info.Size(), info.ModTime().UnixNano(), inode(info))
	}
	return strings.TrimSuffix(b.String(), " "), size, nil
}

// databasePrint is the fingerprint of a database with its WAL and journal.
func databasePrint(path string) (print string, size int64, err error) {
	var all []string
	for _, s := range databaseSuffixes {
		all = append(all, path+s)
	}
	return fingerprint(all...)
}

// copyDatabase copies a database with its WAL and journal, so that it can be
// opened without a change to the source.
func copyDatabase(ctx context.Context, from, to string) error {
	for _, s := range databaseSuffixes {
		err := copyFile(ctx, from+s, to+s)
		if s != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read from
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// A piece at a time, so that it ends with the context.
	for {
		if err = interrupted(ctx); err != nil {
			break
		}
		if _, err = io.CopyN(out, in, 64<<20); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Close())
}

// syncDir brings the names in a directory to disk.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// alive reports whether there is a process with this id, also one that may not
// be signalled.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
