package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/clock"
)

const (
	// abortTimeout bounds an attempt to end an upload that failed.
	abortTimeout = 10 * time.Second
	// firstAbortWait doubles up to lastAbortWait, between those attempts.
	firstAbortWait = time.Second
	lastAbortWait  = time.Minute
	// leftoverAge is how old an upload is that nobody goes on with.
	leftoverAge = 24 * time.Hour
	noSuch      = "NoSuchUpload"
)

// complete makes the parts of an upload a body. A lost answer is asked for
// again: the store answers as it did, or says that the upload is over, which
// nobody but an attempt before can have done.
func (b *Bucket) complete(ctx context.Context, key, id string, parts []minio.CompletePart, size int64) (etag string, err error) {
	doubt := false
	err = bucket.Repeat(ctx, func(err error) bool {
		return unavailable(err) || errors.Is(err, durable.ErrUnknownOutcome)
	}, func() error {
		up, err := b.core.CompleteMultipartUpload(ctx, b.name, b.prefix+key, id, parts, minio.PutObjectOptions{})
		if err == nil {
			etag = up.ETag
			return nil
		}
		if doubt && minio.ToErrorResponse(err).Code == noSuch {
			info, err := b.Head(ctx, key)
			if err == nil && info.Size != size {
				err = errors.New("another body is there by now")
			}
			if err != nil {
				return fmt.Errorf("put %q: %w: %v", key, durable.ErrUnknownOutcome, err)
			}
			etag = info.ETag
			return nil
		}
		err = failure("put", key, err, true)
		doubt = doubt || errors.Is(err, durable.ErrUnknownOutcome)
		return err
	})
	return etag, err
}

// abandon ends an upload that failed: its parts take space, and no list of keys
// shows them. One that is being completed ends either way. While the store does
// not do it, it is tried again in the background, until Close.
func (b *Bucket) abandon(ctx context.Context, full, id string) {
	if b.abort(ctx, full, id) {
		return
	}
	b.running.Go(func() {
		for wait, closing := firstAbortWait, false; !closing; wait = min(2*wait, lastAbortWait) {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-b.closing:
				t.Stop()
				closing = true
			}
			if b.abort(context.Background(), full, id) {
				return
			}
		}
	})
}

func (b *Bucket) abort(ctx context.Context, full, id string) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	err := b.core.AbortMultipartUpload(ctx, b.name, full, id)
	return err == nil || minio.ToErrorResponse(err).Code == noSuch
}

// Sweep ends uploads that began a day ago and were not ended, as a crash leaves
// them, and returns their number. Such parts take space and are not listed.
func (b *Bucket) Sweep(ctx context.Context) (removed int, err error) {
	return b.endUploads(ctx, "", leftoverAge)
}

// EndUploads ends all uploads of keys that begin with the prefix, for those whose
// keys nobody else has: the answer to the beginning of one may have been lost,
// and its id with it.
func (b *Bucket) EndUploads(ctx context.Context, prefix string) error {
	_, err := b.endUploads(ctx, prefix, 0)
	return err
}

func (b *Bucket) endUploads(ctx context.Context, prefix string, age time.Duration) (ended int, err error) {
	res, err := b.core.ListMultipartUploads(ctx, b.name, b.prefix+prefix, "", "", "", 1000)
	if minio.ToErrorResponse(err).Code == noSuch {
		return 0, nil // how some stores say that there is none
	}
	if err != nil {
		return 0, failure("list uploads of", prefix, err, false)
	}
	for _, u := range res.Uploads {
		// Not all stores look at the prefix.
		if !strings.HasPrefix(u.Key, b.prefix+prefix) || age > 0 && clock.Now().Sub(u.Initiated) < age {
			continue
		}
		if err := b.core.AbortMultipartUpload(ctx, b.name, u.Key, u.UploadID); err != nil {
			return ended, failure("end an upload of", u.Key, err, true)
		}
		ended++
	}
	return ended, nil
}
