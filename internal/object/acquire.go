package object

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	// attemptTime bounds one attempt to take a lease: by the primary's clock it
	// takes nothing later.
	attemptTime = 5 * time.Second
	// The pause after a refused attempt is random between 0 and a bound that
	// doubles between these two.
	firstPause, lastPause = 10 * time.Millisecond, 100 * time.Millisecond
)

// An attempted is the answer to one attempt to take the lease.
type attempted struct {
	taken bool
	// live is the lease in the way when it was not taken, if there is one.
	live    lease.Info
	hasLive bool
	head    objlog.Head
	tail    []objlog.Entry
	slot    alarm.Shown
	// commitID is that of the position asked about, if there is such a row.
	commitID  string
	hasCommit bool
}

// attempt tries once to take the lease, in one round trip that also returns
// the head, what the mirror lacks and the commit id at the position doubt,
// unless that is 0. When it is taken the tenure has begun.
func (a *actor) attempt(ctx context.Context, ev *event, doubt uint64) (attempted, error) {
	a.forget()
	at := lease.Attempt{
		Class: a.class, ID: a.id, Holder: uuid.NewString(), Replica: a.rt.cfg.Replica, Event: ev.kind, RequestID: ev.requestID,
		TTL: a.rt.cfg.LeaseTTL, DeadlineMs: a.rt.store.Clock().Add(attemptTime).UnixMilli(), Want: clock.Since(a.letGoAt) >= yieldFor,
	}
	for h := range a.givenUp {
		at.GivenUp = append(at.GivenUp, h)
	}
	p := kv.NewPlan()
	shown, err := at.Add(p)
	if err != nil {
		return attempted{}, err
	}
	head := objlog.AddHead(p, a.class, a.id)
	tail := objlog.AddTail(p, a.class, a.id, a.position().TXID)
	slot := alarm.AddShow(p, a.class, a.id)
	row := -1
	if doubt > 0 {
		row = objlog.AddCommitID(p, a.class, a.id, doubt)
	}

	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	failpoint.Hit("object.acquire.before")
	sent := clock.Now()
	v, err := a.rt.commits.Commit(ctx, p)
	failpoint.Hit("object.acquire.after")
	if err != nil {
		if libsql.OutcomeOf(err) == libsql.Unknown {
			a.giveUp(at.Holder)
		}
		return attempted{}, fmt.Errorf("acquire lease of %s/%s: %w", a.class, a.id, err)
	}
	var res attempted
	if res.live, res.hasLive, err = lease.Read(a.class, a.id, v.Results[shown]); err == nil {
		if res.head, err = objlog.ReadHead(v.Results[head]); err == nil {
			res.tail, err = objlog.ReadEntries(v.Results[tail])
		}
	}
	var damaged error // an alarm that cannot be read does not stop requests
	if res.slot, damaged = alarm.Read(a.class, a.id, v.Results[slot]); damaged != nil {
		a.rt.log.LogAttrs(ctx, slog.LevelError, events.AlarmFireLost, a.attrs(slog.Any(events.KeyError, damaged))...)
	}
	// An answer that shows this attempt's holder is success even when the
	// verdict says no: a proxy repeated the request.
	res.taken = res.hasLive && res.live.Holder == at.Holder
	if err != nil {
		if res.taken {
			a.giveUp(at.Holder)
		}
		return attempted{}, err
	}
	if row >= 0 {
		res.commitID, res.hasCommit = objlog.ReadCommitID(v.Results[row])
	}
	if res.taken {
		a.begin(res, sent)
	}
	return res, nil
}

// begin starts the tenure of a lease that was taken.
func (a *actor) begin(res attempted, sent time.Time) {
	a.tenure = newTenure(a, res.live, sent)
	a.head, a.tail, a.slot, a.notDue, a.linger.pays = res.head, res.tail, res.slot, time.Time{}, false
	a.rt.log.LogAttrs(a.rt.ctx, slog.LevelDebug, events.LeaseAcquireOK, a.attrs(slog.String(events.KeyHolder, res.live.Holder), slog.Int64(events.KeyEpoch, int64(res.live.Stamp)), slog.Duration(events.KeyTook, clock.Since(sent)))...)
}

