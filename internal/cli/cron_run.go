package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/term"
)

type cronRunOptions struct {
	name, at  string
	wait, yes bool
}

// requestedRun is what run writes.
type requestedRun struct {
	Schedule string    `json:"schedule"`
	Request  string    `json:"request"`
	At       int64     `json:"at"`
	Run      *cron.Run `json:"run,omitempty"`
}

func newCronRun(e *env) *cobra.Command {
	var o cronRunOptions
	cmd := cronCommand(e, &cobra.Command{
		Use:   "run NAME",
		Short: "Have a schedule run once, now",
		Long: `Ask the fleet to run a schedule once, now, or with --at for an instant in the past
that is to be made up for, also one that was run before. One replica runs it, within
a poll, or when the run that is under way has ended; a paused schedule too. The
request is forgotten after an hour. With --wait the command ends with the run, and
exits 1 when that fails.`,
		Example: `  dwk cron run every-five --yes
  dwk cron run every-five --at 2026-03-01T00:00:00Z --wait --yes`,
	})
	f := cmd.Flags()
	f.StringVar(&o.at, "at", "", "run it for this `TIME` (2006-01-02T15:04:05Z)")
	f.BoolVar(&o.wait, "wait", false, "wait for the end of the run")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.onCron(func(ctx context.Context, name string) error {
		o.name = name
		return runCronRun(ctx, e, o)
	})
	return cmd
}

// earliestRun bounds --at: keys hold instants from there on.
var earliestRun = time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)

func runCronRun(ctx context.Context, e *env, o cronRunOptions) error {
	var at time.Time
	if o.at != "" {
		var err error
		if at, err = time.Parse(time.RFC3339Nano, o.at); err != nil || at.Before(earliestRun) {
			return usagef("--at: %q is not a time such as 2026-03-01T00:00:00Z", o.at)
		}
	}
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookCron(call, o.name)
	if err != nil {
		return err
	}
	defer s.Close()
	now := time.UnixMilli(i.NowMs)
	if at.After(now) {
		return usagef("--at: %s is not past", o.at)
	}
	question := fmt.Sprintf("Run schedule %s now?", o.name)
	if o.at != "" {
		question = fmt.Sprintf("Run schedule %s for %s?", o.name, instant(at.UnixMilli()))
	}
	if err := e.confirm(ctx, o.yes, "%s", question); err != nil {
		return err
	}
	return e.requestRun(ctx, s, o, at)
}

// requestRun asks for a run, and waits for it when that is wanted.
func (e *env) requestRun(ctx context.Context, s *host.Stores, o cronRunOptions, at time.Time) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	if at.IsZero() {
		var err error
		if at, err = s.KV.Now(call); err != nil {
			return err
		}
	}
	before, _, err := newestRun(call, s, o.name, at.UnixMilli())
	if err != nil {
		return err
	}
	id, err := cron.Request(call, s.KV, o.name, e.user(), at)
	if err != nil {
		return err
	}
	out := requestedRun{Schedule: o.name, Request: id, At: at.UnixMilli()}
	if o.wait {
		long, cancel := e.boundIfAsked(ctx)
		defer cancel()
		r, err := awaitRun(long, s, o.name, id, out.At, before.Attempt)
		if err != nil {
			return err
		}
		out.Run = &r
	}
	if err := showRequested(e.term, out); err != nil {
		return err
	}
	if out.Run != nil && out.Run.Outcome != cron.OK {
		return fmt.Errorf("the run of schedule %s was %s: %s", o.name, out.Run.Outcome, out.Run.Error)
	}
	return nil
}

// newestRun is the run of an occurrence with the highest attempt, and whether the
// occurrence is won and not ended: then there may be one more.
func newestRun(ctx context.Context, s *host.Stores, name string, at int64) (r cron.Run, open bool, err error) {
	x, _, err := cron.Examine(ctx, s.KV, name)
	for _, line := range x.Lines {
		if line.At == at {
			r = line
		}
	}
	return r, slices.ContainsFunc(x.Claims, func(c cron.Claim) bool { return c.At == at }), err
}

// runPause is the time between two looks for the end of a run.
const runPause = 200 * time.Millisecond

// awaitRun waits for the end of the run that was asked for, behind an attempt. One
// that was cut off may be repeated.
func awaitRun(ctx context.Context, s *host.Stores, name, request string, at int64, attempt int) (cron.Run, error) {
	for {
		// In this order: one that was taken between the looks is seen.
		_, waits, err := s.KV.Get(ctx, tuple.Key{cron.PrefixRequest, name, request})
		if err != nil {
			return cron.Run{}, err
		}
		r, open, err := newestRun(ctx, s, name, at)
		switch {
		case err != nil:
			return r, err
		case r.Attempt > attempt && !open:
			return r, nil
		case !waits && !open:
			return r, fmt.Errorf("the run of schedule %s was not begun within %s, or the history does not show it any more", name, cron.RequestTTL)
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("wait for the run of schedule %s: %w", name, ctx.Err())
		case <-time.After(runPause):
		}
	}
}

func showRequested(t *term.Term, r requestedRun) error {
	if t.JSON {
		return t.WriteJSON(r)
	}
	tb := term.NewTable()
	tb.Row("schedule", r.Schedule)
	tb.Row("for", instant(r.At))
	if r.Run == nil {
		tb.Row("run", "requested: see dwk cron history "+r.Schedule)
		return t.Table(tb)
	}
	tb.Row("outcome", r.Run.Outcome)
	tb.Row("by", r.Run.Replica)
	tb.Row("took", short(time.Duration(r.Run.FinishedAt-r.Run.StartedAt)*time.Millisecond))
	if r.Run.Error != "" {
		tb.Row("error", r.Run.Error)
	}
	return t.Table(tb)
}
