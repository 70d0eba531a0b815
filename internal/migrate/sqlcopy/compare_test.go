package sqlcopy

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

var compared = []string{
	`CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a, g AS (a || '?'))`, `INSERT INTO t VALUES (1, 'x'), (2, 0.0), (3, x'00'), (4, NULL), (5, 'e'), (9, 7)`,
	`CREATE TABLE r(a)`, `INSERT INTO r(rowid, a) VALUES (1, 'a'), (5, 'b'), (6, 'c')`,
	`CREATE TABLE w(k TEXT COLLATE NOCASE, n, v, PRIMARY KEY(k, n)) WITHOUT ROWID`, `INSERT INTO w VALUES ('a', 1, 'v'), ('B', 2, 'v'), ('c', 3, 'v')`,
	`CREATE TABLE hidden(rowid, oid, _rowid_)`, `INSERT INTO hidden VALUES (1, 2, 3), (4, 5, 6)`,
	`CREATE INDEX i ON r(a)`, `CREATE VIEW view_r AS SELECT a FROM r`,
	`CREATE VIRTUAL TABLE f USING fts5(a)`, `INSERT INTO f VALUES ('one'), ('two')`,
	`CREATE VIRTUAL TABLE less USING fts5(a, content='')`, `INSERT INTO less VALUES ('one'), ('two')`,
}

