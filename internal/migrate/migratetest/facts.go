// Package migratetest makes local data directories for tests of moves, and
// reads from such directories and from store sets what must be the same on both
// sides.
package migratetest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// Facts are what must be the same on both sides of a move.
type Facts struct {
	D1    map[string]Database          `json:"d1"`
	DO    map[string]map[string]Object `json:"do"`
	R2    map[string]map[string]Body   `json:"r2"`
	Queue Queue                        `json:"queue"`
}

// A Database is what a SQL database holds. A table's hash is that of its rows, each as
// the JSON text of its values with their types, sorted.
type Database struct {
	Objects     map[string][]string `json:"objects"`
	Sequence    map[string]int64    `json:"sqlite_sequence"`
	Tables      map[string]Table    `json:"tables"`
	UserVersion int64               `json:"user_version"`
}

// A Table is one table.
type Table struct {
	Columns int    `json:"columns"`
	Rows    int    `json:"rows"`
	SHA256  string `json:"sha256"`
}

// An Object is an object's database and alarm.
type Object struct {
	Database
	Alarm *int64 `json:"alarm"`
}

// A Body is one body of a bucket.
type Body struct {
	Size     int64             `json:"size"`
	SHA256   string            `json:"sha256"`
	Type     *string           `json:"contentType"`
	Metadata map[string]string `json:"customMetadata"`
}

// A Queue counts the messages that wait, by queue.
type Queue struct {
	Pending map[string]int `json:"pending"`
}

