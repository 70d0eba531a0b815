package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/durable"
)

func newLab(t *testing.T) (*fakeEnv, http.Handler) {
	t.Helper()
	env := newFakeEnv(t)
	h, err := App().New(env)
	if err != nil {
		t.Fatal(err)
	}
	return env, h
}

func send(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost:8080"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// want checks an answer whose body is JSON, or text when it does not look so.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	got := strings.TrimSuffix(w.Body.String(), "\n")
	if w.Code != status || got != body {
		t.Errorf("%d %s, want %d %s", w.Code, got, status, body)
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		loopback bool
		settings any
		ok       bool
	}{
		{true, &Settings{}, true}, {false, &Settings{}, false}, {false, &Settings{AllowRemote: true}, true},
		{true, nil, true}, {false, nil, false}, {false, (*Settings)(nil), false},
	} {
		env := newFakeEnv(t)
		env.loopback, env.settings = c.loopback, c.settings
		if _, err := App().New(env); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		} else if err != nil && !strings.Contains(err.Error(), "allow_remote: true") {
			t.Errorf("error does not tell what to do: %v", err)
		}
	}
}

func TestHosts(t *testing.T) {
	_, h := newLab(t)
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"localhost", "", 200}, {"LOCALHOST:1", "", 200}, {"127.0.0.1:8080", "", 200}, {"127.8.8.8", "", 200}, {"[::1]:8080", "", 200},
		{"pods.example", "", 200}, {"Pods.Example:8443", "", 200},
		{"evil.example", "", 421}, {"localhost.evil.example", "", 421}, {"pods.example.evil.example", "", 421}, {"sub.pods.example", "", 421},
		{"192.168.1.1", "", 421}, {"10.0.0.1:80", "", 421}, {"0.0.0.0", "", 421}, {"", "", 421}, {"localhost:80:90", "", 421}, {"127.1", "", 421},
		{"localhost", "http://localhost:3000", 200}, {"localhost", "https://pods.example:8443", 200}, {"localhost", "http://127.0.0.1", 200},
		{"localhost", "https://evil.example", 403}, {"localhost", "null", 403}, {"localhost", "http://localhost@evil.example", 403},
		{"localhost", "http://localhost.evil.example", 403}, {"localhost", "%zz", 403}, {"evil.example", "http://evil.example", 421},
	} {
		header := []string{"Host", c.host}
		if c.origin != "" {
			header = append(header, "Origin", c.origin)
		}
		if w := send(h, "GET", "/whoami", "", header...); w.Code != c.status {
			t.Errorf("host %q, origin %q: %d, want %d", c.host, c.origin, w.Code, c.status)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	env, h := newLab(t)
	long := strings.Repeat("n", maxName)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 200, ""}, {"HEAD", "/", 200, ""}, {"POST", "/", 405, "GET, HEAD"},
		{"GET", "/whoami", 200, ""}, {"PUT", "/whoami", 405, "GET, HEAD"}, {"GET", "/whoami/", 404, ""}, {"GET", "/whoami/x", 404, ""},
		{"GET", "/counter", 404, ""}, {"GET", "/counter/", 400, ""}, {"GET", "/counter//add", 405, "POST"}, {"POST", "/counter//add", 400, ""},
		{"GET", "/counter/a/", 404, ""}, {"GET", "/counter/a/b", 404, ""}, {"GET", "/counter/a/ops/", 404, ""},
		{"GET", "/counter/a", 200, ""}, {"HEAD", "/counter/a", 200, ""}, {"PUT", "/counter/a", 405, "GET, HEAD"}, {"DELETE", "/counter/a", 405, "GET, HEAD"},
		{"GET", "/counter/a/add", 405, "POST"}, {"POST", "/counter/a/ops", 405, "GET, HEAD"}, {"GET", "/counter/a/ops", 200, ""},
		{"GET", "/counter/a/sql", 404, ""}, {"POST", "/note/a/add", 404, ""},
		{"GET", "/note/a", 404, ""}, {"DELETE", "/note/a", 405, "GET, HEAD, PUT"}, {"POST", "/note/a", 405, "GET, HEAD, PUT"},
		{"GET", "/note/a/sql", 405, "POST"}, {"GET", "/note/a/sleep", 405, "POST"}, {"PUT", "/note/a/sleeps", 405, "GET, HEAD"}, {"GET", "/note/a/sleeps", 200, ""},
		{"OPTIONS", "/counter/a", 405, "GET, HEAD"},
		{"GET", "/counter/" + long, 200, ""}, {"GET", "/counter/" + long + "n", 400, ""}, {"GET", "/counter/%ff", 400, ""},
		{"GET", "/counter/a%2Fadd", 200, ""}, {"GET", "/counter/%C3%A9%00", 200, ""}, {"GET", "/Counter/a", 404, ""}, {"GET", "/room/a", 404, ""},
		{"GET", "//counter/a", 404, ""}, {"GET", "/counter/a//ops", 404, ""},
	} {
		w := send(h, c.method, c.path, "")
		if w.Code != c.status || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, w.Code, w.Header().Get("Allow"))
		}
		if w.Code >= 400 {
			var e struct{ Error string }
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == "" || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: body %s", c.method, c.path, w.Body)
			}
		}
	}
	for key, o := range env.objects {
		if o.exists {
			t.Errorf("%s came to be by reading", key)
		}
	}
}

