package migrate

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// alarmTable is the table in which a local host keeps the alarm of an object.
const alarmTable = "_host_alarm"

// alarmTableSQL makes it as the local host does.
const alarmTableSQL = `CREATE TABLE ` + alarmTable + ` (id INTEGER PRIMARY KEY CHECK (id = 1), scheduled_time INTEGER NOT NULL)`

// A prepared is an object's database as it goes to the fleet: a copy with its
// WAL worked in, without the table of alarms.
type prepared struct {
	path  string
	alarm *int64
	// table says that there was a table of alarms, and wal that the file was in
	// WAL mode.
	table, wal bool
	side       Side
}

// errEmpty says that a database file holds nothing.
var errEmpty = errors.New("it is empty: the object has never written anything")

// prepare makes a prepared of the database that was found, in a directory of
// its own.
func prepare(ctx context.Context, f found, dir string) (*prepared, error) {
	p := &prepared{path: filepath.Join(dir, "object"+databaseSuffix)}
	if err := copyDatabase(ctx, f.path, p.path); err != nil {
		return nil, fmt.Errorf("copy it: %w", err)
	}
	if now, _, err := databasePrint(f.path); err != nil {
		return nil, err
	} else if now != f.print {
		return nil, ErrChanged
	}
	if err := checkWAL(p.path + "-wal"); err != nil {
		return nil, err
	}
	if f.size == 0 {
		return nil, errEmpty
	}
	c, err := sqlite.OpenExisting(p.path)
	if err == nil {
		stop := c.Watch(ctx)
		// It is a copy, of which nothing outlives a crash.
		err = c.Exec(`PRAGMA synchronous = off`)
		if err == nil && f.size > 0 {
			err = integrity(c)
		}
		if err == nil {
			err = p.takeAlarm(c)
		}
		stop()
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("the database cannot be read: %w", err)
	}
	for _, suffix := range databaseSuffixes[1:] {
		if info, err := os.Lstat(p.path + suffix); err == nil && info.Size() > 0 {
			return nil, fmt.Errorf("its %s could not be worked in", suffix)
		}
	}
	var first byte
	p.side.SHA256, p.side.Bytes, first, err = pagesHash(p.path)
	p.wal = first == 2
	if err == nil && p.side.Bytes == 0 {
		err = errEmpty
	}
	return p, err
}

// integrity has SQLite look for faults. A damaged page must not be dropped with
// a table, and nobody is told.
func integrity(c *sqlite.Conn) error {
	text, err := c.QueryText(`PRAGMA integrity_check(1)`)
	if err == nil && text != "ok" {
		err = fmt.Errorf("integrity check: %s", text)
	}
	return err
}

// takeAlarm reads the alarm and drops its table.
func (p *prepared) takeAlarm(c *sqlite.Conn) error {
	kind, err := c.QueryText(`SELECT type FROM sqlite_schema WHERE name = '` + alarmTable + `' COLLATE NOCASE`)
	if err != nil || kind == "" {
		return err
	}
	if p.side.Content, err = contentHash(c); err != nil {
		return err
	}
	if p.alarm, err = readAlarm(c); err != nil {
		return err
	}
	p.table, p.side.Alarm = true, p.alarm
	if err := c.Exec(`DROP TABLE ` + alarmTable); err != nil {
		return err
	}
	after, err := contentHash(c)
	if err == nil && after != p.side.Content {
		err = errors.New("the database is another one without its table of alarms")
	}
	return err
}

// readAlarm reads the table of alarms, which has at most one row.
func readAlarm(c *sqlite.Conn) (*int64, error) {
	s, _, err := c.Prepare(`SELECT scheduled_time FROM ` + alarmTable)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // reported by Step
	var alarm *int64
	for {
		row, err := s.Step()
		if err != nil || !row {
			return alarm, err
		}
		ms, ok := s.Value(0).(int64)
		if !ok || alarm != nil {
			return nil, fmt.Errorf("its table %s does not hold one time", alarmTable)
		}
		alarm = &ms
	}
}

// pagesHash hashes the pages of a database file as it is outside of WAL mode,
// and returns its size and the byte that tells of that mode.
func pagesHash(path string) (sum string, size int64, mode byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, 0, err
	}
	defer f.Close() //nolint:errcheck // only read from
	h := sha256.New()
	first := make([]byte, 100)
	n, err := io.ReadFull(f, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", 0, 0, err
	}
	if n == len(first) {
		mode = first[18]
		first[18], first[19] = 1, 1
	}
	h.Write(first[:n])
	rest, err := io.Copy(h, bufio.NewReaderSize(f, 64<<10))
	return hex.EncodeToString(h.Sum(nil)), int64(n) + rest, mode, err
}

// contentHash hashes the schema and all rows of a database, but for the table
// of alarms.
func contentHash(c *sqlite.Conn) (string, error) {
	h := sha256.New()
	each := func(sql string, f func(row []any)) error {
		s, _, err := c.Prepare(sql)
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // reported by Step
		var row []any
		for {
			more, err := s.Step()
			if err != nil || !more {
				return err
			}
			row = s.Row(row[:0])
			f(row)
		}
	}
	hash := func(row []any) {
		for _, v := range row {
			fmt.Fprintf(h, "%T:", v)
			switch v := v.(type) {
			case string:
				fmt.Fprintf(h, "%d:%s", len(v), v)
			case []byte:
				fmt.Fprintf(h, "%d:", len(v))
				h.Write(v)
			default:
				fmt.Fprintf(h, "%v;", v)
			}
		}
		h.Write([]byte("\n"))
	}
	var tables []string
	const others = ` WHERE tbl_name <> '` + alarmTable + `' COLLATE NOCASE ORDER BY type, name`
	err := each(`SELECT type, name, tbl_name, sql FROM sqlite_schema`+others, func(row []any) {
		hash(row)
		text, _ := row[3].(string)
		if name, ok := row[1].(string); ok && row[0] == "table" && !strings.HasPrefix(strings.ToUpper(text), "CREATE VIRTUAL") {
			tables = append(tables, name)
		}
	})
	for _, t := range tables {
		if err != nil {
			break
		}
		query := `SELECT * FROM "` + strings.ReplaceAll(t, `"`, `""`) + `"`
		if strings.HasPrefix(t, "sqlite_stat") {
			query += ` WHERE tbl <> '` + alarmTable + `' COLLATE NOCASE`
		}
		hash([]any{t})
		err = each(query, hash)
	}
	for _, pragma := range []string{"user_version", "application_id", "encoding"} {
		if err == nil {
			err = each(`PRAGMA `+pragma, hash)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
