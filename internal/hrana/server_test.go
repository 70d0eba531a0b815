package hrana_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/hrana"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(serveVariable); path != "" {
		serveUntilEOF(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// post returns status and body of one request.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err) // not Fatal: it is used on other goroutines too
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode, string(b)
}

type answer struct {
	Baton   *string           `json:"baton"`
	Results []json.RawMessage `json:"results"`
}

// pipeline sends requests on a stream (baton "" is a new one) and returns the
// results as text, and the next baton.
func pipeline(t *testing.T, url, baton string, requests ...string) (results, next string) {
	t.Helper()
	status, body := post(t, url, message(baton, requests...))
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if len(a.Results) != len(requests) {
		t.Fatalf("%d results of %d requests", len(a.Results), len(requests))
	}
	if a.Baton != nil {
		next = *a.Baton
	}
	return string(bytes.Join(toBytes(a.Results), []byte("\n"))), next
}

func toBytes(in []json.RawMessage) (out [][]byte) {
	for _, b := range in {
		out = append(out, b)
	}
	return out
}

func message(baton string, requests ...string) string {
	b := "null"
	if baton != "" {
		b = `"` + baton + `"`
	}
	return `{"baton":` + b + `,"requests":[` + strings.Join(requests, ",") + `]}`
}

func execute(sql string) string {
	b, _ := json.Marshal(sql)
	return `{"type":"execute","stmt":{"sql":` + string(b) + `}}`
}

const closeRequest = `{"type":"close"}`

