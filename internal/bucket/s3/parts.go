package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// parts sends a body in parts, which become visible together.
func (b *Bucket) parts(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (size int64, etag string, err error) {
	full := b.prefix + key
	var id string
	if err := bucket.Repeat(ctx, unavailable, func() (err error) {
		if id, err = b.core.NewMultipartUpload(ctx, b.name, full, putOptions(opts)); err != nil {
			return failure("put", key, err, false)
		}
		return nil
	}); err != nil {
		return 0, "", err
	}
	done := false
	defer func() {
		if !done {
			b.abandon(ctx, full, id)
		}
	}()
	s := newSender(ctx, b, key, id)
	size, err = s.send(body)
	if err = s.wait(err); err != nil {
		return 0, "", err
	}
	etag, err = b.complete(ctx, key, id, s.list, size)
	done = err == nil
	return size, etag, err
}

// A sender sends the parts of one body, several at a time, while it reads the
// next. It always has one buffer, and more as long as there are.
type sender struct {
	bucket  *Bucket
	key, id string
	ctx     context.Context // ends with the first part that fails
	fail    context.CancelCauseFunc
	running sync.WaitGroup
	free    chan []byte
	buffers int

	mu   sync.Mutex
	list []minio.CompletePart
}

func newSender(ctx context.Context, b *Bucket, key, id string) *sender {
	s := &sender{bucket: b, key: key, id: id, free: make(chan []byte, maxAhead)}
	s.ctx, s.fail = context.WithCancelCause(ctx)
	return s
}

// send reads the body to its end and returns its size. Parts may still be under
// way then.
func (s *sender) send(body io.Reader) (size int64, err error) {
	for end := false; !end; {
		buf, err := s.buffer()
		if err != nil {
			return 0, err
		}
		n, err := io.ReadFull(body, buf)
		end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case err != nil && !end:
			return 0, fmt.Errorf("put %q: %w", s.key, err)
		case n == 0:
			return size, nil
		case size >= maxParts*int64(len(buf)):
			return 0, fmt.Errorf("put %q: %w: over %d bytes", s.key, durable.ErrTooLarge, size)
		}
		number := int(size/int64(len(buf))) + 1
		size += int64(n)
		s.running.Go(func() {
			s.part(number, buf[:n])
			s.free <- buf
		})
	}
	return size, nil
}

// buffer returns a buffer for the next part, when there is one.
func (s *sender) buffer() ([]byte, error) {
	if s.ctx.Err() != nil { // whatever is free
		return nil, context.Cause(s.ctx)
	}
	select {
	case buf := <-s.free:
		return buf, nil
	default:
	}
	if s.buffers == 0 || s.buffers < maxAhead && s.bucket.takeSpare() {
		s.buffers++
		if buf, _ := s.bucket.pool.Get().([]byte); len(buf) == s.bucket.partSize {
			return buf, nil
		}
		return make([]byte, s.bucket.partSize), nil
	}
	select {
	case buf := <-s.free:
		return buf, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// wait waits for the parts and returns why the body is not sent, given the error
// of send.
func (s *sender) wait(err error) error {
	if err != nil {
		s.fail(err) // the first one counts
	}
	s.running.Wait()
	err = context.Cause(s.ctx)
	s.fail(nil)
	for range s.buffers - 1 {
		s.bucket.spare <- struct{}{}
	}
	for len(s.free) > 0 {
		s.bucket.pool.Put(<-s.free) //nolint:staticcheck // large, and few
	}
	slices.SortFunc(s.list, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	return err
}

func (s *sender) part(n int, body []byte) {
	if s.ctx.Err() != nil {
		return
	}
	part, err := s.bucket.part(s.ctx, s.key, s.id, n, body)
	if err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, part)
}

// takeSpare reports whether there was a buffer to take.
func (b *Bucket) takeSpare() bool {
	select {
	case <-b.spare:
		return true
	default:
		return false
	}
}

func (b *Bucket) part(ctx context.Context, key, id string, n int, body []byte) (part minio.CompletePart, err error) {
	sum := sha256.Sum256(body)
	err = bucket.Repeat(ctx, unavailable, func() error {
		l := lend(bytes.NewReader(body), int64(len(body)))
		defer l.end()
		p, err := b.core.PutObjectPart(ctx, b.name, b.prefix+key, id, n, l, int64(len(body)), minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum[:]), DisableContentSha256: true})
		if err != nil {
			return failure("put", key, err, false) // nothing is visible yet
		}
		part = minio.CompletePart{PartNumber: n, ETag: p.ETag}
		return nil
	})
	return part, err
}

func unavailable(err error) bool { return errors.Is(err, durable.ErrUnavailable) }
