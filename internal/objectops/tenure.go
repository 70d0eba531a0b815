package objectops

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	// callTime bounds one statement; an attempt to take a lease takes nothing
	// later, by the primary's clock.
	callTime = 5 * time.Second
	// resolveTime bounds the search for what became of a commit.
	resolveTime = 30 * time.Second
	// The pause after a refused attempt is random between 0 and a bound that
	// doubles between these two.
	firstPause, lastPause = 10 * time.Millisecond, 100 * time.Millisecond
	// replicaName stands in leases where others name their replica.
	replicaName = "operator"
)

// A tenure is the lease of an object while an operator's command works on it.
// It is renewed until end.
type tenure struct {
	o         *Ops
	class, id string
	parent    context.Context
	// givenUp are the holder ids that are not used again.
	givenUp []string

	// The rest is of the present lease. held is zero when there is none.
	held    lease.Held
	head    objlog.Head
	ctx     context.Context // ends when the lease is lost
	cancel  context.CancelCauseFunc
	renewal sync.WaitGroup
}

// take takes the lease of an object, and waits for it as long as wait. The
// lease in the way is marked as wanted, so that its holder soon lets go. It
// fails with [*durable.ContendedError].
func (o *Ops) take(ctx context.Context, class, id string, wait time.Duration) (*tenure, error) {
	t := &tenure{o: o, class: class, id: id, parent: ctx}
	begun := clock.Now()
	if _, err := o.Store.Now(ctx); err != nil { // attempts end by the primary's clock
		return nil, fmt.Errorf("take lease of %s/%s: %w", class, id, err)
	}
	for bound := firstPause; ; bound = min(2*bound, lastPause) {
		a, err := t.attempt(ctx, 0)
		switch {
		case err == nil && a.taken:
			return t, nil
		case err == nil && !a.hasLive:
			err = fmt.Errorf("take lease of %s/%s: the attempt came too late", class, id)
		case err == nil:
			err = &durable.ContendedError{Class: class, ID: id, Holder: a.live.Holder, Replica: a.live.Replica}
		case libsql.OutcomeOf(err) != libsql.Unknown:
			return nil, err
		}
		if clock.Since(begun) >= wait {
			return nil, err
		}
		if err := pause(ctx, rand.N(bound)); err != nil {
			return nil, err
		}
	}
}

// pause waits for d, or fails when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An attempted is the answer to one attempt to take the lease.
type attempted struct {
	taken bool
	// live is the lease in the way when it was not taken, if there is one.
	live    lease.Info
	hasLive bool
	head    objlog.Head
	// commitID is that of the position asked about, if there is such a row.
	commitID  string
	hasCommit bool
}

// attempt tries once to take the lease. The same transaction reads the head and
// the commit id at the position doubt, unless that is 0.
func (t *tenure) attempt(ctx context.Context, doubt uint64) (attempted, error) {
	o := t.o
	at := lease.Attempt{
		Class: t.class, ID: t.id, Holder: uuid.NewString(), Replica: replicaName, Event: lease.EventOperator, GivenUp: t.givenUp,
		TTL: o.LeaseTTL, DeadlineMs: o.Store.Clock().Add(callTime).UnixMilli(), Want: true,
	}
	p := kv.NewPlan()
	shown, err := at.Add(p)
	if err != nil {
		return attempted{}, err
	}
	head := objlog.AddHead(p, t.class, t.id)
	row := objlog.AddCommitID(p, t.class, t.id, doubt)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	sent := clock.Now()
	v, err := o.Store.Commit(ctx, p)
	var res attempted
	if err == nil {
		if res.live, res.hasLive, err = lease.Read(t.class, t.id, v.Results[shown]); err == nil {
			res.head, err = objlog.ReadHead(v.Results[head])
		}
	}
	if err != nil {
		t.givenUp = append(t.givenUp, at.Holder) // it may have been taken
		return attempted{}, fmt.Errorf("take lease of %s/%s: %w", t.class, t.id, err)
	}
	// An answer that shows this attempt's holder is success even when the
	// verdict says no: a proxy repeated the request.
	res.taken = res.hasLive && res.live.Holder == at.Holder
	res.commitID, res.hasCommit = objlog.ReadCommitID(v.Results[row])
	if res.taken {
		t.begin(res, sent)
	}
	return res, nil
}

// begin starts the use of a lease that a statement sent at sent has taken.
func (t *tenure) begin(res attempted, sent time.Time) {
	t.held = lease.Held{Class: t.class, ID: t.id, Holder: res.live.Holder, Stamp: res.live.Stamp}
	t.head = res.head
	t.ctx, t.cancel = context.WithCancelCause(t.parent)
	held, ctx, cancel := t.held, t.ctx, t.cancel
	t.renewal.Go(func() {
		if err := t.o.renew(ctx, held, sent); err != nil {
			cancel(err)
		}
	})
}

