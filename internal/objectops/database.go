package objectops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/spool"
)

// A Database is a state of an object, put together in a temporary directory.
// It must be closed.
type Database struct {
	// Position is where it is from; zero when it is from a file.
	Position objlog.Position
	dir      string
	mirror   *mirror.Mirror
}

// spoolMemory is how much of an entry is kept in memory.
const spoolMemory = 1 << 20

// newDatabase returns an empty database within dir, or the system's place.
func newDatabase(dir string) (*Database, error) {
	dir, err := os.MkdirTemp(dir, ".dwk-object-*")
	if err != nil {
		return nil, fmt.Errorf("directory for the database: %w", err)
	}
	d := &Database{dir: dir}
	d.mirror = mirror.New(d.path(), mirror.Config{})
	return d, nil
}

func (d *Database) path() string { return filepath.Join(d.dir, "object.db") }

// Close removes what is on disk.
func (d *Database) Close() error { return errors.Join(d.mirror.Close(), os.RemoveAll(d.dir)) }

// Bytes is the size of the database.
func (d *Database) Bytes() int64 {
	size, pages := d.mirror.Size()
	return int64(size) * int64(pages)
}

// Checksum is the rolling checksum of the database's pages, as logs have it.
func (d *Database) Checksum() uint64 { return d.mirror.Position().Checksum }

// Open puts a state of an object together from its log. Every entry on the way
// is checked against its checksums and against the pages that it changes.
func (o *Ops) Open(ctx context.Context, class, id string, t Target) (*Database, error) {
	return o.openIn(ctx, o.Dir, class, id, t)
}

func (o *Ops) openIn(ctx context.Context, dir, class, id string, t Target) (*Database, error) {
	h, err := o.head(ctx, class, id)
	if err != nil {
		return nil, err
	}
	at, err := o.resolve(ctx, class, id, h, t)
	if err != nil {
		return nil, err
	}
	d, err := newDatabase(dir)
	if err != nil {
		return nil, err
	}
	d.Position = at
	if err := o.reader(d.dir).CatchUp(ctx, d.mirror, class, id, at.TXID); err != nil {
		return nil, errors.Join(fmt.Errorf("put together commit %d of %s/%s: %w", at.TXID, class, id, damaged(err)), d.Close())
	}
	if d.mirror.Position().Checksum == 0 {
		return nil, errors.Join(notFound("object %s/%s had no database at commit %d", class, id, at.TXID), d.Close())
	}
	return d, nil
}

