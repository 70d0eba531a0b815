package s3

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// highest is behind all that is likely to follow a prefix in keys.
const highest = "\U0010FFFF"

// List implements [durable.Bucket]. A cursor is the last key or prefix of its
// page: the store's own ones need not outlive it, and some repeat prefixes. Some
// tell of more where there is none: then the last page is empty.
func (b *Bucket) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	opts, err := bucket.CheckList(opts)
	if err != nil {
		return durable.Listing{}, err
	}
	last, err := decodeCursor(opts.Cursor)
	if err != nil {
		return durable.Listing{}, err
	}
	if strings.HasPrefix(opts.Prefix, "/") || strings.Contains(opts.Prefix, "//") {
		return durable.Listing{}, nil // no key begins like this
	}
	for {
		res, err := b.list(ctx, opts, last)
		if err != nil {
			return durable.Listing{}, failure("list", opts.Prefix, err, false)
		}
		page, end := b.page(res, last)
		if res.IsTruncated {
			page.Cursor = base64.RawURLEncoding.EncodeToString([]byte(end))
		}
		if len(page.Objects)+len(page.Prefixes) > 0 || !res.IsTruncated {
			return page, nil
		}
		if end <= last { // it would go on for ever
			return durable.Listing{}, failure("list", opts.Prefix, errStuck, false)
		}
		last = end
	}
}

var errStuck = minio.ErrorResponse{Code: "InternalError", Message: "the list does not go on", StatusCode: 502}

// list asks for one page behind last. The client's call takes no context: who
// does not wait for it any more leaves it to Close.
func (b *Bucket) list(ctx context.Context, opts durable.ListOptions, last string) (minio.ListBucketV2Result, error) {
	after := ""
	if last != "" {
		after = b.prefix + last
	}
	if opts.Delimiter != "" && strings.HasSuffix(last, opts.Delimiter) && len(after)+len(highest) <= bucket.MaxKey {
		after += highest // the keys below the prefix
	}
	type answer struct {
		res minio.ListBucketV2Result
		err error
	}
	done := make(chan answer, 1)
	b.running.Go(func() {
		res, err := b.core.ListObjectsV2(b.name, b.prefix+opts.Prefix, after, "", opts.Delimiter, opts.Limit)
		done <- answer{res, err}
	})
	select {
	case a := <-done:
		return a.res, a.err
	case <-ctx.Done():
		return minio.ListBucketV2Result{}, context.Cause(ctx)
	}
}

// page returns what of an answer is behind last, and the last of all.
func (b *Bucket) page(res minio.ListBucketV2Result, last string) (page durable.Listing, end string) {
	end = last
	for _, o := range res.Contents {
		key := strings.TrimPrefix(o.Key, b.prefix)
		end = max(end, key)
		// Folders that consoles make, and other keys that cannot be named here.
		if key > last && bucket.CheckKey(key) == nil {
			page.Objects = append(page.Objects, durable.ObjectInfo{
				Key: key, Size: o.Size, ETag: strings.Trim(o.ETag, `"`), Uploaded: o.LastModified.UTC(),
			})
		}
	}
	for _, p := range res.CommonPrefixes {
		prefix := strings.TrimPrefix(p.Prefix, b.prefix)
		end = max(end, prefix)
		if prefix > last {
			page.Prefixes = append(page.Prefixes, prefix)
		}
	}
	slices.SortFunc(page.Objects, func(a, b durable.ObjectInfo) int { return strings.Compare(a.Key, b.Key) })
	slices.Sort(page.Prefixes)
	page.Prefixes = slices.Compact(page.Prefixes)
	return page, end
}

func decodeCursor(cursor string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(text) > 2*bucket.MaxKey {
		return "", &bucket.InvalidError{What: "cursor", Value: cursor, Reason: "is not one of a list"}
	}
	return string(text), nil
}
