package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

type fleetStatusOptions struct {
	watch    bool
	interval time.Duration
}

// statusJSON is what status writes. Times are epoch milliseconds by the primary's
// clock.
type statusJSON struct {
	OK        bool            `json:"ok"`
	Verdict   string          `json:"verdict"`
	Risks     []fleet.Risk    `json:"risks"`
	Mode      string          `json:"mode"`
	StoreID   string          `json:"store_id"`
	Layout    int             `json:"layout"`
	Replicas  []replicaJSON   `json:"replicas"`
	Leases    int64           `json:"leases"`
	LeftOver  int64           `json:"leases_left_over"`
	Alarms    []fleet.Backlog `json:"alarms"`
	Messages  []fleet.Backlog `json:"messages"`
	Schedules []scheduleJSON  `json:"schedules"`
	Expired   int64           `json:"expired"`
	Now       int64           `json:"now"`
}

// scheduleJSON is a schedule that was ever seen.
type scheduleJSON struct {
	Name string `json:"name"`
	// Known is true when an application of this program and configuration brings it.
	Known     bool   `json:"known"`
	Last      int64  `json:"last,omitempty"` // the newest occurrence that was run
	Outcome   string `json:"outcome,omitempty"`
	Running   int    `json:"running"`
	CutOff    int    `json:"cut_off"`
	OverdueMs int64  `json:"overdue_ms"`
	Paused    bool   `json:"paused"`
}

func schedulesAsJSON(st fleet.Status) []scheduleJSON {
	list := []scheduleJSON{}
	for _, s := range st.Schedules {
		o, known := st.Brought[s.Name]
		j := scheduleJSON{Name: s.Name, Known: known, Last: s.Last.At, Outcome: s.Last.Outcome, Paused: s.Paused || o.Paused, CutOff: len(s.CutOff(st.NowMs))}
		for _, c := range s.Claims {
			if c.Until > st.NowMs {
				j.Running++
			}
		}
		if j.Last > 0 && j.Outcome == "" {
			j.Outcome = cron.Running
		}
		if at := s.Overdue(st.NowMs, &o); at > 0 && known {
			j.OverdueMs = st.NowMs - at
		}
		list = append(list, j)
	}
	return list
}

// replicaJSON is a replica with the spans that people want to know.
type replicaJSON struct {
	fleet.Live
	UptimeMs       int64 `json:"uptime_ms"`
	HeartbeatAgeMs int64 `json:"heartbeat_age_ms"`
	ExpiresInMs    int64 `json:"expires_in_ms"`
}

func statusAsJSON(st fleet.Status) statusJSON {
	ok, text := st.Verdict()
	j := statusJSON{
		OK: ok, Verdict: text, Risks: append([]fleet.Risk{}, st.Risks()...), Schedules: schedulesAsJSON(st), Mode: st.Mode, StoreID: st.Store.ID, Layout: st.Store.Layout, Replicas: []replicaJSON{},
		Leases: st.Leases, LeftOver: st.LeftOver, Alarms: st.Alarms, Messages: st.Messages, Expired: st.Expired, Now: st.NowMs,
	}
	for _, r := range st.Replicas {
		j.Replicas = append(j.Replicas, replicaJSON{r, st.NowMs - r.StartedAt, st.NowMs - r.HeartbeatAt, r.ExpiresAt - st.NowMs})
	}
	return j
}

func newFleetStatus(e *env) *cobra.Command {
	var o fleetStatusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show replicas, leases and what waits",
		Long: fmt.Sprintf(`Show the replicas that live, the leases that they hold, the alarms and messages
that wait, dead letters, schedules, and one line that says whether the fleet is well;
if it is not, which promise is at risk, why, and what to do. All of it is from one
moment and one round trip, and needs no replica.

What is due could run at this moment; what could have for more than %s is
overdue. The exit code is 0 whatever the verdict is.

--watch goes on until it is interrupted or --timeout is over: it shows the status
again every interval, as a line of JSON under -o json.`, time.Duration(fleet.OverdueMs)*time.Millisecond),
		Example: `  dwk fleet status
  dwk fleet status --watch
  dwk fleet status -o json | jq -e .ok`,
		Args: arguments(),
	}
	cmd.Flags().BoolVar(&o.watch, "watch", false, "show it again and again")
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "time between two looks of --watch")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		if o.interval < minInterval {
			return usagef("--interval must be at least %v", minInterval)
		}
		return runFleetStatus(ctx, e, o)
	})
	return cmd
}

