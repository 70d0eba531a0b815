package bucket

import (
	"context"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/durable"
)

// ReadOnly returns b without what changes it: Put and Delete fail with
// [durable.ErrReadOnly], and the store is not asked.
func ReadOnly(b durable.Bucket) durable.Bucket { return readOnly{b} }

type readOnly struct{ durable.Bucket }

func (readOnly) Put(_ context.Context, key string, _ io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if _, err := CheckPut(key, opts); err != nil {
		return durable.ObjectInfo{}, err
	}
	return durable.ObjectInfo{}, fmt.Errorf("put %q: %w", key, durable.ErrReadOnly)
}

func (readOnly) Delete(_ context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return fmt.Errorf("delete %q: %w", key, durable.ErrReadOnly)
}
