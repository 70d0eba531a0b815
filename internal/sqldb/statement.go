package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of one call, which keep it below what servers take.
const (
	// MaxText bounds the text of a statement, in bytes.
	MaxText = 5 << 20
	// MaxArgs bounds the arguments of a statement: SQLite's own bound.
	MaxArgs = 32_766
	// MaxStatements bounds the statements of a batch.
	MaxStatements = 10_000
	// MaxCall bounds the texts and arguments of a call together, in bytes.
	MaxCall = 8 << 20
)

// A statement is one that has been looked at.
type statement struct {
	libsql.Statement
	reads   bool // it changes nothing
	streams bool // it reads, and its rows can be read one by one
	size    int  // bytes of text and arguments, about
}

// prepareAll prepares a batch; i is the index of the statement that err is
// about, or -1.
func prepareAll(list []durable.Statement) (stmts []statement, i int, err error) {
	if len(list) > MaxStatements {
		return nil, -1, fmt.Errorf("%d statements, at most %d: %w", len(list), MaxStatements, durable.ErrTooLarge)
	}
	size := 0
	for i, s := range list {
		stmt, err := prepare(s)
		if err != nil {
			return nil, i, err
		}
		if size += stmt.size; size > MaxCall {
			return nil, -1, fmt.Errorf("the statements and arguments are over %d bytes: %w", MaxCall, durable.ErrTooLarge)
		}
		stmts = append(stmts, stmt)
	}
	return stmts, -1, nil
}

// prepare checks a statement and converts its arguments.
func prepare(s durable.Statement) (statement, error) {
	if len(s.SQL) > MaxText {
		return statement{}, fmt.Errorf("the text is over %d bytes: %w", MaxText, durable.ErrTooLarge)
	}
	if len(s.Args) > MaxArgs {
		return statement{}, fmt.Errorf("%d arguments, at most %d: %w", len(s.Args), MaxArgs, durable.ErrTooLarge)
	}
	if !utf8.ValidString(s.SQL) || strings.ContainsRune(s.SQL, 0) {
		return statement{}, fmt.Errorf("the text is not UTF-8 without NUL: %w", durable.ErrInvalid)
	}
	reads, streams, err := classify(s.SQL)
	if err != nil {
		return statement{}, err
	}
	out := statement{Statement: libsql.S(s.SQL), reads: reads, streams: streams, size: len(s.SQL) + 64}
	for i, a := range s.Args {
		v, err := argument(a)
		if err != nil {
			return statement{}, fmt.Errorf("argument %d: %w: %w", i+1, durable.ErrInvalid, err)
		}
		out.Args = append(out.Args, v)
		switch v := v.(type) {
		case string:
			out.size += len(v)
		case []byte:
			out.size += len(v)
		}
		if out.size += 16; out.size > MaxCall {
			return statement{}, fmt.Errorf("the text and arguments are over %d bytes: %w", MaxCall, durable.ErrTooLarge)
		}
	}
	return out, nil
}

// argument converts what database/sql would take to nil, int64, float64, string
// or []byte.
func argument(a any) (any, error) {
	if _, ok := a.(sql.NamedArg); ok {
		return nil, errors.New("arguments are positional")
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(a)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a float that is not finite")
		}
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("a text that is not UTF-8: bytes are []byte")
		}
	}
	return v, nil
}

// Statements that cannot be part of a call, which is a transaction.
var refused = map[string]string{
	"BEGIN": "", "COMMIT": "", "END": "", "ROLLBACK": "", "SAVEPOINT": "", "RELEASE": "",
	"ATTACH": "it would reach beyond the database", "DETACH": "it would reach beyond the database",
	"VACUUM": "it cannot run in a transaction",
}

// What may be done with a PRAGMA in a database whose connections are shared.
type pragmaUse uint8

const (
	asks  pragmaUse = iota + 1 // only without a value, which would change the connection
	looks                      // with or without the name of a table, an index or a number
	sets                       // also with a value, which the database keeps, or forgets at the end of the call
)

var pragmas = map[string]pragmaUse{
	"application_id": asks, "collation_list": asks, "compile_options": asks, "data_version": asks, "database_list": asks, "encoding": asks,
	"foreign_keys": asks, "freelist_count": asks, "function_list": asks, "module_list": asks, "page_count": asks, "page_size": asks,
	"pragma_list": asks, "schema_version": asks,
	"foreign_key_check": looks, "foreign_key_list": looks, "index_info": looks, "index_list": looks, "index_xinfo": looks,
	"integrity_check": looks, "quick_check": looks, "table_info": looks, "table_list": looks, "table_xinfo": looks,
	"defer_foreign_keys": sets, "user_version": sets,
}

// classify tells what a statement does by its words, or refuses it.
func classify(text string) (reads, streams bool, err error) {
	words := keywords(text)
	first := words.next()
	if reason, ok := refused[first]; ok {
		if reason == "" {
			reason = "each call is a transaction, and a batch is one"
		}
		return false, false, fmt.Errorf("%s is not allowed: %s: %w", first, reason, durable.ErrInvalid)
	}
	switch first {
	case "SELECT", "VALUES":
		return true, true, nil
	case "EXPLAIN":
		return true, false, nil
	case "WITH":
		reads = words.main() == "SELECT"
		return reads, reads, nil
	case "CREATE":
		if w := words.next(); w == "TEMP" || w == "TEMPORARY" {
			return false, false, fmt.Errorf("CREATE %s is not allowed: it would be seen by one connection only: %w", w, durable.ErrInvalid)
		}
	case "PRAGMA":
		return pragma(&words)
	}
	return false, false, nil
}

// pragma allows those that ask something of the database, and not those that
// change the connection.
func pragma(words *scanner) (reads, streams bool, err error) {
	name := strings.ToLower(words.next())
	if strings.HasPrefix(words.sql, ".") { // it was the schema
		name = strings.ToLower(words.next())
	}
	use := pragmas[name]
	switch {
	case use == 0:
		return false, false, fmt.Errorf("PRAGMA %.40s is not allowed in a shared database: %w", name, durable.ErrInvalid)
	case use == asks && strings.ContainsAny(words.sql, "=("):
		return false, false, fmt.Errorf("PRAGMA %s cannot be set in a shared database: %w", name, durable.ErrInvalid)
	}
	return use != sets, false, nil
}
