package host

import (
	"context"
	"io"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/keeper"
)

// blobs are the files of the object logs, in a bucket.
type blobs struct{ bucket durable.Bucket }

var _ keeper.Blobs = blobs{}

// Put implements [keeper.Blobs].
func (b blobs) Put(ctx context.Context, ref string, r io.Reader, _ int64) error {
	_, err := b.bucket.Put(ctx, ref, r, durable.PutOptions{IfAbsent: true})
	return err
}

// Get implements [keeper.Blobs].
func (b blobs) Get(ctx context.Context, ref string) (io.ReadCloser, error) {
	body, _, err := b.bucket.Get(ctx, ref, durable.GetOptions{})
	return body, err
}

// Delete implements [keeper.Blobs].
func (b blobs) Delete(ctx context.Context, ref string) error { return b.bucket.Delete(ctx, ref) }

// List implements [keeper.Blobs].
func (b blobs) List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error) {
	page, err := b.bucket.List(ctx, durable.ListOptions{Prefix: prefix, Cursor: cursor})
	for _, o := range page.Objects {
		refs = append(refs, o.Key)
	}
	return refs, page.Cursor, err
}
