package libsql

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte(`{"results":[{"type":"ok","response":{"type":"batch","result":{"step_results":[{"cols":[],"rows":[],"affected_row_count":0},{"cols":[{"name":"a"}],"rows":[[{"type":"integer","value":"1"}]],"affected_row_count":0},{"cols":[],"rows":[],"affected_row_count":0},null],"step_errors":[null,null,null,null]}}}]}`), true)
	f.Add([]byte(`{"results":[{"type":"error","error":{"message":"x","code":"RESPONSE_TOO_LARGE"}}]}`), false)
	f.Add([]byte(`{"results":[{"type":"ok","response":{"type":"batch","result":{"step_results":[null,null,null,null],"step_errors":[{"message":"m","code":"SQLITE_BUSY"},null,null,null]}}}]}`), true)
	f.Fuzz(func(t *testing.T, answer []byte, write bool) {
		mode := Read
		if write {
			mode = Write
		}
		results, err := decodeBatch(answer, mode, 1)
		if err == nil {
			if len(results) != 1 {
				t.Fatalf("%d results", len(results))
			}
			for _, row := range results[0].Rows {
				if len(row) != len(results[0].Columns) {
					t.Fatal("a row of another width")
				}
			}
			return
		}
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("an error of type %T", err)
		}
		if s := e.Error() + e.Kind.String() + e.Outcome.String(); strings.ContainsAny(s, "\r\n\x00") {
			t.Fatalf("an error of several lines: %q", s)
		}
	})
}

func FuzzDecodeStream(f *testing.F) {
	f.Add("{\"baton\":null}\n{\"type\":\"step_begin\",\"cols\":[]}\n{\"type\":\"step_end\"}\n{\"type\":\"step_begin\",\"cols\":[{\"name\":\"a\"}]}\n{\"type\":\"row\",\"row\":[{\"type\":\"null\"}]}\n{\"type\":\"step_end\"}\n")
	f.Fuzz(func(t *testing.T, answer string) {
		c := cursor{wire: &wire{timeout: time.Minute}, ctx: t.Context(), timer: time.NewTimer(time.Minute), in: bufio.NewReaderSize(strings.NewReader(answer), 16)}
		defer c.timer.Stop()
		err := c.run(nil, func(Row) bool { return true })
		if _, ok := errors.AsType[*Error](err); err != nil && !ok {
			t.Fatalf("an error of type %T", err)
		}
	})
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		code, message string
		want          Kind
	}{
		{"SQLITE_BUSY", "", KindBusy},
		{"SQLITE_LOCKED", "", KindBusy},
		{"TRANSACTION_BUSY", "", KindBusy},
		{"TRANSACTION_TIMEOUT", "", KindBusy},
		{"SQLITE_CONSTRAINT", "", KindConstraint},
		{"SQLITE_CONSTRAINT_UNIQUE", "", KindConstraint},
		{"SQLITE_FULL", "", KindFull},
		{"SQLITE_READONLY", "", KindReadOnly},
		{"BLOCKED", "", KindReadOnly},
		{"SQLITE_AUTH", "", KindAuth},
		{"SQLITE_TOOBIG", "", KindTooLarge},
		{"RESPONSE_TOO_LARGE", "", KindTooLarge},
		{"SQLITE_INTERRUPT", "", KindTimeout},
		{"SQLITE_CANTOPEN", "", KindUnreachable},
		{"SQLITE_IOERR", "", KindUnreachable},
		{"PROXY_ERROR", "", KindUnreachable},
		{"SQL_INPUT_ERROR", "no such table: database is locked", KindSQL},
		{"SQL_PARSE_ERROR", "", KindSQL},
		{"ARGS_INVALID", "", KindSQL},
		{"SQLITE_ERROR", "database is locked", KindSQL},
		{"", "UNIQUE constraint failed: t.a", KindConstraint},
		{"", "SQLite error: FOREIGN KEY constraint failed", KindConstraint},
		{"SQLITE_UNKNOWN", "SQLite error: database is locked", KindBusy},
		{"", "Transaction timed out", KindBusy},
		{"", "database or disk is full", KindFull},
		{"", "attempt to write a readonly database", KindReadOnly},
		{"", "string or blob too big", KindTooLarge},
		{"", "Response is too large", KindTooLarge},
		{"", "not authorized", KindAuth},
		{"", "unable to open database file", KindUnreachable},
		{"", "disk I/O error", KindUnreachable},
		{"", "", KindSQL},
		{"SQLITE_UNKNOWN", "SQLite error: cannot commit - no transaction is active", KindSQL},
	} {
		if got := classify(test.code, test.message); got != test.want {
			t.Errorf("classify(%q, %q) = %v, want %v", test.code, test.message, got, test.want)
		}
	}
}

