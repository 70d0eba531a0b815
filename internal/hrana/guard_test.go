package hrana_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// ask sends a pipeline with headers (name, value, ...) and returns status and
// body.
func ask(t *testing.T, url, host, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestReadToken: with it statements are answered that read, and no others; one
// stream may be used with both.
func TestReadToken(t *testing.T) {
	_, url := start(t, hrana.Config{Token: "secret", ReadToken: "weaker"})
	for _, sql := range []string{"CREATE TABLE t(a)", "SELECT 1", "BEGIN IMMEDIATE", "INSERT INTO t VALUES(1)", "DELETE FROM t", "DROP TABLE t"} {
		for _, path := range []string{"/v2/pipeline", "/v3/pipeline"} {
			for _, request := range []string{execute(sql), strings.Replace(strings.Replace(execute(sql), `"execute","stmt":{`, `"sequence",`, 1), `}}`, `}`, 1)} {
				status, body := ask(t, url+path, "", message("", request, closeRequest), "Authorization", "Bearer weaker")
				if blocked := strings.Contains(body, `"code":"BLOCKED"`); status != 200 || blocked == (sql == "SELECT 1") {
					t.Errorf("%s: %d %s", request, status, body)
				}
			}
		}
		status, body := ask(t, url+"/v3/pipeline", "", message("", execute(sql), closeRequest), "Authorization", "Bearer secret")
		if status != 200 || strings.Contains(body, `"error"`) {
			t.Errorf("%s with all rights: %d %s", sql, status, body)
		}
	}
	if status, _ := ask(t, url+"/v3/pipeline", "", message("", closeRequest), "Authorization", "Bearer "); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestToken(t *testing.T) {
	_, url := start(t, hrana.Config{Token: "secret"})
	for _, test := range []struct {
		name, header, value string
		status              int
	}{
		{"none", "X", "", 401},
		{"right", "Authorization", "Bearer secret", 200},
		{"right, small", "Authorization", "bearer secret", 200},
		{"right, other header", "X-Authorization", "Bearer secret", 200},
		{"wrong", "Authorization", "Bearer secreT", 401},
		{"beginning", "Authorization", "Bearer secre", 401},
		{"empty", "Authorization", "Bearer ", 401},
		{"basic", "Authorization", "Basic secret", 401},
		{"no scheme", "Authorization", "secret", 401},
	} {
		for _, path := range []string{"/v2/pipeline", "/v3/pipeline"} {
			status, body := ask(t, url+path, "", message("", closeRequest), test.header, test.value)
			if status != test.status || status == 401 && (!strings.HasPrefix(body, `{"error":`) || strings.Contains(body, "secret")) {
				t.Errorf("%s, %s: %d %s", test.name, path, status, body)
			}
		}
	}
	if status, _ := ask(t, url+"/v3/cursor", "", `{"batch":{"steps":[]}}`); status != 401 {
		t.Errorf("a cursor without a token: %d", status)
	}
	if resp, err := http.Get(url + "/health"); err != nil || resp.StatusCode != 200 {
		t.Error(resp, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestNamespaces(t *testing.T) {
	dir := t.TempDir()
	cfg := hrana.Config{Path: filepath.Join(dir, "main.db"), Namespaces: filepath.Join(dir, "ns")}
	s, url := start(t, cfg)
	for _, name := range []string{"one", "Two_2", "one"} {
		if err := s.CreateNamespace(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "../x", "a.b", "-a", strings.Repeat("a", 65)} {
		if s.CreateNamespace(name) == nil {
			t.Errorf("the namespace %q was made", name)
		}
	}
	tests := []struct {
		want       string // the namespace, or "" for none
		path, host string
		headers    []string
	}{
		{"default", "", "localhost", nil},
		{"default", "", "localhost:8080", nil},
		{"one", "", "one.example.com", nil},
		{"one", "", "one.localhost:8080", nil},
		{"", "", "127.0.0.1:8080", nil}, // it names "127"
		{"", "", "none.example.com", nil},
		{"one", "", "Two_2.example.com", []string{"x-namespace", "one"}},
		{"default", "", "one.example.com", []string{"x-namespace", "default"}},
		{"", "", "one.example.com", []string{"x-namespace", "other"}},
		{"", "", "localhost", []string{"x-namespace", "../main"}},
		{"Two_2", "", "one.example.com", []string{"x-namespace", "one", "x-namespace-bin", base64.StdEncoding.EncodeToString([]byte("Two_2"))}},
		{"Two_2", "/dev/Two_2", "one.example.com", []string{"x-namespace", "one"}},
		{"", "/dev/none", "localhost", nil},
	}
	for _, name := range []string{"default", "one", "Two_2"} {
		create := message("", execute("CREATE TABLE t AS SELECT '"+name+"' AS name"), closeRequest)
		if status, body := ask(t, url+"/v2/pipeline", "", create, "x-namespace", name); status != 200 || strings.Contains(body, "error") {
			t.Fatal(status, body)
		}
	}
	read := message("", execute("SELECT name FROM t"), closeRequest)
	check := func(url string) {
		t.Helper()
		for _, test := range tests {
			status, body := ask(t, url+test.path+"/v2/pipeline", test.host, read, test.headers...)
			if ok := status == 200 && strings.Contains(body, `"value":"`+test.want+`"`); ok != (test.want != "") || !ok && (status != 404 || !strings.HasPrefix(body, `{"error":`)) {
				t.Errorf("%+v: %d %s", test, status, body)
			}
		}
	}
	check(url)
	if status, _ := ask(t, url+"/v2/pipeline", "", read, "x-namespace-bin", "%"); status != 400 {
		t.Errorf("a namespace that is not base64: %d", status)
	}
	// A stream stays in its namespace.
	_, baton := pipeline(t, url+"/dev/one/v2/pipeline", "", execute("SELECT 1"))
	if status, body := ask(t, url+"/v2/pipeline", "localhost", message(baton, execute("SELECT 1"))); status != 400 || body != "Received an invalid baton" {
		t.Errorf("a stream changed its namespace: %d %s", status, body)
	}
	pipeline(t, url+"/dev/one/v2/pipeline", baton, closeRequest)
	// The namespaces are found again.
	_, again := start(t, cfg)
	check(again)
	// Without them there is one database, whatever a request names.
	plain, one := start(t, hrana.Config{})
	if status, _ := ask(t, one+"/v2/pipeline", "x.example.com", message("", closeRequest), "x-namespace", "y"); status != 200 {
		t.Errorf("without namespaces: %d", status)
	}
	if plain.CreateNamespace("x") == nil {
		t.Error("a namespace without a folder")
	}
}

// What sqld refuses, a strict server does, and only that.
func TestStrict(t *testing.T) {
	_, url := start(t, hrana.Config{Strict: true})
	_, loose := start(t, hrana.Config{})
	for sql, ok := range map[string]bool{
		"SELECT 1":                                  true,
		" -- a\n/* b */ SELECT 'TEMP'":              true,
		"CREATE TABLE t (a, temp)":                  true,
		"CREATE VIEW v AS SELECT 1":                 true,
		"CREATE VIRTUAL TABLE f USING fts5(a)":      true,
		"CREATE TEMP TABLE x (a)":                   false,
		"create /* */ temporary view x as select 1": false,
		"CREATE TABLE temp.x (a)":                   false,
		`CREATE TABLE "temp" . x (a)`:               false,
		"VACUUM":                                    false,
		"ANALYZE":                                   false,
		"REINDEX":                                   false,
		"ATTACH ':memory:' AS o":                    false,
		"PRAGMA foreign_keys=1":                     true,
		"PRAGMA user_version = 7":                   true,
		"PRAGMA main.user_version":                  true,
		"PRAGMA table_info(t)":                      true,
		"PRAGMA journal_mode":                       true,
		"PRAGMA journal_mode=DELETE":                false,
		"pragma main.synchronous = off":             false,
		"PRAGMA cache_size(10)":                     false,
		"PRAGMA wal_checkpoint(TRUNCATE)":           false,
		"PRAGMA optimize":                           false,
		"PRAGMA no_such_thing":                      false,
		"EXPLAIN QUERY PLAN SELECT 1":               true,
		"EXPLAIN SELECT 1":                          true,
		"EXPLAIN PRAGMA wal_checkpoint":             false,
		"WITH a AS (SELECT 1) SELECT * FROM a":      true,
		"; ;SELECT 2":                               true,
		"SAVEPOINT s":                               true,
		"BEGIN IMMEDIATE":                           true,
		"INSERT INTO sqlite_master SELECT * FROM pragma_table_info('a') WHERE 0": false, // by SQLite
	} {
		got, _ := pipeline(t, url+"/v2/pipeline", "", execute(sql), closeRequest)
		if refused := strings.Contains(got, `"type":"error"`); refused == ok {
			t.Errorf("%s: %s", sql, got)
		}
		sequence := `{"type":"sequence","sql":` + strings.TrimSuffix(strings.TrimPrefix(execute(sql), `{"type":"execute","stmt":{"sql":`), "}}") + `}`
		if got, _ := pipeline(t, url+"/v2/pipeline", "", sequence, closeRequest); strings.Contains(got, "SQL_PARSE_ERROR") && ok {
			t.Errorf("in a sequence, %s: %s", sql, got)
		}
	}
	got, _ := pipeline(t, url+"/v2/pipeline", "", execute("VACUUM"), `{"type":"sequence","sql":"SELECT 1; VACUUM"}`, closeRequest)
	if strings.Count(got, `{"message":"SQL string could not be parsed: unsupported statement: VACUUM","code":"SQL_PARSE_ERROR"}`) != 1 || strings.Count(got, "SQL_PARSE_ERROR") != 2 {
		t.Error(got)
	}
	if got, _ := pipeline(t, loose+"/v2/pipeline", "", execute("PRAGMA cache_size=10"), execute("VACUUM"), closeRequest); strings.Contains(got, "error") {
		t.Errorf("not strict: %s", got)
	}
}

const timedOut = `{"message":"Transaction timed out","code":"TRANSACTION_TIMEOUT"}`

// A transaction that waits for its client is rolled back when others wait for
// it for too long; the next program of its stream learns of it, as a whole, and
// later ones go on without it.
func TestWriteLimitBetweenRequests(t *testing.T) {
	_, url := start(t, hrana.Config{WriteLimit: 50 * time.Millisecond, BusyTimeout: time.Minute, Expiry: 10 * time.Minute})
	url += "/v3/pipeline"
	_, baton := pipeline(t, url, "", execute("CREATE TABLE t (a)"), execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"))
	if got, _ := pipeline(t, url, "", execute("INSERT INTO t VALUES (2)"), closeRequest); strings.Contains(got, "error") {
		t.Fatal(got)
	}
	batch := `{"type":"batch","batch":{"steps":[{"stmt":{"sql":"INSERT INTO t VALUES (3)"}},{"stmt":{"sql":"SELECT 1"}}]}}`
	got, baton := pipeline(t, url, baton, `{"type":"get_autocommit"}`, batch, execute("INSERT INTO t VALUES (4)"))
	lines := strings.Split(got, "\n")
	if !strings.Contains(lines[0], "true") || strings.Count(lines[1], timedOut) != 2 || strings.Contains(lines[2], "error") {
		t.Error(got)
	}
	if got, _ := pipeline(t, url, baton, execute("SELECT group_concat(a) FROM t"), closeRequest); !strings.Contains(got, `"value":"2,4"`) {
		t.Error(got)
	}
	// Nobody waits: it may take as long as it likes.
	_, baton = pipeline(t, url, "", execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (5)"))
	time.Sleep(100 * time.Millisecond)
	if got, _ := pipeline(t, url, baton, execute("COMMIT"), closeRequest); strings.Contains(got, "error") {
		t.Error(got)
	}
}

// So is one in the midst of a statement, on a pipeline and on a cursor.
func TestWriteLimitWithinStatement(t *testing.T) {
	_, url := start(t, hrana.Config{WriteLimit: 50 * time.Millisecond, BusyTimeout: time.Minute})
	pipeline(t, url+"/v3/pipeline", "", execute("CREATE TABLE t (a)"), closeRequest)
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
	steps := `{"steps":[{"stmt":{"sql":"BEGIN IMMEDIATE"}},{"stmt":{"sql":"INSERT INTO t VALUES (1)"}},{"stmt":{"sql":"` + endless + `"}},{"stmt":{"sql":"COMMIT"}}]}`
	for path, body := range map[string]string{
		"/v3/pipeline": message("", `{"type":"batch","batch":`+steps+`}`, execute("SELECT 'after'"), closeRequest),
		"/v3/cursor":   `{"batch":` + steps + `}`,
	} {
		began := make(chan struct{})
		done := make(chan string)
		go func() {
			close(began)
			_, got := post(t, url+path, body)
			done <- got
		}()
		<-began
		// Waits for it, or is before it: then the next one waits.
		var got string
		for n := 0; got == ""; n++ {
			if answer, _ := pipeline(t, url+"/v3/pipeline", "", execute("INSERT INTO t VALUES (2)"), closeRequest); strings.Contains(answer, "error") {
				t.Fatal(answer)
			}
			select {
			case got = <-done:
			default:
			}
		}
		if strings.Count(got, timedOut) != 2 || strings.Contains(path, "pipeline") && !strings.Contains(got, `"value":"after"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got, _ := pipeline(t, url+"/v3/pipeline", "", execute("SELECT min(a) FROM t"), closeRequest); !strings.Contains(got, `"value":"2"`) {
		t.Error(got)
	}
}

func TestFaultsOfStreams(t *testing.T) {
	s, url := start(t, hrana.Config{})
	url += "/v2/pipeline"
	pipeline(t, url, "", execute("CREATE TABLE t (a)"), closeRequest)
	for _, test := range []struct {
		name  string
		fault func()
		want  string
	}{
		{"expired", s.ExpireStreams, `{"message":"The stream has expired due to inactivity","code":"STREAM_EXPIRED"}`},
		{"forgotten", s.ForgetStreams, "Received an invalid baton"},
	} {
		_, baton := pipeline(t, url, "", execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"))
		test.fault()
		if status, body := post(t, url, message(baton, execute("COMMIT"))); status != 400 || body != test.want {
			t.Errorf("%s: %d %s", test.name, status, body)
		}
		// Neither the lock nor the row is left.
		if got, _ := pipeline(t, url, "", execute("BEGIN IMMEDIATE"), execute("SELECT count(*) FROM t"), closeRequest); !strings.Contains(got, `"value":"0"`) {
			t.Errorf("%s: %s", test.name, got)
		}
	}
	for _, status := range []int{429, 502} {
		s.SetHook(func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{Status: status} })
		if got, body := post(t, url, message("", execute("INSERT INTO t VALUES (1)"))); got != status || !strings.HasPrefix(body, `{"error":`) {
			t.Errorf("%d: %s", got, body)
		}
	}
	s.SetHook(func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{Busy: true} })
	got, _ := pipeline(t, url, "", execute("SELECT count(*) FROM t"), execute("INSERT INTO t VALUES (1)"), execute("INSERT INTO t VALUES (2)"), closeRequest)
	lines := strings.Split(got, "\n")
	if !strings.Contains(lines[0], `"value":"0"`) || !strings.Contains(lines[1], "SQLITE_BUSY") || strings.Contains(lines[2], "error") {
		t.Error(got)
	}
}
