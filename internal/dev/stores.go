// Package dev runs a whole fleet on one machine, for trying things and for
// tests: the two stores as servers on loopback ports, replicas as processes of
// their own, and a front listener before them. Nothing in it is made to be
// relied on as the stores of a real fleet.
package dev

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/johannesboyne/gofakes3"

	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/server"
)

// bucketName is the bucket of the S3-compatible server.
const bucketName = "dwk"

// Stores are a libSQL server and an S3-compatible server in this process, whose
// files are in one directory.
type Stores struct {
	// LibSQL and ObjectStore are their URLs. The namespace of the coordination
	// database is "default"; that of any other one is a path, DatabaseURL.
	LibSQL, ObjectStore string
	// Token is the bearer token of the first, AccessKey the access key of the
	// second, which does not check the secret one. Both are new at each start.
	Token, AccessKey string

	hrana *hrana.Server
	undo  []func() error
}

// OpenStores starts the servers on the files in a directory, which is made when
// it is missing and is used by one process at a time. namespaces are the
// databases that there are besides the coordination one.
func OpenStores(ctx context.Context, path string, namespaces []string) (*Stores, error) {
	s := &Stores{Token: rand.Text(), AccessKey: rand.Text()}
	if err := s.open(ctx, path, namespaces); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stores) open(ctx context.Context, path string, namespaces []string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(path)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, lock.Close)
	s.hrana, err = hrana.New(hrana.Config{
		Path: filepath.Join(path, "libsql", "default.sqlite"), Namespaces: filepath.Join(path, "libsql", "namespaces"), Token: s.Token, Strict: true,
	})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, s.hrana.Close)
	for _, name := range namespaces {
		if err := s.hrana.CreateNamespace(name); err != nil {
			return err
		}
	}
	files, err := dir.Open(filepath.Join(path, "s3"))
	if err != nil {
		return err
	}
	s.undo = append(s.undo, files.Close)
	files.Sweep(ctx) //nolint:errcheck // it only takes space
	if s.LibSQL, err = s.serve(ctx, "libSQL", s.hrana); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.undo = append(s.undo, func() error { cancel(); return nil })
	s3 := gofakes3.New(&objects{name: bucketName, bucket: files, ctx: ctx}, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0), gofakes3.WithTimeSkewLimit(0))
	s.ObjectStore, err = s.serve(ctx, "S3", withKey(s.AccessKey, s3.Server()))
	s.ObjectStore += "/" + bucketName
	return err
}

// serve serves on a free loopback port until close.
func (s *Stores) serve(ctx context.Context, name string, h http.Handler) (url string, err error) {
	ln, err := server.Listen(ctx, server.Config{Name: name, Addr: "127.0.0.1:0"})
	if err != nil {
		return "", err
	}
	var served sync.WaitGroup
	var failed error
	served.Go(func() { failed = ln.Serve(h) })
	s.undo = append(s.undo, func() error {
		err := ln.Close()
		served.Wait()
		return errors.Join(err, failed)
	})
	return "http://" + ln.Addr().String(), nil
}

// DatabaseURL is the URL of a namespace.
func (s *Stores) DatabaseURL(namespace string) string { return s.LibSQL + "/dev/" + namespace }

// Close stops the servers. What was acknowledged is on disk.
func (s *Stores) Close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

// ErrInUse says that another process uses the directory.
var ErrInUse = errors.New("is in use by another process")

// lockDir takes the directory for this process, until its end.
func lockDir(path string) (*os.File, error) {
	name := filepath.Join(path, "lock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s %w", path, ErrInUse)
	} else {
		err = fmt.Errorf("lock %s: %w", name, err)
	}
	return nil, errors.Join(err, f.Close())
}

// same compares without telling how much of it is right.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
