package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// Head implements [durable.Bucket].
func (b *Bucket) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	if err := bucket.CheckKey(key); err != nil {
		return durable.ObjectInfo{}, err
	}
	o, err := b.core.StatObject(ctx, b.name, b.prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return durable.ObjectInfo{}, failure("head", key, err, false)
	}
	return b.info(key, o), nil
}

// Get implements [durable.Bucket].
func (b *Bucket) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	if err := bucket.CheckGet(key, opts); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	// The body may change between two requests, but hardly each time.
	for n := range 5 {
		body, info, err := b.get(ctx, key, opts, n > 0)
		if !errors.Is(err, errChanged) {
			return body, info, err
		}
	}
	return nil, durable.ObjectInfo{}, fmt.Errorf("get %q: %w: %w", key, durable.ErrUnavailable, errChanged)
}

// farAway is behind the end of every body.
const farAway = 1 << 50

// errChanged says that a body was replaced between two requests.
var errChanged = errors.New("the body changes all the time")

// get asks for a part as it is wanted or, when it is to be exact, by its place in
// the body that is there.
func (b *Bucket) get(ctx context.Context, key string, opts durable.GetOptions, exact bool) (io.ReadCloser, durable.ObjectInfo, error) {
	var o minio.GetObjectOptions
	// Some servers compute with what they are sent.
	opts.Offset, opts.Length = min(max(opts.Offset, -farAway), farAway), min(opts.Length, farAway)
	switch {
	case opts == durable.GetOptions{}:
	case exact || opts.Offset < 0 && opts.Length > 0: // where it ends depends on the size
		info, err := b.Head(ctx, key)
		if err != nil {
			return nil, durable.ObjectInfo{}, err
		}
		offset, length := bucket.Part(opts, info.Size)
		if length == 0 {
			return empty(), info, nil
		}
		o.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		if err := o.SetMatchETag(info.ETag); err != nil {
			return nil, durable.ObjectInfo{}, failure("get", key, err, false)
		}
	case opts.Offset < 0:
		o.Set("Range", fmt.Sprintf("bytes=-%d", -opts.Offset))
	case opts.Length > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-%d", opts.Offset, opts.Offset+opts.Length-1))
	case opts.Offset > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-", opts.Offset))
	}
	body, found, header, err := b.core.GetObject(ctx, b.name, b.prefix+key, o)
	switch {
	case isStatus(err, http.StatusRequestedRangeNotSatisfiable):
		info, err := b.Head(ctx, key)
		if err == nil {
			if _, length := bucket.Part(opts, info.Size); length > 0 {
				err = errChanged
			}
		}
		return empty(), info, err
	case isStatus(err, http.StatusPreconditionFailed):
		return nil, durable.ObjectInfo{}, errChanged
	case err != nil:
		return nil, durable.ObjectInfo{}, failure("get", key, err, false)
	}
	info := b.info(key, found)
	info.Size, err = whole(o.Header().Get("Range"), header.Get("Content-Range"), found.Size)
	if err != nil {
		body.Close() //nolint:errcheck // it is not used
		return nil, durable.ObjectInfo{}, fmt.Errorf("get %q: %w: %w", key, durable.ErrUnavailable, err)
	}
	return &reading{body, key}, info, nil
}

// whole returns the size of the body of which an answer has length bytes, or
// refuses an answer that is not of the part that was asked for: to whom asked
// for it, it would look like one.
func whole(asked, answered string, length int64) (size int64, err error) {
	if asked == "" || answered == "" && length == 0 { // of an empty body some answer with all
		return length, nil
	}
	var first, last int64
	if n, err := fmt.Sscanf(answered, "bytes %d-%d/%d", &first, &last, &size); n != 3 || err != nil {
		return 0, fmt.Errorf("asked for %s the store answered with the range %.60q", asked, answered)
	}
	from, to, _ := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
	want := first
	switch n, err := strconv.ParseInt(from, 10, 64); {
	case err == nil:
		want = n
	case from == "": // the end of the body
		if n, err := strconv.ParseInt(to, 10, 64); err == nil {
			want = max(0, size-n)
		}
	}
	end, err := strconv.ParseInt(to, 10, 64)
	if err != nil || from == "" || end >= size {
		end = size - 1
	}
	if first != want || last != end || length != last-first+1 {
		return 0, fmt.Errorf("asked for %s the store answered with %d bytes and the range %.60q", asked, length, answered)
	}
	return size, nil
}

func empty() io.ReadCloser { return io.NopCloser(bytes.NewReader(nil)) }

// A reading is an open body.
type reading struct {
	io.ReadCloser
	key string
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = failure("read", r.key, err, false)
	}
	return n, err
}

// Delete implements [durable.Bucket].
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	err := b.core.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err = failure("delete", key, err, true); errors.Is(err, durable.ErrNotFound) {
		return nil
	}
	return err
}
