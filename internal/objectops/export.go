package objectops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// An Exported says what was written.
type Exported struct {
	Position objlog.Position
	Bytes    int64
	Checksum uint64
}

// Export writes a state of an object to a new plain SQLite file that only its
// owner can read. The file comes to be when all of it is on the disk and has
// been verified: its checksum and SQLite's integrity check. The directory has
// room for the database twice while this runs.
func (o *Ops) Export(ctx context.Context, class, id string, t Target, path string) (out Exported, err error) {
	if err := free(path); err != nil {
		return out, err
	}
	d, err := o.openIn(ctx, filepath.Dir(path), class, id, t)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Verify(ctx); err != nil {
		return out, fmt.Errorf("commit %d of %s/%s: %w", d.Position.TXID, class, id, err)
	}
	f, err := os.CreateTemp(d.dir, "export-*")
	if err != nil {
		return out, fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(d.writeTo(f), f.Close())
	if err == nil {
		err = free(path)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return out, fmt.Errorf("write %s: %w", path, err)
	}
	return Exported{d.Position, d.Bytes(), d.Checksum()}, nil
}

// free refuses to write over files, and beside those that SQLite would take
// for a part of the new one.
func free(path string) error {
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return fmt.Errorf("%s is there already", path+suffix)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
