package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A seat is a part and what the poller knows of it.
type seat struct {
	Part
	lasting bool
	// A part that failed is sent by itself, ever more rarely, until it succeeds.
	failures int
	retry    time.Time
	// shrink halves the part's share of the answer: one was too large.
	shrink uint
}

// A turn is what a part contributes to one poll.
type turn struct {
	*seat
	stmts []libsql.Statement
}

// minShare is what a part may have of an answer at least, in bytes.
const minShare = 64 << 10

// pass is one poll; again tells that a part wants the next one at once.
func (p *Poller) pass(ctx context.Context) (again bool) {
	p.passing <- struct{}{}
	defer func() { <-p.passing }()
	together, alone := p.turns()
	w := &work{Poller: p, ctx: ctx}
	if p.failures >= suspicious {
		// Perhaps it is not the store but a part that takes too long.
		w.separate = true
		together, alone = nil, append(together, alone...)
	}
	w.send(together)
	for _, t := range alone {
		w.send([]turn{t})
	}
	p.finish(w)
	return w.again
}

// turns asks the parts for their statements. The first turns share a
// transaction, the others have one each.
func (p *Poller) turns() (together, alone []turn) {
	p.mu.Lock()
	quiet := p.quiet
	p.woken = false
	p.mu.Unlock()
	share := p.cfg.Budget / max(len(p.parts), 1)
	for _, s := range p.parts {
		if quiet && !s.lasting || s.failures > 0 && clock.Now().Before(s.retry) {
			continue
		}
		stmts := s.Poll(max(share>>s.shrink, min(share, minShare)))
		switch {
		case len(stmts) == 0:
		case s.failures > 0:
			alone = append(alone, turn{s, stmts})
		default:
			together = append(together, turn{s, stmts})
		}
	}
	return together, alone
}

// work is the state of one pass.
type work struct {
	*Poller
	ctx     context.Context
	down    error     // why the store cannot be used
	sent    time.Time // of the last batch that succeeded
	primary time.Time // the primary's time in it
	again   bool
	changed bool // some statement changed a row
	// separate has each part blamed for its own time, once the store has
	// answered a batch without any.
	separate bool
}

// suspicious is after how many failures in a row the parts are sent one by one.
const suspicious = 3

// send runs the statements of turns in one transaction, or, when one of them is
// to blame for its failure, in one each.
func (w *work) send(turns []turn) {
	if w.down != nil {
		w.fail(turns, w.down, clock.Now())
		return
	}
	var stmts []libsql.Statement
	for _, t := range turns {
		stmts = append(stmts, t.stmts...)
	}
	sent := clock.Now()
	res, now, err := w.store.Write(w.ctx, stmts...)
	switch {
	case err == nil:
		w.sent, w.primary = sent, now
		for _, t := range turns {
			w.deliver(t, res[:len(t.stmts)], sent)
			res = res[len(t.stmts):]
		}
	case !w.blames(err, turns):
		w.down = err
		w.fail(turns, err, sent)
	case len(turns) > 1 && libsql.OutcomeOf(err) != libsql.Unknown:
		for _, t := range turns {
			w.send([]turn{t})
		}
	default: // nothing that may have been applied is sent again
		for _, t := range turns {
			w.blame(t, err, sent)
		}
	}
}

// blames reports whether a batch failed for what it held, and not because the
// store cannot be used.
func (w *work) blames(err error, turns []turn) bool {
	kind, ok := libsql.KindOf(err)
	switch {
	case !ok || len(turns) == 0:
		return false
	case kind == libsql.KindTimeout:
		// The store has answered a moment ago, and it is not the first time.
		return len(turns) == 1 && (w.separate || turns[0].failures > 0) && !w.sent.IsZero() && w.ctx.Err() == nil
	default:
		return kind == libsql.KindSQL || kind == libsql.KindConstraint || kind == libsql.KindTooLarge
	}
}

func (w *work) deliver(t turn, res []libsql.Result, sent time.Time) {
	for _, r := range res {
		w.changed = w.changed || r.Changes > 0
	}
	if t.failures > 0 {
		w.log.Info(event.FleetPollRecovered, "part", t.Name(), "failures", t.failures)
		t.failures, t.shrink = 0, 0
	}
	if t.Polled(res, nil, sent) {
		w.again = true
	}
}

// fail gives all turns the error of a store that cannot be used.
func (w *work) fail(turns []turn, err error, sent time.Time) {
	for _, t := range turns {
		t.Polled(nil, err, sent)
	}
}

// blame gives a turn the error of its own statements.
func (w *work) blame(t turn, err error, sent time.Time) {
	if t.failures == 0 {
		w.log.LogAttrs(w.ctx, slog.LevelError, event.FleetPollFailed, slog.String("part", t.Name()), slog.Any(event.KeyError, err))
	}
	if kind, _ := libsql.KindOf(err); kind == libsql.KindTooLarge && t.shrink < 16 {
		t.shrink++
	}
	t.failures++
	t.retry = clock.Now().Add(w.backoff(t.failures))
	t.Polled(nil, err, sent)
}

// finish records what a pass has shown of the store.
func (p *Poller) finish(w *work) {
	p.cfg.Observed(w.down)
	if w.down != nil {
		if p.failures == 0 {
			p.failing = clock.Now()
			p.log.LogAttrs(w.ctx, slog.LevelWarn, event.FleetPollFailed, slog.Any(event.KeyError, w.down))
		}
		p.failures++
	} else if p.failures > 0 {
		p.log.Info(event.FleetPollRecovered, "failures", p.failures, event.KeyTook, clock.Since(p.failing))
		p.failures = 0
	}
	if w.sent.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if gap := w.sent.Sub(p.lastOK); !p.lastOK.IsZero() && p.failing.Before(p.lastOK) && gap > lagFactor*p.cfg.Interval {
		p.log.Warn(event.FleetPollLag, event.KeyLate, gap-p.cfg.Interval)
	}
	p.lastOK = w.sent
	p.alarms.passed(w.primary)
	if w.changed {
		p.immediate = 0
	}
}

// lagFactor is how many intervals between two polls are worth a warning.
const lagFactor = 5