func TestRoutes(t *testing.T) {
	_, url := start(t, hrana.Config{MaxBody: 1000})
	for path, want := range map[string]int{
		"/health": 200, "/version": 200, "/v2": 200, "/v3": 200, "/v3-protobuf": 404, "/": 404, "/v1/jobs": 404, "/v2/pipeline": 404, "/v4": 404,
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if status, _ := post(t, url+"/v3-protobuf/pipeline", "{}"); status != 404 {
		t.Errorf("protobuf: %d", status)
	}
	if status, body := post(t, url+"/v2/pipeline", message("", execute(strings.Repeat(" ", 1000)))); status != 413 || !strings.Contains(body, `{"error":`) {
		t.Errorf("a large body: %d %s", status, body)
	}
}

// Requests and how their results begin, one after the other on one stream.
func TestRequests(t *testing.T) {
	_, url := start(t, hrana.Config{})
	ok := func(response string) string { return `{"type":"ok","response":` + response + `}` }
	failed := func(message, code string) string {
		return `{"type":"error","error":{"message":"` + message + `","code":"` + code + `"}}`
	}
	const tail = `,"replication_index":null,"rows_read":0,"rows_written":0,"query_duration_ms":0}`
	result := func(cols, rows, affected, rowid string) string {
		return `{"cols":[` + cols + `],"rows":[` + rows + `],"affected_row_count":` + affected + `,"last_insert_rowid":` + rowid + tail
	}
	executed := func(r string) string { return ok(`{"type":"execute","result":` + r + `}`) }
	baton := ""
	for _, test := range []struct{ name, request, want string }{
		{"create", execute("CREATE TABLE t (id INTEGER PRIMARY KEY, d DATETIME, u UNIQUE)"), executed(result("", "", "0", "null"))},
		{"insert", execute("INSERT INTO t VALUES (9007199254740993, '2024-01-02', 1)"), executed(result("", "", "1", `"9007199254740993"`))},
		{"values", execute(`SELECT id, d, 1.5, x'0102', NULL, '' AS e FROM t; -- end`), executed(result(
			`{"name":"id","decltype":"INTEGER"},{"name":"d","decltype":"DATETIME"},{"name":"1.5","decltype":null},{"name":"x'0102'","decltype":null},{"name":"NULL","decltype":null},{"name":"e","decltype":null}`,
			`[{"type":"integer","value":"9007199254740993"},{"type":"text","value":"2024-01-02"},{"type":"float","value":1.5},{"type":"blob","base64":"AQI"},{"type":"null"},{"type":"text","value":""}]`, "0", "null"))},
		{"no rows wanted", `{"type":"execute","stmt":{"sql":"UPDATE t SET u = 2 RETURNING u","want_rows":false}}`, executed(result(`{"name":"u","decltype":null}`, "", "1", "null"))},
		{"positional", `{"type":"execute","stmt":{"sql":"SELECT ?2, ?","args":[{"type":"null"},{"type":"integer","value":"2"},{"type":"integer","value":"3"}]}}`,
			executed(result(`{"name":"?2","decltype":null},{"name":"?","decltype":null}`, `[{"type":"integer","value":"2"},{"type":"integer","value":"3"}]`, "0", "null"))},
		{"named", `{"type":"execute","stmt":{"sql":"SELECT :a + $b + @c AS s","named_args":[{"name":"a","value":{"type":"integer","value":"1"}},{"name":"$b","value":{"type":"integer","value":"10"}},{"name":"c","value":{"type":"integer","value":"100"}}]}}`,
			executed(result(`{"name":"s","decltype":null}`, `[{"type":"integer","value":"111"}]`, "0", "null"))},
		{"both kinds", `{"type":"execute","stmt":{"sql":"SELECT ?","args":[{"type":"null"}],"named_args":[{"name":"a","value":{"type":"null"}}]}}`,
			failed("Specifying both positional and named arguments is not supported", "ARGS_BOTH_POSITIONAL_AND_NAMED")},
		{"too many arguments", `{"type":"execute","stmt":{"sql":"SELECT 1","args":[{"type":"null"}]}}`,
			failed("Arguments do not match SQL parameters: too many parameters, expected 0 found 1", "ARGS_INVALID")},
		{"too few arguments", execute("SELECT ?"), failed("Arguments do not match SQL parameters: value for parameter 1 not found", "ARGS_INVALID")},
		{"nothing", execute(" -- x"), failed("SQL string does not contain any statement", "SQL_NO_STATEMENT")},
		{"two", execute("SELECT 1; SELECT 2"), failed("SQL string contains more than one statement", "SQL_MANY_STATEMENTS")},
		{"syntax", execute("SELEC"), failed(`SQL input error: near \"SELEC\": syntax error (at offset 0)`, "SQL_INPUT_ERROR")},
		{"constraint", execute("INSERT INTO t VALUES (1, 1, 2)"), failed("SQLite error: UNIQUE constraint failed: t.u", "SQLITE_CONSTRAINT")},
		{"runtime", execute("SELECT abs(-9223372036854775808)"), failed("SQLite error: integer overflow", "SQLITE_UNKNOWN")},
		{"no JSON form", execute("SELECT 9e999"), failed("SQLite error: the float +Inf has no JSON form", "SQLITE_UNKNOWN")},
		{"not UTF-8", execute("SELECT CAST(x'ff' AS TEXT)"), failed("SQLite error: a text of 1 bytes is not valid UTF-8", "SQLITE_UNKNOWN")},
		{"sequence", `{"type":"sequence","sql":"CREATE TABLE s (a); INSERT INTO s VALUES (1); INSERT INTO missing VALUES (1); INSERT INTO s VALUES (2)"}`,
			failed("SQLite error: no such table: missing", "SQLITE_UNKNOWN")},
		{"after the sequence", execute("SELECT count(*) AS n FROM s"), executed(result(`{"name":"n","decltype":null}`, `[{"type":"integer","value":"1"}]`, "0", "null"))},
		{"describe", `{"type":"describe","sql":"INSERT INTO t VALUES (?, :a, ?5) RETURNING id, 1 AS one"}`,
			ok(`{"type":"describe","result":{"params":[{"name":null},{"name":":a"},{"name":null},{"name":null},{"name":"?5"}],"cols":[{"name":"id","decltype":"INTEGER"},{"name":"one","decltype":null}],"is_explain":false,"is_readonly":false}}`)},
		{"describe explain", `{"type":"describe","sql":"EXPLAIN QUERY PLAN SELECT ?"}`, `{"type":"ok","response":{"type":"describe","result":{"params":[{"name":null}],"cols":[`},
		{"store", `{"type":"store_sql","sql_id":-1,"sql":"SELECT 5 AS five"}`, ok(`{"type":"store_sql"}`)},
		{"stored", `{"type":"execute","stmt":{"sql_id":-1}}`, executed(result(`{"name":"five","decltype":null}`, `[{"type":"integer","value":"5"}]`, "0", "null"))},
		{"store much", `{"type":"store_sql","sql_id":2,"sql":"` + strings.Repeat(" ", 6000) + `"}`, failed("SQL text is too large to be stored", "SQL_STORE_TOO_LARGE")},
		{"unstore", `{"type":"close_sql","sql_id":-1}`, ok(`{"type":"close_sql"}`)},
		{"unstore again", `{"type":"close_sql","sql_id":-1}`, ok(`{"type":"close_sql"}`)},
		{"autocommit", `{"type":"get_autocommit"}`, ok(`{"type":"get_autocommit","is_autocommit":true}`)},
		{"begin", execute("BEGIN"), executed(result("", "", "0", "null"))},
		{"in a transaction", `{"type":"get_autocommit"}`, ok(`{"type":"get_autocommit","is_autocommit":false}`)},
		{"rollback", `{"type":"sequence","sql":"ROLLBACK"}`, ok(`{"type":"sequence"}`)},
	} {
		var got string
		if got, baton = pipeline(t, url+"/v3/pipeline", baton, test.request); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got\n%s, want\n%s", test.name, got, test.want)
		}
	}
}

