package fleettest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// raw sends bytes as they are to the public listener and returns the answer,
// which ends with the connection. No client that follows the rules can send
// some of them.
func (r *Replica) raw(request string) Answer {
	c, err := net.Dial("tcp", strings.TrimPrefix(r.Public, "http://"))
	if err != nil {
		return Answer{Err: err}
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // then the reads fail
	go io.WriteString(c, request)           //nolint:errcheck // the answer may come first
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Err: err}
}

// request is the text of a request to a path of the lab.
func request(method, path, body string, headers ...string) string {
	head := append([]string{method + " " + path + " HTTP/1.1", "Connection: close"}, headers...)
	if !strings.Contains(strings.Join(head, "\n"), "\nHost:") {
		head = append(head, "Host: localhost")
	}
	if body != "" {
		head = append(head, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	return strings.Join(head, "\r\n") + "\r\n\r\n" + body
}

const add = "/lab/counter/x/add"

// badInput are requests that must change nothing, and the statuses of their
// answers.
var badInput = []struct {
	name, request string
	statuses      []int
}{
	{"not HTTP", "\x16\x03\x01 hello\r\n\r\n", []int{400}},
	{"no host", "POST " + add + " HTTP/1.1\r\nConnection: close\r\n\r\n", []int{400}},
	{"foreign host", request("POST", add, "", "Host: evil.example"), []int{421}},
	{"foreign host in the line", request("POST", "http://evil.example"+add, ""), []int{400, 421}},
	{"foreign origin", request("POST", add, "", "Origin: http://evil.example"), []int{403}},
	{"null origin", request("POST", add, "", "Origin: null"), []int{403}},
	{"huge header", request("POST", add, "", "X-Long: "+strings.Repeat("x", 1<<20)), []int{431}},
	{"many headers", request("POST", add, "", strings.Split(strings.Repeat("X-More: 1\n", 20_000), "\n")[:20_000]...), []int{431}},
	{"header with a control character", request("POST", add, "", "X-Odd: a\x00b"), []int{400}},
	{"two lengths", request("POST", add, "a", "Content-Length: 5"), []int{400}},
	{"length and chunks", request("POST", add, "0\r\n\r\n", "Transfer-Encoding: identity, chunked"), []int{400, 501}},
	{"bad chunk", request("POST", "/lab/note/x/sql", "", "Transfer-Encoding: chunked") + "zz\r\n", []int{400}},

	{"dots", request("POST", "/lab/../lab/counter/x/add", ""), []int{400}},
	{"escaped dots", request("POST", "/lab/counter/%2e%2e/add", ""), []int{400}},
	{"escaped slash and dots", request("POST", "/lab/counter/..%2f..%2fx/add", ""), []int{400}},
	{"backslashes", request("POST", `/lab/counter/..%5c..%5cx/add`, ""), []int{400}},
	{"zero byte", request("POST", "/lab/counter/%00/add", ""), []int{400}},
	{"bad escape", request("POST", "/lab/counter/%zz/add", ""), []int{400}},
	{"not UTF-8", request("POST", "/lab/counter/%ff/add", ""), []int{400}},
	{"no name", request("POST", "/lab/counter//add", ""), []int{400, 404}},
	{"long name", request("POST", "/lab/counter/"+strings.Repeat("x", 257)+"/add", ""), []int{400}},
	{"unknown class", request("POST", "/lab/Counter/x/add", ""), []int{404}},
	{"class of the host", request("GET", "/lab/dwk_lease/x", ""), []int{404}},
	{"unknown action", request("POST", "/lab/counter/x/subtract", ""), []int{404}},
	{"path below", request("POST", add+"/more", ""), []int{404}},
	{"no mount", request("GET", "/etc/passwd", ""), []int{404}},
	{"admin path", request("POST", "/drain", ""), []int{404}},
	{"wrong method", request("PUT", add, ""), []int{405}},
	{"unknown method", request("BREW", add, ""), []int{405}},
	{"proxy method", request("CONNECT", "localhost:1", ""), []int{400, 404, 405}},

	{"bad number", request("POST", add+"?n=1e3", ""), []int{400}},
	{"large number", request("POST", add+"?n=9223372036854775808", ""), []int{400}},
	{"bad query", request("POST", add+"?n=1;op=%zz", ""), []int{400}},
	{"empty op", request("POST", add+"?op=", ""), []int{400}},
	{"long op", request("POST", add+"?op="+strings.Repeat("x", 200), ""), []int{400}},
	{"op that is not UTF-8", request("POST", add+"?op=%ff", ""), []int{400}},
	{"negative sleep", request("POST", "/lab/note/x/sleep?ms=-1", ""), []int{400}},
	{"bad content type", request("PUT", "/lab/note/x", "a", "Content-Type: a/b; ="), []int{400}},
	{"announced body too large", request("PUT", "/lab/note/x", "", "Content-Length: 1099511627776"), []int{413}},

	{"no JSON", sqlRequest(`nonsense`), []int{400}},
	{"cut JSON", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"}`), []int{400}},
	{"JSON and more", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"}] []`), []int{400}},
	{"deep JSON", sqlRequest(strings.Repeat("[", 200_000)), []int{400}},
	{"no statements", sqlRequest(`[]`), []int{400}},
	{"unknown member", sqlRequest(`{"sql":"INSERT INTO t VALUES(1)","arg":[1]}`), []int{400}},
	{"large argument", sqlRequest(`{"sql":"INSERT INTO t VALUES(?)","args":[9223372036854775808]}`), []int{400}},
	{"not SQL", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"SELEKT"}]`), []int{400}},
	{"two statements in one", sqlRequest(`{"sql":"INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)"}`), []int{400}},
	{"missing argument", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"INSERT INTO t VALUES(?)"}]`), []int{400}},
	{"constraint", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"INSERT INTO t VALUES(0)"}]`), []int{400}},
	{"attach", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"ATTACH 'stolen.db' AS s"}]`), []int{400}},
	{"attach behind a comment", sqlRequest(`{"sql":"/* */ aTTaCH 'stolen.db' AS s"}`), []int{400}},
	{"detach", sqlRequest(`{"sql":"DETACH main"}`), []int{400}},
	{"vacuum into a file", sqlRequest(`{"sql":"VACUUM INTO 'stolen.db'"}`), []int{400}},
	{"journal mode", sqlRequest(`{"sql":"PRAGMA journal_mode=DELETE"}`), []int{400}},
	{"checkpoint", sqlRequest(`{"sql":"PRAGMA wal_checkpoint(TRUNCATE)"}`), []int{400}},
	{"locking mode", sqlRequest(`{"sql":"PRAGMA locking_mode=EXCLUSIVE"}`), []int{400}},
	{"writable schema", sqlRequest(`[{"sql":"PRAGMA writable_schema=ON"},{"sql":"DELETE FROM sqlite_master"}]`), []int{400}},
	{"pragma as a function", sqlRequest(`{"sql":"SELECT * FROM pragma_journal_mode('DELETE')"}`), []int{400}},
	{"load an extension", sqlRequest(`{"sql":"SELECT load_extension('evil')"}`), []int{400}},
	{"begin", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"BEGIN"}]`), []int{400}},
	{"commit", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"COMMIT"},{"sql":"SELEKT"}]`), []int{400}},
	{"rollback behind an empty statement", sqlRequest(`[{"sql":"INSERT INTO t VALUES(1)"},{"sql":"; ROLLBACK"}]`), []int{400}},
	{"too much SQL", sqlRequest(`{"sql":"SELECT '` + strings.Repeat("x", 5<<20) + `'"}`), []int{400, 413}},
	{"endless rows", sqlRequest(`{"sql":"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x, randomblob(100000) FROM c"}`), []int{400, 413}},
}

