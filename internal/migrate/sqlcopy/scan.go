package sqlcopy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A reader is a database that is read: a file or a Target.
type reader interface {
	// rows yields the rows of a SELECT, which belong to the caller.
	rows(ctx context.Context, sql string, args ...any) iter.Seq2[[]any, error]
	// table is told which table's rows are asked for next.
	table(t *table)
	// piece returns n bytes of a value from off.
	piece(ctx context.Context, p place, off, n int64) ([]byte, error)
	// careful reports whether an error means that a row holds values that
	// rows cannot return as they are: too large, or without a form on the wire.
	careful(err error) bool
	// encoding reports whether the database holds texts as UTF-8.
	encoding() bool
	fmt.Stringer
}

// A place is where a value is.
type place struct {
	table  *table
	column column
	rowid  *int64 // nil when the table has none that can be named
	row    int64  // the number of the row in the table's order
}

// A large value is read by pieces.
type large struct {
	place
	text bool
	size int64
}

// pieceByQuery reads a piece by a SELECT.
func pieceByQuery(ctx context.Context, r reader, p place, off, n int64) ([]byte, error) {
	sql := `SELECT substr(CAST(` + p.column.sql() + ` AS BLOB), ?, ?) FROM ` + p.table.from()
	args := []any{off + 1, n}
	if p.rowid != nil {
		sql += ` WHERE ` + p.table.rowidName() + ` = ?`
		args = append(args, *p.rowid)
	} else {
		sql += p.table.order() + ` LIMIT 1 OFFSET ?`
		args = append(args, p.row)
	}
	for row, err := range r.rows(ctx, sql, args...) {
		if err != nil {
			return nil, err
		}
		if b, ok := row[0].([]byte); ok && int64(len(b)) == n {
			return b, nil
		}
	}
	return nil, fmt.Errorf("table %s: column %s: %w", p.table.name, p.column.name, ErrSourceChanged)
}

// scan yields the rows of a table in its order from the given one on: its rowid
// where it is named apart, and its columns. It reads rows as they are as long as
// that works, and then some with their types told apart.
func scan(ctx context.Context, r reader, t *table, columns []column, from int64) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		r.table(t)
		fast := t.selection(columns) + ` FROM ` + t.from() + t.order() + ` LIMIT -1 OFFSET `
		slow := newCarefully(r, t, columns)
		n := from
		each := func(sql string, decode func([]any, int64) ([]any, error)) (count int64, more bool, err error) {
			for row, err := range r.rows(ctx, sql+strconv.FormatInt(n, 10)) {
				if err == nil {
					row, err = decode(row, n)
				}
				if err != nil {
					return count, true, err
				}
				n, count = n+1, count+1
				if !yield(row, nil) {
					return count, false, nil
				}
			}
			return count, true, nil
		}
		asIs := func(row []any, _ int64) ([]any, error) { return row, nil }
		for span, cuts := int64(16), 0; ; {
			count, more, err := each(fast, asIs)
			switch {
			case !more || err == nil:
				return
			case !r.careful(err):
				if count > 0 {
					cuts = 0
				}
				if cuts++; cuts < attempts && passing(err) && pause(ctx, cuts) {
					continue
				}
				yield(nil, fmt.Errorf("table %s: row %d: %w", t.name, n+1, err))
				return
			}
			// What cannot be read as it is mostly does not come alone.
			count, more, err = each(slow.sql+strconv.FormatInt(span, 10)+` OFFSET `, slow.decode)
			switch {
			case !more || err == nil && count < span:
				return
			case err != nil && !(passing(err) && count > 0):
				yield(nil, fmt.Errorf("table %s: row %d: %w", t.name, n+1, err))
				return
			}
			span = min(span*4, 1<<40)
		}
	}
}

// carefully reads rows with their types apart, in forms that every way to a
// database has.
type carefully struct {
	t       *table
	columns []column
	first   int // the place of the first column in a row
	text    bool
	sql     string
}

// wholeLimit is the size of values that are always read as a whole.
const wholeLimit = 4 << 10

// maxFloat is the largest number that is not infinite.
const maxFloat = `1.7976931348623157e308`

