package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/term"
)

type objectSQLOptions struct {
	objectArgs
	at    targetFlag
	limit int
}

func newObjectSQL(e *env) *cobra.Command {
	var o objectSQLOptions
	cmd := &cobra.Command{
		Use:   "sql CLASS ID QUERY",
		Short: "Run one query against an object's stored state",
		Long: `Run one statement that reads against the stored state of an object, as it is or as
it was. The database is put together from the log in a temporary directory, so
the object is not disturbed; a statement that writes is refused.

The table cuts long values short; -o json shows all of them: rows as objects,
integers beyond 2^53 as {"$int":"..."}, blobs as {"$bytes":"base64"}, texts that
are no UTF-8 as {"$text":"base64"}, infinite numbers as {"$number":"Infinity"}.`,
		Example: `  dwk object sql Counter --name front-page 'SELECT * FROM counter'
  dwk object sql Counter 0a 'PRAGMA table_list' --at 15m`,
	}
	o.register(e, cmd, "QUERY")
	cmd.Flags().Var(&o.at, "at", targetHelp)
	cmd.Flags().IntVar(&o.limit, "limit", defaultListLimit, "at most `N` rows; 0 is all")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if err := o.read(cmd, args); err != nil {
			return err
		}
		if o.limit < 0 {
			return usagef("--limit must not be negative")
		}
		return runObjectSQL(ctx, e, o)
	})
	return cmd
}

func runObjectSQL(ctx context.Context, e *env, o objectSQLOptions) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := s.Open(ctx, o.class, o.id, o.at.Target)
	if err != nil {
		return notKept(err, o.objectFlags)
	}
	defer d.Close()
	e.term.Detailf("commit %d of %s, %d bytes", d.Position.TXID, instant(d.Position.At), d.Bytes())
	return showRows(e.term, d.Query(ctx, o.rest[0]), o.limit)
}

// showRows writes at most limit rows of a query, or all if it is 0.
func showRows(t *term.Term, rows iter.Seq2[durable.Row, error], limit int) error {
	var array *term.Array
	var tb *term.Table
	var columns []string
	n := 0
	for row, err := range rows {
		if err != nil {
			return err
		}
		if n == 0 {
			columns = distinct(row.Columns)
			array, tb = t.Array(), term.NewTable(columns...)
		}
		if n++; limit > 0 && n > limit {
			t.Notef("there are more rows than %d: see --limit", limit)
			break
		}
		if !t.JSON {
			tb.Row(cells(row)...)
			continue
		}
		line, err := rowJSON(columns, row.Values)
		if err == nil {
			err = array.Add(line)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case t.JSON && n == 0:
		return t.Array().Close()
	case t.JSON:
		return array.Close()
	case n == 0:
		t.Notef("no rows")
		return nil
	}
	return t.Table(tb)
}

// distinct adds numbers to the names of columns that are there already.
func distinct(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		for i, base := 2, name; slices.Contains(out, name); i++ {
			name = fmt.Sprintf("%s_%d", base, i)
		}
		out = append(out, name)
	}
	return out
}

// cells are the values of a row for people.
func cells(row durable.Row) []any {
	out := make([]any, len(row.Values))
	for i, v := range row.Values {
		switch v := v.(type) {
		case nil:
			out[i] = term.Cell{Text: "NULL", Tone: term.Dim}
		case []byte:
			out[i] = term.Cut(fmt.Sprintf("x'%x'", v[:min(len(v), tableValue)]), tableValue)
		case string:
			out[i] = term.Cut(strings.ToValidUTF8(v, "\ufffd"), tableValue)
		case float64:
			out[i] = float(v)
		default:
			out[i] = v
		}
	}
	return out
}

// float writes a number so that it is seen to be none of the integers.
func float(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

// rowJSON writes a row as an object with its columns in their order.
func rowJSON(columns []string, values []any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(columns[i]); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(valueJSON(v)); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// exactInteger is the largest integer up to which every reader of JSON has all
// of them.
const exactInteger = 1 << 53

// valueJSON is a stored value as JSON that loses nothing of it.
func valueJSON(v any) any {
	switch v := v.(type) {
	case int64:
		if v > exactInteger || v < -exactInteger {
			return map[string]string{"$int": strconv.FormatInt(v, 10)}
		}
	case float64:
		if math.IsInf(v, 0) {
			return map[string]string{"$number": strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+") + "inity"}
		}
		return json.RawMessage(float(v))
	case string:
		if !utf8.ValidString(v) {
			return map[string]string{"$text": base64.StdEncoding.EncodeToString([]byte(v))}
		}
	case []byte:
		return map[string]string{"$bytes": base64.StdEncoding.EncodeToString(v)}
	}
	return v
}
