package cron

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/failpoint"
)

var (
	errTimeout = errors.New("the run took longer than its timeout")
	errStuck   = errors.New("the run has not ended although it was told to")
)

// stuckGrace is how long a run may take to end when it is told to.
const stuckGrace = 5 * time.Second

// work runs an occurrence that was won, and stores how it ended. The claim is
// trusted until a moment of this machine's clock.
func (c *Runner) work(j *job, cl claim, r openRun, trusted time.Time) {
	failpoint.Hit("cron.run.before")
	begun := clock.Now()
	if !begun.Before(trusted) { // it stood still meanwhile
		ours := c.end(cl, result{})
		c.log.Warn(event.CronClaimLost, event.KeySchedule, j.name, "at", time.UnixMilli(r.at).UTC(), "attempt", r.Attempt, "begun", false, "handed_back", ours)
		c.mu.Lock()
		c.runs--
		c.mu.Unlock()
		c.over(j, cl, true)
		return
	}
	ctx, lost := context.WithCancelCause(c.ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, j.opts.Timeout, errTimeout)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		c.renew(renewing, lost, cl, trusted)
	}()
	returned := make(chan error, 1)
	c.wg.Go(func() {
		returned <- c.call(ctx, j, durable.Occurrence{Name: j.name, At: time.UnixMilli(r.at).UTC(), Attempt: r.Attempt})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs--
	})
	err, ended := wait(ctx, returned)
	why := context.Cause(ctx)
	failpoint.Hit("cron.run.after")
	stop()
	<-renewed
	if !ended {
		c.log.Error(event.CronRunStuck, event.KeySchedule, j.name, "at", time.UnixMilli(r.at).UTC(), event.KeyError, why)
	}
	c.finish(j, cl, r, err, why, begun)
	cancel()
	lost(nil)
	c.over(j, cl, ended)
	if !ended {
		<-returned
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(j.runs, cl.holder)
		j.stuck--
	}
}

// over notes that a run is over, and asks for a poll when the next one waits for
// it.
func (c *Runner) over(j *job, cl claim, ended bool) {
	c.mu.Lock()
	if ended {
		delete(j.runs, cl.holder)
	} else {
		j.stuck++
	}
	j.seen.running = slices.DeleteFunc(j.seen.running, func(r openRun) bool { return r.Holder == cl.holder })
	_, due := j.due(c.cfg.Store.Clock())
	due = due && !j.opts.Paused || j.seen.request != nil
	c.mu.Unlock()
	if due {
		c.cfg.Wake()
	}
}

// wait waits for the end of a run, and a little longer when it is told to end.
func wait(ctx context.Context, returned chan error) (err error, ended bool) {
	select {
	case err := <-returned:
		return err, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(stuckGrace)
	defer timer.Stop()
	select {
	case err := <-returned:
		return err, true
	case <-timer.C:
		return fmt.Errorf("%w: %w", errStuck, context.Cause(ctx)), false
	}
}

// call runs the handler; a panic is an error.
func (c *Runner) call(ctx context.Context, j *job, o durable.Occurrence) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error(event.CronRunFailed, event.KeySchedule, j.name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return j.fn(ctx, j.env, o)
}

// finish stores how a run has ended. One that was cut off, by a stop or by the
// loss of its claim, is another replica's to repeat.
func (c *Runner) finish(j *job, cl claim, r openRun, err, why error, begun time.Time) {
	res := result{outcome: OK}
	if err != nil {
		res = result{Failed, err.Error()}
		if errors.Is(why, errClaimLost) || errors.Is(why, durable.ErrDraining) {
			res.outcome = Interrupted
		}
		if errors.Is(why, errTimeout) {
			res.err = fmt.Sprintf("%s (%s): %s", errTimeout, j.opts.Timeout, err)
		}
	}
	failpoint.Hit("cron.end.before")
	ours := c.end(cl, res)
	failpoint.Hit("cron.end.after")
	at, took := time.UnixMilli(r.at).UTC(), clock.Since(begun)
	late := time.Duration(r.StartedAt-r.at) * time.Millisecond
	switch {
	case !ours:
		c.log.Warn(event.CronClaimLost, event.KeySchedule, j.name, "at", at, "attempt", r.Attempt, event.KeyTook, took, event.KeyError, err)
	case res.outcome == OK:
		c.log.Debug(event.CronRunOK, event.KeySchedule, j.name, "at", at, "attempt", r.Attempt, event.KeyTook, took, event.KeyLate, late)
	case res.outcome == Failed:
		c.log.Warn(event.CronRunFailed, event.KeySchedule, j.name, "at", at, "attempt", r.Attempt, event.KeyTook, took, event.KeyLate, late, event.KeyError, res.err)
	default:
		c.log.Warn(event.CronRunInterrupted, event.KeySchedule, j.name, "at", at, "attempt", r.Attempt, event.KeyTook, took, event.KeyError, why)
	}
}

// renew extends the claim, a third of its time after it was last extended, until
// ctx ends. When the claim is over, lost is called.
func (c *Runner) renew(ctx context.Context, lost context.CancelCauseFunc, cl claim, trusted time.Time) {
	wait := min(cl.ttl/3, trusted.Sub(clock.Now())/3)
	for {
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		sent := clock.Now()
		call, cancel := context.WithTimeout(ctx, max(trusted.Sub(sent), 0))
		v, err := c.cfg.Commits.Commit(call, cl.renewal())
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !v.OK, !clock.Now().Before(trusted):
			lost(errClaimLost)
			return
		case err != nil:
			wait = cl.ttl / 30
		default:
			trusted, wait = sent.Add(cl.ttl*8/10), cl.ttl/3
		}
	}
}

// unstored tells that the end of a run could not be stored yet.
func (c *Runner) unstored(cl claim, r result, err error) {
	c.log.Warn(event.CronEndFailed, event.KeySchedule, cl.name, "at", time.UnixMilli(cl.at).UTC(), "outcome", r.outcome, event.KeyError, err)
}

// cut returns at most n bytes of text as UTF-8.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}