// TestDifferences: whatever differs is found and named, and nothing else.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		`PRAGMA user_version = 5`:                                               {"setting user_version: 0, 5"},
		`PRAGMA application_id = -1`:                                            {"setting application_id: 0, -1"},
		`DROP INDEX i`:                                                          {"schema index i: exists, is missing"},
		`CREATE TABLE more(a)`:                                                  {"schema table more: is missing, exists"},
		`DROP VIEW view_r; CREATE VIEW view_r AS SELECT 1`:                      {"schema view view_r: CREATE VIEW view_r AS SELECT a FROM r, CREATE VIEW view_r AS SELECT 1"},
		`UPDATE sqlite_sequence SET seq = 10`:                                   {"counter 't' = 9: exists, is missing", "counter 't' = 10: is missing, exists"},
		`UPDATE t SET a = 'y' WHERE id = 1`:                                     {"value t[1].a: 'x', 'y'"},
		`UPDATE t SET a = -0.0 WHERE id = 2`:                                    {"value t[2].a: 0.0, -0.0"},
		`UPDATE t SET a = 0 WHERE id = 2`:                                       {"value t[2].a: 0.0, 0"},
		`UPDATE t SET a = char(0) WHERE id = 3`:                                 {`value t[3].a: x'00', text "\x00"`},
		`UPDATE t SET a = x'' WHERE id = 4`:                                     {"value t[4].a: NULL, x''"},
		`UPDATE t SET a = zeroblob(50000) WHERE id = 4`:                         {"value t[4].a: NULL, x'" + strings.Repeat("0", 198) + "…"},
		`DELETE FROM t WHERE id = 1`:                                            {"row t[1]: exists, is missing", "rows t: 6, 5"},
		`DELETE FROM t WHERE id = 5`:                                            {"row t[5]: exists, is missing", "rows t: 6, 5"},
		`DELETE FROM t WHERE id = 9`:                                            {"row t[9]: exists, is missing", "rows t: 6, 5"},
		`INSERT INTO t VALUES (-1, 1), (7, 1); UPDATE t SET a = 8 WHERE id = 9`: {"row t[-1]: is missing, exists", "row t[7]: is missing, exists", "value t[9].a: 7, 8", "rows t: 6, 8"},
		`DELETE FROM t`:                                                         {"row t[1]: exists, is missing", "row t[2]: exists, is missing", "row t[3]: exists, is missing", "row t[4]: exists, is missing", "row t[5]: exists, is missing"},
		`UPDATE r SET rowid = 7 WHERE rowid = 5`:                                {"row r[5]: exists, is missing", "row r[7]: is missing, exists"},
		`UPDATE w SET v = 'V' WHERE k = 'b'`:                                    {"value w['B', 2].v: 'v', 'V'"},
		`UPDATE w SET k = 'b' WHERE k = 'b'`:                                    {"row w['B', 2]: next is 'B', 2, next is 'b', 2"},
		`DELETE FROM w WHERE n = 3`:                                             {"row w['c', 3]: exists, is missing", "rows w: 3, 2"},
		`UPDATE hidden SET oid = 7 WHERE oid = 5`:                               {"value hidden[number 2]: 4, 5, 6, 4, 7, 6"},
		`INSERT INTO f VALUES ('three')`:                                        {"row f[3]: is missing, exists", "rows f: 2, 3"},
		`INSERT INTO f(f, rank) VALUES ('pgsz', 100)`:                           {"row f_config['version']: next is 'version', next is 'pgsz'"},
		`PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE name = 'less_docsize'; PRAGMA writable_schema = 0`: {"schema table less_docsize: has other columns or rows, cannot be compared"},
		`UPDATE less_docsize SET sz = x'02' WHERE id = 2`:                                                               {"value less_docsize[2].sz: x'01', x'02'"},
	} {
		t.Run(sql, func(t *testing.T) {
			a := create(t, compared...)
			b := filepath.Join(t.TempDir(), "b.sqlite")
			if err := copyFile(a, b); err != nil {
				t.Fatal(err)
			}
			change(t, b, sql)
			d, err := Compare(t.Context(), File(a), File(b), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range d.Differences {
				s := d.What + " " + d.Name
				if d.Key != "" {
					s += "[" + d.Key + "]"
				}
				if d.Column != "" {
					s += "." + d.Column
				}
				got = append(got, s+": "+d.A+", "+d.B)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
			for _, table := range d.Tables {
				if differs := strings.Contains(strings.Join(got, "\n"), " "+table.Name+"[") || strings.Contains(strings.Join(got, "\n"), " "+table.Name+":"); table.Equal == differs {
					t.Errorf("table %+v", table)
				}
			}
		})
	}
}

// TestCounts: the cheap form counts.
func TestCounts(t *testing.T) {
	a := create(t, compared...)
	b := create(t, append(append([]string{}, compared...), `UPDATE t SET a = 'other'`, `DELETE FROM r WHERE rowid = 1`, `PRAGMA user_version = 1`)...)
	d, err := Compare(t.Context(), File(a), File(b), Options{Counts: true, Without: []string{"user_version"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Difference{{What: "rows", Name: "r", A: "3", B: "2"}}; !reflect.DeepEqual(d.Differences, want) {
		t.Errorf("%+v", d.Differences)
	}
	if d.Rows == 0 || d.Bytes != 0 || d.Tables[0].SHA256 != "" {
		t.Errorf("%+v", d)
	}
}

// TestEncodings: a database in UTF-16 is copied as one in UTF-8, where a table
// without rowids has another order.
func TestEncodings(t *testing.T) {
	t.Parallel()
	sql := []string{`PRAGMA encoding = 'UTF-16le'`, `CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID`,
		`INSERT INTO w VALUES ('aā', 'Ā'), ('ba', '😀'), (char(0xffff), 1), ('😀', 2), ('ab', CAST(x'00d8' AS TEXT))`, `CREATE TABLE t(a)`, `INSERT INTO t SELECT k FROM w`,
		numbers + `INSERT INTO w SELECT char(i * 50), i FROM n WHERE i * 50 NOT BETWEEN 0xd800 AND 0xdfff`}
	file := create(t, sql[:2]...)
	change(t, file, sql[2:]...)
	if got := ask(t, file, `PRAGMA encoding`); got != "UTF-16le" {
		t.Fatal(got)
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			dst := place(t).Open(t)
			if _, err := Up(t.Context(), file, dst, Options{}); err != nil {
				t.Fatal(err)
			}
			equal(t, File(file), Database(dst), Options{})
			other := filepath.Join(t.TempDir(), "other.sqlite")
			if err := copyFile(file, other); err != nil {
				t.Fatal(err)
			}
			change(t, other, `UPDATE w SET v = 3 WHERE v = 2`)
			if d, err := Compare(t.Context(), File(other), Database(dst), Options{}); err != nil || len(d.Differences) != 1 {
				t.Errorf("%+v, %v", d.Differences, err)
			}
		})
	}
}

// TestProof: the hash of a table is of all its values, and the same whether
// values were read whole or by pieces.
func TestProof(t *testing.T) {
	file := create(t, `CREATE TABLE t(a, b)`, `INSERT INTO t VALUES (zeroblob(30000), CAST(zeroblob(20000) AS TEXT)), (1, 2)`)
	defer func(n int) { valueLimit = n }(valueLimit)
	var hashes []string
	for _, limit := range []int{100_000, 10_000} {
		valueLimit = limit
		dst := libsqltest.File(t).Open(t)
		if _, err := Up(t.Context(), file, dst, Options{}); err != nil {
			t.Fatal(err)
		}
		d := equal(t, File(file), Database(dst), Options{})
		hashes = append(hashes, d.Tables[0].SHA256)
		d = equal(t, Database(dst), File(file), Options{})
		hashes = append(hashes, d.Tables[0].SHA256)
	}
	for _, h := range hashes {
		if len(h) != 64 || h != hashes[0] {
			t.Errorf("hashes %q", hashes)
		}
	}
	change(t, file, `UPDATE t SET b = 3 WHERE b = 2`)
	if d, err := Compare(t.Context(), File(file), File(file), Options{}); err != nil || d.Tables[0].SHA256 == hashes[0] {
		t.Errorf("the hash of other values: %+v, %v", d, err)
	}
}

// TestHashForm shows what a hash is made of.
func TestHashForm(t *testing.T) {
	file := create(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1), (-1), (1.5), ('a:b'), (x'0a'), (NULL)`)
	var want []byte
	for _, s := range []string{"i1i1", "i2iffffffffffffffff", "i3f3ff8000000000000", "i4t3:a:b", "i5b1:\n", "i6n"} {
		want = append(want, s...)
	}
	d := equal(t, File(file), File(file), Options{})
	if got := d.Tables[0].SHA256; got != fmt.Sprintf("%x", sha256.Sum256(want)) {
		t.Errorf("%s", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Compare(t.Context(), File(file), File(file), Options{}); err == nil {
		t.Error("compared a file that does not exist")
	}
}
