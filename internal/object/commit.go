package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// lastWord is what a commit or confirm gets at the least, however late the
// handler returned.
const lastWord = 2 * time.Second

// flush commits what a running event, and the batch before it, have done so
// far, and keeps the lease. It runs on the handler's goroutine while the loop
// waits for it, so it leaves the instance and, after a refusal, the undo to the
// loop.
func (a *actor) flush(ev *event) error {
	if a.mirror.InTx() {
		return durable.ErrNested
	}
	now, err := a.mirror.Mark()
	if err != nil {
		return captureError(err)
	}
	before := a.takeBatch()
	// The running event is part of this commit, whatever becomes of it later.
	a.batch = batch{events: append(before.events[:len(before.events):len(before.events)], ev), wrote: before.wrote || now != ev.built}
	entry, err := a.capture()
	b := a.takeBatch()
	switch {
	case err != nil:
	case entry == nil && !b.flushes():
		err = a.confirm(ev, b.arrived())
	default:
		if err = a.commit(ev, b, entry, false); err == nil {
			ev.commits++
			ev.committed()
		}
	}
	if err != nil {
		ev.refused = err
		ev.takeBack() // before what it is built on
	}
	a.answer(before.events, err)
	if err == nil {
		ev.letOut()
	}
	return err
}

// confirm has a statement sent after an arrival see the lease live.
func (a *actor) confirm(ev *event, arrived time.Time) error {
	t := a.tenure
	ctx, cancel := a.lastCall(ev)
	defer cancel()
	for !t.covers(arrived) {
		if !t.usable() {
			return durable.ErrFenced
		}
		sent := clock.Now()
		var info lease.Info
		var ok bool
		var err error
		extend := t.dueToExtend()
		if extend {
			info, ok, err = t.extend(ctx)
		} else {
			info, ok, err = t.Confirm(ctx, a.rt.store)
		}
		switch {
		case err != nil:
			// Repeated as it is: a confirm changes nothing that matters.
			if !pause(ctx, rand.N(lastPause)) {
				return errors.Join(durable.ErrUnavailable, err)
			}
		case !ok:
			t.lose()
			return durable.ErrFenced
		default:
			t.saw(info, sent, extend)
		}
	}
	return nil
}

// lastCall is the context of an event's commit or confirm: it does not end
// with the caller.
func (a *actor) lastCall(ev *event) (context.Context, context.CancelFunc) {
	left := a.rt.cfg.EventTimeout - clock.Since(ev.arrived)
	return context.WithTimeout(a.rt.ctx, max(left, lastWord))
}

// commit appends the entry, nil when no page was changed, to the log and makes
// the effects of the batch durable with it, in one round trip. When it returns
// an error nothing was applied, except for [durable.ErrUnknownOutcome].
func (a *actor) commit(ev *event, b batch, entry *mirror.Entry, last bool) error {
	began := clock.Now()
	t := a.tenure
	fx := b.sum(last)
	release := last && !a.firesBehind(fx) && (t.mustYield() || !a.othersWait() && !a.lingers())
	c := objlog.Commit{
		Class: a.class, ID: a.id, Name: ev.name, Base: a.head, CommitID: uuid.NewString(), Epoch: t.Stamp,
		Post: a.head.Checksum, PageSize: a.head.PageSize, Pages: a.head.Pages, Snapshot: a.head.Checksum == 0,
	}
	ctx, cancel := a.lastCall(ev)
	defer cancel()
	if err := a.putEntry(ctx, &c, entry); err != nil {
		a.rt.log.LogAttrs(ctx, slog.LevelWarn, events.ObjectCommitFenced, a.attrs(slog.Uint64(events.KeyTXID, c.TXID()), slog.Any(events.KeyError, err))...)
		return err
	}
	if release {
		t.end() // nothing must extend it behind the release
	}
	err := a.send(ctx, c, fx, release)
	if certain := (refused{}); err != nil && !errors.As(err, &certain) {
		err = a.resolve(ctx, ev, c, err)
		release = false
	}
	if err != nil {
		a.rt.log.LogAttrs(ctx, slog.LevelWarn, commitEvent(err), a.attrs(slog.Uint64(events.KeyTXID, c.TXID()), slog.Any(events.KeyError, err))...)
		if a.tenure == t {
			a.letGo()
		}
		return err
	}
	if a.rt.cfg.Committed != nil {
		a.rt.cfg.Committed(c.Class, c.ID, c.TXID())
	}
	if a.tenure == t || a.tenure == nil {
		a.head = c.Head()
	} // else a new acquire resolved it, and told the head, which others may have moved
	fx.applied(a, began)
	if err := a.follow(c, entry); err != nil {
		// The log has it; only this copy is in doubt.
		a.rt.log.LogAttrs(ctx, slog.LevelWarn, events.ObjectMirrorDropped, a.attrs(slog.String("why", "confirm"), slog.Any(events.KeyError, err))...)
		if !last {
			// A handler may be running on it; the loop drops it. The commit stands.
			a.doubtful = true
		} else {
			a.drop("confirm")
			a.rt.touch(a)
		}
	}
	if a.instance != nil {
		a.instance.txid, a.instance.commitID = c.TXID(), c.CommitID
	}
	a.rt.log.LogAttrs(ctx, slog.LevelDebug, events.ObjectCommitOK, a.attrs(slog.Uint64(events.KeyTXID, c.TXID()), slog.Duration(events.KeyTook, clock.Since(began)))...)
	if release {
		a.endTenure()
	}
	return nil
}

