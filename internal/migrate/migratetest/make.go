package migratetest

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// Options say how much a made directory holds.
type Options struct {
	// Objects of class Note; each third has an alarm in 2030, each third one that
	// is over, one in eleven an empty table of alarms.
	Objects int
	// Bodies are small bodies, and Large is the size of one more, in bytes.
	Bodies int
	Large  int64
	// Rows are those of the larger table of a SQL database, and RowBytes the size
	// of a blob that each of them has besides.
	Rows, RowBytes int
	// Messages wait in two queues.
	Messages int
}

// Small is a directory that has something of everything.
var Small = Options{Objects: 24, Bodies: 12, Large: 300 << 10, Rows: 500, Messages: 30}

// Future is the time of the alarms that are not due, in epoch milliseconds.
const Future = 1893456000000

// Make makes a local data directory as a single-process host leaves it, with WALs
// that have not been worked in.
func Make(t testing.TB, dir string, o Options) {
	t.Helper()
	mkdir(t, dir, "d1", "do/Note", "do/Pod", "r2/FILES/photos/2026", "r2/OTHER", "kv")
	file(t, filepath.Join(dir, "kv", "CACHE.sqlite"), "")
	file(t, filepath.Join(dir, "do", "Note", "README.txt"), "not a database")
	blob := `CASE WHEN i % 5 THEN randomblob(i % 90) END`
	if o.RowBytes > 0 {
		blob = fmt.Sprintf(`randomblob(%d)`, o.RowBytes)
	}
	main := filepath.Join(dir, "d1", "MAIN_DB.sqlite")
	// Not in the WAL, which would be as large as all that was ever written.
	DB(t, main, false,
		`CREATE TABLE big(id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER, r REAL, s TEXT UNIQUE, b BLOB, g INTEGER GENERATED ALWAYS AS (n % 7) VIRTUAL)`,
		fmt.Sprintf(`WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d)
			INSERT INTO big(n, r, s, b) SELECT 9007199254740993 + i, i / 3.0, 'row ' || i || ' ünï', %s FROM c`, o.Rows, blob),
		`DELETE FROM big WHERE id % 10 = 0`)
	DB(t, main, true,
		`UPDATE big SET s = s || ' changed' WHERE id < 50`,
		`CREATE INDEX big_n ON big(n) WHERE n IS NOT NULL`,
		`CREATE TABLE "odd ""name"" tab'le"("sel ect" TEXT, k TEXT, PRIMARY KEY(k)) WITHOUT ROWID`,
		`INSERT INTO "odd ""name"" tab'le" VALUES('x', 'a'), (NULL, 'b')`,
		`CREATE TABLE log(n)`, `CREATE TRIGGER t AFTER INSERT ON "odd ""name"" tab'le" BEGIN INSERT INTO log VALUES(1); END`,
		`CREATE TABLE child(id INTEGER PRIMARY KEY, p INTEGER REFERENCES parent(id) ON DELETE CASCADE)`,
		`CREATE TABLE parent(id INTEGER PRIMARY KEY)`, `INSERT INTO child VALUES(1, 99)`,
		`CREATE VIEW v AS SELECT s FROM big WHERE n > 0`, `PRAGMA user_version = 7`)
	DB(t, filepath.Join(dir, "d1", "SEARCH_DB.sqlite"), false,
		`CREATE VIRTUAL TABLE notes USING fts5(title, body)`, `INSERT INTO notes VALUES('one', 'some words'), ('two', 'other words')`)
	DB(t, filepath.Join(dir, "d1", "EMPTY_DB.sqlite"), false, `CREATE TABLE t(a)`)
	DB(t, filepath.Join(dir, "do", "Pod", ID("pod")+".sqlite"), true,
		`CREATE VIRTUAL TABLE s USING fts5(a)`, `INSERT INTO s VALUES('hello world')`, `CREATE TABLE q(k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID`,
		`INSERT INTO q VALUES('a', randomblob(400000))`, AlarmTable, `INSERT INTO _host_alarm VALUES(1, 1893456000000)`)
	for i := range o.Objects {
		path := filepath.Join(dir, "do", "Note", ID(Name(i))+".sqlite")
		if i >= kindsOfNotes { // as one before it, which costs less than to make it
			copyNote(t, filepath.Join(dir, "do", "Note", ID(Name(i%kindsOfNotes))+".sqlite"), path)
			continue
		}
		DB(t, path, i%4 == 0, noteSQL(i)...)
	}
	for i := range o.Bodies {
		WriteBody(t, dir, "FILES", fmt.Sprintf("photos/2026/%d ä b+c.txt", i), fmt.Appendf(nil, "body %d", i), "text/plain; charset=utf-8", map[string]string{"traceId": fmt.Sprintf("Ünï %d", i)})
	}
	WriteBody(t, dir, "FILES", "empty", nil, "", nil)
	writeBody(t, dir, "OTHER", "large", io.LimitReader(&pattern{}, o.Large), "video/mp4", nil)
	jobs := []string{`CREATE TABLE queue_jobs(id integer primary key autoincrement, queue text not null, body text not null, attempts integer not null default 0, visible_at integer not null, dead integer not null default 0)`}
	for i := range o.Messages {
		jobs = append(jobs, fmt.Sprintf(`INSERT INTO queue_jobs(queue, body, attempts, visible_at, dead) VALUES('%s', '{"i": %d, "big": 9007199254740993}', %d, %d, %d)`,
			[]string{"mail", "push"}[i%2], i, i%3, []int64{1700000000000 + int64(i), Future}[i/2%2], btoi(i%10 == 9)))
	}
	DB(t, filepath.Join(dir, "queue.sqlite"), true, jobs...)
}

