package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

type objectExportOptions struct {
	objectArgs
	at targetFlag
}

// exportedJSON is what export writes.
type exportedJSON struct {
	Class    string `json:"class"`
	ID       string `json:"id"`
	File     string `json:"file"`
	TXID     uint64 `json:"txid"`
	At       int64  `json:"at"`
	Bytes    int64  `json:"bytes"`
	Checksum string `json:"checksum"`
}

func newObjectExport(e *env) *cobra.Command {
	var o objectExportOptions
	cmd := &cobra.Command{
		Use:   "export CLASS ID FILE",
		Short: "Write an object's database as a plain SQLite file",
		Long: `Write the database of an object, as it is or as it was, to a new SQLite file that
only its owner can read. The file comes to be when all of it is on the disk and
has been verified: the checksums of the log and of the file, and SQLite's
integrity check. A file that is there is left alone. The object is not disturbed.

While it runs, the directory of FILE needs room for the database twice.`,
		Example: `  dwk object export Counter --name front-page counter.db
  dwk object export Counter 0a --at 15m before.db`,
	}
	o.register(e, cmd, "FILE")
	cmd.Flags().Var(&o.at, "at", targetHelp)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		return runObjectExport(ctx, e, o)
	})
	return cmd
}

func runObjectExport(ctx context.Context, e *env, o objectExportOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	file := o.rest[0]
	out, err := s.Export(ctx, o.class, o.id, o.at.Target, file)
	if err != nil {
		return notKept(err, o.objectFlags)
	}
	return showExported(e.term, o.objectFlags, file, out)
}

func showExported(t *term.Term, o objectFlags, file string, out objectops.Exported) error {
	if t.JSON {
		return t.WriteJSON(exportedJSON{o.class, o.id, file, out.Position.TXID, out.Position.At, out.Bytes, objlog.FormatSum(out.Checksum)})
	}
	tb := term.NewTable()
	tb.Row("exported", o.class+"/"+o.id)
	tb.Row("commit", int64(out.Position.TXID))
	tb.Row("of", instant(out.Position.At))
	tb.Row("file", file)
	tb.Row("bytes", out.Bytes)
	return t.Table(tb)
}
