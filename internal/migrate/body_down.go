package migrate

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/failpoint"
)

// A sum hashes and counts.
type sum struct {
	hash.Hash
	n int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	return s.Hash.Write(p)
}

func (s *sum) text() string { return hex.EncodeToString(s.Sum(nil)) }

// uploadedFormat is ISO 8601 as sidecars have it.
const uploadedFormat = "2006-01-02T15:04:05.000Z07:00"

// placeFault says why a key has no place in the layout of files.
func placeFault(key string) string {
	if err := bucket.CheckKey(key); err != nil {
		return err.Error()
	}
	for segment := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(segment, sidecarSuffix) || len(segment) > 255-len(sidecarSuffix) {
			return "a part of the key cannot be the name of a file"
		}
	}
	if strings.HasSuffix(key, tempSuffix) {
		return "the key ends like files that are being written"
	}
	return ""
}

// moveBody writes one body with its sidecar.
func (d *Down) moveBody(ctx context.Context, t task) (l Line, e entry, err error) {
	f := t.f
	l = Line{Kind: f.kind, Item: f.item, Outcome: Moved, Bytes: f.size, Verified: d.cfg.Verify}
	e = entry{State: stateFor(d.cfg.Verify), Print: f.print}
	if !bindingName.MatchString(f.name) {
		return l, e, skipError{"the bucket's name cannot be that of a directory of the layout: letters, digits and underscores"}
	}
	if fault := placeFault(f.key); fault != "" {
		return l, e, skipError{fault}
	}
	from, err := d.bucket(f.name)
	if err != nil {
		return l, e, err
	}
	temp := d.temp(f.item)
	defer func() {
		if rerr := os.Remove(temp); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	r, info, err := from.Get(ctx, f.key, durable.GetOptions{})
	if err != nil {
		return l, e, err
	}
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return l, e, errors.Join(err, r.Close())
	}
	all, md := newSum(), md5.New()
	_, err = io.CopyBuffer(io.MultiWriter(out, all, md), r, make([]byte, 128<<10))
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, r.Close(), out.Close()); err != nil {
		return l, e, err
	}
	s := sidecar{
		Size: all.n, ETag: hex.EncodeToString(md.Sum(nil)), Version: uuid.NewString(), Uploaded: info.Uploaded.UTC().Format(uploadedFormat),
		ContentType: info.ContentType, CustomMetadata: maps.Clone(info.Metadata),
	}
	e.SHA256, e.Bytes = all.text(), all.n
	l.Source = &Side{SHA256: e.SHA256, Bytes: all.n, Type: info.ContentType, Metadata: info.Metadata}
	if info.Size != all.n || md5Text.MatchString(info.ETag) && info.ETag != s.ETag {
		return l, e, fmt.Errorf("what came is not what the bucket tells of it: %d of %d bytes, MD5 %s and %s", all.n, info.Size, s.ETag, info.ETag)
	}
	if t.facts.Body != nil && t.facts.Body.ETag == info.ETag {
		t.facts.Body.restore(&s)
	}
	d.progress.bytes(Buckets, all.n)
	path := filepath.Join(d.cfg.Dir, string(Buckets), f.name, filepath.FromSlash(f.key))
	if err := d.placeBody(temp, path, s, f); err != nil {
		return l, e, err
	}
	if d.cfg.Verify == VerifyNone {
		return l, e, nil
	}
	got, err := readBack(path, d.cfg.Verify == VerifyFull)
	l.Target = &got
	switch {
	case err != nil:
		return l, e, fmt.Errorf("verify it: %w", err)
	case got.Bytes != all.n || got.SHA256 != "" && got.SHA256 != e.SHA256 || got.Type != s.ContentType || !maps.Equal(got.Metadata, s.CustomMetadata):
		return l, e, errors.New("verify it: the files hold something else")
	}
	return l, e, nil
}

// placeBody gives a body and its sidecar their names.
func (d *Down) placeBody(temp, path string, s sidecar, f found) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = d.dirs.place(temp, path)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, os.ErrExist) {
		return skipError{"there is a key above or below it: files and directories cannot have one name"}
	}
	if err != nil {
		return err
	}
	failpoint.Hit("migrate.body.between")
	err = d.dirs.write(temp+sidecarSuffix, path+sidecarSuffix, text)
	failpoint.Hit("migrate.body.moved")
	return err
}

// readBack reads a body and its sidecar.
func readBack(path string, full bool) (side Side, err error) {
	s, err := readSidecar(path + sidecarSuffix)
	if err != nil {
		return side, err
	}
	side.Type, side.Metadata = s.ContentType, s.CustomMetadata
	file, err := os.Open(path)
	if err != nil {
		return side, err
	}
	defer file.Close() //nolint:errcheck // only read from
	info, err := file.Stat()
	if err != nil {
		return side, err
	}
	side.Bytes = info.Size()
	if full {
		h := newSum()
		if _, err := io.CopyBuffer(h, file, make([]byte, 128<<10)); err != nil {
			return side, err
		}
		side.SHA256 = h.text()
	}
	return side, nil
}
