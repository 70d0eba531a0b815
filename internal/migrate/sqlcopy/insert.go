package sqlcopy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A tableLoader makes the statements for the rows of one table.
type tableLoader struct {
	*loader
	item    *item
	table   *table
	at      position
	last    string          // the digest of the row before at, "" for none
	staged  map[int64]int64 // bytes of the next row's large values that are put aside
	columns []column
	head    string // of an INSERT
	each    int    // rows of a statement
	many    string // that statement
	single  string

	group [][]any
	bytes int64 // of the group
}

func (l *tableLoader) run(ctx context.Context) error {
	l.prepare()
	from := l.at.row
	seen := from == 0 // the row that was copied last
	if !seen {
		from--
	}
	for row, err := range scan(ctx, l.source, l.table, l.columns, from) {
		switch {
		case err != nil:
			return err
		case seen:
			if err := l.add(ctx, row); err != nil {
				return err
			}
		case digest(row) != l.last:
			return fmt.Errorf("table %s: row %d is not the one that was copied last: %w", l.table.name, from+1, ErrSourceChanged)
		}
		seen = true
	}
	if !seen {
		return fmt.Errorf("table %s: fewer than the %d rows that were copied: %w", l.table.name, from+1, ErrSourceChanged)
	}
	return l.flush()
}

// prepare makes the texts of the statements.
func (l *tableLoader) prepare() {
	l.columns = l.table.stored()
	var names []string
	if l.table.rowid != "" {
		names = append(names, l.table.rowid)
	}
	for _, c := range l.columns {
		names = append(names, c.sql())
	}
	l.head = `INSERT INTO ` + identifier(l.table.name) + `(` + strings.Join(names, ", ") + `) VALUES`
	l.each = min(max(maxArguments/len(names), 1), 100)
	values := `(` + strings.Repeat("?,", len(names)-1) + `?)`
	l.single = l.head + values
	l.many = l.head + strings.Repeat(values+",", l.each-1) + values
}

// maxArguments is about the number of arguments of a statement that loads
// several rows: more of them make it slow to compile and not faster to run.
const maxArguments = 400

// groupBytes bounds the values of a statement that loads several rows.
const groupBytes = 128 << 10

// add takes a row.
func (l *tableLoader) add(ctx context.Context, row []any) error {
	size, special := int64(0), false
	for _, v := range row {
		n, s := sizeOf(v)
		size, special = size+n, special || s
	}
	if size > l.batch || special {
		if err := l.flush(); err != nil {
			return err
		}
		return l.one(ctx, row, size)
	}
	if l.group = append(l.group, row); len(l.group) == l.each || l.bytes+size > groupBytes {
		l.bytes += size
		return l.flush()
	}
	l.bytes += size
	return nil
}

// flush emits the rows of the group, as one statement when it is full.
func (l *tableLoader) flush() error {
	group, bytes := l.group, l.bytes
	l.group, l.bytes = nil, 0
	if len(group) == l.each && l.each > 1 {
		args := make([]any, 0, len(group)*len(group[0]))
		for _, row := range group {
			args = append(args, row...)
		}
		return l.rows(libsql.Statement{SQL: l.many, Args: args}, int64(len(group)), bytes, group[len(group)-1])
	}
	for _, row := range group {
		size := int64(0)
		for _, v := range row {
			n, _ := sizeOf(v)
			size += n
		}
		if err := l.rows(libsql.Statement{SQL: l.single, Args: row}, 1, size, row); err != nil {
			return err
		}
	}
	return nil
}

func (l *tableLoader) rows(s libsql.Statement, n, bytes int64, last []any) error {
	l.at.row += n
	if !l.emit(step{stmt: s, what: l.item, after: l.at, rows: n, bytes: bytes, last: last}) {
		return errEnded
	}
	return nil
}

// one emits a row with values that no argument can be, or that are large.
func (l *tableLoader) one(ctx context.Context, row []any, size int64) error {
	parts := int64(math.MaxInt64) // what is larger is put aside
	if size > l.batch {
		parts = max(l.batch/int64(len(row)+1), 1<<10)
	}
	var values []string
	var args []any
	for i, v := range row {
		switch v := v.(type) {
		case *large:
			if err := l.stage(ctx, i, v.size, func(off, n int64) ([]byte, error) { return l.source.piece(ctx, v.place, off, n) }); err != nil {
				return err
			}
			values = append(values, unstage(i, v.text))
		case string:
			switch {
			case int64(len(v)) > parts:
				if err := l.stage(ctx, i, int64(len(v)), func(off, n int64) ([]byte, error) { return []byte(v[off : off+n]), nil }); err != nil {
					return err
				}
				values = append(values, unstage(i, true))
			case !utf8.ValidString(v):
				values, args = append(values, `CAST(? AS TEXT)`), append(args, []byte(v))
			default:
				values, args = append(values, `?`), append(args, v)
			}
		case []byte:
			if int64(len(v)) > parts {
				if err := l.stage(ctx, i, int64(len(v)), func(off, n int64) ([]byte, error) { return v[off : off+n], nil }); err != nil {
					return err
				}
				values = append(values, unstage(i, false))
				break
			}
			values, args = append(values, `?`), append(args, v)
		case float64:
			switch {
			case math.IsInf(v, 1):
				values = append(values, `9e999`)
			case math.IsInf(v, -1):
				values = append(values, `-9e999`)
			default:
				values, args = append(values, `?`), append(args, v)
			}
		default:
			values, args = append(values, `?`), append(args, v)
		}
	}
	sql := l.head + `(` + strings.Join(values, ", ") + `)`
	done := l.at
	done.row++
	if slices.ContainsFunc(values, func(s string) bool { return strings.Contains(s, pieceTable) }) {
		if !l.emit(step{stmt: libsql.S(sql, args...), what: l.item, after: l.at, glued: true}) {
			return errEnded
		}
		sql, args = `DELETE FROM `+pieceTable, nil
	}
	l.at, l.staged = done, nil
	if !l.emit(step{stmt: libsql.S(sql, args...), what: l.item, after: done, rows: 1, bytes: size, last: row}) {
		return errEnded
	}
	return nil
}

// stage puts a large value aside by pieces, those that are not yet there.
func (l *tableLoader) stage(ctx context.Context, col int, size int64, piece func(off, n int64) ([]byte, error)) error {
	for off := l.staged[int64(col)]; off < size; {
		n := min(l.batch, size-off)
		b, err := piece(off, n)
		if err != nil {
			return fmt.Errorf("table %s: row %d: %w", l.table.name, l.at.row+1, err)
		}
		off += n
		if !l.emit(step{stmt: libsql.S(`INSERT INTO `+pieceTable+`(col, data) VALUES(?, ?)`, col, b), what: l.item, after: l.at}) {
			return errEnded
		}
	}
	return nil
}

// unstage is the value that the pieces of a column make.
func unstage(col int, text bool) string {
	as := `BLOB`
	if text {
		as = `TEXT`
	}
	return `(SELECT CAST(group_concat(data, '') AS ` + as + `) FROM (SELECT data FROM ` + pieceTable + ` WHERE col = ` + strconv.Itoa(col) + ` ORDER BY n))`
}
