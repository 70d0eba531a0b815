package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/queue"
)

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
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error {
		return runQueuePause(ctx, e, name, true, yes)
	})
	return cmd
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
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, _ []string) error {
		return runQueuePause(ctx, e, name, false, yes)
	})
	return cmd
}

func runQueuePause(ctx context.Context, e *env, name string, paused, yes bool) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, i, err := e.lookQueue(call, name)
	if err != nil {
		return err
	}
	defer s.Close()
	p := pausing{
		queueKind, name, paused, fmt.Sprintf("Stop the deliveries of queue %s?", name),
		func(ctx context.Context, s *host.Stores) (bool, error) {
			return true, queue.Pause(ctx, s.KV, name, e.user())
		},
	}
	if !paused {
		p.question = fmt.Sprintf("Go on with the deliveries of queue %s, paused %s?", name, pausedText(i))
		p.change = func(ctx context.Context, s *host.Stores) (bool, error) { return queue.Resume(ctx, s.KV, name) }
	}
	return p.run(ctx, e, s, i.Paused, yes)
}
