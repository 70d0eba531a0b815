package libsql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// batch sends the statements as one Hrana batch, each step on the condition
// that the one before was ok, and the end of the stream, in one request. A write
// is
//
//	BEGIN IMMEDIATE, statements, COMMIT, ROLLBACK if not committed
//
// and a read only BEGIN and the statements: the end of the stream ends it. A
// load has a step before its BEGIN, which then is step 1.
func (w *wire) batch(ctx context.Context, mode Mode, stmts []Statement) ([]Result, error) {
	body, err := encodeBatch(mode, stmts)
	if err != nil {
		return nil, err
	}
	resp, err := w.post(ctx, "/v2/pipeline", body)
	if err != nil {
		return nil, err
	}
	answer, err := readAnswer(ctx, resp)
	if err != nil {
		return nil, err
	}
	return decodeBatch(answer, mode, len(stmts))
}

func encodeBatch(mode Mode, stmts []Statement) ([]byte, error) {
	size := 512
	for _, s := range stmts {
		size += len(s.SQL) + 128
		for _, a := range s.Args {
			size += proto.ValueSize(a) + 8
		}
	}
	b := append(make([]byte, 0, size), `{"baton":null,"requests":[{"type":"batch","batch":{"steps":[`...)
	begin := "BEGIN"
	if mode != Read {
		begin = "BEGIN IMMEDIATE"
	}
	if mode == Load {
		b = append(appendPlain(b, "PRAGMA foreign_keys=0"), `,{"condition":{"type":"ok","step":0},`...)
		b = append(appendSQL(b, begin), '}')
	} else {
		b = appendPlain(b, begin)
	}
	var err error
	at := mode.begin()
	for i, s := range stmts {
		b = appendCondition(b, at+i)
		if b, err = appendStatement(b, s); err != nil {
			return nil, refusedAt(i, err)
		}
		b = append(b, '}')
	}
	if mode != Read {
		b = appendCondition(b, at+len(stmts))
		b = append(b, `"stmt":{"sql":"COMMIT","want_rows":false}},{"condition":{"type":"not","cond":{"type":"ok","step":`...)
		b = strconv.AppendInt(b, int64(at+len(stmts)+1), 10)
		b = append(b, `}},"stmt":{"sql":"ROLLBACK","want_rows":false}}`...)
	}
	return append(b, `]}},{"type":"close"}]}`...), nil
}

func appendPlain(b []byte, sql string) []byte { return append(appendSQL(append(b, '{'), sql), '}') }

// appendSQL appends the member of a step that has no arguments and no rows.
func appendSQL(b []byte, sql string) []byte {
	b = proto.AppendString(append(b, `"stmt":{"sql":`...), sql)
	return append(b, `,"want_rows":false}`...)
}

// begin is the step of a batch that is its BEGIN.
func (m Mode) begin() int {
	if m == Load {
		return 1
	}
	return 0
}

// appendCondition begins a step that waits for the given one.
func appendCondition(b []byte, step int) []byte {
	b = append(b, `,{"condition":{"type":"ok","step":`...)
	b = strconv.AppendInt(b, int64(step), 10)
	return append(b, `},`...)
}

func appendStatement(b []byte, s Statement) (_ []byte, err error) {
	b = proto.AppendString(append(b, `"stmt":{"sql":`...), s.SQL)
	b = append(b, `,"args":[`...)
	for i, a := range s.Args {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = proto.AppendValue(b, a); err != nil {
			return nil, err
		}
	}
	return append(b, `],"want_rows":true}`...), nil
}