// renew extends a lease at a third of its TTL until ctx ends or the lease is
// lost, or no longer trusted: then it returns an error.
func (o *Ops) renew(ctx context.Context, held lease.Held, extended time.Time) error {
	ttl := o.LeaseTTL
	retry := time.Duration(0)
	for {
		if pause(ctx, max(ttl/3-clock.Since(extended), retry)) != nil {
			return nil
		}
		// A fifth of the TTL is kept back for the answer's way and slow clocks.
		left := ttl - ttl/5 - clock.Since(extended)
		if left <= 0 {
			return fmt.Errorf("lease of %s/%s could not be renewed: %w", held.Class, held.ID, durable.ErrFenced)
		}
		call, cancel := context.WithTimeout(ctx, left)
		sent := clock.Now()
		_, ok, err := held.Extend(call, o.Store, ttl)
		cancel()
		switch {
		case err != nil:
			retry = ttl / 20 // as it is: an extension changes nothing that matters
		case !ok:
			return fmt.Errorf("lease of %s/%s: %w", held.Class, held.ID, durable.ErrFenced)
		default:
			extended, retry = sent, 0
		}
	}
}

// stop ends the use of the lease and leaves it as it is.
func (t *tenure) stop() lease.Held {
	held := t.held
	if held.Stamp != 0 {
		t.cancel(context.Canceled)
		t.renewal.Wait()
		t.held = lease.Held{}
	}
	return held
}

// end releases the lease. When that fails it ends by itself.
func (t *tenure) end() {
	held := t.stop()
	if held.Stamp == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.parent), callTime)
	defer cancel()
	_, _ = held.Release(ctx, t.o.Store)
}

// why gives an error that the loss of the lease caused that reason.
func (t *tenure) why(err error) error {
	if err != nil && t.ctx.Err() != nil && t.parent.Err() == nil {
		return context.Cause(t.ctx)
	}
	return err
}

// commit appends one position to the log, under the lease, and ends the lease.
// When it fails nothing was applied, except for [durable.ErrUnknownOutcome].
func (t *tenure) commit(txid uint64, commitID string, add func(*kv.Plan)) error {
	if err := t.ctx.Err(); err != nil {
		return t.why(err)
	}
	p := kv.NewPlan()
	t.held.Require(p)
	add(p)
	t.held.AddRelease(p) // nothing follows it
	row := objlog.AddCommitID(p, t.class, t.id, txid)
	// An interruption comes too late from here on: it would leave a doubt.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), callTime)
	defer cancel()
	failpoint.Hit("objectops.commit.before")
	v, err := t.o.Store.Commit(ctx, p)
	failpoint.Hit("objectops.commit.after")
	switch {
	case err == nil:
		if id, _ := objlog.ReadCommitID(v.Results[row]); v.OK || id == commitID {
			t.stop()
			return nil
		}
		return fmt.Errorf("commit %d of %s/%s: %w", txid, t.class, t.id, durable.ErrFenced)
	case errors.Is(err, kv.ErrNoVerdict), libsql.OutcomeOf(err) != libsql.Unknown:
		return fmt.Errorf("commit %d of %s/%s: %w", txid, t.class, t.id, err)
	}
	return t.resolve(txid, commitID, err)
}

// resolve finds out what became of a commit whose answer was lost. The lease is
// not used again: a new one fences whatever may still arrive, and the row of the
// commit's position, read in the same transaction, is the verdict.
func (t *tenure) resolve(txid uint64, commitID string, cause error) error {
	t.givenUp = append(t.givenUp, t.stop().Holder)
	ctx, cancel := context.WithTimeout(t.parent, resolveTime)
	defer cancel()
	for {
		a, err := t.attempt(ctx, txid)
		if err == nil {
			// A lease in the way is not the given-up one, so that one is dead.
			fenced := a.taken || a.hasLive
			switch {
			case a.hasCommit && a.commitID == commitID:
				return nil
			case !fenced:
			case a.hasCommit, a.head.TXID < txid && (a.head.TXID > 0 || txid == 1):
				return fmt.Errorf("commit %d of %s/%s was not applied: %w", txid, t.class, t.id, cause)
			default:
				return fmt.Errorf("commit %d of %s/%s: %w: %w", txid, t.class, t.id, durable.ErrUnknownOutcome, cause)
			}
		}
		if pause(ctx, rand.N(lastPause)) != nil {
			return fmt.Errorf("commit %d of %s/%s: %w: %w", txid, t.class, t.id, durable.ErrUnknownOutcome, cause)
		}
	}
}