// What sqld refuses as a whole: 400 and a text, and nothing is executed.
func TestBadRequests(t *testing.T) {
	_, url := start(t, hrana.Config{})
	insert := execute("INSERT INTO t VALUES (1)")
	pipeline(t, url+"/v2/pipeline", "", execute("CREATE TABLE t (a)"), closeRequest)
	for _, test := range []struct{ path, body, want string }{
		{"/v2/pipeline", "{", "JSON"},
		{"/v2/pipeline", message("", insert, `{"type":"open"}`), `"open"`},
		{"/v2/pipeline", message("", insert, `{"type":"get_autocommit"}`), `"get_autocommit"`},
		{"/v2/pipeline", message("", insert, `{"type":"execute"}`), "stmt"},
		{"/v2/pipeline", message("", insert, `{"type":"batch"}`), "batch"},
		{"/v2/pipeline", message("", insert, `{"type":"execute","stmt":{"sql":"SELECT ?","args":[{"type":"integer","value":1}]}}`), "integer must be a string"},
		{"/v2/pipeline", message("", insert, `{"type":"batch","batch":{"steps":[{"condition":{"type":"ok","step":0},"stmt":{"sql":"SELECT 1"}}]}}`), "Invalid reference to step"},
		{"/v2/pipeline", message("", insert, `{"type":"batch","batch":{"steps":[{"condition":{"type":"not","cond":{"type":"ok","step":-1}},"stmt":{"sql":"SELECT 1"}}]}}`), "Invalid reference to step"},
		{"/v2/pipeline", message("", insert, `{"type":"batch","batch":{"steps":[{"condition":{"type":"is_autocommit"},"stmt":{"sql":"SELECT 1"}}]}}`), "is_autocommit"},
		{"/v2/pipeline", message("", insert, `{"type":"batch","batch":{"steps":[{"condition":{"type":"xor"},"stmt":{"sql":"SELECT 1"}}]}}`), "xor"},
		{"/v3/cursor", `{}`, "batch"},
		{"/v3/cursor", `{"batch":{"steps":[{"condition":{"type":"error","step":3},"stmt":{"sql":"SELECT 1"}}]}}`, "Invalid reference to step"},
		{"/v2/pipeline", message("AAAA", insert), "invalid baton"},
	} {
		status, body := post(t, url+test.path, test.body)
		if status != http.StatusBadRequest || !strings.Contains(body, test.want) || strings.HasPrefix(body, "{") {
			t.Errorf("%s %s: got %d %s, want %q", test.path, test.body, status, body, test.want)
		}
	}
	if got, _ := pipeline(t, url+"/v2/pipeline", "", execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
		t.Errorf("something was executed: %s", got)
	}
	// What shows only when it is its turn ends the stream with it.
	for _, test := range []struct {
		requests []string
		want     string
	}{
		{[]string{closeRequest, insert}, "Stream for this baton was closed"},
		{[]string{`{"type":"execute","stmt":{"sql_id":7}}`}, "SQL text 7 not found"},
		{[]string{`{"type":"execute","stmt":{}}`}, "`sql`"},
		{[]string{`{"type":"execute","stmt":{"sql":"SELECT 1","sql_id":7}}`}, "`sql`"},
		{[]string{`{"type":"store_sql","sql_id":1,"sql":""}`, `{"type":"store_sql","sql_id":1,"sql":""}`}, "already exists"},
	} {
		_, baton := pipeline(t, url+"/v2/pipeline", "", execute("BEGIN IMMEDIATE"))
		if status, body := post(t, url+"/v2/pipeline", message(baton, test.requests...)); status != 400 || !strings.Contains(body, test.want) {
			t.Errorf("%s: got %d %s", test.requests, status, body)
		}
		pipeline(t, url+"/v2/pipeline", "", execute("BEGIN IMMEDIATE"), closeRequest) // the lock is free
	}
	// After close, texts may still be stored.
	pipeline(t, url+"/v2/pipeline", "", closeRequest, `{"type":"store_sql","sql_id":1,"sql":""}`, `{"type":"close_sql","sql_id":1}`, closeRequest)
}

