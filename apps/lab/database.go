package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/davidwkeith/dwk/durable"
)

// databaseName is the SQL binding that the lab requires.
const databaseName = "LAB_DB"

// database serves the SQL binding.
type database struct {
	db  durable.Database
	log *slog.Logger
}

func newDatabase(env durable.Env) *database {
	return &database{env.Database(databaseName), env.Logger()}
}

// databaseRequest is a statement by itself, or a list of them.
type databaseRequest struct {
	statement
	Statements []statement `json:"statements"`
	// Batch has the list run in one transaction and one round trip; else each
	// statement is a call of its own.
	Batch bool `json:"batch"`
}

func parseDatabaseRequest(body []byte) (list []statement, batch bool, err error) {
	var req databaseRequest
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		list, err = parseStatements(body)
		return list, false, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return nil, false, fmt.Errorf(`want {"sql": text, "args": [...]} or {"statements": [...], "batch": true}: %w`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, errors.New("there is more after the statements")
	}
	switch {
	case req.Statements == nil:
		list = []statement{req.statement}
	case req.SQL != "" || req.Args != nil:
		return nil, false, errors.New("sql and args, or statements")
	default:
		list = req.Statements
	}
	return list, req.Batch, checkStatements(list)
}

func (d *database) serve(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxSQL)
	if !ok {
		return
	}
	list, batch, err := parseDatabaseRequest(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	results, err := d.run(r.Context(), list, batch)
	if err != nil {
		d.fail(w, r, err, len(results))
		return
	}
	writeJSON(w, http.StatusOK, results)
}

// run returns the results of the calls before one that failed too.
func (d *database) run(ctx context.Context, list []statement, batch bool) ([]result, error) {
	step := 1
	if batch {
		step = len(list)
	}
	results := make([]result, 0, len(list))
	size := 0
	for part := range slices.Chunk(list, step) {
		var statements []durable.Statement
		for _, s := range part {
			args := make([]any, len(s.Args))
			for i, a := range s.Args {
				args[i] = a.v
			}
			statements = append(statements, durable.Statement{SQL: s.SQL, Args: args})
		}
		answer, err := d.db.Batch(ctx, statements...)
		if err != nil {
			return results, err
		}
		for _, a := range answer {
			results = append(results, newResult(a, &size))
		}
		if size > maxResult {
			return results, fmt.Errorf("the rows are over %d bytes: %w", maxResult, durable.ErrTooLarge)
		}
	}
	return results, nil
}

func newResult(a durable.BatchResult, size *int) result {
	res := result{Columns: []string{}, Rows: [][]cell{}, Changes: a.Changes, LastRowID: a.LastRowID}
	for _, row := range a.Rows {
		cells := make([]cell, len(row.Values))
		for i, v := range row.Values {
			cells[i] = cell{v}
			*size += cells[i].size()
		}
		res.Columns, res.Rows = row.Columns, append(res.Rows, cells)
	}
	return res
}

// fail answers for an error of the database, and with the number of statements
// that were applied before.
func (d *database) fail(w http.ResponseWriter, r *http.Request, err error, applied int) {
	status := http.StatusBadRequest
	var constraint *durable.ConstraintError
	switch {
	case errors.As(err, &constraint):
		status = http.StatusConflict
	case errors.Is(err, durable.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, durable.ErrUnknownOutcome):
		status = http.StatusGatewayTimeout
		w.Header().Set("Dwk-Outcome", "unknown")
	case errors.Is(err, durable.ErrUnavailable):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	if status >= 500 {
		d.log.WarnContext(r.Context(), "SQL database failed", "error", err)
	}
	writeJSON(w, status, struct {
		Error   string `json:"error"`
		Applied int    `json:"applied"`
	}{err.Error(), applied})
}
