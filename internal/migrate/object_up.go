package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
)

// heads reads the heads of objects, those that there are.
func heads(ctx context.Context, s *kv.Store, list []found) (map[string]objlog.Head, error) {
	out := map[string]objlog.Head{}
	if s == nil || len(list) == 0 {
		return out, nil
	}
	pairs := make([][2]string, len(list))
	for i, f := range list {
		pairs[i] = [2]string{f.name, f.key}
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	res, err := s.Decide(ctx, libsql.S(`SELECT `+objlog.HeadColumns+`, o.key FROM json_each(?) o JOIN obj_head h ON h.class = o.value->>0 AND h.id = o.value->>1`, string(text)))
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	for _, row := range res[0].Rows {
		i, _ := row[len(row)-1].(int64)
		h, err := objlog.ReadHead(libsql.Result{Rows: []libsql.Row{row[:len(row)-1]}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list[i].item, err)
		}
		out[list[i].item] = h
	}
	return out, nil
}

// targetObject reads an object as it is at the target: its pages, or only its
// size, and its alarm.
func (m *mover) targetObject(ctx context.Context, f found, head objlog.Head, full bool) (Side, error) {
	side := Side{Bytes: int64(head.PageSize) * int64(head.Pages)}
	full = full && head.Exists()
	show := alarm.ShowStatement(f.name, f.key)
	var res []libsql.Result
	var err error
	h, read := newSum(), false
	if full {
		res, read, err = m.cfg.Objects.Expand(ctx, f.name, f.key, head, h, show)
	} else {
		res, err = m.cfg.Store.Decide(ctx, show)
	}
	if err != nil {
		return side, fmt.Errorf("read it: %w", err)
	}
	slot, err := alarm.Read(f.name, f.key, res[0])
	if err != nil {
		return side, err
	}
	if slot.Set {
		at := slot.Asked()
		side.Alarm = &at
	}
	if read {
		side.SHA256, side.Bytes = h.text(), h.n
	}
	if !full || read {
		return side, nil
	}
	d, err := m.cfg.Objects.Open(ctx, f.name, f.key, objectops.Target{})
	if err != nil {
		return side, err
	}
	h = newSum()
	err = d.Copy(h)
	side.SHA256, side.Bytes = h.text(), h.n
	return side, errors.Join(err, d.Close())
}

// differs tells what is not the same on both sides of an object.
func differs(source, target Side, full bool) string {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	switch {
	case source.Bytes != target.Bytes:
		return fmt.Sprintf("it has %d bytes here and %d there", source.Bytes, target.Bytes)
	case full && source.SHA256 != target.SHA256:
		return "its pages differ"
	case !same(source.Alarm, target.Alarm):
		return fmt.Sprintf("its alarm is %s here and %s there", timeOf(source.Alarm), timeOf(target.Alarm))
	}
	return ""
}

func timeOf(ms *int64) string {
	if ms == nil {
		return "none"
	}
	return time.UnixMilli(*ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// withPrepared prepares an object's database in a directory that is removed
// afterwards.
func (m *mover) withPrepared(ctx context.Context, f found, use func(*prepared) error) error {
	dir, err := os.MkdirTemp(m.cfg.TempDir, ".dwk-migrate-*")
	if err != nil {
		return fmt.Errorf("directory for a copy: %w", err)
	}
	p, err := prepare(ctx, f, dir)
	if err != nil {
		err = sourceError{err}
	} else {
		err = use(p)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// moveObject moves one object in one commit, with its alarm and its entry of the
// journal, and compares both sides.
func (m *mover) moveObject(ctx context.Context, f found, je entry, head objlog.Head) (l Line, e entry, err error) {
	err = m.withPrepared(ctx, f, func(p *prepared) error {
		l, e, err = m.movePrepared(ctx, f, je, head, p)
		return err
	})
	return l, e, err
}

func (m *mover) movePrepared(ctx context.Context, f found, je entry, head objlog.Head, p *prepared) (l Line, e entry, err error) {
	l = Line{Kind: f.kind, Item: f.item, Outcome: Moved, Bytes: p.side.Bytes, Source: &p.side, Verified: m.cfg.Verify}
	e = entry{State: stateMoved, Bytes: p.side.Bytes, SHA256: p.side.SHA256, Print: f.print, AlarmTable: p.table, WAL: p.wal}
	full := m.cfg.Verify == VerifyFull
	if !head.Exists() && m.deletedSince(f, je) {
		return l, e, errDeletedSince
	}
	mine := je.State != "" && je.Print == f.print && je.SHA256 == p.side.SHA256 && head.Exists()
	if !mine {
		if p.alarm != nil {
			if err := alarm.Check(time.UnixMilli(*p.alarm)); err != nil {
				return l, e, sourceError{err}
			}
		}
		there, err := m.targetObject(ctx, f, head, true)
		if err != nil {
			return l, e, err
		}
		foreign := ""
		switch {
		case head.Exists():
			if foreign = differs(p.side, there, true); foreign == "" {
				l.Outcome, mine = Already, true
			}
		case there.Alarm != nil && p.alarm != nil && *there.Alarm != *p.alarm:
			foreign = fmt.Sprintf("there is an alarm for it at %s", timeOf(there.Alarm))
		}
		if foreign != "" && m.cfg.OnConflict != ConflictReplace {
			l.Target = &there
			return l, e, conflictError{foreign}
		}
		if !head.Exists() && p.alarm == nil && there.Alarm != nil {
			// An alarm that waited for its object stays with it.
			l.Reason = fmt.Sprintf("an alarm of %s waited for it and stays", timeOf(there.Alarm))
			p.side.Alarm, e.Waited = there.Alarm, there.Alarm
		}
	} else if p.alarm == nil {
		p.side.Alarm, e.Waited = je.Waited, je.Waited
	}
	if !mine {
		if head, err = m.commitObject(ctx, f, head, p, e); err != nil {
			return l, e, err
		}
	}
	failpoint.Hit("migrate.object.verify")
	if m.cfg.Verify != VerifyNone {
		there, err := m.targetObject(ctx, f, head, full)
		l.Target = &there
		if err != nil {
			return l, e, fmt.Errorf("verify it: %w", err)
		}
		if text := differs(p.side, there, full); text != "" {
			return l, e, fmt.Errorf("verify it: %s", text)
		}
	}
	e.State = stateFor(m.cfg.Verify)
	return l, e, nil
}

// commitObject makes the database the object's.
func (m *mover) commitObject(ctx context.Context, f found, head objlog.Head, p *prepared, e entry) (objlog.Head, error) {
	replaced := head.Exists()
	e.At = m.cfg.Store.Clock().UnixMilli()
	done, err := m.cfg.Objects.RestoreFile(ctx, objectops.Change{
		Class: f.name, ID: f.key, Wait: leaseWait, Expect: &head,
		With: func(plan *kv.Plan) {
			switch {
			case p.alarm != nil:
				alarm.AddSet(plan, f.name, f.key, time.UnixMilli(*p.alarm))
			case replaced:
				alarm.AddClear(plan, f.name, f.key)
			}
			m.journal.add(plan, f.item, e)
		},
	}, p.path)
	if errors.Is(err, objectops.ErrDamaged) && done.After.TXID == 0 || errors.Is(err, objectops.ErrTooLarge) {
		err = sourceError{err}
	}
	failpoint.Hit("migrate.object.moved")
	return done.After, err
}
