package migrate

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"regexp"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/failpoint"
)

// smallBody is how much of a body is kept between hashing and sending it.
const smallBody = 1 << 20

// md5Text is an ETag that is the MD5 of a body.
var md5Text = regexp.MustCompile(`^[0-9a-f]{32}$`)

// A body is one of the source, hashed.
type body struct {
	path string
	s    sidecar
	opts durable.PutOptions
	side Side
	md5  string
	text []byte // nil when it is too large to keep
}

// readBody hashes a body and compares it with its sidecar.
func readBody(ctx context.Context, f found) (*body, error) {
	b := &body{path: f.path}
	var err error
	if b.s, err = readSidecar(f.path + sidecarSuffix); err != nil {
		return nil, err
	}
	b.opts, err = bucket.CheckPut(f.key, durable.PutOptions{ContentType: b.s.ContentType, Metadata: b.s.CustomMetadata})
	if err != nil {
		return nil, skipError{err.Error()}
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	sum, all := md5.New(), sha256.New()
	var kept bytes.Buffer
	to := []io.Writer{sum, all}
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if info.Size() <= smallBody {
		kept.Grow(int(info.Size()) + bytes.MinRead)
		to = append(to, &kept)
	}
	n, err := io.CopyBuffer(io.MultiWriter(to...), &contextReader{ctx, file}, make([]byte, 128<<10))
	if err != nil {
		return nil, err
	}
	if now, _, err := fingerprint(f.path, f.path+sidecarSuffix); err != nil {
		return nil, err
	} else if now != f.print {
		return nil, ErrChanged
	}
	if len(to) == 3 {
		b.text = kept.Bytes()
	}
	b.md5 = hex.EncodeToString(sum.Sum(nil))
	b.side = Side{SHA256: hex.EncodeToString(all.Sum(nil)), Bytes: n, Type: b.opts.ContentType, Metadata: b.opts.Metadata}
	switch {
	case n != b.s.Size:
		return nil, fmt.Errorf("it has %d bytes, its %s file says %d", n, sidecarSuffix, b.s.Size)
	case !strings.EqualFold(b.md5, b.s.ETag):
		return nil, fmt.Errorf("its MD5 is %s, its %s file says %q", b.md5, sidecarSuffix, b.s.ETag)
	}
	return b, nil
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := interrupted(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// A hashing reader hashes what is read.
type hashing struct {
	r io.Reader
	h hash.Hash
	n func(int)
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.h.Write(p[:n])
	if h.n != nil {
		h.n(n)
	}
	return n, err
}

// targetBody reads what is known of a body at the target, and when full the
// body itself. ok is false when there is none.
func targetBody(ctx context.Context, b durable.Bucket, key string, full bool) (side Side, etag string, ok bool, err error) {
	var info durable.ObjectInfo
	if full {
		var r io.ReadCloser
		if r, info, err = b.Get(ctx, key, durable.GetOptions{}); err == nil {
			h := sha256.New()
			var n int64
			n, err = io.CopyBuffer(h, r, make([]byte, 128<<10))
			err = errors.Join(err, r.Close())
			if err == nil && n != info.Size {
				err = fmt.Errorf("%d of %d bytes came", n, info.Size)
			}
			side.SHA256 = hex.EncodeToString(h.Sum(nil))
		}
	} else {
		info, err = b.Head(ctx, key)
	}
	if errors.Is(err, durable.ErrNotFound) {
		return side, "", false, nil
	}
	side.Bytes, side.Type, side.Metadata = info.Size, info.ContentType, lowerNames(info.Metadata)
	return side, info.ETag, err == nil, err
}

// lowerNames gives metadata the names that are compared.
func lowerNames(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[strings.ToLower(k)] = v
	}
	return out
}

// differs tells what is not the same at the target.
func (b *body) differs(there Side, etag string) string {
	switch {
	case there.Bytes != b.side.Bytes:
		return fmt.Sprintf("it has %d bytes here and %d there", b.side.Bytes, there.Bytes)
	case there.SHA256 != "" && there.SHA256 != b.side.SHA256, there.SHA256 == "" && md5Text.MatchString(etag) && etag != b.md5:
		return "its bytes differ"
	case there.Type != b.side.Type:
		return fmt.Sprintf("its type is %q here and %q there", b.side.Type, there.Type)
	case !maps.Equal(there.Metadata, b.side.Metadata):
		return "its metadata differs"
	}
	return ""
}

// moveBody moves one body and compares both sides.
func (m *mover) moveBody(ctx context.Context, f found, je entry) (Line, entry, error) {
	l := Line{Kind: f.kind, Item: f.item, Outcome: Moved, Verified: m.cfg.Verify}
	to, err := m.bucket(f.name)
	if err != nil {
		return l, je, err
	}
	b, err := readBody(ctx, f)
	if err != nil {
		return l, je, sourceError{err}
	}
	l.Bytes, l.Source = b.side.Bytes, &b.side
	e := entry{State: stateMoved, Bytes: b.side.Bytes, SHA256: b.side.SHA256, Print: f.print}
	full := m.cfg.Verify == VerifyFull
	mine := false
	if !m.empty(f.name) || je.State != "" {
		there, etag, ok, err := targetBody(ctx, to, f.key, full)
		if err != nil {
			return l, e, err
		}
		if !ok && m.deletedSince(f, je) {
			return l, e, errDeletedSince
		}
		if ok {
			// A body that is the same is compared for what it is worth: without a
			// full verification by what the store tells of it.
			text := b.differs(there, etag)
			if text == "" && there.SHA256 == "" && !md5Text.MatchString(etag) {
				if there, etag, _, err = targetBody(ctx, to, f.key, true); err != nil {
					return l, e, err
				}
				text = b.differs(there, etag)
			}
			ours := je.State != "" && je.Print == f.print
			if text != "" && m.cfg.OnConflict != ConflictReplace {
				// Also when it is one that was moved: the fleet has changed it since.
				l.Target = &there
				return l, e, conflictError{text}
			}
			if mine = text == ""; mine {
				if !ours {
					l.Outcome = Already
				}
				l.Target, e.Body = &there, factsOf(b.s, etag)
			}
		}
	}
	if !mine {
		info, err := m.putBody(ctx, to, f, b)
		if err != nil {
			return l, e, err
		}
		e.Body = factsOf(b.s, info.ETag)
		failpoint.Hit("migrate.body.moved")
		if m.cfg.Verify != VerifyNone {
			there, etag, ok, err := targetBody(ctx, to, f.key, full)
			l.Target = &there
			switch {
			case err != nil:
				return l, e, fmt.Errorf("verify it: %w", err)
			case !ok:
				return l, e, errors.New("verify it: it is not there")
			}
			if text := b.differs(there, etag); text != "" {
				return l, e, fmt.Errorf("verify it: %s", text)
			}
		}
	}
	e.State = stateFor(m.cfg.Verify)
	return l, e, nil
}

// putBody sends a body. A large one is read again, and must be what it was.
func (m *mover) putBody(ctx context.Context, to durable.Bucket, f found, b *body) (durable.ObjectInfo, error) {
	if b.text != nil {
		info, err := to.Put(ctx, f.key, bytes.NewReader(b.text), b.opts)
		m.progress.bytes(f.kind, int64(len(b.text)))
		return info, err
	}
	file, err := os.Open(b.path)
	if err != nil {
		return durable.ObjectInfo{}, sourceError{err}
	}
	defer file.Close() //nolint:errcheck // only read from
	h := &hashing{r: file, h: sha256.New(), n: func(n int) { m.progress.bytes(f.kind, int64(n)) }}
	info, err := to.Put(ctx, f.key, h, b.opts)
	if err == nil && hex.EncodeToString(h.h.Sum(nil)) != b.side.SHA256 {
		err = errors.Join(sourceError{ErrChanged}, to.Delete(ctx, f.key))
	}
	return info, err
}
