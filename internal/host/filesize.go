package host

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/durable"
)

// Size returns the size of a file in bytes, or fails with
// [durable.ErrNotFound].
func (f *Files) Size(ctx context.Context, ref string) (int64, error) {
	b, err := f.open(ctx)
	if err != nil {
		return 0, err
	}
	in, ok := b.(blobs)
	if !ok {
		return 0, fmt.Errorf("size of %s: %w", ref, durable.ErrUnsupported)
	}
	info, err := in.bucket.Head(ctx, ref)
	return info.Size, err
}