func TestStatusMessages(t *testing.T) {
	for text, want := range map[string]string{
		`{"error":"namespace missing"}`:    "HTTP status 500: namespace missing",
		`{"message":"expired","code":"X"}`: "HTTP status 500: expired",
		"Received an invalid baton":        "HTTP status 500: Received an invalid baton",
		"":                                 "HTTP status 500: Internal Server Error",
		"<html>\r\n\x1b[31m\xff":           "HTTP status 500: <html>   [31m",
		`[1]`:                              "HTTP status 500: [1]",
		strings.Repeat("ü", 400):           "HTTP status 500: " + strings.Repeat("ü", 150),
	} {
		e := statusError(&http.Response{StatusCode: 500, Body: io.NopCloser(strings.NewReader(""))}, []byte(text))
		if e.Err.Error() != want {
			t.Errorf("%.40q: got %q", text, e.Err)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"file:a.db":               "file:a.db",
		"file:/var/lib/a b%20.db": "file:/var/lib/a b%20.db",
		"file:///var/a.db":        "file:/var/a.db",
		"file:../a.db":            "file:../a.db",
		"http://localhost:8080":   "http://localhost:8080",
		"http://localhost:8080/":  "http://localhost:8080",
		"https://db.example/a/b/": "https://db.example/a/b",
		"libsql://db.example":     "https://db.example",
		"libsql://[::1]:8080":     "https://[::1]:8080",
	} {
		a, err := parseAddress(in)
		if err != nil || a.String() != want {
			t.Errorf("%q: got %q, %v, want %q", in, a, err, want)
		}
	}
	for _, in := range []string{
		"", "a.db", "file:", "file://host/a.db", "file:a.db?mode=ro", "file::memory:", "file:a\x00b",
		"http://", "http:///x", "http:localhost", "http://:80", "https://user:secret@host", "https://secret@host", "https://host?authToken=secret", "https://host#secret",
		"http://secret\x7f host", "ws://secret", "postgres://secret",
	} {
		if a, err := parseAddress(in); err == nil {
			t.Errorf("%q was taken as %q", in, a)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows it: %v", in, err)
		}
	}
}

// A COMMIT that failed, behind which there is no transaction to roll back, is
// undone for sure when there was no room for it.
func TestFailedCommit(t *testing.T) {
	for code, want := range map[string]Outcome{"SQLITE_FULL": Failed, "SQLITE_IOERR": Unknown, "SQLITE_UNKNOWN": Unknown, "TRANSACTION_TIMEOUT": Unknown} {
		const ok = `{"cols":[],"rows":[],"affected_row_count":0}`
		answer := `{"results":[{"type":"ok","response":{"type":"batch","result":{"step_results":[` + ok + `,` + ok + `,null,null],"step_errors":[null,null,{"message":"m","code":"` +
			code + `"},{"message":"cannot rollback - no transaction is active","code":"SQLITE_UNKNOWN"}]}}}]}`
		_, err := decodeBatch([]byte(answer), Write, 1)
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != want || e.Statement != -1 {
			t.Errorf("%s: %v, %+v", code, err, e)
		}
	}
}
