package object

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	events "github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// An offer is an object whose lease a poll has taken for its alarm.
type offer struct {
	alarm.Taken
	// sent is when the poll was sent, and settled is called when the alarm is
	// done with.
	sent    time.Time
	settled func()
}

// offer gives a taken object to its actor, or hands it back.
func (r *Runtime) offer(class string, o *offer) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.handBack(class, o)
		return
	}
	k := key{class, o.ID}
	a := r.actors[k]
	if a == nil {
		a = newActor(r, k)
		r.actors[k] = a
	}
	old := a.offer
	a.offer = o
	r.startLocked(a)
	r.mu.Unlock()
	if old != nil {
		old.settled() // its lease has ended
	}
}

// takeOffer begins the tenure of a lease that a poll has taken, if there is one.
func (a *actor) takeOffer() bool {
	a.rt.mu.Lock()
	o := a.offer
	a.offer = nil
	a.rt.mu.Unlock()
	if o == nil {
		return false
	}
	if a.tenure != nil { // it cannot be live any more
		a.closeBatch()
		a.letGo()
	}
	a.begin(attempted{taken: true, live: o.Lease, head: o.Head, slot: alarm.Shown{Slot: o.Slot, Set: true, NowMs: o.Lease.NowMs}}, o.sent)
	a.tenure.setClaim(true)
	a.settled = o.settled
	return true
}

func (a *actor) settleOffer() {
	if a.settled != nil {
		a.settled()
		a.settled = nil
	}
}

// handBackOffers hands back what polls have taken and nobody has begun with.
func (r *Runtime) handBackOffers() {
	for _, a := range r.list() {
		r.mu.Lock()
		o := a.offer
		a.offer = nil
		r.mu.Unlock()
		if o != nil {
			r.handBack(a.class, o)
		}
	}
}

// handBack makes a taken alarm due again and releases the lease, behind the
// caller's back.
func (r *Runtime) handBack(class string, o *offer) {
	o.settled()
	h := lease.Held{Class: class, ID: o.ID, Holder: o.Lease.Holder, Stamp: o.Lease.Stamp}
	r.releases.Go(func() {
		// It is repeated until the lease would have ended by itself.
		ctx, cancel := context.WithTimeout(r.ctx, r.cfg.LeaseTTL)
		defer cancel()
		for {
			p := kv.NewPlan()
			h.Require(p)
			alarm.AddHandBack(p, h, 0)
			h.AddRelease(p)
			_, err := r.commits.Commit(ctx, p)
			if err == nil {
				return
			}
			if !pause(ctx, r.cfg.LeaseTTL/20) {
				r.log.LogAttrs(ctx, slog.LevelWarn, events.AlarmFireLost, slog.String(events.KeyClass, class), slog.String(events.KeyObject, o.ID), slog.Any(events.KeyError, err))
				return
			}
		}
	})
}

// Alarms takes the due alarms of the runtime's classes. It is a part of the
// replica's poll: the methods Poll and Polled are called in turn.
type Alarms struct {
	rt      *Runtime
	classes []string
	// takes are those of the last poll, and sizes how many statements each has.
	takes []alarm.Take
	sizes []int
	// behind is where to look on in a class whose oldest alarms are all held, and
	// active which classes had due alarms.
	behind map[string][]byte
	active map[string]bool
	// lost are the holder ids of takes whose answer was lost, by class, each until
	// it can matter no more.
	lost map[string]map[string]time.Time

	mu sync.Mutex
	// running is the number of taken alarms that are not done with, and cut is
	// set when a poll could have taken more.
	running int
	cut     bool
	looked  map[string]alarm.Looked
}

// Alarms returns the part of the poll. Classes registered later are not polled.
func (r *Runtime) Alarms() *Alarms {
	return &Alarms{
		rt: r, classes: slices.Sorted(maps.Keys(r.classes)), behind: map[string][]byte{}, active: map[string]bool{},
		lost: map[string]map[string]time.Time{}, looked: map[string]alarm.Looked{},
	}
}

// Name names the part in logs and metrics.
func (s *Alarms) Name() string { return "alarms" }

// fewAlarms is how many alarms a poll takes of a class that had none due before.
const fewAlarms = 4

// Poll returns the statements of the next poll. The answer has about 1 KiB for
// each alarm that is taken.
func (s *Alarms) Poll(bytes int) []libsql.Statement {
	s.takes, s.sizes = nil, nil
	s.mu.Lock()
	free := min(s.rt.cfg.AlarmBatch-s.running, bytes>>10)
	s.cut = false
	s.mu.Unlock()
	share := free
	if n := len(s.active); n > 1 {
		share = (free + n - 1) / n
	}
	var out []libsql.Statement
	for _, class := range s.classes {
		n := share
		if !s.active[class] {
			n = min(fewAlarms, free)
		}
		t := alarm.Take{
			Class: class, Replica: s.rt.cfg.Replica, TTL: s.rt.cfg.LeaseTTL, Behind: s.behind[class],
			DeadlineMs: s.rt.store.Clock().Add(attemptTime).UnixMilli(),
		}
		for range max(n, 0) {
			t.Holders = append(t.Holders, uuid.NewString())
		}
		t.Lost = s.lostOf(class)
		t.GivenUp = append(s.rt.givenUpBy(class), t.Lost...)
		stmts := t.Statements()
		s.takes, s.sizes = append(s.takes, t), append(s.sizes, len(stmts))
		out = append(out, stmts...)
	}
	return out
}

