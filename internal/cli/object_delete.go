package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

type objectDeleteOptions struct {
	objectFlags
	yes  bool
	wait optionalDuration
}

// deletedJSON is what delete writes.
type deletedJSON struct {
	Deleted bool   `json:"deleted"`
	Class   string `json:"class"`
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	// TXID is the last commit that there was.
	TXID  uint64 `json:"txid"`
	Bytes int64  `json:"bytes"`
}

func newObjectDelete(e *env) *cobra.Command {
	var o objectDeleteOptions
	cmd := &cobra.Command{
		Use:   "delete CLASS ID",
		Short: "Delete an object and its history",
		Long: `Delete an object, under its lease, in one commit. Its history is gone at once: no
state of it can be brought back, so export it before. The next event finds a new,
empty object. A tombstone stays for a day, so that no replica takes its copy of
the old one for the new. Exits 3 when there is no such object.`,
		Example: `  dwk object export Counter 0a counter.db
  dwk object delete Counter 0a --yes`,
	}
	o.register(e, cmd)
	waitFlag(cmd, &o.wait)
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		return runObjectDelete(ctx, e, o)
	})
	return cmd
}

func runObjectDelete(ctx context.Context, e *env, o objectDeleteOptions) error {
	call, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(call, true)
	if err != nil {
		return err
	}
	defer s.Close()
	change := objectops.Change{Class: o.class, ID: o.id, Wait: o.wait.d}
	if !o.yes {
		i, err := s.Info(call, o.class, o.id)
		if err != nil {
			return err
		}
		change.Expect = &i.Head
		if err := e.confirm(ctx, false, "Delete %s/%s, %d bytes at commit %d, with its whole history?", o.class, o.id, i.Bytes(), i.TXID); err != nil {
			return err
		}
	}
	call, cancel = e.boundIfAsked(ctx)
	defer cancel()
	before, err := s.Delete(call, change)
	if err != nil {
		return changeHint(err, o.objectFlags)
	}
	return showDeleted(e.term, deletedJSON{true, o.class, o.id, before.Name, before.TXID, int64(before.PageSize) * int64(before.Pages)})
}

func showDeleted(t *term.Term, d deletedJSON) error {
	if t.JSON {
		return t.WriteJSON(d)
	}
	tb := term.NewTable()
	tb.Row("deleted", d.Class+"/"+d.ID)
	if d.Name != "" {
		tb.Row("name", d.Name)
	}
	tb.Row("last commit", fmt.Sprint(d.TXID))
	tb.Row("bytes", d.Bytes)
	return t.Table(tb)
}