// Fixture unpacks the data of the directory that DWK_TEST_FIXTURES names, and
// returns the facts that are given with it; a test without is skipped.
func Fixture(t testing.TB) (dir string, want Facts) {
	t.Helper()
	from := os.Getenv("DWK_TEST_FIXTURES")
	if from == "" {
		t.Skip("DWK_TEST_FIXTURES is not set")
	}
	dir = t.TempDir()
	file, err := os.Open(filepath.Join(from, "local-data.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
					err = os.WriteFile(path, text, 0o600)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data"), want
}

// A query runs one statement.
type query func(sql string) (rows [][]any)

// alarmTable is the table of a local host in the database of an object.
const alarmTable = "_host_alarm"

// database reads the facts of one.
func database(t testing.TB, q query) Database {
	t.Helper()
	d := Database{Objects: map[string][]string{}, Tables: map[string]Table{}, UserVersion: q(`PRAGMA user_version`)[0][0].(int64)}
	sequence := false
	for _, row := range q(`SELECT type, name FROM sqlite_master ORDER BY name`) {
		kind, name := row[0].(string), row[1].(string)
		if sequence = sequence || name == "sqlite_sequence"; strings.HasPrefix(name, "sqlite_") {
			continue
		}
		d.Objects[kind] = append(d.Objects[kind], name)
		if kind != "table" || name == alarmTable {
			continue
		}
		quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		tb := Table{Columns: len(q(`PRAGMA table_xinfo(` + quoted + `)`))}
		if n := q(`SELECT count(*) FROM ` + quoted)[0][0].(int64); n > manyRows {
			tb.Rows, tb.SHA256 = int(n), inOrder(q, quoted)
			d.Tables[name] = tb
			continue
		}
		var lines []string
		for _, row := range q(`SELECT * FROM ` + quoted) {
			lines = append(lines, line(row))
		}
		slices.Sort(lines)
		sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
		tb.Rows, tb.SHA256 = len(lines), hex.EncodeToString(sum[:])
		d.Tables[name] = tb
	}
	if sequence {
		for _, row := range q(`SELECT name, seq FROM sqlite_sequence`) {
			if d.Sequence == nil {
				d.Sequence = map[string]int64{}
			}
			d.Sequence[row[0].(string)] = row[1].(int64)
		}
	}
	return d
}

// manyRows are more than are sorted: the hash of a table with a rowid is that of
// its rows in order then.
const manyRows = 100_000

func inOrder(q query, table string) string {
	h := sha256.New()
	for after := int64(0); ; {
		rows := q(fmt.Sprintf(`SELECT rowid, * FROM %s WHERE rowid > %d ORDER BY rowid LIMIT 1000`, table, after))
		for _, row := range rows {
			after = row[0].(int64)
			fmt.Fprintln(h, line(row))
		}
		if len(rows) == 0 {
			return hex.EncodeToString(h.Sum(nil))
		}
	}
}

// line writes a row as Python's json.dumps writes a list of type names and
// representations.
func line(row []any) string {
	parts := make([]string, len(row))
	for i, v := range row {
		name, text := "NoneType", "None"
		switch v := v.(type) {
		case int64:
			name, text = "int", strconv.FormatInt(v, 10)
		case float64:
			name, text = "float", float(v)
		case string:
			name, text = "str", repr(v)
		case []byte:
			name, text = "bytes", base64.StdEncoding.EncodeToString(v)
		}
		parts[i] = `["` + name + `", ` + ascii(text) + `]`
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func float(v float64) string {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if exp := strings.IndexByte(text, 'e'); exp < 0 {
		if !strings.ContainsAny(text, ".IN") {
			text += ".0"
		}
		return text
	}
	if abs := max(v, -v); abs >= 1e-4 && abs < 1e16 {
		text = strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
	}
	return text
}

// repr writes a text as Python does.
func repr(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == '\\' || r == rune(quote):
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// ascii writes a JSON text of ASCII.
func ascii(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r > '~' && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// withFile opens a copy of a database file with its WAL.
func withFile(t testing.TB, path string, use func(query)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "facts-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, s := range []string{"", "-wal", "-journal"} {
		if err := copyFile(path+s, filepath.Join(dir, "x"+s)); err != nil && (s == "" || !os.IsNotExist(err)) {
			t.Fatal(err)
		}
	}
	c, err := sqlite.OpenExisting(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	use(func(sql string) (rows [][]any) {
		s, _, err := c.Prepare(sql)
		if err != nil {
			t.Fatalf("%s: %s: %v", path, sql, err)
		}
		defer s.Close() //nolint:errcheck // reported by Step
		for {
			row, err := s.Step()
			if err != nil {
				t.Fatalf("%s: %s: %v", path, sql, err)
			}
			if !row {
				return rows
			}
			rows = append(rows, s.Row(nil))
		}
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// Local reads the facts of a local data directory.
func Local(t testing.TB, dir string) Facts {
	t.Helper()
	f := Facts{D1: map[string]Database{}, DO: map[string]map[string]Object{}, R2: map[string]map[string]Body{}, Queue: Queue{map[string]int{}}}
	for _, path := range glob(t, dir, "d1/*.sqlite") {
		withFile(t, path, func(q query) { f.D1[strings.TrimSuffix(filepath.Base(path), ".sqlite")] = database(t, q) })
	}
	seen := map[[sha256.Size]byte]Object{} // by content: many objects are copies
	for _, path := range glob(t, dir, "do/*/*.sqlite") {
		class, id := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".sqlite")
		if f.DO[class] == nil {
			f.DO[class] = map[string]Object{}
		}
		sum := fileSum(t, path)
		if o, ok := seen[sum]; ok {
			f.DO[class][id] = o
			continue
		}
		withFile(t, path, func(q query) {
			o := Object{Database: database(t, q)}
			if slices.Contains(o.Objects["table"], alarmTable) {
				for _, row := range q(`SELECT scheduled_time FROM ` + alarmTable) {
					ms := row[0].(int64)
					o.Alarm = &ms
				}
			}
			f.DO[class][id], seen[sum] = o, o
		})
	}
	for _, root := range glob(t, dir, "r2/*") {
		bodies := map[string]Body{}
		err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".r2meta") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var b struct {
				Body
				ETag string `json:"etag"`
			}
			if err := json.Unmarshal(text, &b); err != nil {
				return err
			}
			path = strings.TrimSuffix(path, ".r2meta")
			body, err := os.Open(path)
			if os.IsNotExist(err) {
				return nil
			} else if err != nil {
				return err
			}
			sum := sha256.New()
			_, err = io.Copy(sum, body)
			body.Close()
			b.SHA256 = hex.EncodeToString(sum.Sum(nil))
			key, _ := filepath.Rel(root, path)
			bodies[filepath.ToSlash(key)] = b.Body
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		f.R2[filepath.Base(root)] = bodies
	}
	if path := filepath.Join(dir, "queue.sqlite"); exists(path) {
		withFile(t, path, func(q query) {
			for _, row := range q(`SELECT queue, count(*) FROM queue_jobs WHERE dead = 0 AND json_valid(body) GROUP BY 1`) {
				f.Queue.Pending[row[0].(string)] = int(row[1].(int64))
			}
		})
	}
	return f
}

// fileSum is the hash of a database file with its WAL.
func fileSum(t testing.TB, path string) (sum [sha256.Size]byte) {
	t.Helper()
	h := sha256.New()
	for _, s := range []string{"", "-wal", "-journal"} {
		file, err := os.Open(path + s)
		if s != "" && os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s\n", s)
		_, err = io.Copy(h, file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	h.Sum(sum[:0])
	return sum
}

func glob(t testing.TB, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// Central reads the facts of a store set.
func Central(t testing.TB, s migrate.Target) Facts {
	t.Helper()
	ctx := context.Background()
	f := Facts{D1: map[string]Database{}, DO: map[string]map[string]Object{}, R2: map[string]map[string]Body{}, Queue: Queue{map[string]int{}}}
	for name, d := range s.Databases {
		f.D1[name] = database(t, func(sql string) [][]any {
			res, err := d.Batch(ctx, libsql.Read, libsql.S(sql))
			if err != nil {
				t.Fatalf("%s: %s: %v", name, sql, err)
			}
			return res[0].Rows
		})
	}
	classes, err := s.Objects.Classes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range classes {
		f.DO[c.Name] = map[string]Object{}
		for o, err := range s.Objects.List(ctx, c.Name, objectops.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			f.DO[c.Name][o.ID] = object(t, ctx, s, c.Name, o.ID)
		}
	}
	for name, b := range s.Buckets {
		f.R2[name] = bodies(t, ctx, b)
	}
	for e, err := range s.Store.List(ctx, kv.ListOptions{Prefix: tuple.Key{queue.PrefixDue}}) {
		if err != nil {
			t.Fatal(err)
		}
		f.Queue.Pending[e.Key[1].(string)]++
	}
	return f
}

func object(t testing.TB, ctx context.Context, s migrate.Target, class, id string) Object {
	t.Helper()
	d, err := s.Objects.Open(ctx, class, id, objectops.Target{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o := Object{Database: database(t, func(sql string) (rows [][]any) {
		for row, err := range d.Query(ctx, sql) {
			if err != nil {
				t.Fatalf("%s/%s: %s: %v", class, id, sql, err)
			}
			rows = append(rows, row.Values)
		}
		return rows
	})}
	res, err := s.Store.Decide(ctx, alarm.ShowStatement(class, id))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := alarm.Read(class, id, res[0])
	if err != nil {
		t.Fatal(err)
	}
	if slot.Set {
		ms := slot.Asked()
		o.Alarm = &ms
	}
	return o
}

func bodies(t testing.TB, ctx context.Context, b durable.Bucket) map[string]Body {
	t.Helper()
	out := map[string]Body{}
	for opts := (durable.ListOptions{}); ; {
		l, err := b.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range l.Objects {
			r, info, err := b.Get(ctx, o.Key, durable.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			if _, err := io.Copy(h, r); err != nil {
				t.Fatal(err)
			}
			r.Close()
			out[o.Key] = Body{Size: info.Size, SHA256: hex.EncodeToString(h.Sum(nil)), Type: &info.ContentType, Metadata: info.Metadata}
		}
		if opts.Cursor = l.Cursor; opts.Cursor == "" {
			return out
		}
	}
}

// AtCentral are the facts of a directory as a store set has them: the table of
// alarms is not part of an object, and buckets give every body a type and names
// of metadata in lower case.
func (f Facts) AtCentral() Facts {
	out := f
	out.DO, out.R2 = map[string]map[string]Object{}, map[string]map[string]Body{}
	for class, list := range f.DO {
		out.DO[class] = map[string]Object{}
		for id, o := range list {
			o.Objects = maps.Clone(o.Objects)
			o.Objects["table"] = slices.DeleteFunc(slices.Clone(o.Objects["table"]), func(s string) bool { return s == alarmTable })
			out.DO[class][id] = o
		}
	}
	for name, list := range f.R2 {
		out.R2[name] = map[string]Body{}
		for key, b := range list {
			if b.Type == nil {
				text := bucket.DefaultType
				b.Type = &text
			}
			lower := map[string]string{}
			for k, v := range b.Metadata {
				lower[strings.ToLower(k)] = v
			}
			if b.Metadata = lower; len(lower) == 0 {
				b.Metadata = nil
			}
			out.R2[name][key] = b
		}
	}
	return out
}

// Compare fails the test for each fact that differs.
func Compare(t testing.TB, what string, got, want Facts) {
	t.Helper()
	n := 0
	walk(what, plain(t, got), plain(t, want), func(path string, got, want any) {
		if n++; n <= 20 {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	})
	if n > 20 {
		t.Errorf("%s: %d differences", what, n)
	}
}

// plain is a value as JSON decodes it.
func plain(t testing.TB, f Facts) (v any) {
	t.Helper()
	text, err := json.Marshal(f)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func walk(path string, got, want any, differ func(path string, got, want any)) {
	g, okG := got.(map[string]any)
	w, okW := want.(map[string]any)
	if !okG || !okW {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			differ(path, got, want)
		}
		return
	}
	for k := range maps.Keys(w) {
		if _, ok := g[k]; !ok {
			differ(path+"/"+k, nil, w[k])
		}
	}
	for k, v := range g {
		if _, ok := w[k]; !ok {
			differ(path+"/"+k, v, nil)
			continue
		}
		walk(path+"/"+k, v, w[k], differ)
	}
}
