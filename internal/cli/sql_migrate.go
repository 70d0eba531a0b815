package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/sqldb"
	"github.com/davidwkeith/dwk/internal/term"
)

type sqlMigrateOptions struct {
	binding, dir string
	dryRun, yes  bool
}

func newSQLMigrate(e *env) *cobra.Command {
	var o sqlMigrateOptions
	cmd := &cobra.Command{
		Use:   "migrate BINDING DIRECTORY",
		Short: "Apply numbered files, each once in the fleet",
		Long: `Apply the files of a directory whose names begin with a number and end in .sql,
such as 0001_tables.sql, in the order of their numbers. Each is one transaction,
and is noted in the table ` + sqldb.MigrationTable + ` in that same transaction, so that it is applied
once whoever runs the command, and however often.

A file that was changed after it had been applied, and one that comes before an
applied one, are refused before anything is done.`,
		Example: `  dwk sql migrate LAB_DB ./migrations --dry-run
  dwk sql migrate LAB_DB ./migrations --yes`,
		Args:              arguments("BINDING", "DIRECTORY"),
		ValidArgsFunction: e.bindings("databases"),
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be applied")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.binding, o.dir = args[0], args[1]
		return runSQLMigrate(ctx, e, o)
	})
	return cmd
}

func runSQLMigrate(ctx context.Context, e *env, o sqlMigrateOptions) error {
	list, err := sqldb.ReadMigrations(os.DirFS(o.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return notFoundf("%v", err)
	}
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return notFoundf("there is no numbered .sql file in %s", o.dir)
	}
	d, err := e.openSQL(o.binding)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	if err := d.Check(ctx, list); err != nil {
		return err
	}
	left := 0
	was := make([]bool, len(list))
	for i, m := range list {
		if was[i] = m.Applied; !m.Applied {
			left++
		}
	}
	if left > 0 && !o.dryRun {
		if err := e.confirm(ctx, o.yes, "Apply %s to %s (%s)?", plural(left, "migration"), o.binding, d); err != nil {
			return err
		}
		done := 0
		for i := range list {
			if list[i].Applied {
				continue
			}
			if err := d.Apply(ctx, &list[i]); err != nil {
				if done > 0 {
					return partlyError{plural(done, "migration") + " applied", err}
				}
				return err
			}
			done++
			e.term.Detailf("applied %s", list[i].Name)
		}
	}
	return showMigrations(e.term, list, was)
}

func showMigrations(t *term.Term, list []sqldb.Migration, was []bool) error {
	type migrationJSON struct {
		Version int64  `json:"version"`
		Name    string `json:"name"`
		SHA256  string `json:"sha256"`
		State   string `json:"state"`
	}
	tb := term.NewTable("VERSION", "FILE", "STATE")
	out := make([]migrationJSON, 0, len(list))
	for i, m := range list {
		state := "pending"
		switch {
		case was[i]:
			state = "applied before"
		case m.Applied:
			state = "applied"
		}
		out = append(out, migrationJSON{m.Version, m.Name, m.SHA256, state})
		tb.Row(m.Version, m.Name, state)
	}
	if t.JSON {
		return t.WriteJSON(out)
	}
	return t.Table(tb)
}
