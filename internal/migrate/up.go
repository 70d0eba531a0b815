package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// toCentral is the direction of a move from a local directory to a fleet.
const toCentral = "to-central"

// An Up is a move from a local directory into a store set.
type Up struct {
	mover
	lock *os.File
}

// A mover is what moves one item after the other.
type mover struct {
	cfg         Config
	planID      string
	path        string // of the directory, without links
	journal     journal
	queueSource string
	progress    *Progress
	tally       *tally
	proof       *proof
	// bare are the buckets that held nothing when they were looked into: for the
	// plan, and once more when the store set is marked.
	bare map[string]bool
	// scanned counts the items of the plan.
	scanned int64
}

// NewUp prepares a move to a store set, and refuses a directory that must not be
// moved. It must be closed.
func NewUp(cfg Config, p *Progress) (*Up, error) {
	cfg.setDefaults()
	if cfg.QueueFile == "" {
		cfg.QueueFile = cfg.Dir + "/" + queueName
	}
	if err := checkSource(cfg.Dir, cfg.QueueFile); err != nil {
		return nil, err
	}
	u := &Up{mover: mover{cfg: cfg, progress: p, proof: newProof(cfg.Proof)}}
	var err error
	if u.path, err = resolved(cfg.Dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	u.planID = sourceID(cfg.Host, u.path)
	u.queueSource = u.planID
	if path, err := resolved(cfg.QueueFile); err == nil {
		u.queueSource = sourceID(cfg.Host, path)
	}
	u.journal = journal{cfg.Store, u.planID}
	// Another run on the same directory would work beside this one. The lock
	// changes nothing, and ends with the process.
	if u.lock, err = os.Open(cfg.Dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(u.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: another migration works on %s", ErrRefused, cfg.Dir), u.lock.Close())
	}
	return u, nil
}

// Close ends the move.
func (u *Up) Close() error { return u.lock.Close() }

// Use has a move that was planned without a store set work on one.
func (u *Up) Use(t Target) {
	u.cfg.Target = t
	u.journal.store = t.Store
}

// result begins the result of a plan or run, whose lines go to p.
func (m *mover) result(direction, source, target string, p *proof) *Result {
	r := &Result{
		Direction: direction, DryRun: m.cfg.DryRun, Source: source, Target: target, Plan: m.planID, Verify: m.cfg.Verify,
		Counts: map[Kind]*Count{}, Problems: []Line{},
	}
	m.tally = &tally{result: r, proof: p}
	return r
}

// head is the first line of a proof.
type head struct {
	Type      string `json:"type"` // "begin"
	Format    string `json:"format"`
	Direction string `json:"direction"`
	Host      string `json:"host"`
	Directory string `json:"directory"`
	Plan      string `json:"plan"`
	StoreID   string `json:"store_id"`
	Primary   string `json:"primary"`
	Verify    Verify `json:"verify"`
	DryRun    bool   `json:"dry_run"`
	At        string `json:"at"`
}

// proofFormat names the format of a proof.
const proofFormat = "dwk-migrate/1"

func (m *mover) begin(direction string) {
	m.proof.write(head{
		Type: "begin", Format: proofFormat, Direction: direction, Host: m.cfg.Host, Directory: m.path, Plan: m.planID,
		StoreID: m.cfg.StoreID, Primary: m.cfg.Primary, Verify: m.cfg.Verify, DryRun: m.cfg.DryRun, At: now(),
	})
}

func now() string { return clock.Now().UTC().Format(time.RFC3339) }

func (m *mover) end(r *Result) error {
	return m.proof.end(trailer{Complete: r.Complete, Stopped: r.Stopped, Counts: r.Counts, At: now()})
}

// bucket is the binding to which a folder of bodies moves.
func (m *mover) bucket(name string) (durable.Bucket, error) {
	to := m.cfg.target(name)
	b, ok := m.cfg.Buckets[to]
	if !ok {
		return nil, skipError{fmt.Sprintf("there is no bucket %q in the configuration: add it, or give it another name with --map %s=NAME", to, name)}
	}
	return b, nil
}

// empty reports whether a bucket held nothing.
func (m *mover) empty(name string) bool { return m.bare[name] }

// page are items with what the journal and the store say of them.
type page struct {
	items   []found
	entries map[string]entry
	heads   map[string]objlog.Head
}

// eachPage scans the directory and calls f with some items at a time.
func (m *mover) eachPage(ctx context.Context, problem func(found), f func(page) error) error {
	var items, objects []found
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		names := make([]string, len(items))
		for i, it := range items {
			names[i] = it.item
		}
		p := page{items: items}
		var err error
		if p.entries, err = m.journal.get(ctx, names); err != nil {
			return err
		}
		if p.heads, err = heads(ctx, m.cfg.Store, objects); err != nil {
			return err
		}
		items, objects = nil, nil
		return f(p)
	}
	err := scan(ctx, &m.cfg, func(it found) error {
		if it.outcome != "" {
			problem(it)
			return nil
		}
		items = append(items, it)
		if it.kind == Objects {
			objects = append(objects, it)
		}
		if len(items) < pageItems {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return err
}

func (m *mover) problem(f found) {
	m.tally.add(Line{Kind: f.kind, Item: f.item, Outcome: f.outcome, Reason: f.reason})
}

// finished reports whether an item needs nothing.
func (m *mover) finished(f found, e entry) bool {
	return f.kind != Queues && e.Print == f.print && done(e.State, m.cfg.Verify)
}

// Move moves everything that is not there yet. The result says what became of it;
// an error, why it ended before its end. [Up.Plan] comes first.
func (u *Up) Move(ctx context.Context) (r *Result, err error) {
	r = u.result(toCentral, u.path, u.cfg.Primary, u.proof)
	u.begin(toCentral)
	defer func() {
		if err != nil {
			r.Stopped = err.Error()
		}
		err = errors.Join(err, u.end(r))
	}()
	if err := checkLock(u.cfg.Dir); err != nil {
		return r, err
	}
	if err := repeat(ctx, func() error { return fleet.BeginMove(ctx, u.cfg.Store, moveID(u.planID)) }); err != nil {
		return r, err
	}
	r.Begun = true
	failpoint.Hit("migrate.marked")
	// Nobody had to stand still since the plan, and it may have had no store set.
	if err := u.lookIntoBuckets(ctx); err != nil {
		return r, err
	}
	h := Header{Direction: toCentral, Host: u.cfg.Host, Path: u.path, State: Running, StartedAt: u.cfg.Store.Clock().UnixMilli()}
	if old, err := u.journal.header(ctx); err != nil {
		return r, err
	} else if old.StartedAt > 0 {
		h.StartedAt = old.StartedAt
	}
	if err := u.journal.set(ctx, map[string]any{headerItem: h}); err != nil {
		return r, err
	}
	// Objects that are ready at the same moment share a transaction.
	group := kv.NewGroup(u.cfg.Store)
	defer group.Wait()
	u.cfg.Objects = u.cfg.Objects.In(group)
	if err := u.moveAll(ctx); err != nil {
		return r, err
	}
	if err := u.checkChanged(ctx); err != nil {
		return r, err
	}
	t := r.Total()
	h.State, h.EndedAt, h.Items, h.Bytes, h.Failed = Done, u.cfg.Store.Clock().UnixMilli(), t.Moved+t.Already, t.Bytes, t.Bad
	if t.Bad > 0 {
		h.State = Partly
	}
	if err := u.journal.set(ctx, map[string]any{headerItem: h}); err != nil {
		return r, err
	}
	failpoint.Hit("migrate.ended")
	if err := repeat(ctx, func() error { return fleet.EndMove(ctx, u.cfg.Store, moveID(u.planID)) }); err != nil {
		return r, err
	}
	r.Complete = true
	return r, nil
}

func (u *Up) moveAll(ctx context.Context) error {
	var queues []found
	return u.run(ctx, func(ctx context.Context, emit func(task) error) error {
		return u.eachPage(ctx, u.problem, func(p page) error {
			for _, f := range p.items {
				if f.kind == Queues { // when all that messages are about is there
					queues = append(queues, f)
				} else if err := emit(task{f: f, e: p.entries[f.item], head: p.heads[f.item]}); err != nil {
					return err
				}
			}
			return interrupted(ctx)
		})
	}, u.move, func(ctx context.Context, emit func(found, Line, error)) {
		for _, f := range queues {
			l, err := u.moveQueue(ctx, f)
			emit(f, l, err)
		}
	})
}

// move moves one item.
func (u *Up) move(ctx context.Context, t task) (Line, entry, error) {
	switch t.f.kind {
	case Objects:
		l, e, err := u.moveObject(ctx, t.f, t.e, t.head)
		u.progress.bytes(Objects, t.f.size)
		return l, e, err
	case SQL:
		return u.moveDatabase(ctx, t.f, t.e)
	default:
		return u.moveBody(ctx, t.f, t.e)
	}
}

// checkChanged looks at the whole directory again: what was moved must still be
// what it was.
func (u *Up) checkChanged(ctx context.Context) error {
	if err := checkLock(u.cfg.Dir); err != nil {
		return err
	}
	var n int64
	err := u.eachPage(ctx, func(found) {}, func(p page) error {
		for _, f := range p.items {
			n++
			e := p.entries[f.item]
			if f.kind == Queues || e.State == "" || e.State == stateBegun || e.Print == f.print {
				continue
			}
			u.tally.add(Line{Kind: f.kind, Item: f.item, Outcome: Failed, Reason: ErrChanged.Error() + ", after it had been moved"})
		}
		return nil
	})
	if err == nil && n > u.scanned {
		return fmt.Errorf("%w: there are %d items now, there were %d", ErrChanged, n, u.scanned)
	}
	return err
}