func runFleetStatus(ctx context.Context, e *env, o fleetStatusOptions) error {
	bound := e.bound
	if o.watch {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := fleet.Look(ctx, s.KV, e.brought(s.Config))
	if err != nil {
		return err
	}
	if !o.watch {
		if e.term.JSON {
			return e.term.WriteJSON(statusAsJSON(st))
		}
		return showStatus(e.term, st)
	}
	err = again(ctx, o.interval, func() (bool, error) { return false, e.showAgain(ctx, s) })
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // as long as it was asked to
	}
	return err
}

// showAgain is one look of --watch. A look that fails is noted, and the next one
// is taken.
func (e *env) showAgain(ctx context.Context, s *host.Stores) error {
	st, err := fleet.Look(ctx, s.KV, e.brought(s.Config))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		e.term.Notef("%s", oneLine(err.Error()))
		return nil
	case e.term.JSON:
		return e.term.WriteLine(statusAsJSON(st))
	}
	e.term.Clear()
	return showStatus(e.term, st)
}

func showStatus(t *term.Term, st fleet.Status) error {
	if len(st.Replicas) > 0 {
		if err := t.Table(replicaTable(st)); err != nil {
			return err
		}
		fmt.Fprintln(t.Out)
	}
	if len(st.Alarms)+len(st.Messages) > 0 {
		if err := t.Table(backlogTable(st)); err != nil {
			return err
		}
		fmt.Fprintln(t.Out)
	}
	if len(st.Schedules) > 0 {
		if err := t.Table(schedulesTable(st)); err != nil {
			return err
		}
		fmt.Fprintln(t.Out)
	}
	tb := term.NewTable()
	if !st.New() {
		tb.Row("store set", fmt.Sprintf("%s, mode %s", st.Store.ID, st.Mode))
	}
	leases := fmt.Sprint(st.Leases)
	if st.LeftOver > 0 {
		leases += fmt.Sprintf(", %d of replicas that are gone", st.LeftOver)
	}
	tb.Row("leases", leases)
	tb.Row("expired entries", fmt.Sprintf("%d not swept", st.Expired))
	ok, text := st.Verdict()
	tone := term.Good
	if !ok {
		tone = term.Bad
	}
	tb.Row("verdict", term.Cell{Text: text, Tone: tone})
	for _, r := range st.Risks() {
		tb.Row("at risk", term.Cell{Text: r.Promise, Tone: term.Bad})
		tb.Row("  because", r.Problem)
		tb.Row("  what to do", r.Advice)
	}
	return t.Table(tb)
}

func schedulesTable(st fleet.Status) *term.Table {
	tb := term.NewTable("SCHEDULE", "LAST", "OUTCOME", "RUNNING", "CUT OFF", "OVERDUE", "STATE")
	for _, s := range schedulesAsJSON(st) {
		overdue, state := "", ""
		if s.OverdueMs > 0 {
			overdue = short(time.Duration(s.OverdueMs) * time.Millisecond)
		}
		switch {
		case s.Paused:
			state = "paused"
		case !s.Known:
			state = "not in this configuration"
		}
		tb.Row(s.Name, instant(s.Last), s.Outcome, s.Running, s.CutOff, overdue, state)
	}
	return tb
}

func backlogTable(st fleet.Status) *term.Table {
	tb := term.NewTable("WAITING", "NAME", "PENDING", "DUE", "OVERDUE", "OLDEST", "DEAD", "STATE")
	for kind, list := range []([]fleet.Backlog){st.Alarms, st.Messages} {
		for _, b := range list {
			oldest, state := "", ""
			if b.OldestMs > 0 {
				oldest = short(time.Duration(b.OldestMs) * time.Millisecond)
			}
			if b.Paused {
				state = "paused"
			}
			tb.Row([]string{"alarms", "messages"}[kind], b.Name, b.Pending, b.Due, b.Overdue, oldest, b.Dead, state)
		}
	}
	return tb
}
