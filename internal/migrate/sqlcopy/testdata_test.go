package sqlcopy

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// places are the targets that everything must work on.
var places = map[string]func(testing.TB) libsqltest.Place{"file": libsqltest.File, "wire": libsqltest.Wire, "strict": strict}

// strict is a server that refuses what sqld does.
func strict(t testing.TB) libsqltest.Place {
	t.Helper()
	s, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "hrana.sqlite"), WriteLimit: time.Minute, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return libsqltest.Place{URL: h.URL, Server: s}
}

// create makes a database file of statements.
func create(t testing.TB, sql ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "old 100%.sqlite")
	change(t, path, sql...)
	return path
}

// change runs statements on a file.
func change(t testing.TB, path string, sql ...string) {
	t.Helper()
	c, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sql {
		if err := c.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// ask returns the only value of a query.
func ask(t testing.TB, path, sql string) string {
	t.Helper()
	c, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v, err := c.QueryText(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// numbers is a table n(i) of whole numbers in SQL.
const numbers = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700) `

// everything is a schema with what is hard to copy.
var everything = []string{
	`PRAGMA user_version = -7`, `PRAGMA application_id = 1234567`,
	// Values.
	`CREATE TABLE v(a, b TEXT, c REAL, d INTEGER, e BLOB, f NUMERIC)`,
	`INSERT INTO v(a) VALUES (9223372036854775807), (-9223372036854775808), (9e999), (-9e999), (-0.0), (0.0), (1e308), (5e-324), (0.1), (NULL), (''), (x''), (x'00ff'),
		('a' || char(0) || 'b'), (CAST(x'c328ff00fe' AS TEXT)), (CAST(x'00' AS TEXT)), ('"''\ü😀' || char(10, 13, 9, 1, 127, 0x2028))`,
	`INSERT INTO v SELECT a, a, a, a, a, a FROM v`,
	`INSERT INTO v(b, c, d) VALUES ('1', 2, 3.0), (1, 9e999, '0x10')`,
	`INSERT INTO v(rowid, a) VALUES (-5, 'before'), (9223372036854775807, 'last'), (-9223372036854775808, 'first')`,
	// Kinds of tables and keys.
	`CREATE TABLE holes(x)`, `INSERT INTO holes(rowid, x) VALUES (3, 'a'), (1000000, 'b')`,
	`CREATE TABLE shadowed(rowid TEXT, _rowid_ INTEGER, x)`, `INSERT INTO shadowed(oid, rowid, _rowid_, x) VALUES (7, 'r', 5, 1), (70, 'r', 5, 1)`,
	`CREATE TABLE hidden(oid, ROWID, "_rowid_")`, `INSERT INTO hidden VALUES (1, 2, 3), (1, 2, 3), (NULL, NULL, NULL)`,
	`CREATE TABLE descending(id INTEGER PRIMARY KEY DESC, x)`, `INSERT INTO descending(rowid, id, x) VALUES (5, 50, 'a'), (6, NULL, 'b'), (9, 40, 'c')`,
	`CREATE TABLE w(a TEXT COLLATE NOCASE, b INTEGER, c, PRIMARY KEY(b DESC, a)) WITHOUT ROWID`,
	`INSERT INTO w VALUES ('x', 1, 1), ('Y', 1, NULL), ('a', 2, 'z'), ('B', -1, x'00')`, `CREATE INDEX w_all ON w(a, b, c)`,
	`CREATE TABLE strictly(id INTEGER PRIMARY KEY, r REAL NOT NULL, a ANY, t TEXT) STRICT`, `INSERT INTO strictly VALUES (1, 1, '1', 'x'), (2, -9e999, 1, ''), (3, 0.5, x'31', NULL)`,
	`CREATE TABLE g(a INTEGER, v AS (a * 2) VIRTUAL, "st ored" TEXT GENERATED ALWAYS AS (a || '!') STORED, z DEFAULT (1 + 1), CHECK (a > 0), UNIQUE (v) ON CONFLICT IGNORE)`,
	`INSERT INTO g(a) VALUES (1), (2), (30)`,
	`CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, x)`, `INSERT INTO counted VALUES (1, 'a'), (500, 'b')`, `DELETE FROM counted WHERE id = 500`,
	`CREATE TABLE "gone"(id INTEGER PRIMARY KEY AUTOINCREMENT)`, `INSERT INTO gone VALUES (9)`, `DELETE FROM gone`,
	`INSERT INTO sqlite_sequence VALUES ('none', 'text'), ('none', NULL)`,
	// Names.
	`CREATE TABLE "odd ""name"" 'tab'le; --"("sel ect" TEXT, "ünï" INTEGER, [a[b"], "DROP TABLE x", "")`,
	`INSERT INTO "odd ""name"" 'tab'le; --" VALUES ('a', 1, 2, 3, 4)`,
	`CREATE INDEX "in dex;" ON "odd ""name"" 'tab'le; --"("sel ect" COLLATE RTRIM DESC, "ünï") WHERE "ünï" > 0`,
	`CREATE TABLE 'select'("from" INTEGER PRIMARY KEY, "where")`, `INSERT INTO "select" VALUES (4, 'x')`,
	`CREATE UNIQUE INDEX expression ON "select"(lower("where"), "from" + 1)`,
	// Foreign keys: itself, a circle, an index that comes later, and what is dangling.
	`CREATE TABLE self(id INTEGER PRIMARY KEY, up REFERENCES self(id))`, numbers + `INSERT INTO self SELECT i, 701 - i FROM n`,
	`CREATE TABLE chick(id INTEGER PRIMARY KEY, egg NOT NULL REFERENCES egg(id))`, `CREATE TABLE egg(id INTEGER PRIMARY KEY, chick NOT NULL REFERENCES chick(id) ON DELETE CASCADE)`,
	`INSERT INTO chick VALUES (1, 2)`, `INSERT INTO egg VALUES (2, 1)`,
	`CREATE TABLE child(p REFERENCES parent(code), q REFERENCES nowhere(id))`, `INSERT INTO child VALUES ('c', 1), ('dangling', 2)`,
	`CREATE TABLE parent(code)`, `INSERT INTO parent VALUES ('c')`, `CREATE UNIQUE INDEX parent_code ON parent(code)`,
	// Triggers and views.
	`CREATE TABLE log(what)`, `CREATE VIEW "a view" AS SELECT x, oid AS "o" FROM counted`,
	`CREATE TRIGGER fires AFTER INSERT ON counted BEGIN INSERT INTO log VALUES (new.id || CASE WHEN 1 THEN ';' END); END`,
	`CREATE TRIGGER instead INSTEAD OF INSERT ON "a view" BEGIN INSERT INTO log VALUES ('view'); END`,
	// Full text: its own content, external content of a table and of a view, contentless.
	`CREATE VIRTUAL TABLE notes USING fts5(title, body, seen UNINDEXED, prefix='2 3')`,
	numbers + `INSERT INTO notes(rowid, title, body, seen) SELECT i * 3, 'title ' || i, 'some words number' || i % 7, i * 1.5 FROM n`,
	`INSERT INTO notes(notes, rank) VALUES ('automerge', 7)`, `INSERT INTO notes(notes, rank) VALUES ('rank', 'bm25(10.0, 5.0)')`,
	`CREATE TABLE content(x, words)`, numbers + `INSERT INTO content(rowid, x, words) SELECT i * 2, i, 'word' || i % 11 || ' other' FROM n`,
	`CREATE VIRTUAL TABLE "external fts" USING fts5(words, content='content')`, `INSERT INTO "external fts"(rowid, words) SELECT rowid, words FROM content WHERE x > 10`,
	`CREATE VIRTUAL TABLE contentless USING fts5(a, b, content='', contentless_delete=1)`, numbers + `INSERT INTO contentless(rowid, a, b) SELECT i, 'aa' || i % 5, 'bb' FROM n`,
	`DELETE FROM contentless WHERE rowid = 5`,
	`CREATE VIRTUAL TABLE vocab USING fts5vocab(notes, row)`,
	`CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1, y0, y1, +label TEXT, +data)`, numbers + `INSERT INTO boxes SELECT i * 5, i * 0.1, i * 0.1 + 1, -i, i, 'box' || i, x'00' FROM n`,
	`CREATE VIRTUAL TABLE ibox USING rtree_i32(id, x0, x1)`, `INSERT INTO ibox VALUES (1, -2147483648, 2147483647)`,
	`ANALYZE`,
}
