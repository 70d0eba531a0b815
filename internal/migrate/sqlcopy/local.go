package sqlcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// valueLimit is the size of values of a file that are read as a whole; tests
// make it less.
var valueLimit = 4 << 20

// A local is a database file that is read, all from one moment, and not
// changed.
type local struct {
	conn *sqlite.Conn
	path string
	was  stamp
	temp string // a folder to remove
	utf8 bool
	// limit is the size of values of the present table that are read whole.
	limit int
}

// openLocal opens a file with what its WAL holds. How depends on what lies
// beside it:
//
//   - nothing: as a file that does not change, without locks or new files. That
//     nobody changed it meanwhile is seen at the end.
//   - a WAL: with an exclusive lock, for then SQLite keeps the index of the WAL in
//     memory instead of in another file, and nobody else changes it.
//   - a journal that would have to be rolled back, or a WAL in a place where no
//     exclusive lock is to be had: in a copy.
//
// What reads it ends with ctx.
func openLocal(ctx context.Context, path string) (*local, error) {
	l := &local{path: path}
	var err error
	if l.was, err = stampOf(path); err != nil {
		return nil, err
	}
	switch {
	case l.was.journal.size > 0:
		err = l.openCopy()
	case l.was.wal.size > 0:
		if err = l.openWAL(); errors.Is(err, errNotWritable) {
			err = l.openCopy()
		}
	default:
		l.conn, err = sqlite.OpenImmutable(path)
	}
	if err == nil {
		l.conn.Watch(ctx)
		err = l.begin()
	}
	if err != nil {
		return nil, errors.Join(l.named(err), l.discard())
	}
	return l, nil
}

var errNotWritable = errors.New("the file may not be written")

func (l *local) openWAL() (err error) {
	if l.conn, err = sqlite.OpenExisting(l.path); err != nil {
		return err
	}
	if l.conn.FileReadOnly() {
		return errNotWritable
	}
	return l.conn.Exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=1")
}

// openCopy opens a copy of the file and what lies beside it.
func (l *local) openCopy() (err error) {
	if l.conn != nil {
		l.conn.CloseKeepingWAL() //nolint:errcheck // it was not used
		l.conn = nil
	}
	if l.temp, err = os.MkdirTemp("", "dwk-sqlcopy-"); err != nil {
		return err
	}
	to := filepath.Join(l.temp, "copy.sqlite")
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if err := copyFile(l.path+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	l.conn, err = sqlite.OpenExisting(to)
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// begin takes the moment that is read.
func (l *local) begin() error {
	if err := l.conn.Exec("BEGIN"); err != nil {
		return err
	}
	encoding, err := l.conn.QueryText("PRAGMA encoding")
	if err != nil {
		return err
	}
	if _, err := l.conn.QueryText("SELECT count(*) FROM sqlite_master"); err != nil {
		return err
	}
	l.utf8 = encoding == "UTF-8"
	return nil
}

// table implements reader. Values of virtual tables, and texts that are not
// UTF-8, cannot be read in parts.
func (l *local) table(t *table) {
	l.limit = 1 << 30
	if l.utf8 && !t.virtual {
		l.limit = valueLimit
	}
	l.conn.LimitLength(l.limit)
}

func (l *local) encoding() bool { return l.utf8 }

// rows implements reader.
func (l *local) rows(ctx context.Context, sql string, args ...any) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		s, _, err := l.conn.Prepare(sql)
		if err != nil {
			yield(nil, l.named(err))
			return
		}
		defer s.Close() //nolint:errcheck // reported by the steps
		for i, a := range args {
			if err := s.Bind(i+1, a); err != nil {
				yield(nil, l.named(err))
				return
			}
		}
		for columns := s.Columns(); ; {
			ok, err := s.Step()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, l.named(err))
				return
			}
			if !ok || !yield(s.Row(make([]any, 0, columns)), nil) {
				return
			}
		}
	}
}

func (l *local) named(err error) error { return fmt.Errorf("database %s: %w", l.path, err) }

// piece implements reader.
func (l *local) piece(ctx context.Context, p place, off, n int64) ([]byte, error) {
	if p.rowid != nil && !p.table.virtual {
		blob, err := l.conn.OpenBlob(p.table.name, p.column.name, *p.rowid)
		if err == nil {
			b, err := blob.Read(off, n)
			return b, errors.Join(err, blob.Close())
		}
	}
	l.conn.LimitLength(1 << 30)
	defer l.conn.LimitLength(l.limit)
	return pieceByQuery(ctx, l, p, off, n)
}

// careful implements reader.
func (l *local) careful(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Primary() == sqlite.TooBig
}

func (l *local) String() string { return l.path }

// close ends the reading, and reports whether the file was changed meanwhile.
func (l *local) close() error {
	err := l.discard()
	if now, serr := stampOf(l.path); serr != nil {
		err = errors.Join(err, serr)
	} else if now != l.was {
		err = errors.Join(err, fmt.Errorf("database %s: %w", l.path, ErrSourceChanged))
	}
	return err
}

func (l *local) discard() (err error) {
	if l.conn != nil {
		err = l.conn.CloseKeepingWAL()
		l.conn = nil
	}
	if l.temp != "" {
		err = errors.Join(err, os.RemoveAll(l.temp))
	}
	return err
}

// A stamp changes with a file and what lies beside it.
type stamp struct{ main, wal, journal fileStamp }

type fileStamp struct {
	size    int64
	changed int64 // ns
}

func stampOf(path string) (s stamp, err error) {
	for _, f := range []struct {
		suffix string
		to     *fileStamp
	}{{"", &s.main}, {"-wal", &s.wal}, {"-journal", &s.journal}} {
		info, err := os.Stat(path + f.suffix)
		switch {
		case err == nil:
			*f.to = fileStamp{info.Size(), info.ModTime().UnixNano()}
		case f.suffix == "" || !errors.Is(err, fs.ErrNotExist):
			return s, err
		}
	}
	return s, nil
}
