package migrate

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/queue"
)

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
