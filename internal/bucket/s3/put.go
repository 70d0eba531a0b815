package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

const (
	// partSize is what is sent at once of a body, in bytes. A body has at most
	// maxParts of them, some 80 GB.
	partSize = 8 << 20
	maxParts = 10_000
	// maxAhead is how many parts of a body are in memory, one that is read and
	// others that are sent. maxSpare is how many there are besides the first of
	// each body, of all bodies together.
	maxAhead = 4
	maxSpare = 9
	// maxSingle bounds a body that is sent by one request.
	maxSingle = 5 << 30
)

// Put implements [durable.Bucket]. A body that fits into a part is one request.
// A larger one is several, unless it must be new: the condition is sure to be
// kept for one request only, so that such a body goes to a file first.
//
// A request begins when its piece has been read, and not while it is: the store
// wants the length and the checksum in the headers, which are signed, and a reader
// tells neither. Chunks that are signed one by one would do without the checksum,
// but not without the length, and not all stores take them. So a body of 1 MiB
// takes a tenth longer than with a client that is told its length.
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	opts, err := bucket.CheckPut(key, opts)
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	var first chunks
	defer first.free()
	if err := first.read(&source{ctx, body}, int64(b.partSize)+1); err != nil {
		return durable.ObjectInfo{}, fmt.Errorf("put %q: %w", key, err)
	}
	info := durable.ObjectInfo{Key: key, ContentType: opts.ContentType, Metadata: opts.Metadata}
	switch {
	case first.size <= int64(b.partSize):
		sum := sha256.New()
		first.each(func(p []byte) { sum.Write(p) })
		info.Size = first.size
		info.ETag, err = b.single(ctx, key, &first, info.Size, sum.Sum(nil), opts)
	case opts.IfAbsent:
		info.Size, info.ETag, err = b.spooled(ctx, key, io.MultiReader(first.reader(), &source{ctx, body}), opts)
	default:
		info.Size, info.ETag, err = b.parts(ctx, key, io.MultiReader(first.reader(), &source{ctx, body}), opts)
	}
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	return info, nil
}

// A source is the caller's body until ctx ends.
type source struct {
	ctx  context.Context
	body io.Reader
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.body.Read(p)
}

// A loan is a part of a body that one request reads. net/http may go on reading
// after it has returned an answer or error: by then the bytes belong to somebody
// else.
type loan struct {
	mu   sync.Mutex
	body io.Reader // nil once it is over
}

func lend(body io.ReaderAt, size int64) *loan {
	return &loan{body: io.NewSectionReader(body, 0, size)}
}

func (l *loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		return 0, errLoanOver
	}
	return l.body.Read(p)
}

func (l *loan) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.body = nil
}

var errLoanOver = errors.New("the request is over")

// single sends a body by one request. It is repeated when that changes nothing:
// a conditional one only if it was refused.
func (b *Bucket) single(ctx context.Context, key string, body io.ReaderAt, size int64, sum []byte, opts durable.PutOptions) (etag string, err error) {
	o := putOptions(opts)
	o.DisableContentSha256 = true // the checksum is that of sum, not of chunks
	err = bucket.Repeat(ctx, func(err error) bool {
		return errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) && !opts.IfAbsent
	}, func() error {
		l := lend(body, size)
		defer l.end()
		up, err := b.core.PutObject(ctx, b.name, b.prefix+key, l, size, "", hex.EncodeToString(sum), o)
		if err != nil {
			return failure("put", key, err, true)
		}
		etag = up.ETag
		return nil
	})
	return etag, err
}

// spooled keeps a body in a file to send it by one request.
func (b *Bucket) spooled(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (size int64, etag string, err error) {
	if _, err := b.Head(ctx, key); err == nil { // a whole body would be read for nothing
		return 0, "", fmt.Errorf("put %q: %w", key, durable.ErrPrecondition)
	}
	file, err := os.CreateTemp(b.tempDir, "dwk-put-*")
	if err != nil {
		return 0, "", fmt.Errorf("put %q: %w", key, err)
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return 0, "", fmt.Errorf("put %q: %w", key, err)
	}
	hash := sha256.New()
	size, err = io.Copy(io.MultiWriter(file, hash), io.LimitReader(body, maxSingle+1))
	if err == nil && size > maxSingle {
		err = fmt.Errorf("%w: a body that must be new is at most %d bytes", durable.ErrTooLarge, int64(maxSingle))
	}
	if err != nil {
		return 0, "", fmt.Errorf("put %q: %w", key, err)
	}
	etag, err = b.single(ctx, key, file, size, hash.Sum(nil), opts)
	return size, etag, err
}
