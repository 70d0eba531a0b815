package migrate

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// Plan scans the directory and says what would move, what is there already, and
// what cannot move and why. It changes nothing. With [ConflictFail] it compares
// what the target holds already.
func (u *Up) Plan(ctx context.Context) (*Result, error) {
	lines := newProof(nil)
	if u.cfg.DryRun {
		u.begin(toCentral)
		lines = u.proof
	}
	r := u.result(toCentral, u.path, u.cfg.Primary, lines)
	if err := u.lookIntoBuckets(ctx); err != nil {
		return r, err
	}
	err := u.eachPage(ctx, u.problem, func(p page) error {
		for _, f := range p.items {
			if err := u.planItem(ctx, f, p.entries[f.item], p.heads[f.item]); err != nil {
				return err
			}
		}
		return interrupted(ctx)
	})
	if err == nil && u.cfg.DryRun {
		r.Complete = true
		err = u.end(r)
	}
	return r, err
}

// lookIntoBuckets finds out which buckets hold nothing, so that no body need be
// looked for there. Without a store set it takes them for empty.
func (u *Up) lookIntoBuckets(ctx context.Context) error {
	u.bare = map[string]bool{}
	for name, b := range u.cfg.Buckets {
		if b == nil {
			u.bare[u.cfg.source(name)] = true
			continue
		}
		l, err := b.List(ctx, durable.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
		u.bare[u.cfg.source(name)] = len(l.Objects)+len(l.Prefixes) == 0
	}
	return nil
}

func (u *Up) planItem(ctx context.Context, f found, e entry, head objlog.Head) error {
	u.scanned++
	u.tally.sum(f.kind, f.size)
	u.progress.plan(f.kind, 1, f.size)
	l := Line{Kind: f.kind, Item: f.item, Bytes: f.size}
	if u.finished(f, e) {
		l.Outcome = Already
		u.tally.add(l)
		return nil
	}
	var err error
	switch f.kind {
	case Queues:
		var n int64
		if n, err = u.planQueue(ctx, f, u.tally.add); err == nil {
			l.Source = &Side{Bytes: f.size, Rows: &n}
		}
	case Objects:
		err = u.planObject(ctx, f, e, head)
	case SQL:
		err = u.planDatabase(ctx, f, e)
	case Buckets:
		err = u.planBody(ctx, f, e)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.Outcome = Moved // or would be
	if err != nil {
		l.Outcome, l.Reason = outcomeOf(err), err.Error()
	}
	u.tally.add(l)
	return nil
}

// planObject finds a conflict of an object that is there already.
func (u *Up) planObject(ctx context.Context, f found, e entry, head objlog.Head) error {
	if u.deletedSince(f, e) && !head.Exists() {
		return errDeletedSince
	}
	if u.cfg.OnConflict != ConflictFail || !head.Exists() || e.State != "" && e.Print == f.print {
		return nil
	}
	return u.withPrepared(ctx, f, func(p *prepared) error {
		there, err := u.targetObject(ctx, f, head, true)
		if err != nil {
			return err
		}
		if text := differs(p.side, there, true); text != "" {
			return conflictError{text}
		}
		return nil
	})
}

// planBody finds a conflict of a body that is there already, by what both sides
// say of it.
func (u *Up) planBody(ctx context.Context, f found, e entry) error {
	to, err := u.bucket(f.name)
	moved := u.deletedSince(f, e)
	if err != nil || u.empty(f.name) && !moved || u.cfg.OnConflict != ConflictFail && !moved || to == nil {
		return err
	}
	there, etag, ok, err := targetBody(ctx, to, f.key, false)
	if err == nil && !ok && moved {
		err = errDeletedSince
	}
	if err != nil || !ok || u.cfg.OnConflict != ConflictFail {
		return err
	}
	s, err := readSidecar(f.path + sidecarSuffix)
	if err != nil {
		return sourceError{err}
	}
	b := body{s: s, md5: s.ETag, side: Side{Bytes: s.Size, Type: s.ContentType, Metadata: lowerNames(s.CustomMetadata)}}
	if b.side.Type == "" {
		b.side.Type = there.Type
	}
	if text := b.differs(there, etag); text != "" {
		return conflictError{text}
	}
	return nil
}

// Conflicts reports whether a plan found something for which it must not be
// carried out.
func (u *Up) Conflicts(r *Result) error {
	if u.cfg.OnConflict != ConflictFail {
		return nil
	}
	n := 0
	var first Line
	for _, l := range r.Problems {
		if l.Outcome == Conflict {
			if n++; n == 1 {
				first = l
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d items, the first is %s: %s; nothing was moved", ErrConflict, n, first.Item, first.Reason)
}

// sum adds an item to the sums of its kind.
func (t *tally) sum(k Kind, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.count(k)
	c.Items++
	c.Bytes += bytes
}
