package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/term"
)

// pausedQueue is what pause and resume write.
type pausedQueue struct {
	Queue   string `json:"queue"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed"`
}

func newQueuePause(e *env) *cobra.Command {
	var yes bool
	cmd := queueCommand(e, &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Stop the deliveries of a queue in the whole fleet",
		Long: `Stop the deliveries of a queue in the whole fleet, until dwk queue resume. What is
being delivered is finished; sending goes on, and the messages wait.`,
		Example: `  dwk queue pause default --yes`,
	})
	yesFlag(cmd, &yes)
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error { return runQueuePause(ctx, e, name, yes) })
	return cmd
}

func runQueuePause(ctx context.Context, e *env, name string, yes bool) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.look(call, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if i.Paused {
		return showPaused(e.term, pausedQueue{name, true, false})
	}
	if err := e.confirm(ctx, yes, "Stop the deliveries of queue %s?", name); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	if err := queue.Pause(call, s.KV, name, e.user()); err != nil {
		return err
	}
	return showPaused(e.term, pausedQueue{name, true, true})
}

func newQueueResume(e *env) *cobra.Command {
	var yes bool
	cmd := queueCommand(e, &cobra.Command{
		Use:     "resume QUEUE",
		Short:   "Go on with the deliveries of a queue",
		Long:    `Go on with the deliveries of a queue that dwk queue pause has stopped.`,
		Example: `  dwk queue resume default --yes`,
	})
	yesFlag(cmd, &yes)
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error { return runQueueResume(ctx, e, name, yes) })
	return cmd
}

func runQueueResume(ctx context.Context, e *env, name string, yes bool) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.look(call, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if !i.Paused {
		return showPaused(e.term, pausedQueue{name, false, false})
	}
	if err := e.confirm(ctx, yes, "Go on with the deliveries of queue %s, paused %s?", name, pausedText(i)); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	was, err := queue.Resume(call, s.KV, name)
	if err != nil {
		return err
	}
	return showPaused(e.term, pausedQueue{name, false, was})
}

func showPaused(t *term.Term, p pausedQueue) error {
	if t.JSON {
		return t.WriteJSON(p)
	}
	tb := term.NewTable()
	tb.Row("queue", p.Queue)
	switch {
	case p.Paused && p.Changed:
		tb.Row("paused", "yes, from now on")
	case p.Paused:
		tb.Row("paused", "yes, it was before")
	case p.Changed:
		tb.Row("paused", "no more")
	default:
		tb.Row("paused", "no, it was not")
	}
	return t.Table(tb)
}

// user is who runs the command, for what is kept about it.
func (e *env) user() string {
	for _, name := range []string{"USER", "LOGNAME"} {
		if u := getenv(e.opts.Environ)(name); u != "" {
			return term.Cut(u, 100)
		}
	}
	return "an operator"
}