func sqlRequest(body string) string { return request("POST", "/lab/note/x/sql", body) }

// Input that is wrong is answered with a clear status, changes nothing and
// harms nobody.
func TestBadInput(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		r := f.Start()
		if a := r.Post("counter/x/add", ""); a.Status != http.StatusOK {
			t.Fatal(a)
		}
		if a := runSQL(r, "x", statement{SQL: `CREATE TABLE t(a INTEGER CHECK(a > 0))`}); a.Status != http.StatusOK {
			t.Fatal(a)
		}
		before := f.entries()
		for _, in := range badInput {
			a := r.raw(in.request)
			if !slices.Contains(in.statuses, a.Status) || strings.TrimSpace(a.Body) == "" || len(a.Body) > 2000 || strings.Contains(a.Body, f.Dir) {
				t.Errorf("%s: answer %.300s, want one of %v with a short text", in.name, a, in.statuses)
			}
			var c counted
			if r.Get("counter/x").Decode(t, &c); c.Value != 1 {
				t.Errorf("%s: the counter is at %d", in.name, c.Value)
			}
			if a := runSQL(r, "x", statement{SQL: `SELECT count(*) FROM t`}); !strings.Contains(a.Body, `"rows":[[0]]`) {
				t.Errorf("%s: the note says %v", in.name, a)
			}
			if t.Failed() && r.Exited() {
				t.Fatal("the replica is gone")
			}
		}
		f.WaitFree()
		if after := f.entries(); after != before {
			t.Errorf("entries before:\n%safter:\n%s", before, after)
		}
		if found := findFile(t, f.Dir, "stolen.db"); found != "" {
			t.Errorf("%s was made", found)
		}
		if a := r.Post("counter/x/add", ""); a.Status != http.StatusOK || a.Txid() != 2 {
			t.Errorf("afterwards: %v at %d", a, a.Txid())
		}
	})
}

// findFile returns the path of a file below dir, or "".
func findFile(t *testing.T, dir, name string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			found = path
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// A client that is slow to send holds no lease, and one that sends nothing keeps
// nobody from stopping the replica.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	f := New(t, File, steadyLeases, "DWK_CLIENTS_STALL=1m")
	r := f.Start()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.Public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request("PUT", "/lab/note/x", "", "Content-Length: 100")+"slow"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if a := runSQL(r, "x", statement{SQL: `CREATE TABLE IF NOT EXISTS t(a)`}); a.Status != http.StatusOK {
			t.Errorf("beside a slow client: %v", a)
		}
	}
	f.WaitFree()
	idle, err := net.Dial("tcp", strings.TrimPrefix(r.Public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := io.WriteString(c, strings.Repeat("x", 96)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Errorf("the slow client: %v, %v", resp, err)
	}
	r.Terminate()
	if code := r.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
