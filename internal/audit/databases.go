package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
)

// headsInFlight bounds how many files are asked for at once.
const headsInFlight = 8

// checkFiles asks for the files that a log names.
func (a *auditor) checkFiles(ctx context.Context, c *logCheck) error {
	if a.filesErr != nil {
		return nil
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, headsInFlight)
	for _, f := range c.files {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			size, err := a.Files.Size(ctx, f.ref)
			mu.Lock()
			defer mu.Unlock()
			a.count(&a.sum.Files, 1)
			switch {
			case errors.Is(err, durable.ErrNotFound):
				c.add(FileMissing, f.ref, "%s needs the file %s, which there is not", f.row, f.ref)
			case err != nil:
				a.filesErr = err
			case size != f.size:
				c.add(FileSize, f.ref, "%s needs %d bytes of the file %s, which has %d", f.row, f.size, f.ref, size)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// A sample is some objects, each chosen with the same probability.
type sample struct {
	size, seen int
	objects    []object
}

func (s *sample) add(o object) {
	s.seen++
	if len(s.objects) < s.size {
		s.objects = append(s.objects, o)
	} else if i := rand.N(s.seen); i < s.size {
		s.objects[i] = o
	}
}

// databases puts databases together and has SQLite check them.
func (a *auditor) databases(ctx context.Context) error {
	if !a.Deep {
		for _, o := range a.sample.objects {
			if err := a.database(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}
	var last object
	for {
		cond, args := `(class, id) > (?, ?)`, []any{last.class, last.id}
		if a.Class != "" {
			cond, args = `class = ? AND id > ?`, []any{a.Class, last.id}
		}
		res, err := a.Store.Decide(ctx, libsql.S(`SELECT class, id FROM obj_head WHERE `+cond+` AND deleted_at IS NULL ORDER BY class, id LIMIT ?`, append(args, headsAtOnce)...))
		if err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		for _, row := range res[0].Rows {
			last = object{text(row[0]), text(row[1])}
			if err := a.database(ctx, last); err != nil {
				return err
			}
		}
		if len(res[0].Rows) < headsAtOnce {
			return nil
		}
	}
}

// attempts bounds how often a database is put together before it is called
// damaged: its object may go on while it is read.
const attempts = 3

// database checks the database of one object.
func (a *auditor) database(ctx context.Context, o object) error {
	var damage error
	for n := range attempts {
		if n > 0 {
			if err := pause(ctx, a.Settle); err != nil {
				return err
			}
		}
		exists, err := a.verify(ctx, o)
		if err == nil {
			if exists {
				a.sum.Databases++
			}
			return nil
		}
		if !isDamage(err) || ctx.Err() != nil {
			return fmt.Errorf("check the database of %s/%s: %w", o.class, o.id, err)
		}
		damage = err
	}
	a.sum.Databases++
	return a.report.add(Finding{Check: DatabaseDamaged, Class: o.class, ID: o.id, Message: damage.Error()})
}

// isDamage tells what is wrong with an object from what kept the audit from
// looking at it.
func isDamage(err error) bool {
	if _, store := errors.AsType[*libsql.Error](err); store {
		return false
	}
	for _, kind := range []error{objectops.ErrDamaged, objectops.ErrNotFound, objlog.ErrGap, objlog.ErrUnreadable, durable.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// verify puts the database of an object together at its head.
func (a *auditor) verify(ctx context.Context, o object) (exists bool, err error) {
	h, err := a.Objects.Head(ctx, o.class, o.id)
	if err != nil || !h.Exists() || h.Checksum == 0 {
		return false, err
	}
	d, err := a.Objects.Open(ctx, o.class, o.id, objectops.Target{TXID: h.TXID})
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if d.Checksum() != h.Checksum {
		return true, fmt.Errorf("%w: the log leads to a database with the checksum %016x, the head has %016x", objectops.ErrDamaged, d.Checksum(), h.Checksum)
	}
	return true, d.Verify(ctx)
}