// lostOf returns the holder ids whose take may yet turn out to have been made.
func (s *Alarms) lostOf(class string) []string {
	now := clock.Now()
	maps.DeleteFunc(s.lost[class], func(_ string, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(s.lost[class]))
}

// Polled takes the poll's results, or its error. It reports whether more is due.
func (s *Alarms) Polled(res []libsql.Result, err error, sent time.Time) bool {
	if err != nil {
		if libsql.OutcomeOf(err) == libsql.Unknown {
			for _, t := range s.takes {
				s.lose(t.Class, t.Holders)
			}
		}
		return false
	}
	again := false
	for i, t := range s.takes {
		part := res[:s.sizes[i]]
		res = res[s.sizes[i]:]
		if s.polled(t, part, sent) {
			again = true
		}
	}
	return again
}

func (s *Alarms) lose(class string, holders []string) {
	if s.lost[class] == nil {
		s.lost[class] = map[string]time.Time{}
	}
	for _, h := range holders {
		s.lost[class][h] = clock.Now().Add(attemptTime + 2*s.rt.cfg.LeaseTTL)
	}
	s.rt.giveUpClaims(class, holders...)
}

// found forgets the loss of a holder that a later poll has read back.
func (s *Alarms) found(class, holder string) {
	delete(s.lost[class], holder)
	s.rt.mu.Lock()
	delete(s.rt.givenUp, holder)
	s.rt.mu.Unlock()
}

// polled takes the results of one class.
func (s *Alarms) polled(t alarm.Take, res []libsql.Result, sent time.Time) bool {
	taken, looked, err := t.Read(res)
	if err != nil {
		s.rt.log.LogAttrs(s.rt.ctx, slog.LevelError, events.AlarmFireLost, slog.String(events.KeyClass, t.Class), slog.Any(events.KeyError, err))
		s.lose(t.Class, t.Holders)
	}
	delete(s.behind, t.Class)
	if looked.Due == alarm.LookAt && len(taken) < len(t.Holders) {
		s.behind[t.Class] = looked.Last // all that were looked at are held
	}
	delete(s.active, t.Class)
	if looked.Due > 0 {
		s.active[t.Class] = true
	}
	if len(taken) > 0 {
		failpoint.Hit("object.take.after")
	}
	full := len(taken) > 0 && len(taken) >= len(t.Holders) && looked.Due > len(taken)
	s.mu.Lock()
	s.running += len(taken)
	s.cut = s.cut || full
	if t.Behind != nil {
		looked.OldestMs = s.looked[t.Class].OldestMs // the oldest are before it
	}
	s.looked[t.Class] = looked
	free := s.rt.cfg.AlarmBatch - s.running
	s.mu.Unlock()
	for _, one := range taken {
		s.found(t.Class, one.Lease.Holder)
		s.rt.offer(t.Class, &offer{Taken: one, sent: sent, settled: sync.OnceFunc(s.settled)})
	}
	return full && free > 0
}

// settled frees the place of a taken alarm, and has the rest taken when half of
// the places are free.
func (s *Alarms) settled() {
	s.mu.Lock()
	s.running--
	wake := s.cut && s.running <= s.rt.cfg.AlarmBatch/2
	if wake {
		s.cut = false
	}
	s.mu.Unlock()
	if wake && s.rt.cfg.WakeAt != nil {
		s.rt.cfg.WakeAt(time.Time{})
	}
}

// An Overdue tells how many alarms of a class a poll has seen due, and for how
// long the oldest has been.
type Overdue struct {
	Alarms int
	Oldest time.Duration
}

// Overdue returns what the last poll has seen, by class.
func (s *Alarms) Overdue() map[string]Overdue {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Overdue{}
	for class, l := range s.looked {
		o := Overdue{Alarms: l.Due}
		if l.Due > 0 {
			o.Oldest = time.Duration(l.NowMs-l.OldestMs) * time.Millisecond
		}
		out[class] = o
	}
	return out
}

// givenUpBy returns the holder ids that objects of a class have given up.
func (r *Runtime) givenUpBy(class string) []string {
	now := clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.givenUp, func(_ string, g givenUp) bool { return now.After(g.until) })
	var out []string
	for h, g := range r.givenUp {
		if g.class == class {
			out = append(out, h)
		}
	}
	return out
}

// leftClaim remembers a holder that ends with an alarm claimed: it is no crash.
func (r *Runtime) leftClaim(t *tenure) {
	t.mu.Lock()
	claim := t.claim
	t.mu.Unlock()
	if claim {
		r.giveUpClaims(t.Class, t.Holder)
	}
}

// claimMemory is how long a claim that was never run can be told from a crash:
// longer than a store is usually away.
const claimMemory = 10 * time.Minute

func (r *Runtime) giveUpClaims(class string, holders ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holders {
		r.givenUp[h] = givenUp{class, clock.Now().Add(claimMemory)}
	}
}

// leftBehind reports whether a claim is of such a holder.
func (r *Runtime) leftBehind(holder string) bool {
	if holder == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.givenUp[holder]
	return ok
}

// A givenUp is a holder id that claimed an alarm and let go of it.
type givenUp struct {
	class string
	until time.Time
}
