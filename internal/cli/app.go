package cli

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

func newApp(e *env) *cobra.Command {
	var commands []*cobra.Command
	for _, app := range e.opts.Apps {
		if len(app.Commands) > 0 {
			commands = append(commands, newAppGroup(e, app))
		}
	}
	return group("app", "What applications bring for their operators", `Commands of the applications in this program, such as those for accounts. Each
works on the stores of a configuration that mounts its application; replicas may
run meanwhile, and need not. At least one must have run on the stores before.`, commands...)
}

func newAppGroup(e *env, app durable.App) *cobra.Command {
	var commands []*cobra.Command
	for _, c := range app.Commands {
		commands = append(commands, newAppCommand(e, app, c))
	}
	return group(app.Name, app.Summary, app.Summary+".", commands...)
}

func newAppCommand(e *env, app durable.App, c durable.Command) *cobra.Command {
	use := c.Name
	for _, a := range c.Args {
		use += " " + a
	}
	var yes bool
	cmd := &cobra.Command{Use: use, Short: c.Short, Long: c.Long, Example: c.Example, Args: arguments(c.Args...)}
	flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	run := c.Setup(flags)
	cmd.Flags().AddGoFlagSet(flags)
	yesFlag(cmd, &yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		ctx, cancel := e.boundIfAsked(ctx)
		defer cancel()
		cfg, err := e.load(nil)
		if err != nil {
			return err
		}
		o := host.ServeOptions{Config: cfg, Apps: e.opts.Apps, Log: e.quietLog(cfg.Log), Version: buildInfo().Version}
		call := durable.Call{
			Args: args, In: e.opts.In, Out: e.term.Out,
			Show:    e.showAnswer,
			Note:    func(text string) { e.term.Notef("%s", text) },
			Confirm: func(ctx context.Context, question string) error { return e.confirm(ctx, yes, "%s", question) },
		}
		err = host.Operate(ctx, o, app.Name, func(ctx context.Context, env durable.Env) error { return run(ctx, env, call) })
		if errors.Is(err, host.ErrNotMounted) {
			return withHint(usageError{err}, "name it under mounts, see: dwk config show")
		}
		return err
	})
	return cmd
}

// quietLog is the log of a command that works as a replica does: nobody asked
// for what it has to say, unless it is to be verbose.
func (e *env) quietLog(c config.Log) *slog.Logger {
	if e.term.Verbose {
		if log, err := newLogger(e.term, c); err == nil {
			return log
		}
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func (e *env) showAnswer(a durable.Answer) error {
	if e.term.JSON {
		return e.term.WriteJSON(a.JSON)
	}
	tb := term.NewTable(a.Columns...)
	for _, row := range a.Rows {
		cells := make([]any, len(row))
		for i, text := range row {
			cells[i] = text
		}
		tb.Row(cells...)
	}
	return e.term.Table(tb)
}
