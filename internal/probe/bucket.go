package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
)

// A Bucket is a bucket binding or the object store.
type Bucket struct {
	// Store is how results name it: BucketStore(NAME), or ObjectStore.
	Store  string
	Bucket durable.Bucket
	// Address is where it is, without secrets.
	Address string
	// EndUploads, if not nil, ends uploads in parts of keys with a prefix, which
	// a put that was interrupted may have left.
	EndUploads func(ctx context.Context, prefix string) error
	// ReadOnly leaves out what changes the bucket.
	ReadOnly bool
}

// What Options.Only calls all bucket bindings, and the object store, which
// holds the large entries of the logs.
const (
	Buckets     = "bucket"
	ObjectStore = "object-store"
)

// BucketStore is how results name the bucket binding of this name.
func BucketStore(name string) string { return Buckets + ":" + name }

// bucketChecks are the checks of a bucket.
var bucketChecks = []string{"put", "head", "get", "overwrite", "if-absent", "list", "multipart", "delete"}

// multipartSize is above what any bucket sends by one request, in bytes.
const multipartSize = 9 << 20

// A bucketProbe is a bucket while it is checked.
type bucketProbe struct {
	durable.Bucket
	quick  bool
	end    func(ctx context.Context, prefix string) error
	prefix string // of all keys of this run
	keys   []string
}

// checkReads makes those checks of a bucket that change nothing.
func (b *bucketProbe) checkReads(g *group) error {
	for _, name := range bucketChecks {
		if name != "head" && name != "list" {
			g.skipped(name, "the bucket is read-only")
		}
	}
	key := "dwk-probe/" + uuid.NewString()
	var head error
	if err := g.step("head", func(ctx context.Context) error {
		if _, head = b.Head(ctx, key); errors.Is(head, durable.ErrNotFound) {
			return nil
		}
		return head
	}, func() error {
		if head == nil {
			return wrong("there is a key that nobody has put")
		}
		return nil
	}); err != nil {
		return err
	}
	var page durable.Listing
	return g.step("list", func(ctx context.Context) (err error) {
		page, err = b.List(ctx, durable.ListOptions{Prefix: key})
		return err
	}, func() error {
		if len(page.Objects) > 0 {
			return wrong("a key is listed that nobody has put")
		}
		return nil
	})
}

// check makes the checks of a bucket under keys that no other one has.
func (b *bucketProbe) check(g *group) error {
	b.prefix, b.keys = "dwk-probe/"+uuid.NewString()+"/", nil
	defer b.clean(g)
	opts := durable.PutOptions{ContentType: "text/x-probe", Metadata: map[string]string{"probe": "é 100% ☂"}}
	var put durable.ObjectInfo
	err := g.step("put", func(ctx context.Context) (err error) {
		put, err = b.put(ctx, "a", strings.NewReader("first"), opts)
		return err
	}, nil)
	if err != nil {
		return err
	}
	facts := func(o durable.ObjectInfo) error {
		if o.Size != 5 || o.ETag != put.ETag || o.ContentType != opts.ContentType || !maps.Equal(o.Metadata, opts.Metadata) {
			return wrong("a body of 5 bytes with type %s and metadata %q is described as %d bytes, %s, %q", opts.ContentType, opts.Metadata, o.Size, o.ContentType, o.Metadata)
		}
		return nil
	}
	var o durable.ObjectInfo
	if err := g.step("head", func(ctx context.Context) (err error) { o, err = b.Head(ctx, b.prefix+"a"); return err },
		func() error { return facts(o) }); err != nil {
		return err
	}
	var text string
	if err := g.step("get", func(ctx context.Context) (err error) {
		text, o, err = b.read(ctx, "a", durable.GetOptions{Offset: 1, Length: 3})
		return err
	},
		func() error {
			if text != "irs" {
				return wrong("bytes 1 to 3 of a body are %q, want %q", text, "irs")
			}
			return facts(o)
		}); err != nil {
		return err
	}
	// What was answered is seen by whoever reads next.
	if err := g.step("overwrite", func(ctx context.Context) (err error) {
		if _, err = b.put(ctx, "a", strings.NewReader("second"), durable.PutOptions{}); err == nil {
			text, o, err = b.read(ctx, "a", durable.GetOptions{})
		}
		return err
	}, func() error {
		if text != "second" || o.ContentType == opts.ContentType {
			return wrong("after a body was overwritten %q of type %s was read", text, o.ContentType)
		}
		if len(o.Metadata) > 0 {
			g.note("overwrite", "the store keeps metadata of a body that was overwritten", true)
		}
		return nil
	}); err != nil {
		return err
	}
	return b.more(g)
}

