package sqlcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A schema is what a database consists of.
type schema struct {
	// entries are those that somebody made, in their order, without what belongs
	// to a virtual table and to this package.
	entries []entry
	tables  []*table // of the entries, and those that hold indexes of virtual tables
	// settings that are kept.
	userVersion, applicationID int64
	sequence                   bool // there are AUTOINCREMENT counters
	left                       []Left
	journal                    bool // there is the journal of a copy
}

// An entry is a row of sqlite_schema.
type entry struct{ kind, name, sql string }

// A column of a table.
type column struct {
	name      string
	generated bool
}

func (c column) sql() string { return identifier(c.name) }

// A table holds rows.
type table struct {
	name    string
	columns []column
	// rowid is the name of the rowid where rows are told apart by it and it is no
	// column, or "".
	rowid string
	// rowidAt is the place of the rowid in a row that scan yields, or -1.
	rowidAt int
	// key are the names of the primary key, in order, of a table without rowids.
	key          []keyColumn
	withoutRowid bool
	virtual      bool
	// shadows are tables that hold a virtual table's index, which is copied row
	// by row; then it has no rows itself.
	shadows []*table
	// config is the table of an FTS5 table's options, or "".
	config string
}

type keyColumn struct {
	name, collation string
	descending      bool
}

func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (t *table) from() string {
	if t.virtual {
		return identifier(t.name)
	}
	return identifier(t.name) + ` NOT INDEXED`
}

// rowidName is what the rowid is called in SQL, where rowidAt is not -1.
func (t *table) rowidName() string {
	if t.rowid != "" {
		return t.rowid
	}
	return t.columns[t.rowidAt].sql()
}

// order is the ORDER BY of the table's own order, or "" where a scan has it.
func (t *table) order() string {
	switch {
	case t.rowidAt >= 0:
		return ` ORDER BY ` + t.rowidName()
	case len(t.key) == 0:
		return ""
	}
	var keys []string
	for _, k := range t.key {
		s := identifier(k.name) + ` COLLATE ` + identifier(k.collation)
		if k.descending {
			s += ` DESC`
		}
		keys = append(keys, s)
	}
	return ` ORDER BY ` + strings.Join(keys, `, `)
}

func (t *table) selection(columns []column) string {
	var list []string
	if t.rowid != "" {
		list = append(list, t.rowid)
	}
	for _, c := range columns {
		list = append(list, c.sql())
	}
	return `SELECT ` + strings.Join(list, `, `)
}

// stored are the columns that are written.
func (t *table) stored() []column {
	return slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return c.generated })
}

// Names of what this package puts into a target.
const (
	journalTable = "dwk_copy"
	pieceTable   = "dwk_copy_piece"
)

