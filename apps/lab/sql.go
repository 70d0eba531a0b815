package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

const (
	maxSQL        = 4 << 20 // bytes of a request
	maxStatements = 1_000
	maxResult     = 16 << 20 // bytes of all rows together, about
)

// A statement is one SQL statement of a request.
type statement struct {
	SQL  string `json:"sql"`
	Args []cell `json:"args"`
}

// A result is what one statement returned. Without rows there are no columns
// either: the contract tells them with the rows.
type result struct {
	Columns   []string `json:"columns"`
	Rows      [][]cell `json:"rows"`
	Changes   int64    `json:"changes"`
	LastRowID int64    `json:"last_row_id"`
}

// serveSQL runs one statement or a list of them, all or none.
func serveSQL(w http.ResponseWriter, r *http.Request, db durable.SQL) {
	body, ok := readBody(w, r, maxSQL)
	if !ok {
		return
	}
	list, err := parseStatements(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	results, err := runStatements(r.Context(), db, list)
	if err == nil {
		writeJSON(w, http.StatusOK, results)
		return
	}
	// What a statement did wrong is the caller's; all was rolled back, and the
	// event commits nothing. Everything else is the host's to answer.
	if s, ok := errors.AsType[*statementError](err); ok && r.Context().Err() == nil && !fromHost(err) {
		writeError(w, http.StatusBadRequest, s.Error())
		return
	}
	panic(fmt.Errorf("run statements: %w", err))
}

func parseStatements(body []byte) ([]statement, error) {
	var list []statement
	into := any(&list)
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		list = make([]statement, 1)
		into = &list[0]
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return nil, fmt.Errorf(`want {"sql": text, "args": [...]} or a list of them: %w`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the statements")
	}
	return list, checkStatements(list)
}

func checkStatements(list []statement) error {
	if len(list) == 0 || len(list) > maxStatements {
		return fmt.Errorf("%d statements, want 1 to %d", len(list), maxStatements)
	}
	for i, s := range list {
		if strings.TrimSpace(s.SQL) == "" {
			return fmt.Errorf("statement %d is empty", i)
		}
		if word := firstWord(s.SQL); slices.Contains(transactionWords, word) {
			return fmt.Errorf("statement %d: %s is not allowed: a list is one transaction", i, word)
		}
	}
	return nil
}

// transactionWords begin statements that would end the transaction that makes a
// list one.
var transactionWords = []string{"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"}

// firstWord returns the first keyword of a statement in capitals, behind spaces,
// comments and empty statements.
func firstWord(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\n\f\r;\ufeff")
		var end string
		switch {
		case strings.HasPrefix(sql, "--"):
			end = "\n"
		case strings.HasPrefix(sql, "/*"):
			end = "*/"
		default:
			if i := strings.IndexFunc(sql, notLetter); i >= 0 {
				sql = sql[:i]
			}
			return strings.ToUpper(sql)
		}
		_, sql, _ = strings.Cut(sql[2:], end)
	}
}

func notLetter(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }

// A statementError is an error of one statement.
type statementError struct {
	index int
	err   error
}

func (e *statementError) Error() string { return fmt.Sprintf("statement %d: %v", e.index, e.err) }
func (e *statementError) Unwrap() error { return e.err }

// fromHost reports whether an error is the host's own, which the host answers.
func fromHost(err error) bool {
	return slices.ContainsFunc([]error{durable.ErrFenced, durable.ErrRevoked, durable.ErrUnavailable, durable.ErrDraining,
		durable.ErrUnknownOutcome, durable.ErrHandlerFailed, context.Canceled, context.DeadlineExceeded},
		func(target error) bool { return errors.Is(err, target) })
}

func runStatements(ctx context.Context, db durable.SQL, list []statement) ([]result, error) {
	results := make([]result, len(list))
	err := db.Tx(ctx, func(tx durable.SQL) error {
		counts, err := readCounts(ctx, tx)
		if err != nil {
			return err
		}
		size := 0
		for i, s := range list {
			if err := runStatement(ctx, tx, s, &results[i], &size); err != nil {
				return &statementError{i, err}
			}
			before := counts
			if counts, err = readCounts(ctx, tx); err != nil {
				return err
			}
			// SQLite's count is that of the last statement that changes rows: one
			// that does not leaves it as it was.
			if counts.total != before.total {
				results[i].Changes = counts.last
			}
			results[i].LastRowID = counts.rowID
		}
		return nil
	})
	return results, err
}

func runStatement(ctx context.Context, tx durable.SQL, s statement, res *result, size *int) error {
	res.Columns, res.Rows = []string{}, [][]cell{}
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		args[i] = a.v
	}
	for row, err := range tx.Query(ctx, s.SQL, args...) {
		if err != nil {
			return err
		}
		if len(res.Rows) == 0 {
			res.Columns = slices.Clone(row.Columns)
		}
		cells := make([]cell, len(row.Values))
		for i, v := range row.Values {
			cells[i] = newCell(v)
			*size += cells[i].size()
		}
		if *size > maxResult {
			return fmt.Errorf("the rows are over %d bytes", maxResult)
		}
		res.Rows = append(res.Rows, cells)
	}
	return nil
}

// counts are what SQLite counts for a connection.
type counts struct{ total, last, rowID int64 }

func readCounts(ctx context.Context, tx durable.SQL) (c counts, err error) {
	for row, err := range tx.Query(ctx, `SELECT total_changes(), changes(), last_insert_rowid()`) {
		if err == nil {
			err = row.Scan(&c.total, &c.last, &c.rowID)
		}
		if err != nil {
			return c, fmt.Errorf("read counts: %w", err)
		}
	}
	return c, nil
}
