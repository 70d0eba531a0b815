package libsql

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// checkStatements returns the statements with their arguments as nil, int64,
// float64, string or non-nil []byte, or refuses them.
func checkStatements(stmts []Statement) ([]Statement, error) {
	if len(stmts) == 0 {
		return nil, refused(KindSQL, errors.New("a batch without statements"))
	}
	n := 0
	for _, s := range stmts {
		n += len(s.Args)
	}
	out, args := make([]Statement, len(stmts)), make([]any, n)
	for i, s := range stmts {
		out[i].SQL = s.SQL
		if !utf8.ValidString(s.SQL) {
			return nil, refusedAt(i, errors.New("the SQL text is not valid UTF-8"))
		}
		if len(s.Args) == 0 {
			continue
		}
		n := len(s.Args)
		out[i].Args, args = args[:n:n], args[n:]
		for j, a := range s.Args {
			v, err := checkArgument(a)
			if err != nil {
				return nil, refusedAt(i, fmt.Errorf("argument %d: %w", j+1, err))
			}
			out[i].Args[j] = v
		}
	}
	return out, nil
}

func checkArgument(a any) (any, error) { // an a that is returned itself costs no memory
	switch v := a.(type) {
	case nil, int64:
		return v, nil
	case int:
		return int64(v), nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a float that is not finite")
		}
		return a, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("a text that is not valid UTF-8")
		}
		return a, nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return a, nil
	default:
		return nil, fmt.Errorf("a %T is not taken", a)
	}
}