// readSchema reads the schema of a database.
func readSchema(ctx context.Context, r reader) (*schema, error) {
	s := &schema{}
	shadow := map[string]bool{}
	without := map[string]bool{}
	all, err := collect(ctx, r, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	list, err := collect(ctx, r, `SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'`)
	if err != nil {
		return nil, err
	}
	for _, row := range list {
		name := text(row[0])
		shadow[name] = row[1] == "shadow"
		without[name] = row[2] == int64(1)
	}
	for _, row := range all {
		e, of := entry{text(row[0]), text(row[1]), text(row[3])}, text(row[2])
		switch {
		case e.name == "sqlite_sequence":
			s.sequence = true
		case strings.HasPrefix(e.name, "sqlite_stat"):
			s.left = append(s.left, Left{"table " + e.name, "statistics of the query planner: run ANALYZE"})
		case strings.HasPrefix(e.name, "sqlite_") || e.sql == "" || shadow[of]:
		case e.name == journalTable:
			s.journal = true
		case e.name == pieceTable:
		default:
			s.entries = append(s.entries, e)
		}
	}
	for _, e := range s.entries {
		if e.kind != "table" {
			continue
		}
		t, err := readTable(ctx, r, e.name, without[e.name])
		if err != nil {
			return nil, err
		}
		if module, ok := virtualTable(e.sql); ok {
			t.virtual = true
			if err := readVirtual(ctx, r, t, module, shadow, without); err != nil {
				return nil, err
			}
		}
		s.tables = append(s.tables, t)
	}
	for _, p := range []struct {
		name string
		to   *int64
	}{{"user_version", &s.userVersion}, {"application_id", &s.applicationID}} {
		row, err := collect(ctx, r, `PRAGMA `+p.name)
		if err != nil {
			return nil, err
		}
		*p.to, _ = row[0][0].(int64)
	}
	return s, nil
}

// readTable reads the columns of a table and what tells its rows apart.
func readTable(ctx context.Context, r reader, name string, without bool) (*table, error) {
	t := &table{name: name, rowidAt: -1, withoutRowid: without}
	rows, err := collect(ctx, r, `SELECT name, hidden, pk FROM pragma_table_xinfo(?) ORDER BY cid`, name)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	primary := []int{}
	for _, row := range rows {
		c := column{name: text(row[0])}
		taken[strings.ToLower(c.name)] = true
		switch row[1] {
		case int64(1): // of a virtual table, not shown
			continue
		case int64(2), int64(3):
			c.generated = true
		}
		if row[2] != int64(0) {
			primary = append(primary, len(t.columns))
		}
		t.columns = append(t.columns, c)
	}
	key, err := collect(ctx, r, `SELECT x.name, x.coll, x."desc" FROM pragma_index_list(?1) l JOIN pragma_index_xinfo(l.name) x
		WHERE l.origin = 'pk' AND x.key = 1 ORDER BY x.seqno`, name)
	if err != nil {
		return nil, err
	}
	if without {
		for _, row := range key {
			t.key = append(t.key, keyColumn{text(row[0]), text(row[1]), row[2] == int64(1)})
		}
		return t, nil
	}
	if len(primary) == 1 && len(key) == 0 { // no index: it is the rowid
		t.rowidAt = primary[0]
		return t, nil
	}
	for _, n := range []string{"rowid", "_rowid_", "oid"} {
		if !taken[n] {
			t.rowid, t.rowidAt = n, 0
			break
		}
	}
	return t, nil
}

// statelessModules are those of virtual tables that hold nothing.
var statelessModules = []string{"fts5vocab", "dbstat", "sqlite_dbpage", "sqlite_stmt", "bytecode", "tables_used", "json_each", "json_tree", "generate_series"}

// readVirtual finds out how the content of a virtual table is copied.
func readVirtual(ctx context.Context, r reader, t *table, module string, shadow, without map[string]bool) error {
	switch module = strings.ToLower(module); {
	case module == "rtree" || module == "rtree_i32":
		t.rowid, t.rowidAt = "", 0 // the first column
	case module == "geopoly":
	case module == "fts5":
		return readFTS5(ctx, r, t, shadow, without)
	case slices.Contains(statelessModules, module):
		t.columns = nil
	default:
		return fmt.Errorf("virtual table %s: module %s: %w", t.name, module, ErrUnsupported)
	}
	return nil
}

// readFTS5 decides by the table of contents: where it has all columns and
// nothing else, rows go through the table itself. One with external content, or
// contentless, or with locales, is copied by its index.
func readFTS5(ctx context.Context, r reader, t *table, shadow, without map[string]bool) error {
	content, err := collect(ctx, r, `SELECT count(*) FROM pragma_table_info(?)`, t.name+"_content")
	if err != nil {
		return err
	}
	if content[0][0] == int64(len(t.columns)+1) {
		t.config = t.name + "_config"
		return nil
	}
	t.columns, t.rowid, t.rowidAt = nil, "", -1
	for _, suffix := range []string{"config", "content", "data", "docsize", "idx"} {
		name := t.name + "_" + suffix
		if !shadow[name] {
			continue
		}
		s, err := readTable(ctx, r, name, without[name])
		if err != nil {
			return err
		}
		t.shadows = append(t.shadows, s)
	}
	return nil
}

// virtualTable reads the module of a CREATE VIRTUAL TABLE as SQLite keeps it.
func virtualTable(sql string) (module string, ok bool) {
	rest := sql
	for _, word := range []string{"CREATE", "VIRTUAL", "TABLE"} {
		rest = strings.TrimLeft(rest, " \t\r\n\f")
		if len(rest) < len(word) || !strings.EqualFold(rest[:len(word)], word) {
			return "", false
		}
		rest = rest[len(word):]
	}
	_, rest = word(rest)
	using, rest := word(rest)
	module, _ = word(rest)
	if !strings.EqualFold(using, "USING") || module == "" {
		return "", false
	}
	return module, true
}

// word returns the next name of a text, without its quotes and the comments
// before it.
func word(s string) (name, rest string) {
	for {
		s = strings.TrimLeft(s, " \t\r\n\f")
		switch {
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
			continue
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
			continue
		case s == "":
			return "", ""
		}
		break
	}
	quote := s[0]
	switch quote {
	case '[':
		name, rest, _ = strings.Cut(s[1:], "]")
		return name, rest
	case '"', '\'', '`':
		for i := 1; i < len(s); i++ {
			if s[i] != quote {
				name += s[i : i+1]
			} else if i+1 < len(s) && s[i+1] == quote {
				name += s[i : i+1]
				i++
			} else {
				return name, s[i+1:]
			}
		}
		return name, ""
	}
	n := 0
	for n < len(s) && (s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z' || s[n] >= '0' && s[n] <= '9' || s[n] == '_' || s[n] == '$' || s[n] >= 0x80) {
		n++
	}
	return s[:n], s[n:]
}

// id is a hash of all that the order of a copy follows from.
func (s *schema) id() string {
	h := sha256.New()
	for _, e := range s.entries {
		for _, f := range []string{e.kind, e.name, e.sql} {
			h.Write(strconv.AppendInt(nil, int64(len(f)), 10))
			h.Write([]byte(":" + f))
		}
	}
	fmt.Fprint(h, s.userVersion, s.applicationID, s.sequence)
	return hex.EncodeToString(h.Sum(nil))
}

// collect returns the few rows of a query.
func collect(ctx context.Context, r reader, sql string, args ...any) (all [][]any, err error) {
	for try := 1; ; try++ {
		all = nil
		err = nil
		for row, rerr := range r.rows(ctx, sql, args...) {
			if err = rerr; err != nil {
				break
			}
			all = append(all, row)
		}
		if err == nil || try == attempts || !passing(err) || !pause(ctx, try) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	if len(all) == 0 && strings.HasPrefix(sql, "PRAGMA") {
		return nil, errors.New("reading the schema: a setting without a value")
	}
	return all, nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