// follow moves the mirror to a commit that the log has.
func (a *actor) follow(c objlog.Commit, entry *mirror.Entry) error {
	if entry == nil {
		return a.mirror.Skip(c.TXID())
	}
	return a.mirror.Confirm(entry.Post)
}

// putEntry puts the entry's file into the commit's row or, when it is large, into
// the object store before the row that names it: a replica that dies in between
// leaves a file that nothing names.
func (a *actor) putEntry(ctx context.Context, c *objlog.Commit, entry *mirror.Entry) (err error) {
	if entry == nil {
		if c.PageSize == 0 {
			c.PageSize, _ = a.mirror.Size()
		}
		return nil
	}
	defer entry.Close() //nolint:errcheck // a temporary file
	c.Post, c.PageSize, c.Pages = entry.Post.Checksum, entry.PageSize, entry.Pages
	if entry.Size <= a.rt.cfg.InlineLimit {
		c.Size = entry.Size
		if c.Data = entry.Data; c.Data == nil {
			c.Data, err = io.ReadAll(entry.Open())
		}
		if err == nil && int64(len(c.Data)) != entry.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return errors.Join(durable.ErrUnavailable, fmt.Errorf("read back a log entry: %w", err))
		}
		return nil
	}
	c.Ref, c.Size = objlog.Ref(a.rt.cfg.StoreID, c.Class, c.ID, c.TXID(), c.Epoch), entry.Size
	if err := a.rt.cfg.Blobs.Put(ctx, c.Ref, entry.Open(), entry.Size); err != nil {
		if errors.Is(err, durable.ErrUnknownOutcome) {
			// It is known of the event: nothing refers to the file, if it is there.
			err = errors.New(err.Error())
		}
		return errors.Join(durable.ErrUnavailable, fmt.Errorf("put a log entry into the object store: %w", err))
	}
	failpoint.Hit("object.offload.after")
	return nil
}

func commitEvent(err error) string {
	if errors.Is(err, durable.ErrUnknownOutcome) {
		return events.ObjectCommitUnknown
	}
	return events.ObjectCommitFenced
}

// send sends the commit until it was executed or its outcome is unknown. The
// error is a refused when surely nothing was applied.
func (a *actor) send(ctx context.Context, c objlog.Commit, fx sum, release bool) error {
	t := a.tenure
	for {
		p := kv.NewPlan()
		t.Require(p)
		c.Add(p)
		var show int
		if release {
			show = t.AddShow(p) // before the mark goes with the lease
			t.AddRelease(p)
		} else {
			t.addExtend(p)
			show = t.AddShow(p)
		}
		slot := fx.add(p, a)
		row := objlog.AddCommitID(p, c.Class, c.ID, c.TXID())

		failpoint.Hit("object.commit.before")
		sent := clock.Now()
		v, err := a.rt.commits.Commit(ctx, p)
		failpoint.Hit("object.commit.after")
		switch {
		case err == nil:
			id, _ := objlog.ReadCommitID(v.Results[row])
			if v.OK || id == c.CommitID {
				if info, ok, err := lease.Read(c.Class, c.ID, v.Results[show]); err == nil && ok && info.Holder == t.Holder {
					t.saw(info, sent, true)
				}
				if slot >= 0 {
					a.seeSlot(v.Results[slot])
				}
				return nil
			}
			return refused{durable.ErrFenced}
		case errors.Is(err, kv.ErrNoVerdict), libsql.OutcomeOf(err) == libsql.Failed:
			return refused{errors.Join(durable.ErrUnavailable, err)}
		case libsql.OutcomeOf(err) == libsql.Unknown:
			return err
		}
		// Surely not executed: safe to repeat while the lease is trusted.
		if !t.usable() || !pause(ctx, rand.N(lastPause)) {
			return refused{errors.Join(durable.ErrUnavailable, err)}
		}
	}
}

// refused is a certain refusal: it hides the outcome of the store's errors.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// resolve finds out what became of a commit whose answer was lost. The lease is
// not used again: a new acquire fences whatever may still arrive, and the row
// of the commit's position, read in the same transaction, is the verdict.
func (a *actor) resolve(ctx context.Context, ev *event, c objlog.Commit, cause error) error {
	a.giveUp(a.tenure.Holder)
	a.endTenure()
	for {
		res, err := a.attempt(ctx, ev, c.TXID())
		if err == nil {
			// A lease in the way is not the given-up one, so that one is dead.
			fenced := res.taken || res.hasLive
			switch {
			case res.hasCommit && res.commitID == c.CommitID:
				return nil
			case !fenced:
			case res.hasCommit, res.head.TXID < c.TXID() && (res.head.TXID > 0 || c.TXID() == 1):
				return refused{errors.Join(durable.ErrUnavailable, cause)}
			default:
				return errors.Join(durable.ErrUnknownOutcome, cause)
			}
		}
		if !pause(ctx, rand.N(lastPause)) {
			return errors.Join(durable.ErrUnknownOutcome, cause)
		}
	}
}
