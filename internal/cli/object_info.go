package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

// objectInfoJSON is one object in full.
type objectInfoJSON struct {
	objectJSON
	Checksum     string        `json:"checksum"`
	CommitID     string        `json:"commit_id"`
	Versionstamp string        `json:"versionstamp"`
	Log          []levelJSON   `json:"log"`
	Positions    int           `json:"positions"`
	Oldest       *positionJSON `json:"oldest"`
	Newest       *positionJSON `json:"newest"`
	Lease        *leaseJSON    `json:"lease"`
	Now          int64         `json:"now"`
}

type levelJSON struct {
	Level     int    `json:"level"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	Offloaded int64  `json:"offloaded_bytes"`
	MinTXID   uint64 `json:"min_txid"`
	MaxTXID   uint64 `json:"max_txid"`
}

func newObjectInfo(e *env) *cobra.Command {
	var o objectFlags
	cmd := &cobra.Command{
		Use:   "info CLASS ID",
		Short: "Show the facts of one object",
		Long: `Show what is known about one object without reading its database: the last
commit, the size, the rows and bytes of its log by level, who holds its lease, and
how far back it can be brought. A deleted object is shown as long as it has a
tombstone, for a day. Exits 3 when there is none.`,
		Example: `  dwk object info Counter --name front-page
  dwk object info Counter 0a -o json`,
	}
	o.register(e, cmd)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		return runObjectInfo(ctx, e, o)
	})
	return cmd
}

func runObjectInfo(ctx context.Context, e *env, o objectFlags) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	i, err := s.Info(ctx, o.class, o.id)
	if err != nil {
		return err
	}
	if e.term.JSON {
		return e.term.WriteJSON(infoAsJSON(o, i))
	}
	return showInfo(e.term, o, i)
}

func infoAsJSON(o objectFlags, i objectops.Info) objectInfoJSON {
	j := objectInfoJSON{
		objectJSON: objectJSON{o.class, o.id, i.Name, i.TXID, i.PageSize, i.Pages, i.Bytes(), i.CreatedAt, i.UpdatedAt, optional(i.DeletedAt), i.NowMs - i.CreatedAt},
		Checksum:   objlog.FormatSum(i.Checksum), CommitID: i.CommitID, Versionstamp: i.Epoch.String(),
		Log: []levelJSON{}, Positions: i.Positions, Now: i.NowMs,
	}
	for _, l := range i.Levels {
		j.Log = append(j.Log, levelJSON(l))
	}
	if i.Positions > 0 {
		oldest, newest := positionAsJSON(i.Oldest), positionAsJSON(i.Newest)
		j.Oldest, j.Newest = &oldest, &newest
	}
	if i.Held {
		l := leaseAsJSON(i.Lease)
		j.Lease = &l
	}
	return j
}

// levelNames say what the levels of a log hold.
func levelName(level int) string {
	switch level {
	case objlog.Level0:
		return "commits"
	case objlog.SnapshotLevel:
		return "snapshots"
	}
	return fmt.Sprintf("merged by %d", objlog.Span(level))
}

func showInfo(t *term.Term, o objectFlags, i objectops.Info) error {
	at := func(ms int64) string { return spaced(instant(ms), ageOf(i.NowMs, ms), "ago") }
	tb := term.NewTable()
	tb.Row("class", o.class)
	tb.Row("id", o.id)
	if i.Name != "" {
		tb.Row("name", i.Name)
	}
	tb.Row("commit", fmt.Sprint(i.TXID))
	tb.Row("commit id", i.CommitID)
	tb.Row("checksum", objlog.FormatSum(i.Checksum))
	tb.Row("database", fmt.Sprintf("%d bytes (%d pages of %d)", i.Bytes(), i.Pages, i.PageSize))
	tb.Row("created", at(i.CreatedAt))
	if i.DeletedAt > 0 {
		tb.Row("deleted", at(i.DeletedAt))
	} else {
		tb.Row("updated", at(i.UpdatedAt))
	}
	for _, l := range i.Levels {
		text := fmt.Sprintf("%d rows, %d bytes", l.Rows, l.Bytes)
		if l.Offloaded > 0 {
			text += fmt.Sprintf(", of which %d in the object store", l.Offloaded)
		}
		tb.Row(fmt.Sprintf("level %d, %s", l.Level, levelName(l.Level)), text)
	}
	if i.Positions > 0 {
		tb.Row("positions", fmt.Sprintf("%d, from %d to %d", i.Positions, i.Oldest.TXID, i.Newest.TXID))
		tb.Row("oldest", at(i.Oldest.At))
	}
	held := "none"
	if i.Held {
		held = meaning(i.Lease)
	}
	tb.Row("lease", held)
	return t.Table(tb)
}
