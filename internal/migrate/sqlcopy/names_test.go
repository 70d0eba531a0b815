package sqlcopy

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// FuzzNames gives everything any name that SQLite takes.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", `"`, `""`, "'", "`", "[", "]", "--", "/*", "*/ using", "using fts5", "a b", "ü", "x\ny", "rowid", "%", "?", "table", "\x7f", "0"} {
		f.Add(s, "b"+s)
	}
	f.Fuzz(func(t *testing.T, table, column string) {
		if strings.ContainsRune(table+column, 0) || !utf8.ValidString(table+column) || len(table+column) > 200 {
			t.Skip()
		}
		path := filepath.Join(t.TempDir(), "a.sqlite")
		c, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, sql := range []string{
			`PRAGMA synchronous=OFF`,
			`CREATE TABLE ` + identifier(table) + `(` + identifier(column) + `, other)`, `INSERT INTO ` + identifier(table) + ` VALUES (1, 2)`,
			`CREATE INDEX ` + identifier(table+"i") + ` ON ` + identifier(table) + `(` + identifier(column) + `)`,
			`CREATE VIRTUAL TABLE ` + identifier(table+"v") + ` USING fts5(` + identifier(column) + `)`, `INSERT INTO ` + identifier(table+"v") + ` VALUES ('x')`,
			`CREATE VIRTUAL TABLE ` + identifier(table+"w") + ` /* fts4 */ USING "fts5" (x, content='', tokenize='porter')`, `INSERT INTO ` + identifier(table+"w") + `(rowid, x) VALUES (9, 'y')`,
		} {
			if c.Exec(sql) == nil {
				made++
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		dst, err := libsql.OpenFile(filepath.Join(t.TempDir(), "b.sqlite"), libsql.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer dst.Close()
		sum, err := Up(t.Context(), path, dst, Options{BatchBytes: 1})
		if err != nil {
			t.Fatalf("%+v, %v", sum, err)
		}
		d := equal(t, File(path), Database(dst), Options{})
		if made == 8 && (sum.Tables != 3 || len(d.Tables) < 6) {
			t.Errorf("%+v of %+v", d.Tables, sum)
		}
	})
}
