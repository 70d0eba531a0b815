package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/probe"
)

// A Bucket is an opened bucket of the configuration, which must be closed.
type Bucket struct {
	durable.Bucket
	readOnly bool
	store    interface {
		Sweep(ctx context.Context) (removed int, err error)
		io.Closer
	}
}

// Sweep removes what crashes have left.
func (b *Bucket) Sweep(ctx context.Context) (removed int, err error) {
	if b.readOnly {
		return 0, nil
	}
	return b.store.Sweep(ctx)
}

// endUploads returns what ends uploads of keys with a prefix below another one,
// or nil where there are none.
func (b *Bucket) endUploads(below string) func(ctx context.Context, prefix string) error {
	u, ok := b.store.(interface {
		EndUploads(ctx context.Context, prefix string) error
	})
	if !ok {
		return nil
	}
	return func(ctx context.Context, prefix string) error { return u.EndUploads(ctx, below+prefix) }
}

// observe has a function called after each call, unless it is nil.
func (b *Bucket) observe(f func(took time.Duration, err error)) {
	if f != nil {
		b.Bucket = bucket.Observed(b.Bucket, f)
	}
}

// Close closes the bucket. Bodies that are open stay readable.
func (b *Bucket) Close() error { return b.store.Close() }

// openBucket opens the bucket at a URL of the configuration, without touching
// the network.
func openBucket(cfg *config.Config, url string) (*Bucket, error) {
	if path, err := config.FilePath(url); err == nil {
		b, err := dir.Open(path)
		if err != nil {
			return nil, err
		}
		return &Bucket{Bucket: b, store: b}, nil
	}
	c := cfg.ObjectStore
	b, err := s3.Open(s3.Config{
		URL: url, Region: c.Region, PathStyle: c.PathStyle, CA: c.CA, Timeout: c.Timeout,
		Keys: func() (access, secret string, err error) {
			a, errA := c.AccessKey.Reread()
			s, errS := c.SecretKey.Reread()
			return a.Reveal(), s.Reveal(), errors.Join(errA, errS)
		},
	})
	if err != nil {
		return nil, err
	}
	return &Bucket{Bucket: bucket.Retry(b), store: b}, nil
}

// OpenBucket opens a bucket binding of a configuration, without touching the
// network.
func OpenBucket(cfg *config.Config, name string) (*Bucket, error) {
	url, ok := cfg.BucketURL(name)
	if !ok {
		return nil, fmt.Errorf("there is no bucket %q in the configuration", name)
	}
	b, err := openBucket(cfg, url)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	if b.readOnly = cfg.BucketReadOnly(name); b.readOnly {
		b.Bucket = bucket.ReadOnly(b.Bucket)
	}
	return b, nil
}

// Buckets are the opened object store and bucket bindings of a configuration.
type Buckets struct {
	Files  *Bucket // the object store
	ByName map[string]*Bucket
}

// OpenBuckets opens all of them; o may be nil. They must be closed.
func OpenBuckets(cfg *config.Config, o Observer) (*Buckets, error) {
	all := &Buckets{ByName: map[string]*Bucket{}}
	var err error
	if all.Files, err = openBucket(cfg, cfg.ObjectStoreURLOrDefault()); err != nil {
		return nil, err
	}
	all.Files.observe(o.of(probe.ObjectStore))
	for _, c := range cfg.Buckets {
		b, err := OpenBucket(cfg, c.Name)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		b.observe(o.of(probe.BucketStore(c.Name)))
		all.ByName[c.Name] = b
	}
	return all, nil
}

// Close closes all of them.
func (all *Buckets) Close() error {
	errs := []error{all.Files.Close()}
	for _, b := range all.ByName {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// Targets returns what is probed of them, in the order of the configuration.
func (all *Buckets) Targets(cfg *config.Config) []probe.Bucket {
	// The host's own keys are below dwk/.
	out := []probe.Bucket{{
		Store: probe.ObjectStore, Bucket: bucket.Prefixed(all.Files, "dwk"), Address: cfg.ObjectStoreURLOrDefault(), EndUploads: all.Files.endUploads("dwk/"),
	}}
	for _, c := range cfg.Buckets {
		url, _ := cfg.BucketURL(c.Name)
		out = append(out, probe.Bucket{
			Store: probe.BucketStore(c.Name), Bucket: all.ByName[c.Name], Address: url, EndUploads: all.ByName[c.Name].endUploads(""), ReadOnly: c.ReadOnly,
		})
	}
	return out
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