// damaged marks what a log says about itself.
func damaged(err error) error {
	if errors.Is(err, mirror.ErrDiverged) || errors.Is(err, mirror.ErrBadEntry) || errors.Is(err, objlog.ErrGap) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// OpenFile makes a database of a plain SQLite file. It must not have a journal
// or WAL beside it that is not in it yet.
func (o *Ops) OpenFile(path string) (_ *Database, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	for _, suffix := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(path + suffix); err == nil && info.Size() > 0 {
			return nil, fmt.Errorf("%s is not the whole database: there is %s beside it", path, path+suffix)
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d, err := newDatabase(o.Dir)
	if err != nil {
		return nil, err
	}
	entry := spool.New(spool.Config{Memory: spoolMemory, Dir: d.dir})
	defer entry.Close() //nolint:errcheck // a temporary file
	w := bufio.NewWriterSize(entry, 64<<10)
	if _, err = mirror.EncodeSnapshot(w, f, info.Size(), 1); err == nil {
		if err = w.Flush(); err == nil {
			err = d.mirror.ApplyFrom(entry, entry.Size())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, damaged(err)), d.Close())
	}
	return d, nil
}

// Copy writes the database as a plain SQLite file to w, without a check of
// what arrives. Queries are over.
func (d *Database) Copy(w io.Writer) error { return d.mirror.Export(w) }

// Verify compares the database with its checksum and has SQLite check it.
func (d *Database) Verify(ctx context.Context) error {
	var faults []string
	for row, err := range d.mirror.Query(ctx, `PRAGMA integrity_check(10)`) {
		if err != nil {
			return fmt.Errorf("integrity check: %w", sqlDamaged(ctx, err))
		}
		if text := fmt.Sprint(row.Values[0]); text != "ok" {
			faults = append(faults, text)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: integrity check: %s", ErrDamaged, strings.Join(faults, "; "))
	}
	_, pages := d.mirror.Size()
	for row, err := range d.mirror.Query(ctx, `PRAGMA page_count`) {
		if err != nil {
			return fmt.Errorf("integrity check: %w", sqlDamaged(ctx, err))
		}
		if n := num(row.Values[0]); n != int64(pages) {
			return fmt.Errorf("%w: SQLite counts %d pages, the file has %d", ErrDamaged, n, pages)
		}
	}
	if err := d.mirror.Verify(); err != nil {
		return damaged(err)
	}
	return ctx.Err()
}

// sqlDamaged marks the error of a check that SQLite could not finish.
func sqlDamaged(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*mirror.SQLError](err); ok && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// ErrWrites is the error of a query that is no query.
var ErrWrites = errors.New("the statement writes: only reading is allowed")

// Query runs one statement that reads, and yields its rows with values as they
// are stored. The first error ends the sequence; it is [ErrWrites] for a
// statement that changes anything, whose rows are not shown.
func (d *Database) Query(ctx context.Context, query string) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		// What a statement writes, it has written before its first row.
		first := true
		for row, err := range d.mirror.Query(ctx, query) {
			if err == nil && first && d.written() {
				err = ErrWrites
			}
			first = false
			if !yield(row, err) || err != nil {
				return
			}
		}
		if first && d.written() {
			yield(durable.Row{}, ErrWrites)
		}
	}
}

func (d *Database) written() bool { return d.mirror.InTx() || d.mirror.Uncommitted() > 0 }

// encode writes the database as the snapshot that is commit txid, and reads it
// again to its end.
func (d *Database) encode(txid uint64) (*spool.Spool, mirror.Header, error) {
	out, h, err := d.snapshot(txid)
	if err == nil {
		h, err = mirror.InspectFrom(out.Reader())
		if want := (mirror.Position{TXID: txid, Checksum: d.Checksum()}); err == nil && h.After() != want {
			err = fmt.Errorf("the snapshot is of %s, the database of %s", h.After(), want)
		}
		if err != nil {
			out.Close() //nolint:errcheck // a temporary file
		}
	}
	if err != nil {
		return nil, h, fmt.Errorf("encode the database: %w", err)
	}
	return out, h, nil
}

func (d *Database) snapshot(txid uint64) (_ *spool.Spool, h mirror.Header, err error) {
	if err := d.mirror.Close(); err != nil { // the file alone is the database then
		return nil, h, err
	}
	f, err := os.Open(d.path())
	if err != nil {
		return nil, h, err
	}
	defer f.Close() //nolint:errcheck // only read from
	out := spool.New(spool.Config{Memory: spoolMemory, Dir: d.dir})
	w := bufio.NewWriterSize(out, 64<<10)
	h, err = mirror.EncodeSnapshot(w, f, d.Bytes(), txid)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		out.Close() //nolint:errcheck // a temporary file
		return nil, h, err
	}
	return out, h, nil
}

// writeTo writes the database as a plain SQLite file and reads it again.
func (d *Database) writeTo(f *os.File) error {
	w := bufio.NewWriterSize(f, 64<<10)
	err := d.mirror.Export(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return err
	}
	h, err := mirror.EncodeSnapshot(io.Discard, f, d.Bytes(), 1)
	if err == nil && h.Post != d.Checksum() {
		err = fmt.Errorf("%w: what was written has the checksum %016x, want %016x", ErrDamaged, h.Post, d.Checksum())
	}
	return err
}