func (b *bucketProbe) more(g *group) error {
	var again error
	if err := g.step("if-absent", func(ctx context.Context) error {
		if _, err := b.put(ctx, "b", strings.NewReader("x"), durable.PutOptions{IfAbsent: true}); err != nil {
			return err
		}
		_, again = b.put(ctx, "b", strings.NewReader("y"), durable.PutOptions{IfAbsent: true})
		if again != nil && !errors.Is(again, durable.ErrPrecondition) {
			return again
		}
		return nil
	}, func() error {
		if again == nil {
			g.note("if-absent", "the store does not keep the condition that a key must be new: PutOptions.IfAbsent overwrites", true)
		}
		return nil
	}); err != nil {
		return err
	}
	var page durable.Listing
	if err := g.step("list", func(ctx context.Context) (err error) {
		page, err = b.List(ctx, durable.ListOptions{Prefix: b.prefix})
		return err
	}, func() error {
		var got []string
		for _, o := range page.Objects {
			got = append(got, strings.TrimPrefix(o.Key, b.prefix))
		}
		if fmt.Sprint(got) != "[a b]" {
			return wrong("the keys a and b are listed as %q", got)
		}
		return nil
	}); err != nil {
		return err
	}
	if b.quick {
		g.skipped("multipart", "left out at start")
	} else if err := b.multipart(g); err != nil {
		return err
	}
	return g.step("delete", func(ctx context.Context) error {
		for _, key := range b.keys {
			if err := b.Delete(ctx, b.prefix+key); err != nil {
				return err
			}
		}
		_, err := b.Head(ctx, b.prefix+"a")
		again = err
		if errors.Is(err, durable.ErrNotFound) {
			b.keys = nil
			return nil
		}
		return err
	}, func() error {
		if again == nil {
			return wrong("a key that was deleted is still there")
		}
		return nil
	})
}

func (b *bucketProbe) multipart(g *group) error {
	body := bytes.Repeat([]byte("0123456789abcdef"), multipartSize/16)
	var text string
	var o durable.ObjectInfo
	return g.step("multipart", func(ctx context.Context) (err error) {
		if _, err = b.put(ctx, "c", struct{ io.Reader }{bytes.NewReader(body)}, durable.PutOptions{}); err == nil {
			text, o, err = b.read(ctx, "c", durable.GetOptions{Offset: multipartSize - 8})
		}
		return err
	}, func() error {
		if text != "89abcdef" || o.Size != multipartSize {
			return wrong("a body of %d bytes is described as %d, and ends with %q", multipartSize, o.Size, text)
		}
		return nil
	})
}

func (b *bucketProbe) put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	b.keys = append(b.keys, key)
	return b.Put(ctx, b.prefix+key, body, opts)
}

func (b *bucketProbe) read(ctx context.Context, key string, opts durable.GetOptions) (string, durable.ObjectInfo, error) {
	body, o, err := b.Get(ctx, b.prefix+key, opts)
	if err != nil {
		return "", o, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1<<10))
	return string(text), o, err
}

// clean removes what a check that failed or was interrupted has left.
func (b *bucketProbe) clean(g *group) {
	ctx, cancel := cleanup(g.ctx)
	defer cancel()
	for _, key := range b.keys {
		_ = b.Delete(ctx, b.prefix+key) // the error of the check says more
	}
	if b.end != nil && len(b.keys) > 0 && !b.quick {
		_ = b.end(ctx, b.prefix)
	}
}

// counted counts the calls of a bucket, each of which counts as a round trip.
type counted struct {
	durable.Bucket
	calls atomic.Int64
}

func (c *counted) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	c.calls.Add(1)
	return c.Bucket.Put(ctx, key, body, opts)
}

func (c *counted) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	c.calls.Add(1)
	return c.Bucket.Get(ctx, key, opts)
}

func (c *counted) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	c.calls.Add(1)
	return c.Bucket.Head(ctx, key)
}

func (c *counted) Delete(ctx context.Context, key string) error {
	c.calls.Add(1)
	return c.Bucket.Delete(ctx, key)
}

func (c *counted) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	c.calls.Add(1)
	return c.Bucket.List(ctx, opts)
}
