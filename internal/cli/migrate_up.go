package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/migrate"
)

type migrateUpOptions struct {
	migrateFlags
	onConflict string
}

func newMigrateUp(e *env) *cobra.Command {
	var o migrateUpOptions
	cmd := &cobra.Command{
		Use:   "to-central",
		Short: "Move a local data directory into the stores of the fleet",
		Long: `Move what a single-process host has stored into the store set of the configuration:
SQL databases, objects with their alarms, bodies of buckets, and queued messages.
It scans and says what would move first, and asks.

The directory is not changed, but for messages, which are marked as imported. Stop
its host first, and the fleet: this refuses while either runs. Each item is compared
on both sides after it has moved (--verify), and noted in a journal in the store
set, so that a repeated run goes on where this one stops.

What is at the target already and equal counts as moved. Something else there is a
conflict: fail, the default, moves nothing then; skip leaves the target's; replace
makes it what the directory has.

Exits 4 when something moved and something did not; each such item is named.
Afterwards it says how to move the old stores aside: dwk serve refuses a data_dir
that still holds them.`,
		Example: `  dwk migrate to-central --data-dir /var/lib/app/data --dry-run
  dwk migrate to-central --data-dir /var/lib/app/data --report moved.jsonl --yes
  dwk migrate to-central --only d1 --map OLD_DB=NEW_DB --on-conflict skip --yes`,
		Args: arguments(),
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.onConflict, "on-conflict", string(migrate.ConflictFail), "what to do about what the target has otherwise: `fail`, skip or replace")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runMigrateUp(ctx, e, o) })
	return cmd
}

func runMigrateUp(ctx context.Context, e *env, o migrateUpOptions) (err error) {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	cfg, err := e.load(nil)
	if err != nil {
		return err
	}
	c, err := o.config(cfg.DataDir)
	if err != nil {
		return err
	}
	if c.OnConflict = migrate.OnConflict(o.onConflict); !slices.Contains([]migrate.OnConflict{migrate.ConflictFail, migrate.ConflictSkip, migrate.ConflictReplace}, c.OnConflict) {
		return usagef("--on-conflict %s: want fail, skip or replace", o.onConflict)
	}
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
	c.Target = s.target
	var p migrate.Progress
	up, err := migrate.NewUp(c, &p)
	if err != nil {
		return err
	}
	defer up.Close()
	run := moveRun{move: up, flags: o.migrateFlags, report: report, progress: &p, to: s.target.Primary, conflicts: up.Conflicts, begin: func() error {
		if !s.fresh() {
			return nil
		}
		next, err := e.openMove(ctx, true)
		if err != nil {
			return err
		}
		s = next
		up.Use(s.target)
		return nil
	}}
	r, err := run.run(ctx, e)
	if r != nil && r.Complete {
		e.noteAside(c.Dir, c.QueueFile)
	}
	return err
}

func moveQuestion(r *migrate.Result, to string) string {
	var parts []string
	for _, k := range migrate.Kinds {
		if c := r.Counts[k]; c != nil && c.Items > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", kindItems(k, c.Items), sizeText(c.Bytes)))
		}
	}
	text := fmt.Sprintf("Move %s from %s to %s", strings.Join(parts, ", "), r.Source, to)
	if len(parts) == 0 {
		text = fmt.Sprintf("Move nothing from %s to %s", r.Source, to)
	}
	if r.ProblemCount > 0 {
		text += fmt.Sprintf("; %s cannot move or must be looked at, see --dry-run", plural(int(r.ProblemCount), "item"))
	}
	return text
}

// noteAside says how to move the old stores aside.
func (e *env) noteAside(dir, queueFile string) {
	var there []string
	names := []string{"d1", "do", "r2", "kv", "queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm", ".dwk-writer.lock"}
	for _, n := range names {
		if _, err := os.Lstat(filepath.Join(dir, n)); err == nil {
			there = append(there, shellWord(filepath.Join(dir, n)))
		}
	}
	if len(there) == 0 {
		return
	}
	old := shellWord(strings.TrimRight(dir, "/") + ".old")
	e.term.Notef("The old stores are where they were, and dwk serve refuses a data_dir that holds them. Move them aside:")
	e.term.Notef("  mkdir %s && mv %s %s/", old, strings.Join(there, " "), old)
}

// shellWord quotes a path for a shell when it must be.
func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
