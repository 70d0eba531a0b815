package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

type objectRestoreOptions struct {
	objectFlags
	to          targetFlag
	file        string
	dryRun, yes bool
	wait        optionalDuration
}

// restoredJSON is what restore writes.
type restoredJSON struct {
	Restored bool   `json:"restored"`
	DryRun   bool   `json:"dry_run"`
	Class    string `json:"class"`
	ID       string `json:"id"`
	// To is the commit that was chosen, or null, and File the file.
	To    *positionJSON `json:"to"`
	File  string        `json:"file,omitempty"`
	Bytes int64         `json:"bytes"`
	// Before is the last commit that there was, 0 for none, and TXID the new one.
	Before     uint64 `json:"before"`
	TXID       uint64 `json:"txid,omitempty"`
	EntryBytes int64  `json:"entry_bytes"`
	Offloaded  bool   `json:"offloaded"`
	// LogRows, LogFiles and LogBytes are what a dry run has verified of the log.
	LogRows  int   `json:"log_rows,omitempty"`
	LogFiles int   `json:"log_files,omitempty"`
	LogBytes int64 `json:"log_bytes,omitempty"`
}

func newObjectRestore(e *env) *cobra.Command {
	var o objectRestoreOptions
	cmd := &cobra.Command{
		Use:   "restore CLASS ID",
		Short: "Bring an object back to an earlier state, or to a file's",
		Long: `Bring an object back to a state that is kept (see: dwk object history), or make it
what a SQLite file is. The database is put together and verified first: the
checksums of the log, SQLite's integrity check, the bound objects.max_size. Then it becomes the object's,
as one new commit under its lease: events see the state before it or the new one.
The commits before it are kept as they would be anyway, so it can be undone the
same way. Alarms are left as they are.

With --file an object that does not exist, or was deleted, comes to be.

--dry-run does all of that short of the change, and verifies every entry of the
log as well. It takes no lease, and its exit code says whether a restore would
succeed: a drill that can be run at any time.`,
		Example: `  dwk object restore Counter --name front-page --to 15m --dry-run
  dwk object restore Counter 0a --to 41 --yes
  dwk object restore Counter 0a --file counter.db`,
	}
	o.register(e, cmd)
	f := cmd.Flags()
	f.Var(&o.to, "to", targetHelp)
	f.StringVar(&o.file, "file", "", "the state of this SQLite `FILE`")
	f.BoolVar(&o.dryRun, "dry-run", false, "verify only, change nothing")
	waitFlag(cmd, &o.wait)
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		if err := exclusive(cmd, "to", "file"); err != nil {
			return err
		}
		if !f.Changed("to") && o.file == "" {
			return usagef("--to or --file is missing")
		}
		return runObjectRestore(ctx, e, o)
	})
	return cmd
}

func runObjectRestore(ctx context.Context, e *env, o objectRestoreOptions) (err error) {
	call, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(call, !o.dryRun)
	if err != nil {
		return err
	}
	defer s.Close()
	head, err := s.Head(call, o.class, o.id)
	if err != nil {
		return err
	}
	var d *objectops.Database
	if o.file != "" {
		d, err = s.OpenFile(o.file)
	} else {
		d, err = s.Open(call, o.class, o.id, o.to.Target)
	}
	if err != nil {
		return notKept(err, o.objectFlags)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	answer := restoredJSON{DryRun: o.dryRun, Class: o.class, ID: o.id, File: o.file, Bytes: d.Bytes(), Before: head.TXID}
	if o.file == "" {
		to := positionAsJSON(d.Position)
		answer.To = &to
	}
	if o.dryRun {
		return drill(call, e.term, s, o, d, answer)
	}
	change := objectops.Change{Class: o.class, ID: o.id, Name: o.name, Wait: o.wait.d}
	if !o.yes {
		change.Expect = &head // it is what is asked about
	}
	if err := e.confirm(ctx, o.yes, "%s", o.question(head, d)); err != nil {
		return err
	}
	call, cancel = e.boundIfAsked(ctx)
	defer cancel()
	done, err := s.Restore(call, change, d)
	if err != nil {
		return changeHint(err, o.objectFlags)
	}
	answer.Restored, answer.Before, answer.TXID = true, done.Before.TXID, done.After.TXID
	answer.EntryBytes, answer.Offloaded = done.Size, done.Offloaded
	return showRestored(e.term, answer)
}

// question says what would be done.
func (o objectRestoreOptions) question(head objlog.Head, d *objectops.Database) string {
	from := "the file " + o.file
	if o.file == "" {
		from = fmt.Sprintf("commit %d of %s", d.Position.TXID, instant(d.Position.At))
	}
	text := fmt.Sprintf("Make %s/%s what %s is (%d bytes)?", o.class, o.id, from, d.Bytes())
	if !head.Exists() {
		return text + " There is no such object now: it would come to be."
	}
	return text + fmt.Sprintf(" It is at commit %d of %s.", head.TXID, instant(head.UpdatedAt))
}

// drill verifies what a restore would need.
func drill(ctx context.Context, t *term.Term, s *objectStores, o objectRestoreOptions, d *objectops.Database, answer restoredJSON) (err error) {
	if answer.EntryBytes, err = s.Rehearse(ctx, d); err != nil {
		return changeHint(err, o.objectFlags)
	}
	answer.Offloaded = answer.EntryBytes > s.InlineLimit
	if o.file == "" {
		c, err := s.CheckLog(ctx, o.class, o.id)
		if err != nil {
			return err
		}
		answer.LogRows, answer.LogFiles, answer.LogBytes = c.Rows, c.Files, c.Bytes
	}
	return showRestored(t, answer)
}

func showRestored(t *term.Term, a restoredJSON) error {
	if t.JSON {
		return t.WriteJSON(a)
	}
	tb := term.NewTable()
	what := "restored"
	if a.DryRun {
		what = "would restore"
	}
	tb.Row(what, a.Class+"/"+a.ID)
	if a.To != nil {
		tb.Row("to commit", fmt.Sprint(a.To.TXID))
		tb.Row("of", instant(a.To.At))
	} else {
		tb.Row("to file", a.File)
	}
	tb.Row("bytes", a.Bytes)
	if a.DryRun {
		if a.To != nil {
			tb.Row("log verified", fmt.Sprintf("%d rows, %d bytes, %d files", a.LogRows, a.LogBytes, a.LogFiles))
		}
		tb.Row("meaning", "everything was verified, nothing was changed")
		return t.Table(tb)
	}
	tb.Row("new commit", a.TXID)
	text := fmt.Sprintf("events see it from now on; undo it with: dwk object restore %s %s --to %d", a.Class, a.ID, a.Before)
	if a.Before == 0 {
		text = "the object has come to be"
	}
	tb.Row("meaning", text)
	return t.Table(tb)
}
