package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/spool"
)

// A Reader brings what the log holds into databases.
type Reader struct {
	Store *kv.Store
	Blobs Blobs
	// Dir is where temporary files are made; empty is the system's place.
	Dir string
}

// CatchUp brings a mirror to a later position, by the shortest path. It fails
// with [objlog.ErrGap] when the log does not lead there, and leaves the mirror
// as [mirror.Mirror.Apply] does.
func (r Reader) CatchUp(ctx context.Context, m *mirror.Mirror, class, id string, target uint64) error {
	for at := m.Position().TXID; at != target; at = m.Position().TXID {
		path, err := objlog.Path(ctx, r.Store, class, id, at, target)
		if err != nil {
			return err
		}
		if err := r.Apply(ctx, m, path); err != nil {
			return fmt.Errorf("apply log of %s/%s: %w", class, id, err)
		}
	}
	return nil
}

// Apply brings entries that follow each other into a mirror: those without
// pages, those that end the database, and those in the object store too. When
// they do not fit, the mirror has been discarded and the error wraps
// [mirror.ErrDiverged].
func (r Reader) Apply(ctx context.Context, m *mirror.Mirror, entries []objlog.Entry) error {
	var files [][]byte
	flush := func() error {
		defer func() { files = nil }()
		return m.Apply(files...)
	}
	for _, e := range entries {
		if e.Paged() && e.Ref == "" {
			files = append(files, e.Data)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		var err error
		if e.Paged() {
			err = r.applyFile(ctx, m, e)
		} else {
			err = advance(m, e)
		}
		if err != nil {
			return fmt.Errorf("entry %d to %d: %w", e.MinTXID, e.MaxTXID, err)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if n := len(entries); n > 0 {
		if last, at := entries[n-1], m.Position(); at.TXID != last.MaxTXID || at.Checksum != last.Post {
			return diverged(m, "the log's files lead to %s, its rows to %d/%016x", at, last.MaxTXID, last.Post)
		}
	}
	return nil
}

// advance applies an entry without pages.
func advance(m *mirror.Mirror, e objlog.Entry) error {
	at := m.Position()
	switch {
	case e.MaxTXID <= at.TXID:
	case e.Complete() && e.Post == 0:
		return m.Empty(e.MaxTXID)
	case e.MinTXID <= at.TXID+1 && e.Post == at.Checksum:
		return m.Advance(e.MaxTXID)
	}
	return diverged(m, "it does not follow the mirror at %s", at)
}

func diverged(m *mirror.Mirror, format string, args ...any) error {
	return errors.Join(fmt.Errorf("%w: "+format, append([]any{mirror.ErrDiverged}, args...)...), m.Discard())
}

// applyFile applies an entry from the object store, which is fetched first.
func (r Reader) applyFile(ctx context.Context, m *mirror.Mirror, e objlog.Entry) error {
	f, err := r.fetch(ctx, e)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a temporary file
	return m.ApplyFrom(f, e.Size)
}

// fetchMemory is how much of a fetched file is kept in memory.
const fetchMemory = 1 << 20

func (r Reader) fetch(ctx context.Context, e objlog.Entry) (*spool.Spool, error) {
	s := spool.New(spool.Config{Memory: fetchMemory, Dir: r.Dir})
	if err := r.copyTo(ctx, s, e); err != nil {
		s.Close() //nolint:errcheck // a temporary file
		return nil, err
	}
	return s, nil
}

// copyTo copies the file of an offloaded entry.
func (r Reader) copyTo(ctx context.Context, w io.Writer, e objlog.Entry) error {
	body, err := r.Blobs.Get(ctx, e.Ref)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", e.Ref, err)
	}
	defer body.Close() //nolint:errcheck // only read from
	n, err := io.Copy(w, io.LimitReader(body, e.Size+1))
	if err == nil && n != e.Size {
		err = fmt.Errorf("%w: it does not have the %d bytes that the log says", mirror.ErrBadEntry, e.Size)
	}
	if err != nil {
		return fmt.Errorf("fetch %s: %w", e.Ref, err)
	}
	return nil
}

// Materialise writes the database as it was at a position to w, as a plain
// SQLite file. It fails with [objlog.ErrGap] when the position is not kept, and
// with [mirror.ErrNoDatabase] when there was no database.
func (r Reader) Materialise(ctx context.Context, class, id string, txid uint64, w io.Writer) (mirror.Position, error) {
	dir, err := os.MkdirTemp(r.Dir, "object-*")
	if err != nil {
		return mirror.Position{}, fmt.Errorf("materialise %s/%s: %w", class, id, err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	m := mirror.New(filepath.Join(dir, "object.db"), mirror.Config{})
	if err = r.CatchUp(ctx, m, class, id, txid); err == nil {
		err = m.Export(w)
	}
	if err != nil {
		return m.Position(), fmt.Errorf("materialise %s/%s at commit %d: %w", class, id, txid, err)
	}
	return m.Position(), nil
}
