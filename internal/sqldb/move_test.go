package sqldb_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

func split(t *testing.T, text string) (list []string) {
	t.Helper()
	for s, err := range sqldb.Split(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestSplit(t *testing.T) {
	trigger := "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET b = CASE WHEN 1 THEN 2 END; SELECT ';'; END"
	for text, want := range map[string][]string{
		"":                          nil,
		" ; ;; -- nothing\n/* ; */": nil,
		"SELECT 1":                  {"SELECT 1"},
		"SELECT 1; SELECT 2;":       {"SELECT 1", "SELECT 2"},
		"SELECT ';', \";\", `;`, [;]; SELECT 'it''s;'": {"SELECT ';', \";\", `;`, [;]", "SELECT 'it''s;'"},
		"-- a; b\nSELECT 1 /* ; */; SELECT 2 -- ;":     {"-- a; b\nSELECT 1 /* ; */", "SELECT 2 -- ;"},
		trigger + ";SELECT 1":                          {trigger, "SELECT 1"},
		"create temp " + trigger[7:] + " ; SELECT 1":   {"create temp " + trigger[7:], "SELECT 1"},
		"CREATE TABLE trigger_of(a);SELECT 1":          {"CREATE TABLE trigger_of(a)", "SELECT 1"},
		"SELECT 'open; SELECT 1":                       {"SELECT 'open; SELECT 1"},
		"SELECT 1 /* open; SELECT 1":                   {"SELECT 1 /* open; SELECT 1"},
		"SELECT 5 - 3, 6 / 2, -1; SELECT a-b":          {"SELECT 5 - 3, 6 / 2, -1", "SELECT a-b"},
	} {
		if got := split(t, text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, err := range sqldb.Split(io.MultiReader(strings.NewReader("SELECT '"), strings.NewReader(strings.Repeat("x", sqldb.MaxText)))) {
		if !errors.Is(err, durable.ErrTooLarge) {
			t.Error(err)
		}
	}
}

// Whatever is in a database comes back from its dump.
func TestDumpAndLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d := open(t, p)
		for _, s := range split(t, `
			CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
			CREATE TABLE parent(id INTEGER PRIMARY KEY, "odd ""name" TEXT, v, twice AS (id * 2), up REFERENCES parent(id)) STRICT_NOT;
			CREATE TABLE "it's"(k TEXT PRIMARY KEY, n ANY) STRICT, WITHOUT ROWID;
			CREATE INDEX i ON parent(v) WHERE v IS NOT NULL;
			CREATE VIEW w AS SELECT id FROM parent;
			CREATE TRIGGER tr AFTER INSERT ON child BEGIN INSERT INTO "it's" VALUES('fired' || NEW.id, NULL); END;
			CREATE VIRTUAL TABLE f USING fts5(body);
			INSERT INTO f VALUES('left out')`) {
			exec(t, d, strings.Replace(s, " STRICT_NOT", "", 1))
		}
		exec(t, d, `INSERT INTO parent(id, "odd ""name", v, up) VALUES(1, ?, ?, 2), (2, ?, ?, NULL), (3, ?, ?, 1)`,
			"it's; -- x\n/*", int64(1)<<62+1, "日本", []byte{0, 1, 255}, "", 0.1)
		exec(t, d, `INSERT INTO child VALUES(7, 1), (8, NULL)`)
		exec(t, d, `INSERT INTO "it's" VALUES('a', 1), ('b', 'x'), ('c', 1e300)`)
		script := func(d *sqldb.Database) (string, *sqldb.Dump) {
			p, err := d.NewDump(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for s, err := range p.Statements(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s;\n", s)
			}
			return b.String(), p
		}
		text, dump := script(d)
		if !slices.Equal(dump.Left, []string{"f"}) {
			t.Errorf("left out %q", dump.Left)
		}
		other := open(t, libsqltest.Places[map[bool]string{true: "wire", false: "file"}[p.Server == nil]](t))
		if empty, err := other.Empty(t.Context()); !empty || err != nil {
			t.Error(empty, err)
		}
		n, err := other.Load(t.Context(), strings.NewReader(text))
		if err != nil || n != strings.Count(text, ";\n") {
			t.Fatalf("%d loaded, %v, of\n%s", n, err, text)
		}
		again, _ := script(other)
		if again != text {
			t.Errorf("dumped\n%s\nand loaded\n%s", text, again)
		}
		if empty, err := other.Empty(t.Context()); empty || err != nil {
			t.Error(empty, err)
		}
	})
}

func TestDumpOfRandomRows(t *testing.T) {
	d := open(t, libsqltest.File(t))
	exec(t, d, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.OneOf(rapid.Map(rapid.Int64(), func(i int64) any { return i }), rapid.Map(rapid.Float64(), func(f float64) any { return f + 0 /* not -0.0, see Statements */ }),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return b }), rapid.Map(rapid.StringMatching(`[^\x00]*`), func(s string) any { return s })).Draw(rt, "v")
		exec(t, d, `INSERT OR REPLACE INTO t VALUES(1, ?)`, value)
		p, err := d.NewDump(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		var text strings.Builder
		for s, err := range p.Statements(t.Context()) {
			if err != nil {
				rt.Fatal(err)
			}
			text.WriteString(s + ";\n")
		}
		want, err := d.First(t.Context(), `SELECT v, typeof(v) FROM t`)
		if err != nil {
			rt.Fatal(err)
		}
		list := split(t, text.String())
		exec(t, d, `DELETE FROM t`)
		exec(t, d, list[len(list)-1])
		got, err := d.First(t.Context(), `SELECT v, typeof(v) FROM t`)
		if err != nil || fmt.Sprint(got.Values) != fmt.Sprint(want.Values) {
			rt.Fatalf("%v became %v, %v by %q", want.Values, got.Values, err, list)
		}
	})
}

