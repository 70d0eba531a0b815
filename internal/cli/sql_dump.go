package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/sqldb"
)

const (
	sqlDumpHead = "-- dwk-sql-dump/1 "
	sqlDumpEnd  = "-- end: "
)

type sqlDumpOptions struct{ binding, file string }

func newSQLDump(e *env) *cobra.Command {
	var o sqlDumpOptions
	cmd := &cobra.Command{
		Use:   "dump BINDING",
		Short: "Write a database as SQL statements",
		Long: `Write the tables, rows, indexes, views and triggers of a database as statements
that make it again, here or in SQLite. All of it is from one moment, and memory
does not grow with the database. The last line has the number of statements and
their SHA-256, so that a cut file is noticed.

Virtual tables, such as those of full-text indexes, are left out and named: make
them again from the tables that they index.`,
		Example: `  dwk sql dump LAB_DB --output-file lab.sql
  dwk sql dump LAB_DB | sqlite3 lab.db`,
		Args:              arguments("BINDING"),
		ValidArgsFunction: e.bindings("databases"),
	}
	cmd.Flags().StringVar(&o.file, "output-file", "", "write to `FILE`, which comes to be only when the dump is complete")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.binding = args[0]
		return runSQLDump(ctx, e, o)
	})
	return cmd
}

func runSQLDump(ctx context.Context, e *env, o sqlDumpOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	d, err := e.openSQL(o.binding)
	if err != nil {
		return err
	}
	defer d.Close()
	p, err := d.NewDump(ctx)
	if err != nil {
		return err
	}
	if len(p.Left) > 0 {
		e.term.Notef("left out, virtual tables: %s", strings.Join(p.Left, ", "))
	}
	if o.file == "" {
		_, err := writeSQL(ctx, e.term.Out, o.binding, p)
		return err
	}
	n := 0
	err = writeFile(o.file, func(w io.Writer) (err error) {
		n, err = writeSQL(ctx, w, o.binding, p)
		return err
	})
	if err == nil {
		e.term.Notef("wrote %s to %s", plural(n, "statement"), o.file)
	}
	return err
}

func writeSQL(ctx context.Context, out io.Writer, binding string, p *sqldb.Dump) (n int, err error) {
	w := bufio.NewWriterSize(out, 64<<10)
	sum := sha256.New()
	fmt.Fprintf(w, "%s%s\n", sqlDumpHead, binding) //nolint:errcheck // Flush tells
	for text, err := range p.Statements(ctx) {
		if err != nil {
			return n, errors.Join(err, w.Flush())
		}
		n++
		if _, err := io.WriteString(io.MultiWriter(w, sum), text+";\n"); err != nil {
			return n, err
		}
	}
	fmt.Fprintf(w, "%s%d %s\n", sqlDumpEnd, n, hex.EncodeToString(sum.Sum(nil))) //nolint:errcheck // likewise
	return n, w.Flush()
}

type sqlLoadOptions struct {
	binding, file string
	dryRun, yes   bool
}

func newSQLLoad(e *env) *cobra.Command {
	var o sqlLoadOptions
	cmd := &cobra.Command{
		Use:   "load BINDING FILE",
		Short: "Load a dump into an empty database",
		Long: `Load what "dwk sql dump" wrote into a database that is empty. A file that was cut
or altered is refused before anything is done. Up to about 4 MiB are one
transaction; of a larger dump that fails in the middle, the first part stays.`,
		Example: `  dwk sql load LAB_DB lab.sql --dry-run
  dwk sql load LAB_DB lab.sql --yes`,
		Args:              arguments("BINDING", "FILE"),
		ValidArgsFunction: e.bindings("databases"),
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only verify the file and look at the database")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.binding, o.file = args[0], args[1]
		return runSQLLoad(ctx, e, o)
	})
	return cmd
}

func runSQLLoad(ctx context.Context, e *env, o sqlLoadOptions) error {
	f, err := os.Open(o.file)
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	n, err := verifyDump(f)
	if err != nil {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	d, err := e.openSQL(o.binding)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	empty, err := d.Empty(ctx)
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("SQL database %s is not empty: load into another one", o.binding)
	}
	if !o.dryRun {
		if err := e.confirm(ctx, o.yes, "Load %s into %s (%s)?", plural(n, "statement"), o.binding, d); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if applied, err := d.Load(ctx, f); err != nil {
			if applied > 0 {
				return partlyError{plural(applied, "statement") + " loaded", err}
			}
			return err
		}
	}
	if e.term.JSON {
		return e.term.WriteJSON(struct {
			Statements int  `json:"statements"`
			Loaded     bool `json:"loaded"`
		}{n, !o.dryRun})
	}
	if o.dryRun {
		e.term.Notef("the file is whole: %s; nothing was loaded", plural(n, "statement"))
		return nil
	}
	e.term.Notef("loaded %s", plural(n, "statement"))
	return nil
}

var errNoDump = errors.New("the file is no dump, or was cut or altered")

// verifyDump checks that a file is a whole dump and returns the number of its
// statements. Lines are summed one behind: the last one has the sum.
func verifyDump(r io.Reader) (n int, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(head, sqlDumpHead) {
		return 0, errNoDump
	}
	sum := sha256.New()
	var end string
	for at := true; ; {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at && strings.HasPrefix(string(part), sqlDumpEnd) && isEnd(string(part), sum) {
			end = string(part)
			if _, err := in.Peek(1); !errors.Is(err, io.EOF) {
				return 0, errNoDump
			}
			break
		}
		if errors.Is(err, io.EOF) {
			return 0, errNoDump
		}
		sum.Write(part)
		at = err == nil
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(end, sqlDumpEnd), " ")
	return strconv.Atoi(number)
}

// isEnd reports whether a line is the last one of a dump with this sum so far:
// a line of a text in it may look like one.
func isEnd(line string, sum hash.Hash) bool {
	_, hexSum, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), sqlDumpEnd), " ")
	return ok && hexSum == hex.EncodeToString(sum.Sum(nil))
}
