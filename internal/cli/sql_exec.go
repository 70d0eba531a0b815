package cli

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/sqldb"
	"github.com/davidwkeith/dwk/internal/term"
)

type sqlExecOptions struct {
	binding, args, file string
	statements          []string
	yes                 bool
}

func newSQLExec(e *env) *cobra.Command {
	var o sqlExecOptions
	cmd := &cobra.Command{
		Use:   "exec BINDING [STATEMENT...]",
		Short: "Run statements in one transaction",
		Long: `Run the statements of the command line, or of a file, in one transaction: all or
none. Each argument may hold several statements. Rows are not shown.`,
		Example: `  dwk sql exec LAB_DB 'CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT)' --yes
  dwk sql exec LAB_DB 'INSERT INTO note(body) VALUES (?)' --args '["text"]' --yes
  dwk sql exec LAB_DB --file change.sql`,
		Args:              arguments("BINDING", "[STATEMENT...]"),
		ValidArgsFunction: e.bindings("databases"),
	}
	cmd.Flags().StringVar(&o.args, "args", "", "arguments of the only statement, a JSON `ARRAY`")
	cmd.Flags().StringVar(&o.file, "file", "", "run the statements of `FILE`; - is the standard input")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.binding, o.statements = args[0], args[1:]
		if (o.file == "") == (len(o.statements) == 0) {
			return usagef("want statements, or --file")
		}
		return runSQLExec(ctx, e, o)
	})
	return cmd
}

func runSQLExec(ctx context.Context, e *env, o sqlExecOptions) error {
	args, err := parseArgs(o.args)
	if err != nil {
		return err
	}
	var batch []durable.Statement
	in, closeIn, err := e.input(o.file, strings.Join(o.statements, ";\n"))
	if err != nil {
		return err
	}
	defer closeIn()
	for text, err := range sqldb.Split(in) {
		if err != nil {
			return usageError{err}
		}
		batch = append(batch, durable.Statement{SQL: text})
	}
	switch {
	case len(batch) == 0:
		return usagef("there is no statement")
	case len(args) > 0 && len(batch) > 1:
		return usagef("--args is for one statement, there are %d", len(batch))
	}
	batch[0].Args = args
	d, err := e.openSQL(o.binding)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := e.confirm(ctx, o.yes, "Run %s in %s (%s)?", plural(len(batch), "statement"), o.binding, d); err != nil {
		return err
	}
	ctx, cancel := e.bound(ctx)
	defer cancel()
	results, err := d.Batch(ctx, batch...)
	if err != nil {
		return err
	}
	return showResults(e.term, batch, results)
}

// input is a file, the standard input, or a text.
func (e *env) input(file, text string) (io.Reader, func(), error) {
	switch file {
	case "":
		return strings.NewReader(text), func() {}, nil
	case "-":
		return e.term.In, func() {}, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return f, func() { f.Close() }, nil
}

func showResults(t *term.Term, batch []durable.Statement, results []durable.BatchResult) error {
	type resultJSON struct {
		Changes   int64 `json:"changes"`
		LastRowID int64 `json:"last_row_id"`
		Rows      int   `json:"rows"`
	}
	tb := term.NewTable("STATEMENT", "CHANGES", "LAST ROW ID")
	list := make([]resultJSON, 0, len(results))
	for i, r := range results {
		list = append(list, resultJSON{r.Changes, r.LastRowID, len(r.Rows)})
		tb.Row(term.Cut(oneLine(batch[i].SQL), 60), r.Changes, r.LastRowID)
	}
	if t.JSON {
		return t.WriteJSON(list)
	}
	return t.Table(tb)
}
