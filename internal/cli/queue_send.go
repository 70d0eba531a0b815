package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/term"
)

type queueSendOptions struct {
	queue string
	body  json.RawMessage
	delay optionalDuration
	yes   bool
}

// sentMessage is what send writes.
type sentMessage struct {
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	DelayMs int64  `json:"delay_ms"`
}

func newQueueSend(e *env) *cobra.Command {
	var o queueSendOptions
	cmd := queueCommand(e, &cobra.Command{
		Use:   "send QUEUE BODY",
		Short: "Send one message",
		Long: `Send one message. BODY is JSON text of at most 128 KiB, or - for standard input.
The queue need not be configured here: whoever consumes it gets the message.`,
		Example: `  dwk queue send default '{"hello":"world"}' --yes
  dwk queue send default - --delay 10m --yes < body.json`,
	}, "BODY")
	cmd.Flags().Var(&o.delay, "delay", "deliver it after this time, by the primary's clock")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.onQueue(func(ctx context.Context, name string, args []string) (err error) {
		o.queue = name
		if o.body, err = readValue(e.term.In, args[0]); err != nil {
			return err
		}
		return runQueueSend(ctx, e, o)
	})
	return cmd
}

func runQueueSend(ctx context.Context, e *env, o queueSendOptions) error {
	msgs, err := queue.Encode(o.queue, []any{o.body}, durable.SendOptions{Delay: o.delay.d})
	if err != nil {
		return usageError{err}
	}
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	ok, err := queueKind.knows(call, s, o.queue)
	if err != nil {
		return err
	}
	if !ok {
		e.term.Notef("no queue %q is configured here, and nothing of one is in the store", o.queue)
	}
	if err := e.confirm(ctx, o.yes, "Send %s to queue %s?", term.Cut(string(o.body), tableValue), o.queue); err != nil {
		return err
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	if _, err := queue.Send(call, s.KV, msgs); err != nil {
		if libsql.OutcomeOf(err) == libsql.Unknown {
			return withHint(err, "whether it was sent is not known; look for %s with: dwk queue peek %s", msgs[0].ID, o.queue)
		}
		return err
	}
	sent := sentMessage{o.queue, msgs[0].ID, msgs[0].DelayMs}
	if e.term.JSON {
		return e.term.WriteJSON(sent)
	}
	tb := term.NewTable()
	tb.Row("sent", sent.ID)
	tb.Row("queue", sent.Queue)
	return e.term.Table(tb)
}
