package bucket

import (
	"context"
	"io"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
)

// Observed returns b with a function that is called after each call, with the
// time that it took, of a Get that until the body was open, and its error; and
// once more for a body that breaks off.
func Observed(b durable.Bucket, observe func(took time.Duration, err error)) durable.Bucket {
	return observed{b, observe}
}

type observed struct {
	next    durable.Bucket
	observe func(took time.Duration, err error)
}

// begin returns what ends the call.
func (o observed) begin() func(error) {
	began := clock.Now()
	return func(err error) { o.observe(clock.Since(began), err) }
}

func (o observed) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	end := o.begin()
	info, err := o.next.Put(ctx, key, body, opts)
	end(err)
	return info, err
}

func (o observed) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	end := o.begin()
	body, info, err := o.next.Get(ctx, key, opts)
	end(err)
	if err == nil {
		body = &observedBody{body, o.begin()}
	}
	return body, info, err
}

func (o observed) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	end := o.begin()
	info, err := o.next.Head(ctx, key)
	end(err)
	return info, err
}

func (o observed) Delete(ctx context.Context, key string) error {
	end := o.begin()
	err := o.next.Delete(ctx, key)
	end(err)
	return err
}

func (o observed) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	end := o.begin()
	page, err := o.next.List(ctx, opts)
	end(err)
	return page, err
}

type observedBody struct {
	io.ReadCloser
	broke func(error) // nil once it was called
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && b.broke != nil {
		b.broke(err)
		b.broke = nil
	}
	return n, err
}
