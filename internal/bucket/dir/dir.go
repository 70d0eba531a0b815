// Package dir is a bucket in a directory, in the layout of local mode: the body
// of a key is the file of that name, and what is known about it is one JSON
// object in a sidecar beside it, the name with ".r2meta" added. Several
// processes use one directory at the same time.
//
// # One step for two files
//
// A key exists when it has a sidecar. Bodies are written to a temporary file
// named by the version that their sidecar has: "<version>.tmp" in the directory
// of the key. A put of a new key renames the body first, which shows nothing,
// then the sidecar. A put over an old one renames the sidecar first and the body
// next; in between, and after a crash there, the body of the key is the
// temporary file that its sidecar names. So a single rename decides in both
// cases. Each file is on disk before it is renamed, and the directory before the
// second rename and before Put returns.
//
// Who changes a key holds the lock (flock) of its directory, which dies with
// the process, for these steps only, not while a body is written. Readers take
// no lock: they read the sidecar, open the body and look whether the sidecar is
// still the same. Versions are never used twice.
//
// # What cannot be stored
//
// The layout is fixed, so that some keys are refused: a segment that ends in
// ".r2meta" or is longer than 248 bytes, a last segment that ends in ".tmp"
// ([bucket.InvalidError]), and a key below another one, or above
// ([bucket.ConflictError]). The file system must tell upper from lower case.
//
// Symbolic links are not part of the layout: lists pass over them, and none is
// followed out of the directory. Temporary files that a crash left are removed
// by [Bucket.Sweep].
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

const (
	sidecarSuffix = ".r2meta"
	tempSuffix    = ".tmp"
	maxSegment    = 255 - len(sidecarSuffix)
)

// A Bucket is a directory. It is safe for concurrent use.
type Bucket struct{ root *os.Root }

var _ durable.Bucket = (*Bucket)(nil)

// Open opens the bucket in a directory, which is made when it is missing.
func Open(name string) (*Bucket, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &Bucket{root}, nil
}

// Close releases the directory. Bodies that are open stay readable.
func (b *Bucket) Close() error { return b.root.Close() }

// Get implements [durable.Bucket].
func (b *Bucket) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	if err := bucket.CheckGet(key, opts); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	file, info, err := b.open(ctx, key)
	if err != nil {
		return nil, durable.ObjectInfo{}, fmt.Errorf("get %q: %w", key, err)
	}
	offset, length := bucket.Part(opts, info.Size)
	return &body{&reader{ctx, io.NewSectionReader(file, offset, length)}, file}, info, nil
}

// body is an open part of a file.
type body struct {
	io.Reader
	io.Closer
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// Head implements [durable.Bucket].
func (b *Bucket) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	if err := bucket.CheckKey(key); err != nil {
		return durable.ObjectInfo{}, err
	}
	file, info, err := b.open(ctx, key)
	if err != nil {
		return durable.ObjectInfo{}, fmt.Errorf("head %q: %w", key, err)
	}
	return info, file.Close()
}

func (b *Bucket) open(ctx context.Context, key string) (*os.File, durable.ObjectInfo, error) {
	if err := checkPlace(key); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	parent, name := path.Split(key)
	f, err := b.folder(parent)
	if err != nil {
		return nil, durable.ObjectInfo{}, absent(err)
	}
	defer f.close()
	file, s, err := f.open(ctx, name)
	if err != nil {
		return nil, durable.ObjectInfo{}, absent(err)
	}
	return file, s.info(key), nil
}

// Delete implements [durable.Bucket].
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := errors.Join(bucket.CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	if err := checkPlace(key); err != nil {
		return err
	}
	parent, name := path.Split(key)
	f, err := b.folder(parent)
	if err != nil {
		if err = absent(err); errors.Is(err, durable.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("delete %q: %w", key, err)
	}
	defer f.close()
	if err := f.delete(ctx, name); err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	b.prune(parent)
	return nil
}

// checkPlace refuses keys that the layout has no place for.
func checkPlace(key string) error {
	for segment := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(segment, sidecarSuffix) {
			return &bucket.InvalidError{What: "key", Value: key, Reason: "has a segment that ends in " + sidecarSuffix + ", which this store keeps for itself"}
		}
		if len(segment) > maxSegment {
			return &bucket.InvalidError{What: "key", Value: key, Reason: fmt.Sprintf("has a segment of over %d bytes, which this store cannot keep", maxSegment)}
		}
	}
	if strings.HasSuffix(key, tempSuffix) {
		return &bucket.InvalidError{What: "key", Value: key, Reason: "ends in " + tempSuffix + ", which this store keeps for itself"}
	}
	return nil
}

// absent tells that there is no such file, or that a part of its path is a file.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || isFileAbove(err) {
		return durable.ErrNotFound
	}
	return err
}
