package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/mode"
)

// openBucket opens the bucket at a URL of the configuration.
func openBucket(url string) (*dir.Bucket, error) {
	path, err := config.FilePath(url)
	if err != nil {
		return nil, fmt.Errorf("object store %s: only file:DIR is %w", url, durable.ErrUnsupported)
	}
	return dir.Open(path)
}

// markerKey is where a bucket says whose it is.
const markerKey = "dwk/store.json"

// A marker ties the object store to the store set: a copy of a store set on the
// same bucket must not collect the other's files.
type marker struct {
	StoreID string `json:"store_id"`
	Primary string `json:"primary"`
}

// claimBucket writes the marker into a new bucket, or refuses one that belongs
// to another store set.
func claimBucket(ctx context.Context, b durable.Bucket, id, primary string) error {
	text, err := json.Marshal(marker{StoreID: id, Primary: primary})
	if err != nil {
		return err
	}
	_, err = b.Put(ctx, markerKey, bytes.NewReader(text), durable.PutOptions{ContentType: "application/json", IfAbsent: true})
	if !errors.Is(err, durable.ErrPrecondition) {
		return err
	}
	m, err := readMarker(ctx, b)
	if err != nil {
		return err
	}
	return m.check(id)
}

// readMarker reads whose a bucket is, or fails with [durable.ErrNotFound].
func readMarker(ctx context.Context, b durable.Bucket) (m marker, err error) {
	body, _, err := b.Get(ctx, markerKey, durable.GetOptions{})
	if err != nil {
		return m, err
	}
	defer body.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(io.LimitReader(body, 64<<10))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", markerKey, err)
	}
	return m, nil
}

// check refuses the bucket of another store set.
func (m marker) check(id string) error {
	if m.StoreID != id {
		return fmt.Errorf("%w: the object store belongs to store set %s (primary %s), this is %s: use another bucket or prefix", mode.ErrRefused, m.StoreID, m.Primary, id)
	}
	return nil
}
