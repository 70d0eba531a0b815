package sqlcopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
)

const (
	defaultBatch = 2 << 20
	// batchStatements bounds a batch in statements.
	batchStatements = 1000
)

// errEnded ends what makes steps when nobody takes them any more.
var errEnded = errors.New("ended")

// Up copies a database file, with what its WAL holds, into an empty target. The
// file is not changed. When it returns an error it may be called again with the
// same arguments, and goes on from there.
func Up(ctx context.Context, file string, dst Target, opts Options) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src, err := openLocal(ctx, file)
	if err != nil {
		return Summary{}, err
	}
	sum, err := run(ctx, src, dst, opts)
	if cerr := src.close(); err == nil {
		err = cerr
	}
	return sum, err
}

// Down copies a database of the fleet into a new file. What is not yet whole
// lies beside it, with the suffix .part; when Down returns an error it may be
// called again with the same arguments, and goes on from there. The file is a
// WAL database.
func Down(ctx context.Context, src Target, file string, opts Options) (Summary, error) {
	if _, err := os.Lstat(file); err == nil {
		return Summary{}, fmt.Errorf("%s exists: %w", file, ErrConflict)
	}
	r, err := openRemote(ctx, src)
	if err != nil {
		return Summary{}, err
	}
	part := file + ".part"
	sum, err := downTo(ctx, r, part, opts)
	if err != nil {
		return sum, err
	}
	return sum, publish(part, file)
}

func downTo(ctx context.Context, src reader, part string, opts Options) (sum Summary, err error) {
	dst, err := libsql.OpenFile(part, libsql.Config{Timeout: time.Hour})
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	j, other, err := readJournal(ctx, dst)
	if err != nil {
		return sum, err
	}
	if j == nil && other != "" { // it was done, and not yet renamed
		s, err := readSchema(ctx, src)
		return Summary{Tables: len(s.tables), Resumed: true, Left: s.left}, err
	}
	if sum, err = run(ctx, src, dst, opts); err != nil {
		return sum, err
	}
	return sum, Finish(ctx, dst, opts)
}

// publish gives a file that is done its name, durably.
func publish(part, file string) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if info, err := os.Stat(part + suffix); err == nil && info.Size() > 0 {
			return fmt.Errorf("%s was left", part+suffix)
		}
	}
	if err := sync(part); err != nil {
		return err
	}
	if err := os.Rename(part, file); err != nil {
		return err
	}
	return sync(filepath.Dir(file))
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// run copies src to dst.
func run(ctx context.Context, src reader, dst Target, opts Options) (sum Summary, err error) {
	s, err := readSchema(ctx, src)
	if err == nil && s.journal {
		err = fmt.Errorf("an unfinished copy (table %s): %w", journalTable, ErrUnsupported)
	}
	if err != nil {
		return sum, fmt.Errorf("%v: %w", src, err)
	}
	c := copier{dst: dst, opts: opts, journal: journal{name: opts.Journal, source: s.id()}}
	sum = Summary{Tables: len(s.tables), Left: s.left}
	defer func() {
		sum.Rows, sum.Bytes = c.journal.rows, c.journal.bytes
		sum.Left = append(sum.Left, c.left...)
	}()
	if sum.Resumed, err = c.journal.open(ctx, dst); err != nil {
		return sum, err
	}
	l := loader{source: src, schema: s, items: s.items(), batch: int64(opts.BatchBytes)}
	if l.batch <= 0 {
		l.batch = defaultBatch
	}
	if c.journal.item > len(l.items) {
		return sum, fmt.Errorf("%v: a journal of another version: %w", dst, ErrConflict)
	}
	if c.journal.item == len(l.items) {
		return sum, nil
	}
	put, err := staged(ctx, dst)
	if err != nil {
		return sum, err
	}
	if res, err := retried(ctx, dst, libsql.S(`PRAGMA application_id`)); err != nil {
		return sum, err
	} else if id, ok := res[0].Rows[0][0].(int64); ok {
		c.sameID = id == s.applicationID
	}
	c.items = len(l.items)
	return sum, c.copy(ctx, &l, put)
}

// A copier applies batches.
type copier struct {
	dst     Target
	opts    Options
	journal journal
	left    []Left
	items   int
	sameID  bool // application_id is what it shall be
}

// A batch is what is applied at once.
type batch struct {
	steps []step
	size  int64
}

// copy makes batches in one goroutine and applies them in another.
func (c *copier) copy(ctx context.Context, l *loader, put map[int64]int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan batch, 1)
	made := make(chan error, 1)
	from, last := c.journal.position, c.journal.last
	go func() {
		defer close(batches)
		made <- fill(ctx, l, from, last, put, batches)
	}()
	var err error
	for b := range batches {
		if err == nil {
			if err = c.apply(ctx, b); err != nil {
				cancel() // and take what is made until then
			}
		}
	}
	if merr := <-made; err == nil {
		err = merr
	}
	return err
}

