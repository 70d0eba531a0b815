package bucket

import (
	"context"
	"io"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// Prefixed returns the part of b whose keys begin with prefix and a slash, as a
// bucket whose keys lack both. The prefix must be a key, without a slash at its
// end; with another one every call fails. It counts as part of the longest key.
func Prefixed(b durable.Bucket, prefix string) durable.Bucket {
	return &prefixed{b, prefix + "/"}
}

type prefixed struct {
	bucket durable.Bucket
	prefix string
}

// full refuses a bad key before it is joined: afterwards an empty one would
// look like another fault.
func (p *prefixed) full(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return p.prefix + key, nil
}

// local takes the prefix off.
func (p *prefixed) local(info durable.ObjectInfo) durable.ObjectInfo {
	info.Key = strings.TrimPrefix(info.Key, p.prefix)
	return info
}

func (p *prefixed) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	full, err := p.full(key)
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	info, err := p.bucket.Put(ctx, full, body, opts)
	return p.local(info), err
}

func (p *prefixed) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	full, err := p.full(key)
	if err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	body, info, err := p.bucket.Get(ctx, full, opts)
	return body, p.local(info), err
}

func (p *prefixed) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	full, err := p.full(key)
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	info, err := p.bucket.Head(ctx, full)
	return p.local(info), err
}

func (p *prefixed) Delete(ctx context.Context, key string) error {
	full, err := p.full(key)
	if err != nil {
		return err
	}
	return p.bucket.Delete(ctx, full)
}

func (p *prefixed) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	if _, err := CheckList(opts); err != nil {
		return durable.Listing{}, err
	}
	if err := CheckKey(strings.TrimSuffix(p.prefix, "/")); err != nil {
		return durable.Listing{}, err
	}
	opts.Prefix = p.prefix + opts.Prefix
	page, err := p.bucket.List(ctx, opts)
	for i, o := range page.Objects {
		page.Objects[i] = p.local(o)
	}
	for i, s := range page.Prefixes {
		page.Prefixes[i] = strings.TrimPrefix(s, p.prefix)
	}
	return page, err
}
