package kv

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of a shared transaction. A larger plan is sent alone.
const (
	groupMembers = 32
	groupBytes   = 1 << 20
	// The write lock admits one transaction at a time. Over the wire a few may
	// be on their way to it.
	groupsLocal, groupsWire = 1, 4
)

// A Group commits plans like [Store.Commit], and lets those that are ready at
// the same moment share a transaction: one round trip and one sync to disk for
// all of them. Each has a verdict of its own, and what goes wrong with one
// concerns the others only when nobody knows what happened to the transaction.
type Group struct {
	s     *Store
	limit int

	mu      sync.Mutex
	waiting []*member
	// workers send transactions. Those of them that are idle, less the tokens
	// in wake, are counted.
	workers, idle int
	wake          chan struct{}
	quit          chan struct{}
	quitting      bool
	wg            sync.WaitGroup
}

// A member is a plan that waits for its transaction.
type member struct {
	ctx   context.Context
	plan  *Plan
	size  int
	alone bool // its transaction has no other member, and obeys ctx
	done  chan struct{}
	v     Verdict
	err   error
}

// NewGroup returns a group on s.
func NewGroup(s *Store) *Group {
	g := &Group{s: s, limit: groupsWire, quit: make(chan struct{})}
	if s.db.Local() {
		g.limit = groupsLocal
	}
	g.wake = make(chan struct{}, g.limit)
	return g
}

// Wait returns when no shared transaction is under way any more. Nothing else
// ends what a group runs.
func (g *Group) Wait() {
	g.mu.Lock()
	if !g.quitting {
		g.quitting = true
		close(g.quit)
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// Commit runs the plan, alone or in company. Errors are those of
// [Store.Commit]. When ctx ends, a plan that has been sent in company has an
// unknown outcome.
func (g *Group) Commit(ctx context.Context, p *Plan) (Verdict, error) {
	m := &member{ctx: ctx, plan: p, size: p.size(), done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	switch {
	case g.idle > 0:
		g.idle--
		g.wake <- struct{}{}
	case g.workers < g.limit:
		g.workers++
		g.wg.Go(g.work)
	}
	g.mu.Unlock()
	select {
	case <-m.done:
		return m.v, m.err
	case <-ctx.Done():
	}
	if g.leave(m) {
		return Verdict{}, g.timeout(ctx, libsql.Refused)
	}
	if m.alone {
		<-m.done // the database knows better what became of it
		return m.v, m.err
	}
	return Verdict{}, g.timeout(ctx, libsql.Unknown)
}

// leave takes a member that still waits out.
func (g *Group) leave(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, m)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

func (g *Group) timeout(ctx context.Context, outcome libsql.Outcome) error {
	return &libsql.Error{Outcome: outcome, Kind: libsql.KindTimeout, Statement: -1, Addr: g.s.String(), Err: context.Cause(ctx)}
}

// idleTime is how long a worker that has nothing to do stays: its stack has
// grown to what a transaction needs.
const idleTime = time.Second

// work sends transactions while there are plans.
func (g *Group) work() {
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	for {
		// Who is about to commit is let in first: a transaction costs much more
		// than another member of it.
		runtime.Gosched()
		members := g.take()
		if len(members) > 0 {
			g.send(members)
		} else if !g.rest(timer) {
			return
		}
	}
}

// take returns what goes into the next transaction. When that is nothing the
// worker counts as idle.
func (g *Group) take() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, bytes := 0, 0
	for n < len(g.waiting) && n < groupMembers && (n == 0 || bytes+g.waiting[n].size <= groupBytes) {
		bytes += g.waiting[n].size
		n++
	}
	if n == 0 {
		g.idle++
		return nil
	}
	members := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	members[0].alone = n == 1
	return members
}

// rest waits for the next plan. false ends the worker.
func (g *Group) rest(timer *time.Timer) bool {
	timer.Reset(idleTime)
	select {
	case <-g.wake:
		return true
	case <-timer.C:
	case <-g.quit:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == 0 { // as many were woken as rest, and this is one of them
		<-g.wake
		return true
	}
	g.idle--
	g.workers--
	return false
}

// send runs the plans of the members in one transaction.
func (g *Group) send(members []*member) {
	defer func() {
		for _, m := range members {
			close(m.done)
		}
	}()
	if len(members) == 1 {
		m := members[0]
		m.v, m.err = g.s.Commit(m.ctx, m.plan)
		return
	}
	var stmts []libsql.Statement
	ends := make([]int, len(members))
	for i, m := range members {
		stmts = append(stmts, g.s.statements(m.plan, len(members))...)
		ends[i] = len(stmts)
	}
	// No single member's context may end the others' transaction; the
	// database's own timeout bounds it.
	sent := clock.Now()
	res, err := g.s.db.Batch(context.WithoutCancel(members[0].ctx), libsql.Write, stmts...)
	if libsql.OutcomeOf(err) == libsql.Failed && err != nil {
		// One of them is to blame, and nothing of any was applied.
		for _, m := range members {
			m.v, m.err = g.s.Commit(m.ctx, m.plan)
		}
		return
	}
	for i, m := range members {
		if err != nil {
			m.err = err
			continue
		}
		from := 0
		if i > 0 {
			from = ends[i-1]
		}
		m.v, m.err = g.s.verdictOf(m.plan, res[from:ends[i]], sent)
	}
}

// size estimates the bytes that a plan puts on the wire.
func (p *Plan) size() int {
	n := p.checks.Len()
	for _, s := range p.stmts {
		n += len(s.SQL)
		for _, a := range s.Args {
			switch v := a.(type) {
			case string:
				n += len(v)
			case []byte:
				n += len(v)
			default:
				n += 8
			}
		}
	}
	return n
}

// verdictOf reads a plan's part of the results.
func (s *Store) verdictOf(p *Plan, res []libsql.Result, sent time.Time) (Verdict, error) {
	last := res[len(res)-1].Rows
	if len(last) != 1 {
		return Verdict{}, fmt.Errorf("%w (%s)", ErrNoVerdict, s.db)
	}
	ok, _ := last[0][0].(int64)
	seq, _ := last[0][1].(int64)
	now, _ := last[0][2].(int64)
	s.observe(now, sent)
	return Verdict{OK: ok == 1, Stamp: Versionstamp(seq), NowMs: now, Results: res[len(res)-1-len(p.stmts) : len(res)-1]}, nil
}

// Waiting returns how many plans wait for a transaction.
func (g *Group) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}
