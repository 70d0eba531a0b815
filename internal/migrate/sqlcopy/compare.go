package sqlcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
)

const (
	// tableDifferences and allDifferences bound what a Diff names.
	tableDifferences = 5
	allDifferences   = 100
	// progressRows is the number of rows between two calls of Progress.
	progressRows = 2000
)

// Compare compares two databases: schema, settings, counters and, unless only
// counts are wanted, every value of every row with its rowid. Journals of copies
// are passed over. Memory does not grow with the databases.
func Compare(ctx context.Context, a, b Side, opts Options) (diff Diff, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := comparison{opts: opts}
	var closers []func() error
	defer func() {
		for _, f := range closers {
			if cerr := f(); err == nil {
				err = cerr
			}
		}
	}()
	for i, s := range []Side{a, b} {
		var r reader
		if s.target != nil {
			r, err = openRemote(ctx, s.target)
		} else {
			var l *local
			if l, err = openLocal(ctx, s.path); err == nil {
				closers = append(closers, l.close)
			}
			r = l
		}
		if err == nil {
			c.sides[i].reader = r
			c.sides[i].schema, err = readSchema(ctx, r)
		}
		if err != nil {
			return diff, err
		}
	}
	err = c.run(ctx)
	return c.diff, err
}

type comparison struct {
	opts  Options
	sides [2]struct {
		reader reader
		schema *schema
	}
	diff  Diff
	since int64 // rows since the last call of Progress
}

func (c *comparison) run(ctx context.Context) error {
	a, b := c.sides[0].schema, c.sides[1].schema
	c.entries(a, b)
	c.setting("user_version", a.userVersion, b.userVersion)
	c.setting("application_id", a.applicationID, b.applicationID)
	if err := c.counters(ctx); err != nil {
		return err
	}
	inB := map[string]*table{}
	for _, t := range b.rowTables() {
		inB[t.name] = t
	}
	tables := a.rowTables()
	slices.SortStableFunc(tables, func(x, y *table) int { return strings.Compare(x.name, y.name) })
	for _, t := range tables {
		other := inB[t.name]
		if other == nil || !slices.Equal(other.columns, t.columns) || other.rowid != t.rowid || other.rowidAt != t.rowidAt {
			if c.diff.Equal() { // else the schema differs, and says so
				c.differ(Difference{What: "schema", Name: "table " + t.name, A: "has other columns or rows", B: "cannot be compared"})
			}
			continue
		}
		var err error
		if c.opts.Counts {
			err = c.count(ctx, t, other)
		} else {
			err = c.table(ctx, t, other)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowTables are the tables that hold rows of their own, or an index or options
// of a virtual table.
func (s *schema) rowTables() (list []*table) {
	for _, t := range s.tables {
		if len(t.columns) > 0 {
			list = append(list, t)
		}
		list = append(list, t.shadows...)
		if t.config != "" {
			list = append(list, &table{name: t.config, columns: []column{{name: "k"}, {name: "v"}}, rowidAt: -1,
				key: []keyColumn{{name: "k", collation: "BINARY"}}, withoutRowid: true})
		}
	}
	return list
}

// differ notes a difference.
func (c *comparison) differ(d Difference) {
	if len(c.diff.Differences) < allDifferences {
		c.diff.Differences = append(c.diff.Differences, d)
	}
}

// entries compares the schemas.
func (c *comparison) entries(a, b *schema) {
	type key struct{ kind, name string }
	texts := [2]map[key]string{{}, {}}
	for i, s := range []*schema{a, b} {
		for _, e := range s.entries {
			texts[i][key{e.kind, e.name}] = e.sql
		}
	}
	for _, e := range a.entries {
		k := key{e.kind, e.name}
		if other, ok := texts[1][k]; !ok {
			c.differ(Difference{What: "schema", Name: e.kind + " " + e.name, A: "exists", B: "is missing"})
		} else if other != e.sql {
			c.differ(Difference{What: "schema", Name: e.kind + " " + e.name, A: short(e.sql), B: short(other)})
		}
	}
	for _, e := range b.entries {
		if _, ok := texts[0][key{e.kind, e.name}]; !ok {
			c.differ(Difference{What: "schema", Name: e.kind + " " + e.name, A: "is missing", B: "exists"})
		}
	}
}

func (c *comparison) setting(name string, a, b int64) {
	if a != b && !slices.Contains(c.opts.Without, name) {
		c.differ(Difference{What: "setting", Name: name, A: strconv.FormatInt(a, 10), B: strconv.FormatInt(b, 10)})
	}
}

// counters compares the AUTOINCREMENT counters.
func (c *comparison) counters(ctx context.Context) error {
	var lists [2][]string
	for i, s := range c.sides {
		if !s.schema.sequence {
			continue
		}
		rows, err := collect(ctx, s.reader, `SELECT name, seq FROM sqlite_sequence ORDER BY name, seq`)
		if err != nil {
			return err
		}
		for _, row := range rows {
			lists[i] = append(lists[i], show(row[0])+" = "+show(row[1]))
		}
	}
	for i, list := range lists {
		for _, one := range list {
			if slices.Contains(lists[1-i], one) {
				continue
			}
			have := [2]string{"is missing", "is missing"}
			have[i] = "exists"
			c.differ(Difference{What: "counter", Name: one, A: have[0], B: have[1]})
		}
	}
	return nil
}

// count compares the numbers of rows of a table.
func (c *comparison) count(ctx context.Context, a, b *table) error {
	d := TableDiff{Name: a.name}
	for i, t := range []*table{a, b} {
		rows, err := collect(ctx, c.sides[i].reader, `SELECT count(*) FROM `+identifier(t.name))
		if err != nil {
			return err
		}
		d.Rows[i], _ = rows[0][0].(int64)
	}
	d.Equal = d.Rows[0] == d.Rows[1]
	c.counted(d)
	c.diff.Rows += d.Rows[0]
	if c.opts.Progress != nil {
		c.opts.Progress(c.diff.Rows, 0)
	}
	return nil
}

func (c *comparison) counted(d TableDiff) {
	if d.Rows[0] != d.Rows[1] {
		c.differ(Difference{What: "rows", Name: d.Name, A: strconv.FormatInt(d.Rows[0], 10), B: strconv.FormatInt(d.Rows[1], 10)})
	}
	c.diff.Tables = append(c.diff.Tables, d)
}

// table compares all rows of a table.
func (c *comparison) table(ctx context.Context, a, b *table) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tc := tableComparison{comparison: c, t: a, sum: sha256.New(), sums: c.sides[0].reader.encoding() != c.sides[1].reader.encoding() && a.withoutRowid}
	tc.d.Name = a.name
	for i, t := range []*table{a, b} {
		tc.rows[i] = prefetch(ctx, c.sides[i].reader, t)
	}
	err := tc.run(ctx)
	if errors.Is(err, errStopped) {
		err = ctx.Err()
	}
	cancel()
	for _, p := range tc.rows {
		p.end()
	}
	if err != nil {
		return err
	}
	tc.d.SHA256 = hex.EncodeToString(tc.sum.Sum(nil))
	tc.d.Equal = tc.found == 0 && tc.d.Rows[0] == tc.d.Rows[1]
	if tc.found >= tableDifferences { // it was not read to its end
		c.diff.Tables = append(c.diff.Tables, tc.d)
	} else {
		c.counted(tc.d)
	}
	if c.opts.Progress != nil {
		c.opts.Progress(c.diff.Rows, c.diff.Bytes)
	}
	return nil
}
