package migrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/migrate/sqlcopy"
)

// moveDatabase writes one SQL database as a file.
func (d *Down) moveDatabase(ctx context.Context, t task) (l Line, e entry, err error) {
	f := t.f
	l = Line{Kind: f.kind, Item: f.item, Outcome: Moved, Bytes: f.size, Verified: d.cfg.Verify}
	e = entry{State: stateFor(d.cfg.Verify), Print: f.print, Bytes: f.size}
	if !bindingName.MatchString(f.name) {
		return l, e, skipError{"the name cannot be that of a file of the layout: letters, digits and underscores"}
	}
	from, err := d.database(f.name)
	if err != nil {
		return l, e, err
	}
	temp := d.temp(f.item)
	// A copy that is complete was not verified, or not noted: it is made again.
	if err := removeDatabase(temp); err != nil {
		return l, e, err
	}
	var sent int64
	opts := sqlcopy.Options{Journal: d.planID + "/" + f.name, Progress: func(_, bytes int64) {
		d.progress.bytes(SQL, max(0, min(bytes, f.size)-sent))
		sent = max(sent, min(bytes, f.size))
	}}
	sum, err := sqlcopy.Down(ctx, from, temp, opts)
	if err != nil {
		return l, e, err
	}
	d.progress.bytes(SQL, f.size-sent)
	failpoint.Hit("migrate.sql.copied")
	opts = sqlcopy.Options{Counts: d.cfg.Verify == VerifyCounts}
	var left []string
	for _, x := range sum.Left {
		opts.Without = append(opts.Without, x.What)
		left = append(left, x.What+": "+x.Why)
	}
	if len(left) > 0 {
		l.Reason = "left out: " + strings.Join(left, "; ")
	}
	if d.cfg.Verify != VerifyNone {
		diff, err := sqlcopy.Compare(ctx, sqlcopy.Database(from), sqlcopy.File(temp), opts)
		if err != nil {
			return l, e, fmt.Errorf("verify it: %w", err)
		}
		if !diff.Equal() {
			return l, e, fmt.Errorf("verify it: %s", differenceText(diff))
		}
		l.Source, l.Target = sidesOf(diff, f.size)
	}
	for _, s := range databaseSuffixes[1:] {
		if info, err := os.Stat(temp + s); err == nil && info.Size() > 0 {
			return l, e, fmt.Errorf("there is a %s beside the file", s)
		}
	}
	err = d.dirs.place(temp, filepath.Join(d.cfg.Dir, string(SQL), f.name+databaseSuffix))
	if err == nil {
		err = removeDatabase(temp) // what an index of the WAL left
	}
	failpoint.Hit("migrate.sql.finished")
	return l, e, err
}
