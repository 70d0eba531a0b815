package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/keeper"
)

// Files are the files of the object logs, for commands: the object store is
// opened at the first use, and refused unless a replica of this store set has
// claimed it. So a command that needs none of them works without it.
type Files struct {
	cfg          *config.Config
	url, storeID string

	mu     sync.Mutex
	blobs  keeper.Blobs
	bucket *Bucket
}

var _ keeper.Blobs = (*Files)(nil)

// Files returns the files of the store set with this id. They must be closed.
func (s *Stores) Files(storeID string) *Files {
	return &Files{cfg: s.Config, url: s.Config.ObjectStoreURLOrDefault(), storeID: storeID}
}

func (f *Files) open(ctx context.Context) (keeper.Blobs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blobs != nil {
		return f.blobs, nil
	}
	b, err := openBucket(f.cfg, f.url)
	if err != nil {
		return nil, err
	}
	m, err := readMarker(ctx, b)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		err = fmt.Errorf("%w: no replica has ever used it: is it the one of this store set?", mode.ErrRefused)
	case err == nil:
		err = m.check(f.storeID)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("object store %s: %w", f.url, err), b.Close())
	}
	f.blobs, f.bucket = keeper.InBucket(b), b
	return f.blobs, nil
}

// Close closes the object store.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bucket == nil {
		return nil
	}
	defer func() { f.blobs, f.bucket = nil, nil }()
	return f.bucket.Close()
}

// Put implements [keeper.Blobs].
func (f *Files) Put(ctx context.Context, ref string, r io.Reader, size int64) error {
	b, err := f.open(ctx)
	if err != nil {
		return err
	}
	return b.Put(ctx, ref, r, size)
}

// Get implements [keeper.Blobs].
func (f *Files) Get(ctx context.Context, ref string) (io.ReadCloser, error) {
	b, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	return b.Get(ctx, ref)
}

// Delete implements [keeper.Blobs].
func (f *Files) Delete(ctx context.Context, ref string) error {
	b, err := f.open(ctx)
	if err != nil {
		return err
	}
	return b.Delete(ctx, ref)
}

// List implements [keeper.Blobs].
func (f *Files) List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error) {
	b, err := f.open(ctx)
	if err != nil {
		return nil, "", err
	}
	return b.List(ctx, prefix, cursor)
}

// Size returns the size of a file in bytes, or fails with
// [durable.ErrNotFound].
func (f *Files) Size(ctx context.Context, ref string) (int64, error) {
	if _, err := f.open(ctx); err != nil {
		return 0, err
	}
	info, err := f.bucket.Head(ctx, ref)
	return info.Size, err
}
