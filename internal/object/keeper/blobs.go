package keeper

import (
	"context"
	"io"

	"github.com/davidwkeith/dwk/durable"
)

// Blobs is the object store, as far as a log needs it.
type Blobs interface {
	// Put stores size bytes under a new name. It is durable when Put returns.
	Put(ctx context.Context, ref string, r io.Reader, size int64) error
	Get(ctx context.Context, ref string) (io.ReadCloser, error)
	// Delete removes a file; it is no error when there is none.
	Delete(ctx context.Context, ref string) error
	// List returns some of the names that begin with prefix, from the beginning
	// or behind an earlier list, and the cursor for the next, empty at the end.
	List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error)
}

// InBucket returns the files of logs in a bucket.
func InBucket(b durable.Bucket) Blobs { return bucketBlobs{b} }

type bucketBlobs struct{ b durable.Bucket }

func (s bucketBlobs) Put(ctx context.Context, ref string, r io.Reader, _ int64) error {
	_, err := s.b.Put(ctx, ref, r, durable.PutOptions{IfAbsent: true})
	return err
}

func (s bucketBlobs) Get(ctx context.Context, ref string) (io.ReadCloser, error) {
	body, _, err := s.b.Get(ctx, ref, durable.GetOptions{})
	return body, err
}

func (s bucketBlobs) Delete(ctx context.Context, ref string) error { return s.b.Delete(ctx, ref) }

func (s bucketBlobs) List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error) {
	l, err := s.b.List(ctx, durable.ListOptions{Prefix: prefix, Cursor: cursor})
	for _, o := range l.Objects {
		refs = append(refs, o.Key)
	}
	return refs, l.Cursor, err
}
