package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/migrate"
)

func newMigrateDown(e *env) *cobra.Command {
	var o migrateFlags
	cmd := &cobra.Command{
		Use:   "to-local",
		Short: "Move the stores of the fleet into an empty local directory",
		Long: `Write everything that the store set of the configuration holds into a local data
directory, as a single-process host reads it: SQL databases and objects as SQLite
files, with the alarms in those of their objects, bodies as files, and queued
messages in the backlog. The directory must not exist, or be empty.

The stores stay as they are. Stop the fleet first: this refuses while it runs.
A run that was interrupted goes on when it is repeated; until it is complete the
directory holds .dwk-migrate, and to-central refuses it.

Alarms of objects that do not exist, and keys that cannot be files, are named and
stay behind: exits 4 then.`,
		Example: `  dwk migrate to-local --data-dir /var/lib/app/back --dry-run
  dwk migrate to-local --data-dir /var/lib/app/back --report back.jsonl --yes`,
		Args: arguments(),
	}
	o.register(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runMigrateDown(ctx, e, o) })
	return cmd
}

func runMigrateDown(ctx context.Context, e *env, o migrateFlags) (err error) {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	if o.dir == "" {
		return usagef("--data-dir is missing: an empty directory, or one to be made")
	}
	c, err := o.config("")
	if err != nil {
		return err
	}
	back := map[string]string{} // from the names of the directory
	for from, to := range c.Map {
		back[to] = from
	}
	c.Map = back
	report, err := o.openReport()
	if err != nil {
		return err
	}
	c.Proof = report.writer()
	defer func() { err = errors.Join(err, report.close()) }()
	s, err := e.openMove(ctx, false)
	if err != nil {
		return err
	}
	defer func() { s.Close() }()
	if s.fresh() {
		return host.ErrNoStore
	}
	c.Target = s.target
	var p migrate.Progress
	down, err := migrate.NewDown(ctx, c, &p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down.Close()) }()
	_, err = moveRun{move: down, flags: o, report: report, progress: &p, to: c.Dir}.run(ctx, e)
	return err
}