// AlarmTable makes the table of alarms.
const AlarmTable = `CREATE TABLE _host_alarm (id integer primary key check (id = 1), scheduled_time integer not null)`

// Name is the name of the object with this number.
func Name(i int) string { return fmt.Sprintf("note-%d", i) }

// ID is the id of an object with this name.
func ID(name string) string { return durable.IDFromName(name).String() }

func noteSQL(i int) []string {
	sql := []string{`CREATE TABLE note(id integer primary key, body text)`}
	for n := range 1 + i%40 {
		sql = append(sql, fmt.Sprintf(`INSERT INTO note(body) VALUES('note %d of %d: %0*d')`, n, i, 40+i*13%300, 7))
	}
	switch {
	case i%11 == 10:
		sql = append(sql, AlarmTable)
	case i%3 == 0:
		sql = append(sql, AlarmTable, fmt.Sprintf(`INSERT INTO _host_alarm VALUES(1, %d)`, Future+int64(i)))
	case i%3 == 1:
		sql = append(sql, AlarmTable, fmt.Sprintf(`INSERT INTO _host_alarm VALUES(1, %d)`, 1600000000000+int64(i)))
	}
	return sql
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func mkdir(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(dir, n), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func file(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// DB makes a database of statements; with wal they stay in its WAL.
func DB(t testing.TB, path string, wal bool, sql ...string) {
	t.Helper()
	c, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mode := `PRAGMA synchronous = off`
	if wal {
		mode += `; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0`
	}
	for _, s := range append([]string{mode, `BEGIN`}, append(sql, `COMMIT`)...) {
		if err := c.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := c.CloseKeepingWAL(); err != nil {
		t.Fatal(err)
	}
	os.Remove(path + "-shm")
}

// kindsOfNotes is how many different objects of class Note there are: more than
// the periods of what they differ in.
const kindsOfNotes = 440

func copyNote(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(from+suffix, to+suffix); err != nil && (suffix == "" || !os.IsNotExist(err)) {
			t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// A pattern is bytes without end that do not repeat soon.
type pattern struct{ i uint64 }

func (r *pattern) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = byte(r.i * r.i >> 7)
		r.i++
	}
	return len(p), nil
}

// WriteBody writes a body and its sidecar.
func WriteBody(t testing.TB, dir, bucket, key string, body []byte, contentType string, metadata map[string]string) {
	t.Helper()
	writeBody(t, dir, bucket, key, bytes.NewReader(body), contentType, metadata)
}

// writeBody is WriteBody for a body that need not fit into memory.
func writeBody(t testing.TB, dir, bucket, key string, body io.Reader, contentType string, metadata map[string]string) {
	t.Helper()
	path := filepath.Join(dir, "r2", bucket, filepath.FromSlash(key))
	mkdir(t, filepath.Dir(path), "")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	sum := md5.New()
	size, err := io.CopyBuffer(io.MultiWriter(out, sum), body, make([]byte, 1<<20))
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	meta := map[string]any{"size": size, "etag": hex.EncodeToString(sum.Sum(nil)), "version": "fd022862-0b14-c644-61fd-374798357864", "uploaded": time.UnixMilli(1700000000123).UTC().Format("2006-01-02T15:04:05.000Z")}
	if contentType != "" {
		meta["contentType"] = contentType
	}
	if metadata != nil {
		meta["customMetadata"] = metadata
	}
	text, err := json.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	file(t, path+".r2meta", string(text))
}
