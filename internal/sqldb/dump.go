package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// MigrationTable is where applied migrations are noted.
const MigrationTable = "dwk_migration"

// errSchemaChanged says that a dump would not fit together.
var errSchemaChanged = errors.New("the tables changed while the dump began: repeat it")

// maxTables bounds the tables of a dump: SQLite takes 500 parts of a SELECT.
const maxTables = 490

// A Dump is a database as statements that make it again. All are from one
// moment: they are the rows of one SELECT.
type Dump struct {
	// Left are the virtual tables that a dump leaves out.
	Left []string

	db     *Database
	tables []table
	schema string
}

type table struct {
	name, sql string
	columns   []string
	parents   []string
}

// NewDump reads the tables that there are.
func (d *Database) NewDump(ctx context.Context) (*Dump, error) {
	out := &Dump{db: d}
	res, err := d.Batch(ctx, durable.Statement{SQL: schemaQuery},
		durable.Statement{SQL: `SELECT m.name, m.sql, c.name, c.hidden FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c
			WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.rowid, c.cid`},
		durable.Statement{SQL: `SELECT m.name, f."table" FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`},
		durable.Statement{SQL: `SELECT s.name FROM pragma_table_list s WHERE s.type = 'shadow'`})
	if err != nil {
		return nil, err
	}
	out.schema, _ = res[0].Rows[0].Values[0].(string)
	var shadows []string
	for _, row := range res[3].Rows {
		shadows = append(shadows, row.Values[0].(string))
	}
	for _, row := range res[1].Rows {
		var name, text, column string
		var hidden int
		if err := row.Scan(&name, &text, &column, &hidden); err != nil {
			return nil, err
		}
		w := keywords(text)
		if w.next(); w.next() == "VIRTUAL" {
			if !slices.Contains(out.Left, name) {
				out.Left = append(out.Left, name)
			}
			continue
		}
		if slices.Contains(shadows, name) {
			continue
		}
		if n := len(out.tables); n == 0 || out.tables[n-1].name != name {
			out.tables = append(out.tables, table{name: name, sql: text})
		}
		if hidden == 0 { // not generated
			t := &out.tables[len(out.tables)-1]
			t.columns = append(t.columns, column)
		}
	}
	if len(out.tables) > maxTables {
		return nil, fmt.Errorf("SQL database %s: %d tables, a dump has at most %d: %w", d.name, len(out.tables), maxTables, durable.ErrTooLarge)
	}
	for _, row := range res[2].Rows {
		for i := range out.tables {
			if out.tables[i].name == row.Values[0] {
				out.tables[i].parents = append(out.tables[i].parents, row.Values[1].(string))
			}
		}
	}
	out.tables = parentsFirst(out.tables)
	return out, nil
}

// schemaQuery is one text that changes with the schema.
const schemaQuery = `SELECT coalesce(group_concat(name || char(10) || sql, char(10)), '') FROM (SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid)`

// parentsFirst puts tables behind those that they refer to, as far as there are
// no circles.
func parentsFirst(tables []table) []table {
	var out []table
	seen := map[string]bool{}
	var visit func(t table)
	visit = func(t table) {
		if seen[t.name] {
			return
		}
		seen[t.name] = true
		for _, p := range t.parents {
			for _, other := range tables {
				if strings.EqualFold(other.name, p) {
					visit(other)
				}
			}
		}
		out = append(out, t)
	}
	for _, t := range tables {
		visit(t)
	}
	return out
}

// Statements yields the statements, without semicolons. SQL writes a real -0.0
// as 0.0, which is equal to it.
func (p *Dump) Statements(ctx context.Context) iter.Seq2[string, error] {
	parts := []string{`SELECT * FROM (` + schemaQuery + `)`}
	for _, t := range p.tables {
		parts = append(parts, `SELECT `+literal(t.sql))
	}
	for _, t := range p.tables {
		var names, values []string
		for _, c := range t.columns {
			names = append(names, identifier(c))
			values = append(values, `quote(`+identifier(c)+`)`)
		}
		head := `INSERT INTO ` + identifier(t.name) + `(` + strings.Join(names, ",") + `) VALUES(`
		parts = append(parts, `SELECT `+literal(head)+` || `+strings.Join(values, ` || ',' || `)+` || ')' FROM `+identifier(t.name))
	}
	// Indexes, views and triggers come last, so that loading rows fires none.
	parts = append(parts, `SELECT * FROM (SELECT sql FROM sqlite_master WHERE type IN ('index', 'view', 'trigger') AND sql IS NOT NULL ORDER BY type, rowid)`)
	return func(yield func(string, error) bool) {
		first := true
		for row, err := range p.db.Query(ctx, strings.Join(parts, "\nUNION ALL\n")) {
			if err != nil {
				yield("", err)
				return
			}
			text, _ := row.Values[0].(string)
			if first && text != p.schema {
				yield("", errSchemaChanged)
				return
			}
			if !first && !yield(text, nil) {
				return
			}
			first = false
		}
	}
}

func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func literal(text string) string    { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// Empty reports whether the database has nothing that somebody made.
func (d *Database) Empty(ctx context.Context) (bool, error) {
	row, err := d.First(ctx, `SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if err != nil {
		return false, err
	}
	return row.Values[0] == int64(0), nil
}

// Load runs the statements of a script in as few transactions as their size
// allows, and returns the number of statements that were applied. Foreign keys
// are checked at the end of each transaction.
func (d *Database) Load(ctx context.Context, r io.Reader) (applied int, err error) {
	deferred := durable.Statement{SQL: `PRAGMA defer_foreign_keys = 1`}
	batch, size := []durable.Statement{deferred}, 0
	flush := func() error {
		if len(batch) == 1 {
			return nil
		}
		if _, err := d.Batch(ctx, batch...); err != nil {
			return err
		}
		applied += len(batch) - 1
		batch, size = []durable.Statement{deferred}, 0
		return nil
	}
	for text, err := range Split(r) {
		if err != nil {
			return applied, err
		}
		if size+len(text) > MaxCall/2 || len(batch) == MaxStatements/2 {
			if err := flush(); err != nil {
				return applied, err
			}
		}
		batch, size = append(batch, durable.Statement{SQL: text}), size+len(text)+64
	}
	return applied, flush()
}
