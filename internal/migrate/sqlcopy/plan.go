package sqlcopy

import (
	"context"
	"slices"
	"strconv"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// An item is one part of a copy. What the items are follows from the schema
// alone, so that the journal can name one by its number.
type item struct {
	ddl   []string // statements that make something
	name  string   // of what is made or loaded
	table *table   // whose rows are loaded
	// sequence: the AUTOINCREMENT counters; config: an FTS5 table's options;
	// setting: a PRAGMA.
	sequence bool
	config   *table
	setting  string
	// alone: in a batch of its own, as it may take long or be refused.
	alone bool
}

// items returns the parts of a copy in their order.
func (s *schema) items() []item {
	var list []item
	virtual := map[string]bool{}
	for _, t := range s.tables {
		virtual[t.name] = t.virtual
	}
	for _, e := range s.entries {
		if e.kind == "table" && !virtual[e.name] {
			list = append(list, item{ddl: []string{e.sql}, name: "table " + e.name})
		}
	}
	for _, t := range s.tables {
		if !t.virtual {
			list = append(list, item{table: t, name: "table " + t.name})
		}
	}
	for _, e := range s.entries {
		i := slices.IndexFunc(s.tables, func(t *table) bool { return t.name == e.name })
		if e.kind != "table" || !virtual[e.name] {
			continue
		}
		t, made := s.tables[i], item{ddl: []string{e.sql}, name: "table " + e.name}
		for _, sh := range t.shadows { // what the table's creation put there
			made.ddl = append(made.ddl, `DELETE FROM `+identifier(sh.name))
		}
		list = append(list, made)
		if t.config != "" {
			list = append(list, item{config: t, name: "table " + t.name})
		}
		for _, loaded := range append(slices.Clone(t.shadows), t) {
			if len(loaded.columns) > 0 {
				list = append(list, item{table: loaded, name: "table " + loaded.name})
			}
		}
	}
	if s.sequence {
		list = append(list, item{sequence: true, name: "counters"})
	}
	for _, kind := range []string{"index", "view", "trigger"} {
		for _, e := range s.entries {
			if e.kind == kind {
				list = append(list, item{ddl: []string{e.sql}, name: kind + " " + e.name, alone: kind == "index"})
			}
		}
	}
	return append(list,
		item{setting: "user_version", ddl: []string{`PRAGMA user_version = ` + strconv.FormatInt(s.userVersion, 10)}, name: "user_version"},
		item{setting: "application_id", ddl: []string{`PRAGMA application_id = ` + strconv.FormatInt(s.applicationID, 10)}, name: "application_id", alone: true})
}

// A position is how far a copy is.
type position struct {
	item int
	row  int64 // rows of the item that are done
}

// A step is a part of a batch: a statement, and the position after it.
type step struct {
	stmt  libsql.Statement
	none  bool // there is no statement, the position just moves
	what  *item
	after position
	rows  int64
	bytes int64 // of values
	last  []any // the last row
	glued bool  // the next step must be in the same batch
}

// A loader makes the steps of a copy from its source.
type loader struct {
	source reader
	schema *schema
	items  []item
	batch  int64 // bytes
	emit   func(step) bool
}

// run makes the steps from a position on. false from emit ends it.
func (l *loader) run(ctx context.Context, from position, last string, staged map[int64]int64) error {
	for at := from.item; at < len(l.items); at++ {
		it := &l.items[at]
		next := position{item: at + 1}
		var err error
		switch {
		case it.table != nil:
			t := tableLoader{loader: l, item: it, table: it.table, at: position{at, from.row}, last: last, staged: staged}
			err = t.run(ctx)
		case it.sequence:
			err = l.sequence(ctx, it, position{item: at})
		case it.config != nil:
			err = l.config(ctx, it, position{item: at})
		default:
			for i, sql := range it.ddl {
				after := position{item: at}
				if i == len(it.ddl)-1 {
					after = next
				}
				if !l.emit(step{stmt: libsql.S(sql), what: it, after: after}) {
					return errEnded
				}
			}
			from, last, staged = position{}, "", nil
			continue
		}
		if err != nil {
			return err
		}
		if !l.emit(step{none: true, what: it, after: next}) {
			return errEnded
		}
		from, last, staged = position{}, "", nil
	}
	return nil
}

// sequence sets the counters; a batch that ends within does no harm, as all is
// done anew.
func (l *loader) sequence(ctx context.Context, it *item, at position) error {
	if !l.emit(step{stmt: libsql.S(`DELETE FROM sqlite_sequence`), what: it, after: at}) {
		return errEnded
	}
	rows, err := collect(ctx, l.source, `SELECT name, seq FROM sqlite_sequence WHERE name NOT IN ('`+journalTable+`', '`+pieceTable+`') ORDER BY rowid`)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if !l.emit(step{stmt: libsql.S(`INSERT INTO sqlite_sequence(name, seq) VALUES(?, ?)`, row...), what: it, after: at}) {
			return errEnded
		}
	}
	return nil
}

// config sets the options of an FTS5 table.
func (l *loader) config(ctx context.Context, it *item, at position) error {
	rows, err := collect(ctx, l.source, `SELECT k, v FROM `+identifier(it.config.config)+` WHERE k <> 'version' ORDER BY k`)
	if err != nil {
		return err
	}
	name := identifier(it.config.name)
	for _, row := range rows {
		if !l.emit(step{stmt: libsql.S(`INSERT INTO `+name+`(`+name+`, rank) VALUES(?, ?)`, row...), what: it, after: at}) {
			return errEnded
		}
	}
	return nil
}
