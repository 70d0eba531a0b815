package mirror

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// A spill holds bytes in memory up to a limit, and more in a file without a
// name, which is gone with its descriptor.
type spill struct {
	dir    string
	limit  int64
	memory appender
	file   *os.File
	w      *bufio.Writer // of file
}

const spillBuffer = 64 << 10

func (s *spill) Write(b []byte) (int, error) {
	if s.file == nil {
		if int64(len(s.memory)+len(b)) <= s.limit {
			return s.memory.Write(b)
		}
		if err := s.open(); err != nil {
			return 0, spillError{err}
		}
	}
	n, err := s.w.Write(b)
	if err != nil {
		return n, spillError{err}
	}
	return n, nil
}

func (s *spill) open() error {
	f, err := os.CreateTemp(s.dir, "entry-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close() //nolint:errcheck // the error above matters
		return err
	}
	s.file, s.w = f, bufio.NewWriterSize(f, spillBuffer)
	_, err = s.w.Write(s.memory)
	s.memory = nil
	return err
}

func (s *spill) flush() error {
	if s.file == nil {
		return nil
	}
	if err := s.w.Flush(); err != nil {
		return spillError{err}
	}
	s.w = nil
	return nil
}

func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// A spillError is a failure to write an entry to the local disk, which says
// nothing about the database.
type spillError struct{ err error }

func (e spillError) Error() string { return fmt.Sprintf("write log entry: %v", e.err) }

func (e spillError) Unwrap() error { return e.err }

// Is makes a full disk [ErrDiskFull].
func (e spillError) Is(target error) bool {
	return target == ErrDiskFull && errors.Is(e.err, syscall.ENOSPC)
}

// An Entry is what changed between two positions, ready for the object's log.
// It must be closed.
type Entry struct {
	Pre, Post Position
	// Data is an LTX file, or nil when the file has more than
	// Config.EntryMemory bytes: Open reads it in either case.
	Data []byte
	// Size is the file's, in bytes.
	Size int64
	// PageSize and Pages describe the database after the entry.
	PageSize, Pages uint32

	file *os.File
}

// Open returns the LTX file from its beginning. Several readers may be open at
// a time, until the entry is closed.
func (e *Entry) Open() io.Reader {
	if e.file == nil {
		return bytes.NewReader(e.Data)
	}
	return io.NewSectionReader(e.file, 0, e.Size)
}

// Close frees the disk space of a large entry. It may be repeated.
func (e *Entry) Close() error {
	if e == nil || e.file == nil {
		return nil
	}
	err := e.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
