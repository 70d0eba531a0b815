package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

func newSQL(e *env) *cobra.Command {
	return group("sql", "SQL databases of applications", `Look into the SQL databases that applications use, change them, move them, and
keep their tables up to date. BINDING is a name of the list databases of the
configuration; commands need no replica.`,
		newSQLQuery(e), newSQLExec(e), newSQLMigrate(e), newSQLDump(e), newSQLLoad(e))
}

// openSQL opens a SQL binding.
func (e *env) openSQL(name string) (*sqldb.Database, error) {
	cfg, err := e.load(nil)
	if err != nil {
		return nil, err
	}
	if _, ok := cfg.DatabaseOrDefault(name); !ok {
		var names []string
		for _, d := range cfg.Databases {
			names = append(names, d.Name)
		}
		return nil, notFoundf("there is no SQL database %q in the configuration, only: %s", name, strings.Join(names, ", "))
	}
	d, err := host.OpenDatabase(cfg, name)
	if err != nil {
		return nil, err
	}
	e.term.Detailf("SQL database %s: %s", name, d)
	return d, nil
}

// bindings completes the first argument with names of a list.
func (e *env) bindings(list string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		cfg, err := e.load(nil)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var names []string
		if list == "databases" {
			for _, d := range cfg.Databases {
				names = append(names, d.Name)
			}
		} else {
			for _, b := range cfg.Buckets {
				names = append(names, b.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// parseArgs reads the arguments of a statement: a JSON array.
func parseArgs(text string) ([]any, error) {
	if text == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var raw []any
	if err := d.Decode(&raw); err != nil || d.More() {
		return nil, usagef(`--args is not a JSON array such as '[1,"text",null]'`)
	}
	args := make([]any, len(raw))
	for i, v := range raw {
		var err error
		if args[i], err = argument(v); err != nil {
			return nil, usagef("--args: element %d: %w", i+1, err)
		}
	}
	return args, nil
}

func argument(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool:
		return v, nil
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v.Int64()
		}
		return v.Float64()
	case map[string]any:
		if text, ok := v["$bytes"].(string); ok && len(v) == 1 {
			var b []byte
			err := json.Unmarshal([]byte(`"`+text+`"`), &b)
			return b, err
		}
	}
	return nil, fmt.Errorf(`want a number, text, true, false, null or {"$bytes":"base64"}`)
}

type sqlQueryOptions struct {
	binding, query, args string
	limit                int
}

func newSQLQuery(e *env) *cobra.Command {
	var o sqlQueryOptions
	cmd := &cobra.Command{
		Use:   "query BINDING QUERY",
		Short: "Run one statement that reads",
		Long: `Run one statement that reads, at the primary; one that writes is refused. Results of
any size stream with -o json.

The table cuts long values short; -o json shows all of them: rows as objects,
integers beyond 2^53 as {"$int":"..."}, blobs as {"$bytes":"base64"}.`,
		Example: `  dwk sql query LAB_DB 'SELECT name FROM sqlite_schema'
  dwk sql query LAB_DB 'SELECT ? + 1 AS n' --args '[41]' -o json`,
		Args:              arguments("BINDING", "QUERY"),
		ValidArgsFunction: e.bindings("databases"),
	}
	cmd.Flags().StringVar(&o.args, "args", "", "arguments of the statement, a JSON `ARRAY`")
	cmd.Flags().IntVar(&o.limit, "limit", defaultListLimit, "at most `N` rows; 0 is all")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if o.limit < 0 {
			return usagef("--limit must not be negative")
		}
		o.binding, o.query = args[0], args[1]
		return runSQLQuery(ctx, e, o)
	})
	return cmd
}

func runSQLQuery(ctx context.Context, e *env, o sqlQueryOptions) error {
	args, err := parseArgs(o.args)
	if err != nil {
		return err
	}
	if reads, err := sqldb.Reads(o.query); err != nil || !reads {
		if err == nil {
			err = fmt.Errorf("the statement does not only read")
		}
		return withHint(usageError{err}, "what writes is run with: dwk sql exec %s", o.binding)
	}
	bound := e.bound
	if o.limit == 0 {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	d, err := e.openSQL(o.binding)
	if err != nil {
		return err
	}
	defer d.Close()
	return showRows(e.term, d.Query(ctx, o.query, args...), o.limit)
}
