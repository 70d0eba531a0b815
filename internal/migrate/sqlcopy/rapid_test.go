package sqlcopy

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// names are those of things and columns, from plain to odd. No two are the same
// to SQLite.
var names = rapid.OneOf(
	rapid.StringMatching(`[a-z]{1,6}`),
	rapid.SampledFrom([]string{"rowid", "oid", "_rowid_", "select", "a b", `"`, `'`, "`", "[x]", "--", "/*", ";", "?1", "NEW", "ünï", "😀", "1", "x\ny", "%s", `\`, "dwk", "null"}),
	rapid.StringN(1, 6, 20),
).Filter(func(s string) bool {
	lower := strings.ToLower(s)
	return !strings.ContainsRune(s, 0) && !strings.HasPrefix(lower, "sqlite_")
})

func distinct(lower string) string { return strings.ToLower(lower) }

var values = rapid.OneOf(
	rapid.Just[any](nil),
	rapid.SampledFrom([]any{int64(math.MaxInt64), int64(math.MinInt64), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0.0, 5e-324, "", "a\x00b", "\xff\xfe", []byte{}, []byte{0},
		"1", "1.0", " 1", "0x10", "1e3", "9223372036854775808", strings.Repeat("long ", 2000), strings.Repeat("\xff", 6000), make([]byte, 9000)}),
	rapid.Map(rapid.Int64(), func(i int64) any { return i }),
	rapid.Map(rapid.Int64Range(-3, 30), func(i int64) any { return i }),
	rapid.Map(rapid.Float64(), func(f float64) any { return f }),
	rapid.Map(rapid.String(), func(s string) any { return s }),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return append([]byte{}, b...) }),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return string(b) }),
)

// drawDatabase makes a database file. Statements that make no sense are left
// out: what SQLite takes must be copied.
func drawDatabase(t *rapid.T, path string) {
	c, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	try := func(sql string, args ...any) bool {
		s, _, err := c.Prepare(sql)
		if err != nil || s == nil {
			return false
		}
		defer s.Close()
		for i, a := range args {
			if err := s.Bind(i+1, a); err != nil {
				t.Fatal(err)
			}
		}
		return s.Run() == nil
	}
	try(`PRAGMA synchronous=OFF`)
	if rapid.Bool().Draw(t, "WAL") {
		try(`PRAGMA journal_mode=WAL`)
	}
	try(fmt.Sprintf(`PRAGMA user_version = %d`, rapid.Int32().Draw(t, "user_version")))
	try(fmt.Sprintf(`PRAGMA application_id = %d`, rapid.Int32().Draw(t, "application_id")))
	tables := rapid.SliceOfNDistinct(names, 1, 4, distinct).Draw(t, "tables")
	try(`BEGIN`)
	for i, table := range tables {
		drawTable(t, try, table, tables, i)
	}
	try(`COMMIT`)
}

func drawTable(t *rapid.T, try func(string, ...any) bool, name string, tables []string, n int) {
	columns := rapid.SliceOfNDistinct(names, 1, 5, distinct).Draw(t, "columns")
	pick := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
	var defs, keys []string
	kind := pick("kind", "plain", "plain", "integer key", "autoincrement", "key", "without rowid", "without rowid")
	strict := pick("strict", "", "", "STRICT")
	for i, col := range columns {
		def := identifier(col) + ` ` + pick("type", "INTEGER", "TEXT", "REAL", "BLOB", "ANY", "INT")
		if strict == "" {
			def = identifier(col) + ` ` + pick("type", "", "INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "DATETIME", "VARCHAR(3)", `"odd type"`)
		}
		switch {
		case i == 0 && kind == "integer key":
			def = identifier(col) + ` INTEGER PRIMARY KEY` + pick("direction", "", " DESC")
		case i == 0 && kind == "autoincrement":
			def = identifier(col) + ` INTEGER PRIMARY KEY AUTOINCREMENT`
		case i > 0 && pick("generated", "", "", "", "yes") != "":
			def += ` AS (` + identifier(columns[0]) + pick("expression", ` || 'x'`, ``, ` + 1`) + `) ` + pick("stored", "STORED", "VIRTUAL")
		default:
			def += pick("collation", "", " COLLATE NOCASE", " COLLATE RTRIM") + pick("unique", "", "", "", " UNIQUE") + pick("default", "", " DEFAULT 'x'", " DEFAULT (1 + 1)") +
				pick("reference", "", "", " REFERENCES "+identifier(tables[0]), " REFERENCES "+identifier(tables[n])+" DEFERRABLE INITIALLY DEFERRED")
			keys = append(keys, identifier(col)+pick("order", "", " DESC", " COLLATE NOCASE"))
		}
		defs = append(defs, def)
	}
	options := []string{strict}
	if kind == "without rowid" {
		options = append(options, "WITHOUT ROWID")
	}
	options = slices.DeleteFunc(options, func(s string) bool { return s == "" })
	if (kind == "key" || kind == "without rowid") && len(keys) > 0 {
		defs = append(defs, `PRIMARY KEY (`+strings.Join(keys[:rapid.IntRange(1, len(keys)).Draw(t, "keys")], ", ")+`)`)
	}
	if !try(`CREATE TABLE ` + identifier(name) + `(` + strings.Join(defs, ", ") + `)` + strings.Join(options, ", ")) {
		return
	}
	for range rapid.IntRange(0, 12).Draw(t, "rows") {
		var list, marks []string
		var args []any
		for _, col := range columns {
			if rapid.IntRange(0, 9).Draw(t, "given") > 0 {
				list, marks, args = append(list, identifier(col)), append(marks, "?"), append(args, values.Draw(t, "value"))
			}
		}
		if rapid.Bool().Draw(t, "rowid") {
			list, marks, args = append(list, "rowid"), append(marks, "?"), append(args, rapid.Int64().Draw(t, "number"))
		}
		for len(list) > 0 && !try(`INSERT OR IGNORE INTO `+identifier(name)+`(`+strings.Join(list, ", ")+`) VALUES (`+strings.Join(marks, ", ")+`)`, args...) {
			list, marks, args = list[1:], marks[1:], args[1:] // perhaps a generated one
		}
	}
	if rapid.Bool().Draw(t, "deletes") {
		try(`DELETE FROM `+identifier(name)+` WHERE `+identifier(columns[0])+` > ?`, values.Draw(t, "value"))
	}
	other := names.Draw(t, "index")
	try(`CREATE ` + pick("unique", "", "UNIQUE ") + `INDEX ` + identifier(other) + ` ON ` + identifier(name) + `(` + identifier(columns[len(columns)-1]) + pick("how", "", " DESC", " COLLATE RTRIM", " || 'x'") + `)` +
		pick("where", "", ` WHERE `+identifier(columns[0])+` IS NOT NULL`))
	try(`CREATE VIEW ` + identifier(names.Draw(t, "view")) + ` AS SELECT * FROM ` + identifier(name))
	try(`CREATE TRIGGER ` + identifier(names.Draw(t, "trigger")) + pick("when", " AFTER INSERT", " BEFORE INSERT", " AFTER DELETE") + ` ON ` + identifier(name) +
		` BEGIN DELETE FROM ` + identifier(tables[0]) + `; SELECT CASE WHEN 1 THEN ';' END; END`)
}

// TestRandomDatabases copies generated databases there and back.
func TestRandomDatabases(t *testing.T) {
	t.Parallel()
	tool, _ := exec.LookPath("sqlite3")
	n, most := 0, 40
	if os.Getenv("DWK_TEST_LONG") != "" {
		most = math.MaxInt
	} else if testing.Short() {
		most = 8
	}
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > most {
			return
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		file, back := filepath.Join(dir, "old.sqlite"), filepath.Join(dir, "back.sqlite")
		drawDatabase(rt, file)
		place := rapid.SampledFrom([]string{"file", "wire", "strict"}).Draw(rt, "place")
		opts := Options{Journal: "j", BatchBytes: rapid.SampledFrom([]int{0, 500, 5000}).Draw(rt, "batch")}
		if place == "strict" {
			opts.Without = []string{"application_id"}
		}
		dst := places[place](t).Open(t)
		check := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		same := func(a, b Side) {
			d, err := Compare(t.Context(), a, b, opts)
			check(err)
			if !d.Equal() {
				rt.Fatalf("%+v", d.Differences)
			}
		}
		_, err := Up(t.Context(), file, dst, opts)
		check(err)
		check(Finish(t.Context(), dst, opts))
		_, err = Down(t.Context(), dst, back, opts)
		check(err)
		same(File(file), File(back))
		if place != "file" || n%5 == 0 {
			same(File(file), Database(dst))
		}
		if tool != "" && n%10 == 0 {
			if a, b := dump(rt, tool, file), dump(rt, tool, back); a != b {
				rt.Fatalf("other dumps:\n%s\n\n%s", a, b)
			}
		}
	})
}

// dump returns the sorted lines of what sqlite3 makes of a database, without
// settings, which a dump does not have.
func dump(t *rapid.T, tool, path string) string {
	out, err := exec.Command(tool, path, ".dump").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
