package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// toLocal is the direction of a move from a fleet to a local directory.
const toLocal = "to-local"

// A Down is a move from a store set into an empty local directory.
type Down struct {
	mover
	half string // the directory of what is not complete
	dirs *dirMaker
	db   *libsql.DB
	lock *os.File
	// plans are the moves into the store set, the last one first: what they know
	// of an item is given back.
	plans []journal
}

// NewDown prepares a move to a local directory: one that does not exist, or is
// empty, or holds what an earlier run of the same move has left. Nothing is made
// before [Down.Move]. It must be closed.
func NewDown(ctx context.Context, cfg Config, p *Progress) (*Down, error) {
	cfg.setDefaults()
	if cfg.QueueFile == "" {
		cfg.QueueFile = filepath.Join(cfg.Dir, queueName)
	}
	d := &Down{mover: mover{cfg: cfg, progress: p, proof: newProof(cfg.Proof)}, half: filepath.Join(cfg.Dir, halfName)}
	var err error
	if d.path, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	d.dirs = &dirMaker{root: filepath.Clean(cfg.Dir), sync: syncDir}
	d.planID = sourceID(cfg.Host, toLocal+"\x00"+d.path)
	if err := d.checkTarget(); err != nil {
		return nil, err
	}
	names, err := planNames(ctx, cfg.Store)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		d.plans = append(d.plans, journal{cfg.Store, n})
	}
	return d, nil
}

// Close ends the move.
func (d *Down) Close() error {
	var err error
	if d.db != nil {
		err = d.db.Close()
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// Plan counts what would move. It changes nothing.
func (d *Down) Plan(ctx context.Context) (*Result, error) {
	lines := newProof(nil)
	if d.cfg.DryRun {
		d.begin(toLocal)
		lines = d.proof
	}
	r := d.result(toLocal, d.cfg.Primary, d.path, lines)
	err := d.produce(ctx, func(t task) error {
		d.tally.sum(t.f.kind, t.f.size)
		d.progress.plan(t.f.kind, 1, t.f.size)
		l := Line{Kind: t.f.kind, Item: t.f.item, Outcome: Moved, Bytes: t.f.size}
		if t.f.outcome != "" {
			l.Outcome, l.Reason = t.f.outcome, t.f.reason
		}
		d.tally.add(l)
		return nil
	})
	if err == nil {
		err = d.planQueues(ctx)
	}
	if err == nil && d.cfg.DryRun {
		r.Complete = true
		err = d.end(r)
	}
	return r, err
}

// Move moves everything that is not there yet. The result says what became of
// it; an error, why it ended before its end.
func (d *Down) Move(ctx context.Context) (r *Result, err error) {
	r = d.result(toLocal, d.cfg.Primary, d.path, d.proof)
	d.begin(toLocal)
	defer func() {
		if err != nil {
			r.Stopped = err.Error()
		}
		err = errors.Join(err, d.end(r))
	}()
	if err := d.forget(ctx); err != nil {
		return r, err
	}
	if err := repeat(ctx, func() error { return fleet.BeginMove(ctx, d.cfg.Store, moveID(d.planID)) }); err != nil {
		return r, err
	}
	r.Begun = true
	failpoint.Hit("migrate.marked")
	if err := d.prepare(); err != nil {
		return r, err
	}
	if err := d.journal.store.Init(ctx); err != nil {
		return r, err
	}
	err = d.run(ctx, func(ctx context.Context, emit func(task) error) error {
		return d.produce(ctx, func(t task) error {
			if t.f.outcome != "" {
				d.problem(t.f)
				return nil
			}
			return emit(t)
		})
	}, d.move, func(ctx context.Context, emit func(found, Line, error)) {
		if d.cfg.has(Queues) {
			f := found{kind: Queues, item: string(Queues)}
			l, err := d.moveQueues(ctx)
			emit(f, l, err)
		}
	})
	if err != nil {
		return r, err
	}
	failpoint.Hit("migrate.ended")
	if err := repeat(ctx, func() error { return fleet.EndMove(ctx, d.cfg.Store, moveID(d.planID)) }); err != nil {
		return r, err
	}
	failpoint.Hit("migrate.unmarked")
	// What is left of the work goes last: with it the directory is known to be
	// one to go on with.
	if r.Total().Bad == 0 {
		err := d.db.Close()
		d.db = nil
		// By one step: half of it would be a directory to which no move can come back.
		done := d.half + ".done"
		if err = errors.Join(err, os.RemoveAll(done)); err == nil {
			err = os.Rename(d.half, done)
		}
		if err == nil {
			err = errors.Join(syncDir(d.cfg.Dir), os.RemoveAll(done))
		}
		if err != nil {
			return r, fmt.Errorf("remove %s: %w", d.half, err)
		}
	}
	r.Complete = true
	return r, nil
}

func (d *Down) move(ctx context.Context, t task) (Line, entry, error) {
	switch t.f.kind {
	case Objects:
		l, e, err := d.moveObject(ctx, t)
		d.progress.bytes(Objects, t.f.size)
		return l, e, err
	case SQL:
		return d.moveDatabase(ctx, t)
	default:
		return d.moveBody(ctx, t)
	}
}

// planQueues counts messages.
func (d *Down) planQueues(ctx context.Context) error {
	if !d.cfg.has(Queues) {
		return nil
	}
	var n int64
	for _, err := range d.messages(ctx) {
		if err != nil {
			return err
		}
		n++
	}
	d.progress.plan(Queues, 1, 0)
	d.tally.sum(Queues, 0)
	d.tally.add(Line{Kind: Queues, Item: string(Queues), Outcome: Moved, Source: &Side{Rows: &n}})
	return nil
}