func newCarefully(r reader, t *table, columns []column) *carefully {
	c := &carefully{t: t, columns: columns, text: !r.encoding()}
	limit := strconv.Itoa(max(valueLimit/(len(columns)+1), wholeLimit))
	var list, tags []string
	if name := t.rowid; name != "" {
		list, c.first = append(list, name), 1
	}
	for _, col := range columns {
		e := col.sql()
		text := `CAST(` + e + ` AS BLOB)`
		if c.text {
			text = e
		}
		list = append(list, `CASE typeof(`+e+`) WHEN 'text' THEN CASE WHEN octet_length(`+e+`)>`+limit+` THEN NULL ELSE `+text+` END`+
			` WHEN 'blob' THEN CASE WHEN octet_length(`+e+`)>`+limit+` THEN NULL ELSE `+e+` END`+
			` WHEN 'real' THEN CASE WHEN abs(`+e+`)>`+maxFloat+` THEN NULL ELSE `+e+` END ELSE `+e+` END`)
		tags = append(tags, `CASE typeof(`+e+`) WHEN 'text' THEN CASE WHEN octet_length(`+e+`)>`+limit+` THEN 'T'||octet_length(`+e+`) ELSE 't' END`+
			` WHEN 'blob' THEN CASE WHEN octet_length(`+e+`)>`+limit+` THEN 'B'||octet_length(`+e+`) ELSE '' END`+
			` WHEN 'real' THEN CASE WHEN abs(`+e+`)>`+maxFloat+` THEN CASE WHEN `+e+`>0 THEN '+' ELSE '-' END ELSE '' END ELSE '' END`)
	}
	for len(tags) > 0 { // an expression is not nested too deeply
		n := min(len(tags), tagsEach)
		list = append(list, strings.Join(tags[:n], `||','||`))
		tags = tags[n:]
	}
	c.sql = `SELECT ` + strings.Join(list, `, `) + ` FROM ` + t.from() + t.order() + ` LIMIT `
	return c
}

const tagsEach = 50

// decode returns a row as scan yields it; n is its number.
func (c *carefully) decode(row []any, n int64) ([]any, error) {
	values := row[:c.first+len(c.columns)]
	var tags []string
	for _, v := range row[len(values):] {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("table %s: tags of type %T", c.t.name, v)
		}
		tags = append(tags, strings.Split(text, ",")...)
	}
	if len(tags) != len(c.columns) {
		return nil, fmt.Errorf("table %s: %d tags for %d columns", c.t.name, len(tags), len(c.columns))
	}
	for i, tag := range tags {
		v := &values[c.first+i]
		switch {
		case tag == "":
		case tag == "t":
			if b, ok := (*v).([]byte); ok {
				*v = string(b)
			}
		case tag == "+":
			*v = math.Inf(1)
		case tag == "-":
			*v = math.Inf(-1)
		default:
			size, err := strconv.ParseInt(tag[1:], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("table %s: tag %q", c.t.name, tag)
			}
			*v = &large{place: place{table: c.t, column: c.columns[i], row: n}, text: tag[0] == 'T', size: size}
			if c.text && tag[0] == 'T' {
				return nil, fmt.Errorf("table %s: a text of %d bytes in another encoding than UTF-8: %w", c.t.name, size, ErrUnsupported)
			}
		}
	}
	if at := c.t.rowidAt; at >= 0 {
		if id, ok := values[at].(int64); ok {
			for _, v := range values {
				if l, ok := v.(*large); ok {
					l.rowid = &id
				}
			}
		}
	}
	return values, nil
}

// attempts bounds how often something that passes is tried again.
const attempts = 5

// passing reports whether an error may not come again.
func passing(err error) bool {
	kind, ok := libsql.KindOf(err)
	if !ok {
		return false
	}
	switch kind {
	case libsql.KindBusy, libsql.KindUnreachable, libsql.KindTimeout, libsql.KindLimit:
		return true
	}
	return false
}

// firstPause is the pause before the second attempt; tests make it short.
var firstPause = 100 * time.Millisecond

// pause waits before another attempt; false when ctx has ended.
func pause(ctx context.Context, attempt int) bool {
	t := time.NewTimer(firstPause << (2 * (attempt - 1)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A remote is a Target that is read.
type remote struct {
	target Target
	utf8   bool
}

func openRemote(ctx context.Context, t Target) (*remote, error) {
	r := &remote{target: t}
	res, err := retried(ctx, t, libsql.S(`PRAGMA encoding`))
	if err != nil {
		return nil, err
	}
	r.utf8 = res[0].Rows[0][0] == "UTF-8"
	return r, nil
}

func (r *remote) table(*table) {}

func (r *remote) rows(ctx context.Context, sql string, args ...any) iter.Seq2[[]any, error] {
	return r.target.Stream(ctx, libsql.S(sql, args...))
}

func (r *remote) piece(ctx context.Context, p place, off, n int64) ([]byte, error) {
	return pieceByQuery(ctx, r, p, off, n)
}

func (r *remote) careful(err error) bool {
	e, ok := errors.AsType[*libsql.Error](err)
	return ok && (e.Kind == libsql.KindSQL || e.Kind == libsql.KindTooLarge || e.Kind == libsql.KindProtocol)
}

func (r *remote) encoding() bool { return r.utf8 }

func (r *remote) String() string { return fmt.Sprint(r.target) }
