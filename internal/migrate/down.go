package migrate

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/queue"
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

// halfPlan is what the directory of an incomplete move says about itself.
type halfPlan struct {
	StoreID   string `json:"store_id"`
	Primary   string `json:"primary"`
	StartedAt string `json:"started_at"`
	// Queue is the backlog that is written: no other file is replaced.
	Queue string `json:"queue,omitempty"`
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

// checkTarget refuses a directory that holds anything else.
func (d *Down) checkTarget() error {
	list, err := os.ReadDir(d.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return d.checkQueueFile("")
	} else if err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	var p halfPlan
	text, err := os.ReadFile(filepath.Join(d.half, "plan.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("%w: %s is damaged: take another directory", ErrRefused, d.half)
		}
		if p.StoreID != d.cfg.StoreID {
			return fmt.Errorf("%w: %s is the target of a move from store set %s (%s), this is %s", ErrRefused, d.cfg.Dir, p.StoreID, p.Primary, d.cfg.StoreID)
		}
		return errors.Join(checkLock(d.cfg.Dir), d.checkQueueFile(p.Queue))
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("target directory: %w", err)
	}
	for _, e := range list {
		if e.Name() != halfName {
			return fmt.Errorf("%w: %s is not empty (it has %s): a move to a local directory wants an empty one", ErrRefused, d.cfg.Dir, e.Name())
		}
	}
	return d.checkQueueFile("")
}

// checkQueueFile refuses a backlog that is there and that this move, whose own is
// given, has not made.
func (d *Down) checkQueueFile(own string) error {
	path, err := filepath.Abs(d.cfg.QueueFile)
	if err != nil {
		return err
	}
	if own == "" {
		own = filepath.Join(d.path, queueName)
	}
	if !d.cfg.has(Queues) || path == own && filepath.Dir(path) == d.path {
		return nil // of the directory, which is checked as a whole
	}
	for _, suffix := range databaseSuffixes {
		if _, err := os.Lstat(path + suffix); err == nil && path != own {
			return fmt.Errorf("%w: %s exists: a move to a local directory writes a new backlog", ErrRefused, path+suffix)
		}
	}
	return nil
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

// forget removes what an earlier run has moved, unless the store set has been
// marked since: when replicas may have served it, what is there need not be what
// it holds now, and may be gone there.
func (d *Down) forget(ctx context.Context) error {
	marker, _, err := mode.Read(ctx, d.cfg.Store)
	if err != nil || marker == mode.Moving(moveID(d.planID)) {
		return err
	}
	plan := filepath.Join(d.half, "plan.json")
	if _, err := os.Stat(plan); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is moved before it is there
	} else if err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	if err := d.own(); err != nil {
		return err
	}
	for _, path := range []string{
		filepath.Join(d.cfg.Dir, string(SQL)), filepath.Join(d.cfg.Dir, string(Objects)), filepath.Join(d.cfg.Dir, string(Buckets)),
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an earlier run has moved: %w", err)
		}
	}
	if d.cfg.has(Queues) { // it is this move's own, which has just been checked
		if err := removeDatabase(d.cfg.QueueFile); err != nil {
			return fmt.Errorf("remove what an earlier run has moved: %w", err)
		}
	}
	// With the journal, but the mark of the directory stays.
	return removeDatabase(d.journalPath())
}

// own has no other move work on the directory.
func (d *Down) own() (err error) {
	if d.lock != nil {
		return nil
	}
	if d.lock, err = os.Open(d.cfg.Dir); err != nil {
		return err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%w: another migration works on %s", ErrRefused, d.cfg.Dir)
	}
	return d.checkTarget()
}

func (d *Down) journalPath() string { return filepath.Join(d.half, "journal.sqlite") }