// acquire takes the lease for an event, until the event's turn is over.
func (a *actor) acquire(ev *event) error {
	ctx, cancel := ev.within(a.rt.ctx, a.rt.cfg.AcquireTimeout)
	defer cancel()
	a.seeMark()
	asked := clock.Now()
	var last attempted
	var lastErr error
	for bound := firstPause; ; bound = min(2*bound, lastPause) {
		if a.takeOffer() {
			return nil
		}
		if wait := a.notBefore.Sub(clock.Now()); wait > 0 && !pause(ctx, wait) {
			return a.noTurn(last, lastErr)
		}
		if err := ev.ctx.Err(); err != nil {
			return err
		}
		var err error
		last, err = a.attempt(ctx, ev, 0)
		if err == nil && last.taken {
			a.judge(asked)
			return nil
		}
		if err != nil {
			lastErr = err
		} else {
			lastErr = nil
			if last.hasLive && last.live.Replica != a.rt.cfg.Replica {
				a.linger.wanted()
			}
			a.rt.log.LogAttrs(ctx, slog.LevelDebug, events.LeaseAcquireContended, a.attrs(slog.String(events.KeyHolder, last.live.Holder))...)
		}
		if !pause(ctx, rand.N(bound)) {
			return a.noTurn(last, lastErr)
		}
	}
}

// noTurn is the error of an event that did not get the lease in time. It never
// ran, so nothing of it was applied.
func (a *actor) noTurn(last attempted, err error) error {
	if err != nil {
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelWarn, events.LeaseAcquireFailed, a.attrs(slog.Any(events.KeyError, err))...)
		return errors.Join(durable.ErrUnavailable, err)
	}
	return &durable.ContendedError{Class: a.class, ID: a.id, Holder: last.live.Holder, Replica: last.live.Replica}
}

func (a *actor) position() mirror.Position {
	if a.mirror == nil {
		return mirror.Position{}
	}
	return a.mirror.Position()
}

// sync brings the mirror to the head. A mirror in doubt is dropped and built
// again, once.
func (a *actor) sync(ev *event) error {
	ctx, cancel := ev.within(a.tenure.ctx, a.rt.cfg.EventTimeout)
	defer cancel()
	err := a.catchUp(ctx)
	if err != nil && ctx.Err() == nil {
		a.rt.log.LogAttrs(ctx, slog.LevelWarn, events.ObjectMirrorDropped, a.attrs(slog.String("why", "sync"), slog.Any(events.KeyError, err))...)
		a.drop("sync")
		a.rt.touch(a)
		err = a.catchUp(ctx)
	}
	if err != nil {
		a.rt.log.LogAttrs(a.rt.ctx, slog.LevelError, events.ObjectSyncFailed, a.attrs(slog.Any(events.KeyError, err))...)
		return errors.Join(durable.ErrUnavailable, err)
	}
	return nil
}

func (a *actor) catchUp(ctx context.Context) error {
	began := clock.Now()
	if a.mirror != nil && !a.mirror.Intact() {
		a.drop("files gone")
		a.rt.touch(a)
		a.tail = nil
	}
	if a.mirror == nil {
		a.generation++
		a.mirror = mirror.New(a.rt.mirrorPath(key{a.class, a.id}, a.generation), a.rt.cfg.Mirror)
	}
	tail, from := a.tail, a.mirror.Position().TXID
	a.tail = nil
	if from > a.head.TXID {
		return fmt.Errorf("mirror at %d is ahead of the head at %d", from, a.head.TXID)
	}
	if from < a.head.TXID && len(tail) > 0 {
		if err := a.rt.reader.Apply(ctx, a.mirror, tail); err != nil {
			return err
		}
	}
	if err := a.rt.reader.CatchUp(ctx, a.mirror, a.class, a.id, a.head.TXID); err != nil {
		return err
	}
	if from != a.head.TXID {
		a.rt.log.LogAttrs(ctx, slog.LevelDebug, events.ObjectSyncOK, a.attrs(slog.Uint64("from", from), slog.Uint64(events.KeyTXID, a.head.TXID), slog.Duration(events.KeyTook, clock.Since(began)))...)
	}
	if sum := a.mirror.Position().Checksum; sum != a.head.Checksum {
		return fmt.Errorf("mirror at %d has checksum %016x, the head has %016x", a.head.TXID, sum, a.head.Checksum)
	}
	return nil
}
