package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/davidwkeith/dwk/durable"
)

// ObjectStoreOwner reads which store set has claimed the object store, and the
// primary that it named; both are empty when none has.
func (s *Stores) ObjectStoreOwner(ctx context.Context) (storeID, primary string, err error) {
	b, err := openBucket(s.Config, s.Config.ObjectStoreURLOrDefault())
	if err != nil {
		return "", "", err
	}
	m, err := readMarker(ctx, b)
	if errors.Is(err, durable.ErrNotFound) {
		err = nil
	}
	return m.StoreID, m.Primary, errors.Join(err, b.Close())
}

// ClaimObjectStore makes the object store that of a store set, whoever had it.
func (s *Stores) ClaimObjectStore(ctx context.Context, storeID string) error {
	b, err := openBucket(s.Config, s.Config.ObjectStoreURLOrDefault())
	if err != nil {
		return err
	}
	text, err := json.Marshal(marker{StoreID: storeID, Primary: s.DB.String()})
	if err == nil {
		_, err = b.Put(ctx, markerKey, bytes.NewReader(text), durable.PutOptions{ContentType: "application/json"})
	}
	return errors.Join(err, b.Close())
}

// EnsureObjectStore claims an object store that nobody has claimed, as the first
// replica does, or refuses one that belongs to another store set.
func (s *Stores) EnsureObjectStore(ctx context.Context, storeID string) error {
	b, err := openBucket(s.Config, s.Config.ObjectStoreURLOrDefault())
	if err != nil {
		return err
	}
	return errors.Join(claimBucket(ctx, b, storeID, s.DB.String()), b.Close())
}