// fill makes batches of the loader's steps.
func fill(ctx context.Context, l *loader, from position, last string, put map[int64]int64, to chan<- batch) error {
	var b batch
	send := func() bool {
		if len(b.steps) == 0 {
			return true
		}
		select {
		case to <- b:
			b = batch{}
			return true
		case <-ctx.Done():
			return false
		}
	}
	glued := false
	l.emit = func(s step) bool {
		size := int64(len(s.stmt.SQL)) + 100
		for _, a := range s.stmt.Args {
			n, _ := sizeOf(a)
			size += n
		}
		if !glued && (s.what.alone || b.size+size > l.batch) && !send() {
			return false
		}
		b.steps, b.size = append(b.steps, s), b.size+size
		glued = s.glued
		if !glued && (s.what.alone || b.size >= l.batch || len(b.steps) >= batchStatements) {
			return send()
		}
		return true
	}
	if err := l.run(ctx, from, last, put); err != nil {
		if errors.Is(err, errEnded) {
			err = ctx.Err()
		}
		return err
	}
	if !send() {
		return ctx.Err()
	}
	return nil
}

// apply applies a batch once, whatever becomes of answers.
func (c *copier) apply(ctx context.Context, b batch) error {
	next := c.journal
	next.step++
	stmts := make([]libsql.Statement, 1, len(b.steps)+1)
	what := make([]*item, 1, len(b.steps)+1)
	for _, s := range b.steps {
		if s.after.item != next.item {
			next.last = ""
		}
		next.position = s.after
		next.rows, next.bytes = next.rows+s.rows, next.bytes+s.bytes
		if !s.none && !(c.sameID && s.what.setting == "application_id") {
			stmts, what = append(stmts, s.stmt), append(what, s.what)
		}
	}
	for i := len(b.steps) - 1; i >= 0 && b.steps[i].after.item == next.item; i-- {
		if b.steps[i].last != nil {
			next.last = digest(b.steps[i].last)
			break
		}
	}
	stmts[0] = next.move()
	mode := libsql.Load
	if next.item == c.items {
		mode = libsql.Write // with it all before is safe
	}
	for try := 1; ; try++ {
		_, err := c.dst.Batch(ctx, mode, stmts...)
		if err != nil && refused(err) && what[len(what)-1] != nil && what[len(what)-1].setting == "application_id" {
			c.left = append(c.left, Left{"application_id", "the server does not take it"})
			stmts, what = stmts[:1], what[:1]
			continue
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return c.failed(err, what)
		}
		applied, jerr := c.applied(ctx, next, err)
		if jerr != nil {
			return jerr
		}
		if applied {
			break
		}
		if !(passing(err) || libsql.OutcomeOf(err) == libsql.Unknown) || try == attempts || !pause(ctx, try) {
			return c.failed(err, what)
		}
	}
	c.journal = next
	if c.opts.Progress != nil {
		c.opts.Progress(next.rows, next.bytes)
	}
	return nil
}

// refused reports an error that is about the text of a statement.
func refused(err error) bool {
	kind, ok := libsql.KindOf(err)
	return ok && (kind == libsql.KindSQL || kind == libsql.KindAuth) && libsql.OutcomeOf(err) != libsql.Unknown
}

// applied finds out whether a batch with an error was applied after all.
func (c *copier) applied(ctx context.Context, next journal, err error) (bool, error) {
	e, ok := errors.AsType[*libsql.Error](err)
	guard := ok && e.Statement == 0 && (e.Kind == libsql.KindConstraint || e.Kind == libsql.KindSQL)
	if !guard && libsql.OutcomeOf(err) != libsql.Unknown {
		return false, nil
	}
	j, _, jerr := readJournal(ctx, c.dst)
	switch {
	case jerr != nil:
		return false, errors.Join(err, jerr)
	case j != nil && *j == next:
		return true, nil
	case j == nil || *j != c.journal:
		return false, fmt.Errorf("%v: another copy is under way, or its journal was changed: %w", c.dst, ErrConflict)
	}
	return false, nil
}

// failed names what a statement was about.
func (c *copier) failed(err error, what []*item) error {
	if e, ok := errors.AsType[*libsql.Error](err); ok && e.Statement > 0 && e.Statement < len(what) {
		it := what[e.Statement]
		if it.table != nil {
			return fmt.Errorf("%s, behind row %d: %w", it.name, c.journal.row, err)
		}
		return fmt.Errorf("%s: %w", it.name, err)
	}
	return err
}
