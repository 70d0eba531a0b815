// Package spool holds a body of unknown length: in memory while it is small,
// then in a temporary file. One side writes while others read behind it.
package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// ErrLimit says that a body is larger than its spool may be.
var ErrLimit = errors.New("body over its limit")

// Config bounds a spool. Sizes are bytes.
type Config struct {
	// Memory is what is kept in memory; the rest goes to a file in Dir.
	Memory int64
	// Limit is the largest body; 0 means none.
	Limit int64
	// Dir is where the file is made; empty means the system's place.
	Dir string
}

// A Spool is a body. It is safe for concurrent use.
type Spool struct {
	cfg  Config
	mu   sync.Mutex
	mem  []byte
	file *os.File
	size int64
	done bool
}

// New returns an empty spool, which must be closed.
func New(cfg Config) *Spool { return &Spool{cfg: cfg} }

// Write appends p. It fails with [ErrLimit] when the body would be too large,
// and nothing of p is kept then.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, os.ErrClosed
	}
	if s.cfg.Limit > 0 && s.size+int64(len(p)) > s.cfg.Limit {
		return 0, fmt.Errorf("%w of %d bytes", ErrLimit, s.cfg.Limit)
	}
	if s.file == nil && s.size+int64(len(p)) <= s.cfg.Memory {
		s.mem = append(s.mem, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.cfg.Dir, "spool-*")
		if err != nil {
			return 0, fmt.Errorf("spool a body: %w", err)
		}
		// The name is not needed: the file is gone with its descriptor, also when
		// the process dies.
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return 0, fmt.Errorf("spool a body: %w", err)
		}
		s.file = f
	}
	n, err := s.file.WriteAt(p, s.size-int64(len(s.mem)))
	if err != nil {
		return 0, fmt.Errorf("spool a body: %w", err)
	}
	s.size += int64(n)
	return n, nil
}

// ReadAt reads what has been written so far, and io.EOF behind it.
func (s *Spool) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, os.ErrClosed
	}
	if off >= s.size {
		return 0, io.EOF
	}
	if off < int64(len(s.mem)) {
		return copy(p, s.mem[off:]), nil
	}
	n, err := s.file.ReadAt(p, off-int64(len(s.mem)))
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Size is the number of bytes written so far.
func (s *Spool) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Close frees what the spool holds. It may be repeated.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	s.done = true
	s.mem = nil
	if s.file != nil {
		return s.file.Close()
	}
	return nil
}

// Fill reads all of r into a new spool. An error of the spool's limit is
// [ErrLimit].
func Fill(cfg Config, r io.Reader) (*Spool, error) {
	s := New(cfg)
	if _, err := io.Copy(s, r); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Reader returns a reader of the whole body from its start, whose Close leaves
// the spool open.
func (s *Spool) Reader() io.ReadCloser { return &reader{s: s} }

type reader struct {
	s   *Spool
	off int64
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.s.ReadAt(p, r.off)
	r.off += int64(n)
	return n, err
}

func (r *reader) Close() error { return nil }