// Objects judge a request themselves too: another application may send it.
func TestObjectsAlone(t *testing.T) {
	env := newFakeEnv(t)
	for _, c := range []struct {
		class, method, path string
		status              int
	}{
		{"Counter", "GET", "/note/a", 404}, {"Note", "GET", "/counter/a", 404}, {"Counter", "GET", "/", 404}, {"Counter", "GET", "/x/y/z", 404},
		{"Counter", "PUT", "/counter/a", 405}, {"Note", "DELETE", "/note/a", 405}, {"Counter", "GET", "/counter/a", 200},
	} {
		w := httptest.NewRecorder()
		env.object(c.class, "a").ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

func TestIndexAndWhoami(t *testing.T) {
	_, h := newLab(t)
	w := send(h, "GET", "/", "")
	if w.Header().Get("Content-Type") != "text/html; charset=utf-8" || strings.Contains(w.Body.String(), "<script") {
		t.Errorf("index: %v", w.Header())
	}
	for key := range methods {
		if kind, action := key[0], key[1]; !strings.Contains(w.Body.String(), kind) || !strings.Contains(w.Body.String(), action) {
			t.Errorf("index does not mention %s %s", kind, action)
		}
	}
	want(t, send(h, "GET", "/whoami", ""), 200, `{"replica":"r1","version":"v0"}`)
}

func TestCounter(t *testing.T) {
	env, h := newLab(t)
	want(t, send(h, "GET", "/counter/c", ""), 200, `{"name":"c","value":0}`)
	want(t, send(h, "GET", "/counter/c/ops", ""), 200, `{"name":"c","ops":[]}`)
	for _, query := range []string{"n=", "n=x", "n=1.5", "n=1e3", "n=1000000001", "n=-1000000001", "n=99999999999999999999", "op=", "op=%ff", "op=" + strings.Repeat("o", maxOp+1), "%zz", "n=1;n=2"} {
		if w := send(h, "POST", "/counter/c/add?"+query, ""); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if env.exists("Counter", "c") {
		t.Error("a counter came to be without an add")
	}
	for _, c := range []struct {
		query string
		value int
	}{
		{"", 1}, {"?n=5", 6}, {"?n=-10", -4}, {"?n=0", -4}, {"?op=a", -3}, {"?op=a", -3}, {"?n=100&op=a", -3}, {"?n=7&op=b%20%C3%A9", 4},
		{"?op=" + strings.Repeat("o", maxOp), 5}, {"?n=1000000000", 1000000005},
	} {
		want(t, send(h, "POST", "/counter/c/add"+c.query, ""), 200, fmt.Sprintf(`{"name":"c","value":%d}`, c.value))
	}
	want(t, send(h, "GET", "/counter/c", ""), 200, `{"name":"c","value":1000000005}`)
	want(t, send(h, "GET", "/counter/c/ops", ""), 200,
		`{"name":"c","ops":[{"op":"a","n":1,"value":-3},{"op":"b é","n":7,"value":4},{"op":"`+strings.Repeat("o", maxOp)+`","n":1,"value":5}]}`)
	want(t, send(h, "GET", "/counter/d", ""), 200, `{"name":"d","value":0}`)
	want(t, send(h, "POST", "/counter/a%2F%22b%22%3C/add", ""), 200, `{"name":"a/\"b\"<","value":1}`)
}

// A failure that is not the caller's is a panic: the host undoes the event.
func TestHandlersPanic(t *testing.T) {
	env, h := newLab(t)
	for _, c := range []struct{ class, breaks, method, path, body string }{
		{"Counter", "DROP TABLE lab_counter; CREATE TABLE lab_counter (x)", "GET", "/counter/a", ""},
		{"Counter", "DROP TABLE lab_ops; CREATE TABLE lab_ops (x)", "POST", "/counter/b/add?op=x", ""},
		{"Counter", "DROP TABLE lab_ops; CREATE TABLE lab_ops (x)", "GET", "/counter/c/ops", ""},
		{"Note", "DROP TABLE lab_note; CREATE TABLE lab_note (x)", "GET", "/note/a", ""},
		{"Note", "DROP TABLE lab_note; CREATE TABLE lab_note (x)", "PUT", "/note/b", "x"},
		{"Note", "DROP TABLE lab_sleeps; CREATE TABLE lab_sleeps (x)", "POST", "/note/c/sleep", ""},
		{"Note", "DROP TABLE lab_sleeps; CREATE TABLE lab_sleeps (x)", "GET", "/note/d/sleeps", ""},
	} {
		name := strings.Split(c.path, "/")[2]
		o := env.object(c.class, name)
		o.exec(counterSchema + noteSchema + c.breaks)
		if w := send(h, c.method, c.path, c.body); w.Code != 500 || len(o.panics) != 1 {
			t.Errorf("%s %s: %d, panics %v", c.method, c.path, w.Code, o.panics)
		}
	}
}

func TestNote(t *testing.T) {
	env, h := newLab(t)
	if w := send(h, "PUT", "/note/n", strings.Repeat("x", maxNote+1)); w.Code != 413 {
		t.Errorf("large note: %d", w.Code)
	}
	for _, typ := range []string{"x", "text/", strings.Repeat("a", maxTypeName) + "/b"} {
		if w := send(h, "PUT", "/note/n", "x", "Content-Type", typ); w.Code != 400 {
			t.Errorf("type %q: %d", typ, w.Code)
		}
	}
	if w := send(h, "PUT", "/note/n", "x", "If-Match", "*"); w.Code != 412 {
		t.Errorf("If-Match on nothing: %d", w.Code)
	}
	if env.exists("Note", "n") {
		t.Error("a note came to be without a body")
	}

	first := send(h, "PUT", "/note/n", "one", "Content-Type", "text/plain; charset=utf-8", "If-None-Match", "*")
	tag := first.Header().Get("ETag")
	if first.Code != 201 || len(tag) < 10 || tag[0] != '"' {
		t.Fatalf("first put: %d, ETag %q", first.Code, tag)
	}
	w := send(h, "GET", "/note/n", "")
	want(t, w, 200, "one")
	if w.Header().Get("ETag") != tag || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("headers %v", w.Header())
	}
	for _, c := range []struct {
		method, name, value string
		status              int
	}{
		{"GET", "If-None-Match", tag, 304}, {"HEAD", "If-None-Match", tag, 304}, {"GET", "If-None-Match", "W/" + tag, 304}, {"GET", "If-None-Match", `"x", ` + tag, 304}, {"GET", "If-None-Match", "*", 304},
		{"GET", "If-None-Match", `"x"`, 200}, {"GET", "If-None-Match", strings.Trim(tag, `"`), 200},
		{"PUT", "If-None-Match", "*", 412}, {"PUT", "If-None-Match", tag, 412}, {"PUT", "If-Match", `"x"`, 412},
		{"PUT", "If-Match", tag, 204},
	} {
		w := send(h, c.method, "/note/n", "one", c.name, c.value, "Content-Type", "text/plain; charset=utf-8")
		if w.Code != c.status || w.Header().Get("ETag") != tag {
			t.Errorf("%+v: %d, ETag %q", c, w.Code, w.Header().Get("ETag"))
		}
		if c.status == 304 && w.Body.Len() > 0 {
			t.Errorf("%+v: body %q", c, w.Body)
		}
	}
	w = send(h, "PUT", "/note/n", "")
	if w.Code != 204 || w.Header().Get("ETag") == tag {
		t.Errorf("empty put: %d %q", w.Code, w.Header().Get("ETag"))
	}
	w = send(h, "GET", "/note/n", "")
	want(t, w, 200, "")
	if w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("type %q", w.Header().Get("Content-Type"))
	}
	big := bytes.Repeat([]byte{0, 1, 2, 0xff}, maxNote/4)
	send(h, "PUT", "/note/big", string(big))
	if w := send(h, "GET", "/note/big", ""); !bytes.Equal(w.Body.Bytes(), big) {
		t.Errorf("a large note came back as %d bytes", w.Body.Len())
	}
}

func TestSleep(t *testing.T) {
	env, h := newLab(t)
	for _, query := range []string{"ms=-1", "ms=x", "ms=600001", "%zz"} {
		if w := send(h, "POST", "/note/s/sleep?"+query, ""); w.Code != 400 {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	want(t, send(h, "POST", "/note/s/sleep?ms=5", ""), 200, `{"name":"s","ms":5}`)
	want(t, send(h, "POST", "/note/s/sleep", ""), 200, `{"name":"s","ms":0}`)

	// A wait that is cut fails its event: neither row stays.
	ctx, cancel := context.WithCancelCause(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/note/s/sleep?ms=600000", nil)
	r.Host = "localhost"
	cancel(durable.ErrFenced)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if o := env.object("Note", "s"); w.Code != 500 || len(o.panics) != 1 {
		t.Errorf("cut: %d %v", w.Code, o.panics)
	}

	var got struct {
		Name   string
		Sleeps []struct {
			ID, Ms, At int64
			Begun      *int64
			Replica    string
		}
	}
	if err := json.Unmarshal(send(h, "GET", "/note/s/sleeps", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Sleeps) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, s := range got.Sleeps {
		if s.Replica != "r1" || s.At == 0 || (s.Begun == nil) != (i%2 == 0) || (s.Begun != nil && *s.Begun != got.Sleeps[i-1].ID) {
			t.Errorf("row %d: %+v", i, s)
		}
	}
}

func TestSQL(t *testing.T) {
	_, h := newLab(t)
	run := func(body string) *httptest.ResponseRecorder { return send(h, "POST", "/note/q/sql", body) }
	want(t, run(`{"sql":"CREATE TABLE t (id INTEGER PRIMARY KEY, v ANY) STRICT"}`), 200, `[{"columns":[],"rows":[],"changes":0,"last_row_id":0}]`)
	want(t, run(`[{"sql":"INSERT INTO t (v) VALUES (?), (?), (?), (?), (?), (?)","args":[9223372036854775807, -1.5, "é", {"$bytes":"AP8="}, null, true]},
		{"sql":"SELECT v FROM t ORDER BY id"}, {"sql":"UPDATE t SET v = v WHERE id < 3"}, {"sql":"DELETE FROM t WHERE id > 99"}, {"sql":"INSERT INTO t VALUES (50, 1.0) RETURNING id, v"}]`), 200,
		`[{"columns":[],"rows":[],"changes":6,"last_row_id":6},`+
			`{"columns":["v"],"rows":[[9223372036854775807],[-1.5],["é"],[{"$bytes":"AP8="}],[null],[1]],"changes":0,"last_row_id":6},`+
			`{"columns":[],"rows":[],"changes":2,"last_row_id":6},{"columns":[],"rows":[],"changes":0,"last_row_id":6},`+
			`{"columns":["id","v"],"rows":[[50,1.0]],"changes":1,"last_row_id":50}]`)
	want(t, run(`{"sql":"SELECT ?, ?, ?, ? AS d","args":[9007199254740993, 1e2, {"$bytes":""}, 9e999]}`), 200,
		`[{"columns":["?","?","?","d"],"rows":[[9007199254740993,100.0,{"$bytes":""},9e999]],"changes":0,"last_row_id":50}]`)
	want(t, run(`{"sql":" -- note\n/* a */ select 1 as one"}`), 200, `[{"columns":["one"],"rows":[[1]],"changes":0,"last_row_id":50}]`)
}

func TestSQLRefused(t *testing.T) {
	env, h := newLab(t)
	run := func(name, body string) *httptest.ResponseRecorder {
		return send(h, "POST", "/note/"+name+"/sql", body)
	}
	for _, body := range []string{
		``, `x`, `null`, `1`, `"SELECT 1"`, `[]`, `{}`, `{"sql":""}`, `[{"sql":" "}]`, `{"sql":"SELECT 1","x":1}`, `{"sql":"SELECT 1"} x`, `{"sql":"SELECT 1"}{}`,
		`{"sql":"SELECT ?","args":[[1]]}`, `{"sql":"SELECT ?","args":[{"a":1}]}`, `{"sql":"SELECT ?","args":[{}]}`, `{"sql":"SELECT ?","args":[{"$bytes":"*"}]}`,
		`{"sql":"SELECT ?","args":[{"$bytes":"","x":1}]}`, `{"sql":"SELECT ?","args":[9223372036854775808]}`, `{"sql":"SELECT ?","args":{"a":1}}`,
		`{"sql":"COMMIT"}`, `{"sql":" ; -- x\n /* y */ commit"}`, `{"sql":"Begin Immediate"}`, `{"sql":"ROLLBACK"}`, `{"sql":"SAVEPOINT a"}`, `{"sql":"RELEASE tx"}`, `{"sql":"END"}`,
		"[" + strings.Repeat(`{"sql":"SELECT 1"},`, maxStatements) + `{"sql":"SELECT 1"}]`,
		`{"sql":"SELEC 1"}`, `{"sql":"SELECT * FROM none"}`, `{"sql":"SELECT hex(zeroblob(17000000))"}`,
		`[{"sql":"CREATE TABLE t (a)"},{"sql":"INSERT INTO t VALUES (1)"},{"sql":"INSERT INTO none VALUES (1)"}]`,
	} {
		if w := run("x", body); w.Code != 400 {
			t.Errorf("%.80s: %d %s", body, w.Code, w.Body)
		}
	}
	if env.exists("Note", "x") {
		t.Error("refused statements were committed")
	}
	if w := run("x", `{"sql":"`+strings.Repeat(" ", maxSQL)+`"}`); w.Code != 413 {
		t.Errorf("large request: %d", w.Code)
	}

	run("y", `{"sql":"CREATE TABLE t (a UNIQUE)"}`)
	w := run("y", `[{"sql":"INSERT INTO t VALUES (1)"},{"sql":"INSERT INTO t VALUES (1)"}]`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "statement 1: ") || !strings.Contains(w.Body.String(), "UNIQUE") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want(t, run("y", `{"sql":"SELECT count(*) AS n FROM t"}`), 200, `[{"columns":["n"],"rows":[[0]],"changes":0,"last_row_id":1}]`)
	if n := len(env.object("Note", "x").panics) + len(env.object("Note", "y").panics); n != 0 {
		t.Errorf("%d panics", n)
	}
}

// An error of the host is not taken for one of a statement.
func TestSQLHostErrors(t *testing.T) {
	for _, host := range []error{durable.ErrFenced, durable.ErrRevoked, context.Canceled} {
		env := newFakeEnv(t)
		o := env.object("Note", "a")
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, host) {
					t.Errorf("recovered %v", err)
				}
			}()
			db := failingSQL{fakeSQL{o, false}, host}
			serveSQL(httptest.NewRecorder(), httptest.NewRequest("POST", "/note/a/sql", strings.NewReader(`{"sql":"SELECT 1"}`)), db)
			t.Error("answered")
		}()
	}
}

type failingSQL struct {
	durable.SQL
	err error
}

func (s failingSQL) Tx(context.Context, func(durable.SQL) error) error {
	return fmt.Errorf("wrapped: %w", &statementError{0, s.err})
}

func TestCellRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.String().AsAny(), rapid.SliceOf(rapid.Byte()).AsAny(), rapid.Just(any(nil)),
			rapid.SampledFrom([]any{math.Inf(1), math.Inf(-1), 0.0, math.Copysign(0, -1), math.MaxFloat64, 1e21, int64(math.MinInt64)}),
		).Draw(t, "v")
		b, err := json.Marshal([]cell{newCell(v)})
		if err != nil {
			t.Fatal(err)
		}
		var back []cell
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if fmt.Sprintf("%T %v", back[0].v, back[0].v) != fmt.Sprintf("%T %v", v, v) {
			t.Fatalf("%T %v became %s and %T %v", v, v, b, back[0].v, back[0].v)
		}
	})
}

func FuzzStatements(f *testing.F) {
	for _, s := range []string{`{"sql":"SELECT 1","args":[1,"a",null,{"$bytes":"AA=="}]}`, `[{"sql":"--x\nEND"}]`, `[`, `{"sql":"/*"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		list, err := parseStatements([]byte(body))
		if err != nil {
			return
		}
		for _, s := range list {
			for _, a := range s.Args {
				if _, err := json.Marshal(a); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
