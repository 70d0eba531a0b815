package sqldb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// A Migration is a numbered file of statements.
type Migration struct {
	Version int64
	Name    string // of the file
	SHA256  string // of its text, in hex
	Applied bool

	statements []durable.Statement
}

var migrationName = regexp.MustCompile(`^(\d{1,18})[_.-].*\.sql$|^(\d{1,18})\.sql$`)

// ReadMigrations reads the migrations of a directory in the order of their
// numbers. Other files are passed over.
func ReadMigrations(dir fs.FS) ([]Migration, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	var list []Migration
	for _, e := range entries {
		m := migrationName.FindStringSubmatch(e.Name())
		if m == nil || e.IsDir() {
			continue
		}
		version, err := strconv.ParseInt(m[1]+m[2], 10, 64)
		if err != nil || version == 0 {
			return nil, fmt.Errorf("migration %s: its number is not positive: %w", e.Name(), durable.ErrInvalid)
		}
		text, err := fs.ReadFile(dir, path.Clean(e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		next := Migration{Version: version, Name: e.Name(), SHA256: hex.EncodeToString(sum[:])}
		for s, err := range Split(strings.NewReader(string(text))) {
			if err != nil {
				return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
			}
			next.statements = append(next.statements, durable.Statement{SQL: s})
		}
		if _, _, err := prepareAll(next.statements); err != nil {
			return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		list = append(list, next)
	}
	slices.SortFunc(list, func(a, b Migration) int { return int(min(max(a.Version-b.Version, -1), 1)) })
	for i := range list[:max(len(list)-1, 0)] {
		if list[i].Version == list[i+1].Version {
			return nil, fmt.Errorf("migrations %s and %s have one number: %w", list[i].Name, list[i+1].Name, durable.ErrInvalid)
		}
	}
	return list, nil
}

// ErrMigrations says that files and database do not go together.
var ErrMigrations = errors.New("migrations do not go together")

// Check marks the migrations that the database has. It fails when one was
// applied with another text, or comes before one that was applied.
func (d *Database) Check(ctx context.Context, list []Migration) error {
	exists, err := d.First(ctx, `SELECT count(*) FROM sqlite_master WHERE name = ?`, MigrationTable)
	if err != nil || exists.Values[0] == int64(0) {
		return err
	}
	applied := map[int64]string{}
	last := int64(0)
	for row, err := range d.Query(ctx, `SELECT version, sha256 FROM `+MigrationTable+` ORDER BY version`) {
		var sum string
		if err == nil {
			err = row.Scan(&last, &sum)
		}
		if err != nil {
			return err
		}
		applied[last] = sum
	}
	for i := range list {
		m := &list[i]
		sum, ok := applied[m.Version]
		switch {
		case ok && sum != m.SHA256:
			return fmt.Errorf("%w: %s was changed after it had been applied", ErrMigrations, m.Name)
		case !ok && m.Version < last:
			return fmt.Errorf("%w: %s was not applied, and %d was", ErrMigrations, m.Name, last)
		}
		m.Applied = ok
	}
	return nil
}

// Apply applies one migration: all of it and its note, or nothing. Of several
// that do so at the same time one applies it; for the others it is applied.
func (d *Database) Apply(ctx context.Context, m *Migration) error {
	batch := append([]durable.Statement{
		{SQL: `CREATE TABLE IF NOT EXISTS ` + MigrationTable + `(version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at INTEGER NOT NULL)`},
		{SQL: `INSERT INTO ` + MigrationTable + ` VALUES(?, ?, ?, CAST(round(unixepoch('subsec')*1000) AS INTEGER))`, Args: []any{m.Version, m.Name, m.SHA256}},
	}, m.statements...)
	_, err := d.Batch(ctx, batch...)
	e, constraint := errors.AsType[*durable.ConstraintError](err)
	if constraint && e.Statement == 1 || errors.Is(err, durable.ErrUnknownOutcome) {
		again := []Migration{*m}
		if checkErr := d.Check(ctx, again); checkErr != nil {
			return errors.Join(err, checkErr)
		}
		if m.Applied = again[0].Applied; m.Applied {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("migration %s: %w", m.Name, err)
	}
	m.Applied = true
	return nil
}
