package durable

import (
	"database/sql"
	"fmt"
	"slices"
)

// A Row is one row of a result.
type Row struct {
	Columns []string
	// Values are nil, int64, float64, string or []byte, as they are stored.
	Values []any
}

// Get returns the value of a column by name, or nil when there is none.
func (r Row) Get(column string) any {
	if i := slices.Index(r.Columns, column); i >= 0 {
		return r.Values[i]
	}
	return nil
}

// Scan copies the values into dest, which are pointers to any, int, int64,
// float64, bool, string, []byte, or a [sql.Scanner] such as sql.Null. A value
// that does not fit without loss is an error.
func (r Row) Scan(dest ...any) error {
	if len(dest) != len(r.Values) {
		return fmt.Errorf("scan: %d destinations for %d columns", len(dest), len(r.Values))
	}
	for i, d := range dest {
		if err := assign(d, r.Values[i]); err != nil {
			return fmt.Errorf("scan column %q: %w", r.Columns[i], err)
		}
	}
	return nil
}

func assign(dest, v any) error {
	ok := false
	switch d := dest.(type) {
	case *any:
		*d, ok = v, true
	case *int64:
		*d, ok = v.(int64)
	case *int:
		var n int64
		n, ok = v.(int64)
		*d = int(n)
	case *float64:
		switch n := v.(type) {
		case float64:
			*d, ok = n, true
		case int64:
			*d, ok = float64(n), -1<<53 <= n && n <= 1<<53
		}
	case *bool:
		var n int64
		n, ok = v.(int64)
		*d, ok = n == 1, ok && (n == 0 || n == 1)
	case *string:
		switch s := v.(type) {
		case string:
			*d, ok = s, true
		case []byte:
			*d, ok = string(s), true
		}
	case *[]byte:
		switch s := v.(type) {
		case nil:
			*d, ok = nil, true
		case []byte:
			*d, ok = slices.Clone(s), true
		case string:
			*d, ok = []byte(s), true
		}
	case sql.Scanner:
		return d.Scan(v)
	default:
		return fmt.Errorf("cannot scan into %T", dest)
	}
	if !ok {
		return fmt.Errorf("cannot put %T into %T", v, dest)
	}
	return nil
}
