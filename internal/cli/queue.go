package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/queue"
)

func newQueue(e *env) *cobra.Command {
	return group("queue", "Messages, and those that were given up", `Look at queues and change them. A message is delivered until a consumer
acknowledges it; after max_attempts deliveries it goes to the dead letters, which
are kept for dead_retention and can be sent back.`,
		newQueueList(e), newQueuePeek(e), newQueueSend(e), newQueueRedrive(e), newQueuePurge(e), newQueuePause(e), newQueueResume(e))
}

// queueCommand completes a command whose first argument is a queue.
func queueCommand(e *env, cmd *cobra.Command, args ...string) *cobra.Command {
	cmd.Args = arguments(append([]string{"QUEUE"}, args...)...)
	cmd.ValidArgsFunction = e.queues()
	return cmd
}

// onQueue is the RunE of a command about one queue.
func (e *env) onQueue(f func(ctx context.Context, name string, args []string) error) func(*cobra.Command, []string) error {
	return e.run(func(ctx context.Context, args []string) error {
		if err := queue.CheckName(args[0]); err != nil {
			return usageError{err}
		}
		return f(ctx, args[0], args[1:])
	})
}

// queues completes the name of a queue.
func (e *env) queues() cobra.CompletionFunc {
	return e.named(func(cfg *config.Config) []string { return configuredQueues(cfg.Queues) },
		func(ctx context.Context, s *host.Stores) ([]string, error) { return queue.Names(ctx, s.KV) })
}

// known reports whether a queue is configured or has ever been used, so that a
// wrong name is noticed.
func known(ctx context.Context, s *host.Stores, name string) (bool, error) {
	if slices.Contains(configuredQueues(s.Config.Queues), name) {
		return true, nil
	}
	names, err := queue.Names(ctx, s.KV)
	return slices.Contains(names, name), err
}

// look opens the stores and counts the messages of a queue that is known.
func (e *env) look(ctx context.Context, name string) (*host.Stores, queue.Info, error) {
	s, err := e.open(ctx)
	if err != nil {
		return nil, queue.Info{}, err
	}
	ok, err := known(ctx, s, name)
	if err == nil && !ok {
		err = withHint(notFoundf("no queue %q is configured, and nothing of one is in %s", name, s.DB), "see: dwk queue list")
	}
	var i queue.Info
	if err == nil {
		i, err = queue.Inspect(ctx, s.KV, name)
	}
	if err != nil {
		s.Close()
		return nil, i, err
	}
	return s, i, nil
}
