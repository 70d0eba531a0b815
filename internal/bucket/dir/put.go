package dir

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/failpoint"
)

// copyBuffer is what a put holds of its body, in bytes.
const copyBuffer = 128 << 10

// Put implements [durable.Bucket].
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	opts, err := bucket.CheckPut(key, opts)
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	if err := checkPlace(key); err != nil {
		return durable.ObjectInfo{}, err
	}
	info, err := b.put(ctx, key, body, opts)
	if err != nil {
		return durable.ObjectInfo{}, fmt.Errorf("put %q: %w", key, err)
	}
	return info, nil
}

func (b *Bucket) put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if opts.IfAbsent { // a whole body would be written for nothing
		if _, err := b.Head(ctx, key); err == nil {
			return durable.ObjectInfo{}, durable.ErrPrecondition
		}
	}
	parent, name := path.Split(key)
	p := &putting{key: key, name: name, ifAbsent: opts.IfAbsent}
	p.sidecar = sidecar{Version: uuid.NewString(), ContentType: opts.ContentType, CustomMetadata: opts.Metadata}
	file, err := p.begin(ctx, b, parent)
	if err != nil {
		return durable.ObjectInfo{}, err
	}
	defer p.folder.close()
	err = p.write(ctx, file, body)
	if err == nil {
		err = p.commit(ctx)
	}
	if err != nil {
		p.abandon()
		b.prune(parent)
		return durable.ObjectInfo{}, err
	}
	return p.info(key), nil
}

// A putting is one put on its way.
type putting struct {
	sidecar
	folder    *folder
	key, name string
	ifAbsent  bool
	committed bool // or nobody knows
}

func (p *putting) sidecarTemp() string { return p.Version + sidecarSuffix + tempSuffix }

// begin makes the temporary file of the body, and the directories to it.
func (p *putting) begin(ctx context.Context, b *Bucket, parent string) (*os.File, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f, err := b.makeFolder(p.key, parent)
		if err == nil {
			var file *os.File
			if file, err = f.create(p.temp()); err == nil {
				p.folder = f
				return file, nil
			}
			f.close()
		}
		if !errors.Is(err, fs.ErrNotExist) { // a directory that became empty was removed
			return nil, err
		}
	}
}

func (f *folder) create(name string) (*os.File, error) {
	return f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// write writes both temporary files.
func (p *putting) write(ctx context.Context, file *os.File, body io.Reader) error {
	hash := md5.New() // the layout asks for it; it protects nothing
	size, err := io.CopyBuffer(io.MultiWriter(file, hash), &reader{ctx, body}, make([]byte, copyBuffer))
	if err := closeSynced(file, err); err != nil {
		return err
	}
	p.Size, p.ETag = size, hex.EncodeToString(hash.Sum(nil))
	p.Uploaded = clock.Now().UTC().Format(uploadedFormat)
	text, err := json.Marshal(&p.sidecar)
	if err != nil {
		return err
	}
	if p.sidecar, err = readSidecar(strings.NewReader(string(text))); err != nil {
		return err
	}
	if file, err = p.folder.create(p.sidecarTemp()); err != nil {
		return err
	}
	_, err = file.Write(text)
	return closeSynced(file, err)
}

// closeSynced closes a file that is complete when err is nil.
func closeSynced(file *os.File, err error) error {
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// commit gives both files their names.
func (p *putting) commit(ctx context.Context) error {
	f := p.folder
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	exists, err := f.settle(p.name)
	if err != nil {
		return err
	}
	if exists && p.ifAbsent {
		return durable.ErrPrecondition
	}
	// Both must be there for the second step too: a sweep may have removed what
	// was not written to for long.
	if err := errors.Join(f.regular(p.temp()), f.regular(p.sidecarTemp())); err != nil {
		return err
	}
	first, second := p.renameBody, p.renameSidecar
	if exists {
		first, second = second, first
	}
	failpoint.Hit("bucket.put.before")
	if err := errors.Join(first(), f.sync()); err != nil {
		return err
	}
	failpoint.Hit("bucket.put.between")
	if err := errors.Join(second(), f.sync()); err != nil {
		return err
	}
	failpoint.Hit("bucket.put.after")
	return nil
}

func (p *putting) renameBody() error {
	err := p.folder.Rename(p.temp(), p.name)
	if err == nil {
		return nil
	}
	if info, statErr := p.folder.Lstat(p.name); statErr != nil || !info.IsDir() {
		return err
	}
	// A crash may have left a directory without keys; the slash keeps a file.
	if p.folder.Remove(p.name+"/") == nil {
		return p.folder.Rename(p.temp(), p.name)
	}
	return &bucket.ConflictError{Key: p.key, Other: p.key + "/"}
}

// renameSidecar makes the put visible.
func (p *putting) renameSidecar() error {
	p.committed = true
	return p.folder.Rename(p.sidecarTemp(), p.name+sidecarSuffix)
}

// abandon removes the temporary files, unless one may be the body of a key.
func (p *putting) abandon() {
	if !p.committed {
		p.folder.Remove(p.temp())        //nolint:errcheck // Sweep will
		p.folder.Remove(p.sidecarTemp()) //nolint:errcheck // likewise
	}
}

// makeFolder opens the directory of a key, and makes what is missing of it.
func (b *Bucket) makeFolder(key, parent string) (*folder, error) {
	f, err := b.folder(parent)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !isFileAbove(err) {
		return f, err
	}
	for i, c := range parent {
		if c != '/' {
			continue
		}
		above := parent[:strings.LastIndexByte(parent[:i], '/')+1]
		switch err := b.root.Mkdir(parent[:i], 0o700); {
		case err == nil:
			if err := b.syncFolder(above); err != nil {
				return nil, err
			}
		case isFileAbove(err):
			return nil, &bucket.ConflictError{Key: key, Other: strings.TrimSuffix(above, "/")}
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		}
	}
	f, err = b.folder(parent)
	if isFileAbove(err) {
		return nil, &bucket.ConflictError{Key: key, Other: strings.TrimSuffix(parent, "/")}
	}
	return f, err
}

func (b *Bucket) syncFolder(parent string) error {
	f, err := b.folder(parent)
	if err != nil {
		return err
	}
	defer f.close()
	return f.sync()
}

// prune removes directories that became empty, from parent up.
func (b *Bucket) prune(parent string) {
	for parent != "" {
		// The slash keeps a file that has taken the directory's place.
		if b.root.Remove(parent) != nil {
			return
		}
		parent = parent[:strings.LastIndexByte(parent[:len(parent)-1], '/')+1]
	}
}
