package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
)

// leftoverAge is how long a temporary file is left alone after it was written
// to last.
const leftoverAge = time.Hour

// Sweep ends the puts that a crash has interrupted between their two steps and
// removes temporary files that have not been written to for an hour. It returns
// the number of those.
func (b *Bucket) Sweep(ctx context.Context) (removed int, err error) {
	removed, err = b.sweep(ctx, "")
	if err != nil {
		return removed, fmt.Errorf("sweep bucket: %w", err)
	}
	return removed, nil
}

func (b *Bucket) sweep(ctx context.Context, parent string) (removed int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	f, err := b.folder(parent)
	if err != nil {
		if errors.Is(absent(err), durable.ErrNotFound) {
			return 0, nil
		}
		return 0, err
	}
	defer f.close()
	list, err := f.list()
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if e.IsDir() {
			n, err := b.sweep(ctx, parent+e.Name()+"/")
			if removed += n; err != nil {
				return removed, err
			}
		}
	}
	if !slices.ContainsFunc(list, isTemp) {
		return removed, nil
	}
	n, err := f.clear(ctx)
	b.prune(parent)
	return removed + n, err
}

func isTemp(e os.DirEntry) bool {
	return e.Type().IsRegular() && strings.HasSuffix(e.Name(), tempSuffix)
}

// clear settles the keys of a folder and removes its old temporary files.
func (f *folder) clear(ctx context.Context) (removed int, err error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	list, err := f.list()
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), sidecarSuffix); ok && name != "" {
			if err := f.finish(name); err != nil {
				return 0, err
			}
		}
	}
	for _, e := range list {
		if !isTemp(e) {
			continue
		}
		info, err := f.Lstat(e.Name())
		if err == nil && clock.Since(info.ModTime()) >= leftoverAge {
			err = f.Remove(e.Name())
			removed++
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
	}
	return removed, nil
}

// finish ends a put that was interrupted between its two steps.
func (f *folder) finish(name string) error {
	s, err := f.sidecar(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSidecar) {
		return nil // nothing that a put leaves
	}
	if err != nil || s.temp() == "" {
		return err
	}
	if pending, err := f.has(s.temp()); !pending {
		return err
	}
	_, err = f.settle(name)
	return err
}