// readAnswer reads a whole body. What is cut off or too large may stand for a
// batch that was applied.
func readAnswer(ctx context.Context, resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	var buf bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= bodyLimit {
		buf.Grow(int(n) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, bodyLimit+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &Error{Outcome: Unknown, Kind: KindTimeout, Statement: -1, Err: ctx.Err()}
	case err != nil:
		return nil, &Error{Outcome: Unknown, Kind: KindUnreachable, Statement: -1, Err: err}
	case n > bodyLimit:
		return nil, &Error{Outcome: Unknown, Kind: KindTooLarge, Statement: -1, Err: errors.New("the answer is larger than 12 MiB")}
	}
	return buf.Bytes(), nil
}

type stepResult struct {
	Cols []struct {
		Name *string `json:"name"`
	} `json:"cols"`
	Rows      []proto.Values `json:"rows"`
	Affected  *int64         `json:"affected_row_count"`
	LastRowID rowID          `json:"last_insert_rowid"`
}

// decodeBatch gives the verdict on an answer. It is Failed only when the answer
// shows that nothing can have been committed.
func decodeBatch(answer []byte, mode Mode, n int) ([]Result, error) {
	var a struct {
		Results []struct {
			Type     string       `json:"type"`
			Error    *proto.Error `json:"error"`
			Response struct {
				Type   string `json:"type"`
				Result *struct {
					Results []*stepResult  `json:"step_results"`
					Errors  []*proto.Error `json:"step_errors"`
				} `json:"result"`
			} `json:"response"`
		} `json:"results"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, oddAnswer("%v", err)
	}
	if len(a.Results) == 0 {
		return nil, oddAnswer("no result")
	}
	first := &a.Results[0]
	switch {
	case first.Type == "error" && first.Error != nil:
		// A program whose answer grows too large is ended before its COMMIT,
		// and the close behind it rolls back.
		e := serverError(Unknown, -1, first.Error)
		if e.Code == "RESPONSE_TOO_LARGE" {
			e.Outcome = Failed
		}
		return nil, e
	case first.Type != "ok":
		return nil, oddAnswer("result of type %.20q", first.Type)
	}
	r := &first.Response
	begin := mode.begin()
	steps := begin + n + 1
	if mode != Read {
		steps += 2
	}
	if r.Type != "batch" || r.Result == nil || len(r.Result.Results) != steps || len(r.Result.Errors) != steps {
		return nil, oddAnswer("not the result of a batch of %d steps", steps)
	}
	results, failures := r.Result.Results, r.Result.Errors
	for i := range steps {
		if results[i] != nil && failures[i] != nil {
			return nil, oddAnswer("step %d has a result and an error", i)
		}
	}
	if begin > 0 && results[0] == nil && failures[0] != nil {
		return nil, serverError(Refused, -1, failures[0])
	}
	if begin > 0 && results[0] == nil {
		return nil, oddAnswer("step 0 was skipped")
	}
	results, failures = results[begin:], failures[begin:]
	if err := verdict(results, failures, mode, n); err != nil {
		return nil, err
	}
	out := make([]Result, n)
	for i := range out {
		if err := results[i+1].decode(&out[i]); err != nil {
			return nil, oddAnswer("statement %d: %v", i, err)
		}
		if mode == Read && out[i].Changes > 0 {
			return nil, &Error{Outcome: Failed, Kind: KindReadOnly, Statement: i, Err: errors.New("a statement of a read batch changed rows")}
		}
	}
	return out, nil
}

// verdict returns nil when all statements, and the COMMIT of a write, were ok.
// The first step is BEGIN.
func verdict(results []*stepResult, failures []*proto.Error, mode Mode, n int) error {
	first := 0 // the first step that was not ok
	for first < len(results) && results[first] != nil {
		first++
	}
	done := n + 1
	if mode != Read {
		done = n + 2
	}
	if first >= done {
		return nil
	}
	failure := failures[first]
	if failure == nil {
		return oddAnswer("step %d was skipped", first)
	}
	// What waits for a step that failed was skipped, or the server does not
	// know conditions.
	for i := first + 1; i < done; i++ {
		if results[i] != nil || failures[i] != nil {
			return oddAnswer("step %d was executed after an error", i)
		}
	}
	switch {
	case first == 0:
		return serverError(Refused, -1, failure)
	case mode == Read:
		return serverError(Failed, first-1, failure)
	}
	e := serverError(Failed, first-1, failure)
	if first == n+1 {
		e.Statement = -1 // COMMIT
	}
	// Where ROLLBACK failed too there was no transaction any more. Before
	// COMMIT that is certain only with the errors for which SQLite itself rolls
	// back: a server that takes the lock away from a slow transaction would let
	// later statements commit alone.
	// A COMMIT for which there is no room has not written its last frame; after
	// another error of one nobody knows.
	known := rollsBack[e.Code]
	if first == n+1 {
		known = e.Code == "SQLITE_FULL"
	}
	if results[n+2] == nil && !known {
		e.Outcome = Unknown
	}
	return e
}

// rollsBack are the codes for which SQLite may roll a transaction back by
// itself (sqlite.org/lang_transaction.html).
var rollsBack = map[string]bool{"SQLITE_FULL": true, "SQLITE_IOERR": true, "SQLITE_NOMEM": true, "SQLITE_BUSY": true, "SQLITE_INTERRUPT": true}

func (s *stepResult) decode(r *Result) error {
	if s.Affected == nil || *s.Affected < 0 {
		return errors.New("no count of affected rows")
	}
	if len(s.Cols) > 0 {
		r.Columns = make([]string, len(s.Cols))
	}
	for i, c := range s.Cols {
		if c.Name != nil {
			r.Columns[i] = *c.Name
		}
	}
	for _, values := range s.Rows {
		row, err := decodeRow(values, len(s.Cols))
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, row)
	}
	r.Changes = *s.Affected
	if r.Changes > 0 {
		r.LastRowID = int64(s.LastRowID)
	}
	return nil
}

func decodeRow(values []any, columns int) (Row, error) {
	if len(values) != columns {
		return nil, errors.New("a row has another number of values than columns")
	}
	return values, nil
}

// A rowID is a string in the specification, but a number in sqld's cursors, and
// null for what is no INSERT.
type rowID int64

// UnmarshalJSON implements json.Unmarshaler.
func (r *rowID) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		return nil
	}
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	i, err := strconv.ParseInt(s, 10, 64)
	*r = rowID(i)
	return err
}
