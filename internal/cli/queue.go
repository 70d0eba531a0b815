package cli

import (
	"context"

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
	cmd.ValidArgsFunction = queueKind.complete(e)
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

var queueKind = kind{noun: "queue", command: "queue", configured: configuredQueues, stored: queue.Names}

func configuredQueues(cfg *config.Config) (names []string) {
	for _, q := range cfg.Queues {
		names = append(names, q.Name)
	}
	return names
}

// lookQueue opens the stores and counts the messages of a queue that is known.
func (e *env) lookQueue(ctx context.Context, name string) (*host.Stores, queue.Info, error) {
	return lookAt(ctx, e, queueKind, name, func(ctx context.Context, s *host.Stores) (queue.Info, error) {
		return queue.Inspect(ctx, s.KV, name)
	})
}
