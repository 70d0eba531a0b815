package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func TestDatabase(t *testing.T) {
	_, h := newBucketLab(t)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"sql":"CREATE TABLE t(id INTEGER PRIMARY KEY, v)"}`, 200, `[{"columns":[],"rows":[],"changes":0,"last_row_id":0}]`},
		{`{"sql":"INSERT INTO t(v) VALUES(?), (?), (?)","args":[9007199254740993,1.0,{"$bytes":"AP8="}]}`, 200, `[{"columns":[],"rows":[],"changes":3,"last_row_id":3}]`},
		{`[{"sql":"UPDATE t SET v = true WHERE id = ?","args":[2]},{"sql":"SELECT * FROM t"}]`, 200,
			`[{"columns":[],"rows":[],"changes":1,"last_row_id":0},{"columns":["id","v"],"rows":[[1,9007199254740993],[2,1],[3,{"$bytes":"AP8="}]],"changes":0,"last_row_id":0}]`},
		{`{"statements":[{"sql":"DELETE FROM t WHERE id = 1"},{"sql":"INSERT INTO t(id) VALUES(2)"}],"batch":true}`, 409,
			`{"error":"SQL database LAB_DB: statement 1: UNIQUE constraint failed: t.id","applied":0}`},
		{`{"statements":[{"sql":"DELETE FROM t WHERE id = 1"},{"sql":"INSERT INTO t(id) VALUES(2)"},{"sql":"SELECT 1"}]}`, 409,
			`{"error":"SQL database LAB_DB: UNIQUE constraint failed: t.id","applied":1}`},
		{`{"statements":[{"sql":"INSERT INTO t(id) VALUES(4)"},{"sql":"SELECT count(*) n FROM t"}],"batch":true}`, 200,
			`[{"columns":[],"rows":[],"changes":1,"last_row_id":4},{"columns":["n"],"rows":[[3]],"changes":0,"last_row_id":0}]`},
		{`{"sql":"ATTACH 'x' AS y"}`, 400, ""}, {`{"sql":"BEGIN"}`, 400, ""}, {`{"sql":"SELEC"}`, 400, ""}, {`{"sql":""}`, 400, ""}, {`{}`, 400, ""}, {`[]`, 400, ""}, {``, 400, ""},
		{`{"statements":[]}`, 400, ""}, {`{"statements":[{"sql":"SELECT 1"}],"sql":"SELECT 1"}`, 400, ""}, {`{"sql":"SELECT 1","x":1}`, 400, ""}, {`{"sql":"SELECT 1"} 1`, 400, ""},
		{`{"sql":"` + strings.Repeat(" ", maxSQL) + `"}`, 413, ""},
		{`{"sql":"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 20) SELECT printf('%.*c', 1000000, 'x') FROM n"}`, 413, ""},
	} {
		w := send(h, "POST", "/sql", c.body)
		if w.Code != c.status || c.want != "" && strings.TrimSpace(w.Body.String()) != c.want {
			t.Errorf("%.100s: %d %.300s, want %d %s", c.body, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := send(h, "GET", "/sql", ""); w.Code != 405 {
		t.Errorf("GET: %d", w.Code)
	}
	want(t, send(h, "POST", "/sql/x", "{}"), 404, `{"error":"no such path"}`)
}

// failingDatabase fails every batch.
type failingDatabase struct {
	durable.Database
	err error
}

func (d failingDatabase) Batch(context.Context, ...durable.Statement) ([]durable.BatchResult, error) {
	return nil, d.err
}

func TestDatabaseFailures(t *testing.T) {
	for err, want := range map[error]int{durable.ErrUnavailable: 503, durable.ErrUnknownOutcome: 504, durable.ErrTooLarge: 413, durable.ErrInvalid: 400, errors.New("syntax"): 400} {
		env, h := newLab(t)
		h.(*front).sql.db = failingDatabase{env.Database(databaseName), fmt.Errorf("x: %w", err)}
		w := send(h, "POST", "/sql", `{"sql":"SELECT 1"}`, "Host", "localhost")
		if w.Code != want || (want == 503) != (w.Header().Get("Retry-After") != "") || (want == 504) != (w.Header().Get("Dwk-Outcome") == "unknown") {
			t.Errorf("%v: %d %v", err, w.Code, w.Header())
		}
	}
}