func TestMigrations(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
		dir := fstest.MapFS{
			"0001_tables.sql": file("CREATE TABLE a(x); CREATE TABLE n(c INTEGER); INSERT INTO n VALUES(0);"), "2.sql": file("UPDATE n SET c = c + 1"),
			"010-more.sql": file("UPDATE n SET c = c + 1; CREATE TABLE b(x);"), "README.md": file("no"), "x.sql": file("no"),
		}
		read := func() []sqldb.Migration {
			list, err := sqldb.ReadMigrations(dir)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		// Several replicas at the same time.
		var wg sync.WaitGroup
		for range 4 {
			d := open(t, p)
			wg.Go(func() {
				list := read()
				if err := d.Check(t.Context(), list); err != nil {
					t.Error(err)
				}
				for i := range list {
					if !list[i].Applied {
						if err := d.Apply(t.Context(), &list[i]); err != nil || !list[i].Applied {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		d := open(t, p)
		if row, err := d.First(t.Context(), `SELECT c, (SELECT group_concat(version) FROM `+sqldb.MigrationTable+`) FROM n`); err != nil || fmt.Sprint(row.Values) != "[2 1,2,10]" {
			t.Errorf("%v, %v", row, err)
		}
		// One that fails leaves nothing.
		dir["11_bad.sql"] = file("CREATE TABLE c(x); INSERT INTO missing VALUES(1)")
		list := read()
		if err := d.Check(t.Context(), list); err != nil || !list[2].Applied || list[3].Applied {
			t.Fatal(err)
		}
		if err := d.Apply(t.Context(), &list[3]); err == nil || !strings.Contains(err.Error(), "11_bad.sql") {
			t.Error(err)
		}
		if row, err := d.First(t.Context(), `SELECT count(*) FROM sqlite_master WHERE name = 'c'`); err != nil || row.Values[0] != int64(0) {
			t.Errorf("%v, %v", row, err)
		}
		for change, text := range map[string]string{"5_late.sql": "SELECT 1", "2.sql": "SELECT 2"} {
			old := dir[change]
			dir[change] = file(text)
			if err := d.Check(t.Context(), read()); !errors.Is(err, sqldb.ErrMigrations) || !strings.Contains(err.Error(), change) {
				t.Errorf("%s: %v", change, err)
			}
			if dir[change] = old; old == nil {
				delete(dir, change)
			}
		}
		for name, text := range map[string]string{"1_twice.sql": "SELECT 1", "12_tx.sql": "BEGIN", "0.sql": "SELECT 1"} {
			dir[name] = file(text)
			if _, err := sqldb.ReadMigrations(dir); !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			delete(dir, name)
		}
	})
}