func TestConditions(t *testing.T) {
	_, url := start(t, hrana.Config{})
	step := func(condition, sql string) string {
		if condition != "" {
			condition = `"condition":` + condition + `,`
		}
		return `{` + condition + `"stmt":{"sql":"` + sql + `"}}`
	}
	// Step 0 is ok, 1 fails, 2 is skipped.
	steps := []string{step("", "SELECT 0"), step("", "SELEC"), step(`{"type":"error","step":0}`, "SELECT 2")}
	want := []bool{true, false, false}
	for condition, met := range map[string]bool{
		`{"type":"ok","step":0}`: true, `{"type":"ok","step":1}`: false, `{"type":"ok","step":2}`: false,
		`{"type":"error","step":0}`: false, `{"type":"error","step":1}`: true, `{"type":"error","step":2}`: false,
		`{"type":"not","cond":{"type":"ok","step":2}}`:                              true,
		`{"type":"and","conds":[]}`:                                                 true,
		`{"type":"or","conds":[]}`:                                                  false,
		`{"type":"and","conds":[{"type":"ok","step":0},{"type":"error","step":1}]}`: true,
		`{"type":"and","conds":[{"type":"ok","step":0},{"type":"ok","step":1}]}`:    false,
		`{"type":"or","conds":[{"type":"ok","step":2},{"type":"error","step":1}]}`:  true,
		`{"type":"is_autocommit"}`:                                                  true,
		`{"type":"not","cond":{"type":"not","cond":{"type":"is_autocommit"}}}`:      true,
	} {
		steps = append(steps, step(condition, "SELECT 3"))
		want = append(want, met)
	}
	got, _ := pipeline(t, url+"/v3/pipeline", "", `{"type":"batch","batch":{"steps":[`+strings.Join(steps, ",")+`]}}`, closeRequest)
	var r struct {
		Response struct {
			Result struct {
				Results []json.RawMessage `json:"step_results"`
				Errors  []json.RawMessage `json:"step_errors"`
			} `json:"result"`
		} `json:"response"`
	}
	first, _, _ := strings.Cut(got, "\n")
	if err := json.Unmarshal([]byte(first), &r); err != nil {
		t.Fatal(err, got)
	}
	if len(r.Response.Result.Results) != len(steps) || len(r.Response.Result.Errors) != len(steps) {
		t.Fatalf("%d results and %d errors of %d steps", len(r.Response.Result.Results), len(r.Response.Result.Errors), len(steps))
	}
	for i, met := range want {
		if ran := string(r.Response.Result.Results[i]) != "null"; ran != met {
			t.Errorf("%s: executed %v", steps[i], ran)
		}
		if failed := string(r.Response.Result.Errors[i]) != "null"; failed != (i == 1) {
			t.Errorf("%s: an error is %v", steps[i], failed)
		}
	}
}

