package dev

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/johannesboyne/gofakes3"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
)

// objects is the one bucket of the S3-compatible server, kept in a directory: a
// put is whole or not there, also after a crash. What it refuses beyond S3 are
// keys that cannot stand in a directory beside what is there.
type objects struct {
	name   string
	bucket *dir.Bucket
	// ctx ends with the server.
	ctx context.Context
}

var _ gofakes3.Backend = (*objects)(nil)

// metaPrefix begins the headers of metadata.
const metaPrefix = "X-Amz-Meta-"

func (o *objects) ListBuckets() ([]gofakes3.BucketInfo, error) {
	return []gofakes3.BucketInfo{{Name: o.name}}, nil
}

func (o *objects) BucketExists(name string) (bool, error) { return name == o.name, nil }

// There is one bucket, and it stays.

func (o *objects) CreateBucket(string) error      { return gofakes3.ErrNotImplemented }
func (o *objects) DeleteBucket(string) error      { return gofakes3.ErrNotImplemented }
func (o *objects) ForceDeleteBucket(string) error { return gofakes3.ErrNotImplemented }

func (o *objects) ListBucket(_ string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	opts := durable.ListOptions{Limit: int(page.MaxKeys)}
	if prefix != nil {
		opts.Prefix, opts.Delimiter = prefix.Prefix, prefix.Delimiter
	}
	if page.Marker != "" {
		opts.Cursor = dir.After(page.Marker)
	}
	list, err := o.bucket.List(o.ctx, opts)
	if err != nil {
		return nil, answer("", err)
	}
	out := gofakes3.NewObjectList()
	for _, i := range list.Objects {
		hash, _ := hex.DecodeString(i.ETag)
		out.Add(&gofakes3.Content{Key: i.Key, LastModified: gofakes3.NewContentTime(i.Uploaded), ETag: gofakes3.FormatETag(hash), Size: i.Size, StorageClass: "STANDARD"})
		out.NextMarker = max(out.NextMarker, i.Key)
	}
	for _, p := range list.Prefixes {
		out.AddPrefix(p)
		out.NextMarker = max(out.NextMarker, p)
	}
	if out.IsTruncated = list.Cursor != ""; !out.IsTruncated {
		out.NextMarker = ""
	}
	return out, nil
}

func (o *objects) HeadObject(_, key string) (*gofakes3.Object, error) {
	info, err := o.bucket.Head(o.ctx, key)
	if err != nil {
		return nil, answer(key, err)
	}
	return object(info, http.NoBody), nil
}

// attempts bounds the looks at a key that is put again and again meanwhile.
const attempts = 5

func (o *objects) GetObject(_, key string, part *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	for range attempts {
		info, err := o.bucket.Head(o.ctx, key)
		if err != nil {
			return nil, answer(key, err)
		}
		chosen, err := part.Range(info.Size)
		if err != nil {
			return nil, err
		}
		var opts durable.GetOptions
		if chosen != nil {
			opts = durable.GetOptions{Offset: chosen.Start, Length: chosen.Length}
		}
		body, now, err := o.bucket.Get(o.ctx, key, opts)
		if err != nil {
			return nil, answer(key, err)
		}
		if now.Size == info.Size {
			obj := object(now, body)
			obj.Range = chosen
			return obj, nil
		}
		body.Close() //nolint:errcheck // only read from
	}
	return nil, gofakes3.ErrInternal
}

// object describes a body as the server sends it.
func object(info durable.ObjectInfo, body io.ReadCloser) *gofakes3.Object {
	meta := map[string]string{"Content-Type": info.ContentType, "Last-Modified": info.Uploaded.UTC().Format(http.TimeFormat)}
	for name, value := range info.Metadata {
		meta[metaPrefix+name] = value
	}
	hash, _ := hex.DecodeString(info.ETag)
	return &gofakes3.Object{Name: info.Key, Metadata: meta, Size: info.Size, Contents: body, Hash: hash}
}

func (o *objects) PutObject(_, key string, meta map[string]string, body io.Reader, size int64, if_ *gofakes3.PutConditions) (gofakes3.PutObjectResult, error) {
	opts := durable.PutOptions{ContentType: meta["Content-Type"], Metadata: map[string]string{}}
	for name, value := range meta {
		if name, ok := strings.CutPrefix(name, metaPrefix); ok {
			opts.Metadata[name] = value
		}
	}
	if if_ != nil {
		if if_.IfMatch != nil {
			return gofakes3.PutObjectResult{}, gofakes3.ErrNotImplemented
		}
		opts.IfAbsent = if_.IfNoneMatch != nil
	}
	_, err := o.bucket.Put(o.ctx, key, &exactly{body, size}, opts)
	return gofakes3.PutObjectResult{}, answer(key, err)
}

// exactly fails when a body ends before its size.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left != 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (o *objects) DeleteObject(_, key string) (gofakes3.ObjectDeleteResult, error) {
	return gofakes3.ObjectDeleteResult{}, answer(key, o.bucket.Delete(o.ctx, key))
}

func (o *objects) DeleteMulti(name string, keys ...string) (res gofakes3.MultiDeleteResult, err error) {
	for _, key := range keys {
		if _, err := o.DeleteObject(name, key); err != nil {
			res.Error = append(res.Error, gofakes3.ErrorResult{Key: key, Code: gofakes3.ErrInternal, Message: err.Error()})
			continue
		}
		res.Deleted = append(res.Deleted, gofakes3.ObjectID{Key: key})
	}
	return res, nil
}

func (o *objects) CopyObject(from, key, to, as string, meta map[string]string) (gofakes3.CopyObjectResult, error) {
	return gofakes3.CopyObject(o, from, key, to, as, meta)
}

// answer gives an error of the bucket its name in S3.
func answer(key string, err error) error {
	switch _, conflict := errors.AsType[*bucket.ConflictError](err); {
	case err == nil:
		return nil
	case conflict:
		return gofakes3.ErrorMessage("ObjectParentIsFile", err.Error())
	case errors.Is(err, durable.ErrNotFound):
		return gofakes3.KeyNotFound(key)
	case errors.Is(err, durable.ErrPrecondition):
		return gofakes3.ErrorMessage(gofakes3.ErrPreconditionFailed, "the key exists")
	case errors.Is(err, durable.ErrInvalid):
		return gofakes3.ErrorMessage(gofakes3.ErrInvalidArgument, err.Error())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return gofakes3.ErrorMessage(gofakes3.ErrIncompleteBody, err.Error())
	}
	return err
}

// withKey lets only requests pass that name the access key. They are signed, but
// the signature is not checked: the key is as secret as a token.
func withKey(key string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credential := r.URL.Query().Get("X-Amz-Credential")
		if _, rest, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
			credential = rest
		}
		if given, _, ok := strings.Cut(credential, "/"); !ok || !same(given, key) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>InvalidAccessKeyId</Code><Message>the access key is missing or wrong</Message></Error>`) //nolint:errcheck // to a client
			return
		}
		next.ServeHTTP(w, r)
	})
}
