package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const (
	attempts  = 3
	firstWait = 50 * time.Millisecond // it doubles
)

// Repeat calls op until it succeeds, fails with what again does not take, or has
// failed a few times. A failure behind one of unknown outcome is of unknown
// outcome: the attempt before may have been executed.
func Repeat(ctx context.Context, again func(error) bool, op func() error) error {
	wait, doubt := firstWait, false
	for n := 1; ; n++ {
		err := op()
		if doubt && err != nil && !errors.Is(err, durable.ErrUnknownOutcome) {
			err = fmt.Errorf("%w of an earlier attempt; the last one: %v", durable.ErrUnknownOutcome, err)
		}
		if err == nil || n == attempts || ctx.Err() != nil || !again(err) {
			return err
		}
		doubt = doubt || errors.Is(err, durable.ErrUnknownOutcome)
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		wait *= 2
	}
}

// Retry returns b with calls that change nothing, and deletes, repeated a few
// times while the store is unavailable. Whether a put may be repeated is known
// below only, since its body is read once.
func Retry(b durable.Bucket) durable.Bucket { return retrying{b} }

type retrying struct{ durable.Bucket }

func (r retrying) again(ctx context.Context, op func() error) error {
	return Repeat(ctx, func(err error) bool {
		return errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome)
	}, op)
}

func (r retrying) Get(ctx context.Context, key string, opts durable.GetOptions) (body io.ReadCloser, info durable.ObjectInfo, err error) {
	err = r.again(ctx, func() error { body, info, err = r.Bucket.Get(ctx, key, opts); return err })
	return body, info, err
}

func (r retrying) Head(ctx context.Context, key string) (info durable.ObjectInfo, err error) {
	err = r.again(ctx, func() error { info, err = r.Bucket.Head(ctx, key); return err })
	return info, err
}

func (r retrying) Delete(ctx context.Context, key string) error {
	return r.again(ctx, func() error { return r.Bucket.Delete(ctx, key) })
}

func (r retrying) List(ctx context.Context, opts durable.ListOptions) (page durable.Listing, err error) {
	err = r.again(ctx, func() error { page, err = r.Bucket.List(ctx, opts); return err })
	return page, err
}