func TestStreamKeepsState(t *testing.T) {
	_, url := start(t, hrana.Config{})
	url += "/v3/pipeline"
	_, baton := pipeline(t, url, "", execute("CREATE TABLE t (a)"), `{"type":"store_sql","sql_id":1,"sql":"INSERT INTO t VALUES (1)"}`, execute("BEGIN IMMEDIATE"))
	first := baton
	got, baton := pipeline(t, url, baton, `{"type":"execute","stmt":{"sql_id":1}}`, `{"type":"get_autocommit"}`)
	if !strings.Contains(got, `"is_autocommit":false`) {
		t.Errorf("got %s", got)
	}
	if got, _ := pipeline(t, url, "", execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
		t.Errorf("another stream saw an open transaction: %s", got)
	}
	for _, used := range []string{first, "x" + first, first[:len(first)-1] + "A"} {
		status, body := post(t, url, message(used, execute("COMMIT")))
		if status != 400 || !strings.Contains(body, "baton") {
			t.Errorf("a bad baton: %d %s", status, body)
		}
	}
	if _, next := pipeline(t, url, baton, execute("COMMIT"), closeRequest); next != "" {
		t.Errorf("a closed stream has the baton %q", next)
	}
	if status, body := post(t, url, message(baton, execute("SELECT 1"))); status != 400 || body != "Received an invalid baton" {
		t.Errorf("the baton of a closed stream: %d %s", status, body)
	}
	if got, _ := pipeline(t, url, "", execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"1"`) {
		t.Errorf("after the commit: %s", got)
	}
}

// A setting of one stream is not found by the next one, nor an open
// transaction.
func TestStreamsAreSeparate(t *testing.T) {
	_, url := start(t, hrana.Config{})
	url += "/v3/pipeline"
	pipeline(t, url, "", execute("PRAGMA foreign_keys=0"), execute("CREATE TEMP TABLE mine (a)"), execute("BEGIN"), closeRequest)
	got, _ := pipeline(t, url, "", execute("PRAGMA foreign_keys"), execute("SELECT * FROM mine"), `{"type":"get_autocommit"}`, closeRequest)
	if !strings.Contains(got, `"value":"1"`) || !strings.Contains(got, "no such table") || !strings.Contains(got, `"is_autocommit":true`) {
		t.Errorf("got %s", got)
	}
}

func TestExpiry(t *testing.T) {
	_, url := start(t, hrana.Config{Expiry: 50 * time.Millisecond, BusyTimeout: 20 * time.Second})
	url += "/v2/pipeline"
	_, baton := pipeline(t, url, "", execute("CREATE TABLE t (a)"), execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"))
	// Waits until the sweeper has freed the lock.
	if got, _ := pipeline(t, url, "", execute("BEGIN IMMEDIATE"), execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
		t.Errorf("got %s", got)
	}
	status, body := post(t, url, message(baton, execute("COMMIT")))
	if status != 400 || body != `{"message":"The stream has expired due to inactivity","code":"STREAM_EXPIRED"}` {
		t.Errorf("got %d %s", status, body)
	}
}

func TestRestartForgetsBatons(t *testing.T) {
	path := t.TempDir() + "/a.db"
	_, url := start(t, hrana.Config{Path: path})
	_, baton := pipeline(t, url+"/v2/pipeline", "", execute("SELECT 1"))
	_, other := start(t, hrana.Config{Path: path})
	if status, body := post(t, other+"/v2/pipeline", message(baton, execute("SELECT 1"))); status != 400 || body != "Received an invalid baton" {
		t.Errorf("got %d %s", status, body)
	}
}

func TestBusy(t *testing.T) {
	_, url := start(t, hrana.Config{BusyTimeout: 30 * time.Millisecond})
	url += "/v2/pipeline"
	_, baton := pipeline(t, url, "", execute("CREATE TABLE t (a)"), execute("BEGIN IMMEDIATE"))
	got, _ := pipeline(t, url, "", execute("INSERT INTO t VALUES (1)"), execute("SELECT 1"), closeRequest)
	if !strings.Contains(got, `{"message":"SQLite error: database is locked","code":"SQLITE_BUSY"}`) {
		t.Errorf("got %s", got)
	}
	pipeline(t, url, baton, closeRequest)
	if got, _ := pipeline(t, url, "", execute("INSERT INTO t VALUES (1)"), closeRequest); strings.Contains(got, "error") {
		t.Errorf("got %s", got)
	}
	// A snapshot that is too old for writing is not waited for.
	_, baton = pipeline(t, url, "", execute("BEGIN"), execute("SELECT * FROM t"))
	pipeline(t, url, "", execute("INSERT INTO t VALUES (2)"), closeRequest)
	if got, _ := pipeline(t, url, baton, execute("INSERT INTO t VALUES (3)"), closeRequest); !strings.Contains(got, `"code":"SQLITE_BUSY"`) {
		t.Errorf("got %s", got)
	}
}

func TestResponseTooLarge(t *testing.T) {
	_, url := start(t, hrana.Config{MaxResponse: 10_000})
	url += "/v2/pipeline"
	large := "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 20) SELECT zeroblob(1000) FROM n"
	batch := func(sqls ...string) string {
		var steps []string
		for _, sql := range sqls {
			steps = append(steps, `{"stmt":{"sql":"`+sql+`"}}`)
		}
		return `{"type":"batch","batch":{"steps":[` + strings.Join(steps, ",") + `]}}`
	}
	got, baton := pipeline(t, url, "", execute("CREATE TABLE t (a)"), batch("BEGIN IMMEDIATE", "INSERT INTO t VALUES (1)", large, "COMMIT"), execute(large), execute("SELECT 1"))
	if strings.Count(got, `{"type":"error","error":{"message":"Response is too large","code":"RESPONSE_TOO_LARGE"}}`) != 2 || len(got) > 1000 {
		t.Errorf("got %s", got)
	}
	pipeline(t, url, baton, closeRequest) // which rolls back
	if got, _ := pipeline(t, url, "", execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
		t.Errorf("got %s", got)
	}
}

func TestCursor(t *testing.T) {
	_, url := start(t, hrana.Config{})
	status, body := post(t, url+"/v3/cursor", `{"batch":{"steps":[
		{"stmt":{"sql":"CREATE TABLE t (a)"}},
		{"stmt":{"sql":"INSERT INTO t VALUES (?), ('x') RETURNING a","args":[{"type":"blob","base64":"AQ=="}]}},
		{"stmt":{"sql":"SELEC"}},
		{"condition":{"type":"ok","step":2},"stmt":{"sql":"SELECT 1"}},
		{"stmt":{"sql":"SELECT 1","want_rows":false}}]}}`)
	head, rest, _ := strings.Cut(body, "\n")
	var a answer
	if err := json.Unmarshal([]byte(head), &a); status != 200 || err != nil || a.Baton == nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if want := `{"type":"step_begin","step":0,"cols":[]}
{"type":"step_end","affected_row_count":0,"last_insert_rowid":null}
{"type":"step_begin","step":1,"cols":[{"name":"a","decltype":null}]}
{"type":"row","row":[{"type":"blob","base64":"AQ"}]}
{"type":"row","row":[{"type":"text","value":"x"}]}
{"type":"step_end","affected_row_count":2,"last_insert_rowid":"2"}
{"type":"step_error","step":2,"error":{"message":"SQL input error: near \"SELEC\": syntax error (at offset 0)","code":"SQL_INPUT_ERROR"}}
{"type":"step_begin","step":4,"cols":[{"name":"1","decltype":null}]}
{"type":"step_end","affected_row_count":0,"last_insert_rowid":null}
`; rest != want {
		t.Errorf("got\n%s, want\n%s", rest, want)
	}
	pipeline(t, url+"/v3/pipeline", *a.Baton, closeRequest)
	if _, body := post(t, url+"/v3/cursor", `{"batch":{"steps":[{"stmt":{"sql_id":1}}]}}`); !strings.HasSuffix(body, "\n"+`{"type":"error","error":{"message":"SQL text 1 not found","code":"PROTOCOL_ERROR"}}`+"\n") {
		t.Errorf("got %s", body)
	}
}

// A client that goes away ends its statement, its transaction and its stream.
func TestDisconnect(t *testing.T) {
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT "
	s, url := start(t, hrana.Config{BusyTimeout: 20 * time.Second})
	pipeline(t, url+"/v3/pipeline", "", execute("CREATE TABLE t (a)"), closeRequest)
	for _, test := range []struct{ name, path, body string }{
		{"pipeline", "/v3/pipeline", message("", execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"), execute(endless+"count(*) FROM n"), execute("COMMIT"))},
		{"cursor", "/v3/cursor", `{"batch":{"steps":[{"stmt":{"sql":"BEGIN IMMEDIATE"}},{"stmt":{"sql":"INSERT INTO t VALUES (1)"}},{"stmt":{"sql":"` + endless + `i FROM n"}},{"stmt":{"sql":"COMMIT"}}]}}`},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s.SetHook(func(context.Context, hrana.Request) hrana.Fault {
			s.SetHook(nil)
			// The client goes while the endless statement runs, or before.
			time.AfterFunc(20*time.Millisecond, cancel)
			return hrana.Fault{}
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: an endless statement ended", test.name)
		}
		// The lock is free long before a stream would expire or a wait end.
		if got, _ := pipeline(t, url+"/v3/pipeline", "", execute("BEGIN IMMEDIATE"), execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
			t.Errorf("%s: got %s", test.name, got)
		}
		cancel()
	}
}

// An answer that was lost leaves no stream with an open transaction.
func TestLostAnswer(t *testing.T) {
	s, url := start(t, hrana.Config{BusyTimeout: 20 * time.Second})
	pipeline(t, url+"/v3/pipeline", "", execute("CREATE TABLE t (a)"), closeRequest)
	for _, fault := range []hrana.Fault{{CutAfter: true}, {CutBefore: true}} {
		s.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
			if got := fmt.Sprint(r); got != "{/v3/pipeline [BEGIN IMMEDIATE INSERT INTO t VALUES (1)]}" {
				t.Errorf("the hook saw %s", got)
			}
			return fault
		})
		resp, err := http.Post(url+"/v3/pipeline", "", strings.NewReader(message("", execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"))))
		if err == nil {
			resp.Body.Close()
			t.Errorf("%+v: status %d", fault, resp.StatusCode)
		}
		s.SetHook(nil)
		if got, _ := pipeline(t, url+"/v3/pipeline", "", execute("INSERT INTO t VALUES (2)"), closeRequest); strings.Contains(got, "error") {
			t.Errorf("got %s", got)
		}
	}
	if got, _ := pipeline(t, url+"/v3/pipeline", "", execute("SELECT sum(a) FROM t"), closeRequest); !strings.Contains(got, `"value":"4"`) {
		t.Errorf("got %s", got)
	}
}

// Anything may be sent; it is answered, and harms nothing.
func FuzzPipeline(f *testing.F) {
	s, err := hrana.New(hrana.Config{Path: f.TempDir() + "/a.db", BusyTimeout: time.Millisecond, Expiry: time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Add([]byte(message("", execute("SELECT 1"), closeRequest)), true)
	f.Add([]byte(`{"batch":{"steps":[{"condition":{"type":"not","cond":{"type":"ok","step":0}},"stmt":{"sql":"SELECT ?","args":[{"type":"null"}]}}]}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, pipeline bool) {
		path := "/v3/cursor"
		if pipeline {
			path = "/v3/pipeline"
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		w := &recorder{header: http.Header{}}
		defer func() {
			if e := recover(); e != nil && (e != http.ErrAbortHandler || ctx.Err() == nil) {
				panic(e)
			}
		}()
		s.ServeHTTP(w, req)
		if w.status == http.StatusOK && pipeline && !json.Valid(w.body.Bytes()) {
			t.Fatalf("not JSON: %s", w.body.Bytes())
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) Flush()              {}
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.body.Write(b)
}