// prepare makes the directory and its journal.
func (d *Down) prepare() error {
	if err := d.dirs.make(filepath.Join(d.half, "tmp")); err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	err := d.own()
	if err != nil {
		return err
	}
	plan := filepath.Join(d.half, "plan.json")
	if _, err := os.Stat(plan); errors.Is(err, fs.ErrNotExist) {
		queue, err := filepath.Abs(d.cfg.QueueFile)
		if err != nil {
			return err
		}
		text, err := json.Marshal(halfPlan{d.cfg.StoreID, d.cfg.Primary, now(), queue})
		if err == nil {
			err = d.dirs.write(d.temp("plan"), plan, text)
		}
		if err != nil {
			return err
		}
	}
	if d.db, err = libsql.Open(libsql.Config{URL: "file:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(d.journalPath())}); err != nil {
		return err
	}
	d.journal = journal{kv.New(d.db), d.planID}
	return nil
}

// temp is a name for a file that is being written.
func (d *Down) temp(item string) string {
	return filepath.Join(d.half, "tmp", sourceID("", item)[:32])
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

// produce lists what the store set holds. An item with an outcome does not move.
func (d *Down) produce(ctx context.Context, emit func(task) error) error {
	if d.cfg.has(SQL) {
		if err := d.databases(ctx, emit); err != nil {
			return err
		}
	}
	if d.cfg.has(Objects) {
		if err := d.objects(ctx, emit); err != nil {
			return err
		}
	}
	if d.cfg.has(Buckets) {
		if err := d.bodies(ctx, emit); err != nil {
			return err
		}
	}
	return nil
}

// emitPage adds to items what both journals know of them.
func (d *Down) emitPage(ctx context.Context, tasks []task, emit func(task) error) error {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.f.item
	}
	own, err := d.journal.get(ctx, names)
	if err != nil {
		return err
	}
	facts := map[string]entry{}
	for _, j := range d.plans {
		known, err := j.get(ctx, names)
		if err != nil {
			return err
		}
		for item, e := range known {
			if e.At >= facts[item].At {
				facts[item] = e
			}
		}
	}
	for _, t := range tasks {
		t.e, t.facts = own[t.f.item], facts[t.f.item]
		if err := emit(t); err != nil {
			return err
		}
	}
	return interrupted(ctx)
}

func (d *Down) objects(ctx context.Context, emit func(task) error) error {
	classes, err := d.cfg.Objects.Classes(ctx)
	if err != nil {
		return err
	}
	for _, c := range classes {
		if c.Objects > 0 && !className.MatchString(c.Name) {
			if err := emit(task{f: found{kind: Objects, item: "do/" + c.Name, outcome: Skipped, reason: "the class's name cannot be that of a directory"}}); err != nil {
				return err
			}
			continue
		}
		var page []found
		flush := func() error {
			if len(page) == 0 {
				return nil
			}
			tasks, err := d.withHeads(ctx, page)
			if err != nil {
				return err
			}
			page = nil
			return d.emitPage(ctx, tasks, emit)
		}
		for o, err := range d.cfg.Objects.List(ctx, c.Name, objectops.ListOptions{}) {
			if err != nil {
				return err
			}
			page = append(page, found{kind: Objects, item: "do/" + c.Name + "/" + o.ID, name: c.Name, key: o.ID, size: o.Bytes()})
			if len(page) == pageItems {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return d.orphans(ctx, emit)
}

// withHeads adds heads and alarms to objects.
func (d *Down) withHeads(ctx context.Context, list []found) ([]task, error) {
	known, err := heads(ctx, d.cfg.Store, list)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(list))
	for i, f := range list {
		keys[i] = hex.EncodeToString(alarm.SlotKey(f.name, f.key))
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	res, err := d.cfg.Store.Decide(ctx, libsql.S(`SELECT k.key, v, `+kv.Now+` FROM json_each(?) k JOIN kv ON kv.k = unhex(k.value)`, string(text)))
	if err != nil {
		return nil, fmt.Errorf("read alarms: %w", err)
	}
	tasks := make([]task, len(list))
	for i, f := range list {
		h := known[f.item]
		tasks[i] = task{f: f, head: h}
	}
	for _, row := range res[0].Rows {
		i, _ := row[0].(int64)
		if tasks[i].slot, err = alarm.Read(list[i].name, list[i].key, libsql.Result{Rows: []libsql.Row{row[1:]}}); err != nil {
			return nil, err
		}
	}
	for i, t := range tasks {
		tasks[i].f.print = fmt.Sprintf("%d %s %v %d", t.head.TXID, t.head.CommitID, t.slot.Set, t.slot.Asked())
	}
	return tasks, nil
}

// orphans names the alarms of objects that do not exist: no file can hold them.
func (d *Down) orphans(ctx context.Context, emit func(task) error) error {
	var page []found
	flush := func() error {
		known, err := heads(ctx, d.cfg.Store, page)
		if err != nil {
			return err
		}
		for _, f := range page {
			if known[f.item].Exists() {
				continue
			}
			f.outcome, f.reason = Skipped, "there is an alarm, and no object: no file can hold it"
			f.item = "alarm/" + f.name + "/" + f.key
			if err := emit(task{f: f}); err != nil {
				return err
			}
		}
		page = nil
		return nil
	}
	for e, err := range d.cfg.Store.List(ctx, kv.ListOptions{Prefix: tuple.Key{alarm.SlotPrefix}}) {
		if err != nil {
			return err
		}
		if len(e.Key) != 3 {
			continue
		}
		class, _ := e.Key[1].(string)
		id, _ := e.Key[2].(string)
		page = append(page, found{kind: Objects, item: "do/" + class + "/" + id, name: class, key: id})
		if len(page) == pageItems {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (d *Down) bodies(ctx context.Context, emit func(task) error) error {
	for name, b := range d.cfg.Buckets {
		dir := d.cfg.source(name)
		for opts := (durable.ListOptions{}); ; {
			l, err := b.List(ctx, opts)
			if err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
			tasks := make([]task, 0, len(l.Objects))
			for _, o := range l.Objects {
				tasks = append(tasks, task{f: found{
					kind: Buckets, item: "r2/" + dir + "/" + o.Key, name: dir, key: o.Key, size: o.Size,
					print: fmt.Sprintf("%s %d %d", o.ETag, o.Size, o.Uploaded.UnixMilli()),
				}})
			}
			if err := d.emitPage(ctx, tasks, emit); err != nil {
				return err
			}
			if opts.Cursor = l.Cursor; opts.Cursor == "" {
				break
			}
		}
	}
	return nil
}

func (d *Down) databases(ctx context.Context, emit func(task) error) error {
	for name, b := range d.cfg.Databases {
		dir := d.cfg.source(name)
		item := "d1/" + dir
		f := found{kind: SQL, item: item, name: dir}
		res, err := b.Batch(ctx, libsql.Read, libsql.S(bareSQL), libsql.S(`SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)`))
		if err != nil {
			return fmt.Errorf("SQL database %s: %w", name, err)
		}
		if res[0].Rows[0][0] != int64(0) {
			f.size, _ = res[1].Rows[0][0].(int64)
		}
		if err := d.emitPage(ctx, []task{{f: f}}, func(t task) error {
			if t.facts.State == "" && f.size == 0 {
				t.f.outcome, t.f.reason = Left, "it holds nothing"
			}
			t.f.print = "x" // it does not change while the store set is marked
			return emit(t)
		}); err != nil {
			return err
		}
	}
	return nil
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

// messages yields the messages of all queues, those that wait in the order of
// their times within a queue, and then those that died.
func (d *Down) messages(ctx context.Context) func(yield func(queue.Kept, error) bool) {
	return func(yield func(queue.Kept, error) bool) {
		for _, prefix := range []string{queue.PrefixDue, queue.PrefixDead} {
			for e, err := range d.cfg.Store.List(ctx, kv.ListOptions{Prefix: tuple.Key{prefix}}) {
				if err != nil {
					yield(queue.Kept{}, err)
					return
				}
				m, ok, err := queue.ReadKept(e)
				if !ok {
					continue
				}
				if err != nil {
					err = fmt.Errorf("message %s of queue %s: %w", m.ID, m.Queue, err)
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}
