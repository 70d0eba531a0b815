package libsql_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func open(t *testing.T, cfg libsql.Config) *libsql.DB {
	t.Helper()
	db, err := libsql.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// serve runs a server with the table n, whose only row holds 0.
func serve(t *testing.T) (*hrana.Server, *httptest.Server, *libsql.DB) {
	t.Helper()
	s, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "hrana.db")})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	db := open(t, libsql.Config{URL: h.URL})
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE n (n)"), libsql.S("INSERT INTO n VALUES (0)"))
	return s, h, db
}

var increment = libsql.S("UPDATE n SET n = n + 1")

func value(t *testing.T, db *libsql.DB) int64 {
	t.Helper()
	return libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT n FROM n"))[0].Rows[0][0].(int64)
}

func TestWireFaults(t *testing.T) {
	s, _, db := serve(t)
	for _, test := range []struct {
		name    string
		fault   hrana.Fault
		outcome libsql.Outcome
		kind    libsql.Kind
		applied int64
	}{
		{"cut before executing", hrana.Fault{CutBefore: true}, libsql.Unknown, libsql.KindUnreachable, 0},
		{"cut after executing", hrana.Fault{CutAfter: true}, libsql.Unknown, libsql.KindUnreachable, 1},
		{"bad request", hrana.Fault{Status: 400}, libsql.Refused, libsql.KindProtocol, 0},
		{"no token", hrana.Fault{Status: 401}, libsql.Refused, libsql.KindAuth, 0},
		{"weak token", hrana.Fault{Status: 403}, libsql.Refused, libsql.KindAuth, 0},
		{"no namespace", hrana.Fault{Status: 404}, libsql.Refused, libsql.KindUnreachable, 0},
		{"too many requests", hrana.Fault{Status: 429}, libsql.Refused, libsql.KindLimit, 0},
		{"internal error", hrana.Fault{Status: 500}, libsql.Unknown, libsql.KindUnreachable, 0},
		{"bad gateway", hrana.Fault{Status: 502}, libsql.Unknown, libsql.KindUnreachable, 0},
		{"unavailable", hrana.Fault{Status: 503}, libsql.Unknown, libsql.KindUnreachable, 0},
		{"redirection", hrana.Fault{Status: 307}, libsql.Unknown, libsql.KindProtocol, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := value(t, db)
			var seen atomic.Int64
			s.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
				if want := "[BEGIN IMMEDIATE UPDATE n SET n = n + 1 COMMIT ROLLBACK ]"; fmt.Sprint(r.SQL) != want && fmt.Sprint(r.SQL) != strings.Replace(want, " ]", "]", 1) {
					t.Errorf("the hook saw %q", r.SQL)
				}
				seen.Add(1)
				return test.fault
			})
			_, err := db.Batch(t.Context(), libsql.Write, increment)
			s.SetHook(nil)
			libsqltest.WantError(t, err, test.outcome, test.kind)
			if n := seen.Load(); n != 1 {
				t.Errorf("the server saw the request %d times", n)
			}
			if n := value(t, db) - before; n != test.applied {
				t.Errorf("applied %d times, want %d", n, test.applied)
			}
		})
	}
}

// An answer that comes too late leaves the outcome open.
func TestWireDelay(t *testing.T) {
	s, h, db := serve(t)
	var reached atomic.Bool
	hang := func(ctx context.Context) { reached.Store(true); <-ctx.Done() }
	for _, f := range []struct {
		hook    func(context.Context, hrana.Request) hrana.Fault
		applied int64
	}{
		{func(ctx context.Context, _ hrana.Request) hrana.Fault { hang(ctx); return hrana.Fault{} }, 0},
		{func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{After: hang} }, 1},
	} {
		// On a slow machine the time may be over before the server has got that far.
		for timeout := 200 * time.Millisecond; ; timeout *= 2 {
			late := open(t, libsql.Config{URL: h.URL, Timeout: timeout})
			reached.Store(false)
			before := value(t, db)
			s.SetHook(f.hook)
			_, err := late.Batch(t.Context(), libsql.Write, increment)
			s.SetHook(nil)
			if !reached.Load() && timeout < time.Minute {
				continue
			}
			libsqltest.WantError(t, err, libsql.Unknown, libsql.KindTimeout)
			if n := value(t, db) - before; n != f.applied {
				t.Errorf("applied %d times, want %d", n, f.applied)
			}
			break
		}
	}
}

func TestWireStreamFaults(t *testing.T) {
	s, _, db := serve(t)
	for _, f := range []hrana.Fault{{CutBefore: true}, {CutAfter: true}, {Status: 503}} {
		s.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
			if r.Path != "/v3/cursor" {
				return hrana.Fault{}
			}
			return f
		})
		var last error
		for _, err := range db.Stream(t.Context(), libsql.S("SELECT n FROM n")) {
			last = err
		}
		libsqltest.WantError(t, last, libsql.Unknown, libsql.KindUnreachable)
	}
}

func TestWireRefusedDial(t *testing.T) {
	db := open(t, libsql.Config{URL: "http://127.0.0.1:1"})
	_, err := db.Batch(t.Context(), libsql.Write, increment)
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindUnreachable)
	for _, err := range db.Stream(t.Context(), increment) {
		libsqltest.WantError(t, err, libsql.Refused, libsql.KindUnreachable)
	}
}

// A server that restarted leaves dead connections in the pool. A batch on one of
// them is sent anew when nothing of it was written. What went into a dead
// connection before its end was noticed is unknown, and the next one succeeds.
func TestWireRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hrana.db")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	db := open(t, libsql.Config{URL: "http://" + addr})
	port, err := l.(*net.TCPListener).File() // keeps it from others while the server is down
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	l.Close()
	for i := range 5 {
		l, err := net.FileListener(port)
		if err != nil {
			t.Fatal(err)
		}
		s, err := hrana.New(hrana.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		h := &http.Server{Handler: s}
		served := make(chan struct{})
		go func() { defer close(served); h.Serve(l) }()
		if i == 0 {
			libsqltest.MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE n (n)"), libsql.S("INSERT INTO n VALUES (0)"))
		}
		for tries := 0; ; tries++ { // reads may be repeated
			_, err := db.Batch(t.Context(), libsql.Read, libsql.S("SELECT n FROM n"))
			if err == nil {
				break
			}
			libsqltest.WantError(t, err, libsql.Unknown, libsql.KindUnreachable)
			if tries == 20 { // more than there can be dead connections
				t.Fatal(err)
			}
		}
		before := value(t, db)
		libsqltest.MustBatch(t, db, libsql.Write, increment)
		if n := value(t, db); n != before+1 {
			t.Errorf("%d after %d", n, before)
		}
		h.Close()
		<-served
		s.Close()
	}
}

// A request that waits for its turn on a connection was not sent.
func TestWireWaitingForConnection(t *testing.T) {
	s, h, db := serve(t)
	narrow := open(t, libsql.Config{URL: h.URL, MaxConns: 1})
	entered, leave := make(chan struct{}), make(chan struct{})
	s.SetHook(func(context.Context, hrana.Request) hrana.Fault {
		close(entered)
		<-leave
		return hrana.Fault{}
	})
	done := make(chan error)
	go func() {
		_, err := narrow.Batch(t.Context(), libsql.Write, increment)
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := narrow.Batch(ctx, libsql.Write, increment)
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindTimeout)
	s.SetHook(nil)
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := value(t, db); n != 1 {
		t.Errorf("%d", n)
	}
}

func TestWireHeaders(t *testing.T) {
	var got http.Header
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		got.Set("Path", r.URL.Path)
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, `{"error":"Too many \n concurrent requests"}`)
	}))
	defer h.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	db := open(t, libsql.Config{URL: strings.Replace(h.URL, "https", "libsql", 1) + "/prefix/", Token: "secret", Namespace: "one", CA: ca})
	_, err := db.Batch(t.Context(), libsql.Write, increment)
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindLimit)
	for key, want := range map[string]string{"Authorization": "Bearer secret", "X-Namespace": "one", "Path": "/prefix/v2/pipeline", "Idempotency-Key": ""} {
		if got.Get(key) != want {
			t.Errorf("%s: got %q, want %q", key, got.Get(key), want)
		}
	}
	if text := err.Error() + db.String(); strings.Contains(text, "secret") || strings.Contains(text, "\n") || !strings.Contains(text, h.URL) {
		t.Errorf("got %q", text)
	}
	// Without the certificate nothing is sent.
	stranger := open(t, libsql.Config{URL: h.URL, Token: "secret"})
	got = nil
	_, err = stranger.Batch(t.Context(), libsql.Write, increment)
	if libsql.OutcomeOf(err) == libsql.Failed || got != nil {
		t.Errorf("got %v, and the server saw %v", err, got)
	}
}

func TestWireOddAnswers(t *testing.T) {
	var answer atomic.Pointer[string]
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, *answer.Load())
	}))
	defer h.Close()
	db := open(t, libsql.Config{URL: h.URL})
	ok := `{"cols":[],"rows":[],"affected_row_count":0,"last_insert_rowid":null}`
	batch := func(results, errors string) string {
		return `{"baton":null,"base_url":null,"results":[{"type":"ok","response":{"type":"batch","result":{"step_results":[` + results + `],"step_errors":[` + errors + `]}}},{"type":"ok","response":{"type":"close"}}]}`
	}
	// The batch is BEGIN, one statement, COMMIT, ROLLBACK.
	result := func(r string) string { return batch(ok+","+r+","+ok+",null", "null,null,null,null") }
	sqlError := func(code string) string { return `{"message":"it failed","code":"` + code + `"}` }
	// The answer to the statement that has the primary answer.
	const zeroth = `{"type":"step_begin","step":0,"cols":[{"name":"data_version"}]}` + "\n" +
		`{"type":"row","row":[{"type":"integer","value":"1"}]}` + "\n" + `{"type":"step_end","affected_row_count":0,"last_insert_rowid":0}` + "\n"
	for _, test := range []struct {
		name, answer string
		outcome      libsql.Outcome
		kind         libsql.Kind
	}{
		{"empty", "", libsql.Unknown, libsql.KindProtocol},
		{"HTML", "<html>", libsql.Unknown, libsql.KindProtocol},
		{"null", "null", libsql.Unknown, libsql.KindProtocol},
		{"list", "[]", libsql.Unknown, libsql.KindProtocol},
		{"no results", `{"results":[]}`, libsql.Unknown, libsql.KindProtocol},
		{"null result", `{"results":[null]}`, libsql.Unknown, libsql.KindProtocol},
		{"no response", `{"results":[{"type":"ok"}]}`, libsql.Unknown, libsql.KindProtocol},
		{"other response", `{"results":[{"type":"ok","response":{"type":"execute","result":{}}}]}`, libsql.Unknown, libsql.KindProtocol},
		{"error without error", `{"results":[{"type":"error"}]}`, libsql.Unknown, libsql.KindProtocol},
		{"too few steps", batch(ok, "null"), libsql.Unknown, libsql.KindProtocol},
		{"result and error", batch(ok+","+ok+","+ok+",null", "null,"+sqlError("X")+",null,null"), libsql.Unknown, libsql.KindProtocol},
		{"all skipped", batch("null,null,null,null", "null,null,null,null"), libsql.Unknown, libsql.KindProtocol},
		{"commit skipped", batch(ok+","+ok+",null,"+ok, "null,null,null,null"), libsql.Unknown, libsql.KindProtocol},
		{"committed after an error", batch(ok+",null,"+ok+",null", "null,"+sqlError("SQLITE_CONSTRAINT")+",null,null"), libsql.Unknown, libsql.KindProtocol},
		{"missing rows' columns", result(`{"cols":[],"rows":[[{"type":"null"}]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"short row", result(`{"cols":[{"name":"a"}],"rows":[[]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"null value", result(`{"cols":[{"name":"a"}],"rows":[[null]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"bad base64", result(`{"cols":[{"name":"a"}],"rows":[[{"type":"blob","base64":"*"}]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"bad integer", result(`{"cols":[{"name":"a"}],"rows":[[{"type":"integer","value":"1.5"}]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"infinite float", result(`{"cols":[{"name":"a"}],"rows":[[{"type":"float","value":null}]],"affected_row_count":0}`), libsql.Unknown, libsql.KindProtocol},
		{"bad count", result(`{"cols":[],"rows":[],"affected_row_count":-1}`), libsql.Unknown, libsql.KindProtocol},
		{"no count", result(`{"cols":[],"rows":[]}`), libsql.Unknown, libsql.KindProtocol},
		{"huge", strings.Repeat(" ", 13<<20), libsql.Unknown, libsql.KindTooLarge},

		{"busy", batch("null,null,null,null", sqlError("SQLITE_BUSY")+",null,null,null"), libsql.Refused, libsql.KindBusy},
		{"statement failed", batch(ok+",null,null,"+ok, "null,"+sqlError("SQLITE_CONSTRAINT")+",null,null"), libsql.Failed, libsql.KindConstraint},
		{"full", batch(ok+",null,null,null", "null,"+sqlError("SQLITE_FULL")+",null,"+sqlError("SQLITE_UNKNOWN")), libsql.Failed, libsql.KindFull},
		{"lock lost in the middle", batch(ok+",null,null,null", "null,"+sqlError("SQLITE_CONSTRAINT")+",null,"+sqlError("SQLITE_UNKNOWN")), libsql.Unknown, libsql.KindConstraint},
		{"commit failed", batch(ok+","+ok+",null,"+ok, "null,null,"+sqlError("SQLITE_CONSTRAINT")+",null"), libsql.Failed, libsql.KindConstraint},
		{"commit and rollback failed", batch(ok+","+ok+",null,null", "null,null,"+sqlError("SQLITE_IOERR")+","+sqlError("SQLITE_UNKNOWN")), libsql.Unknown, libsql.KindUnreachable},
		{"too large", `{"results":[{"type":"error","error":{"message":"Response is too large","code":"RESPONSE_TOO_LARGE"}},{"type":"ok","response":{"type":"close"}}]}`, libsql.Failed, libsql.KindTooLarge},
		{"other error", `{"results":[{"type":"error","error":{"message":"forwarding failed","code":"PROXY_ERROR"}}]}`, libsql.Unknown, libsql.KindUnreachable},
		{"token for reading", batch(ok+",null,null,"+ok, `null,{"message":"not authorized","code":"SQLITE_AUTH"},null,null`), libsql.Failed, libsql.KindAuth},
	} {
		answer.Store(&test.answer)
		_, err := db.Batch(t.Context(), libsql.Write, libsql.S("SELECT 1"))
		e, _ := errors.AsType[*libsql.Error](err)
		if e == nil || e.Outcome != test.outcome || e.Kind != test.kind {
			t.Errorf("%s: got %v (%#v), want %v, %v", test.name, err, e, test.outcome, test.kind)
		}
	}
	good := result(`{"cols":[{"name":"a"},{"name":null}],"rows":[[{"type":"integer","value":5},{"type":"blob","base64":"AQ=="}]],"affected_row_count":1,"last_insert_rowid":7}`)
	answer.Store(&good)
	r := libsqltest.MustBatch(t, db, libsql.Write, libsql.S("SELECT 1"))
	if got := fmt.Sprint(r); got != "[{[a ] [[5 [1]]] 1 7}]" {
		t.Errorf("got %s", got)
	}

	for _, test := range []struct {
		name, answer string
		outcome      libsql.Outcome
		kind         libsql.Kind
	}{
		{"empty", "", libsql.Unknown, libsql.KindUnreachable},
		{"HTML", "<html>\n", libsql.Unknown, libsql.KindProtocol},
		{"only the head", "{}\n", libsql.Unknown, libsql.KindUnreachable},
		{"no second step", "{}\n" + zeroth, libsql.Unknown, libsql.KindUnreachable},
		{"no end", "{}\n" + `{"type":"step_begin","step":0,"cols":[]}` + "\n", libsql.Unknown, libsql.KindUnreachable},
		{"cut line", "{}\n" + `{"type":"step_begin","step":0,"cols":[`, libsql.Unknown, libsql.KindUnreachable},
		{"row before begin", "{}\n" + `{"type":"row","row":[]}` + "\n", libsql.Unknown, libsql.KindProtocol},
		{"unknown entry", "{}\n" + `{"type":"surprise"}` + "\n", libsql.Unknown, libsql.KindProtocol},
		{"short row", "{}\n" + zeroth + `{"type":"step_begin","cols":[{"name":"a"}]}` + "\n" + `{"type":"row","row":[]}` + "\n", libsql.Unknown, libsql.KindProtocol},
		{"huge line", "{}\n" + strings.Repeat(" ", 13<<20), libsql.Failed, libsql.KindTooLarge},
		{"error", "{}\n" + `{"type":"error","error":{"message":"it failed","code":"SQLITE_IOERR"}}` + "\n", libsql.Failed, libsql.KindUnreachable},
	} {
		answer.Store(&test.answer)
		n := 0
		for _, err := range db.Stream(t.Context(), libsql.S("SELECT 1")) {
			n++
			e, _ := errors.AsType[*libsql.Error](err)
			if e == nil || e.Outcome != test.outcome || e.Kind != test.kind {
				t.Errorf("stream, %s: got %v, want %v, %v", test.name, err, test.outcome, test.kind)
			}
		}
		if n != 1 {
			t.Errorf("stream, %s: %d rows and errors", test.name, n)
		}
	}
	good = "{\"baton\":null}\n{\"type\":\"replication_index\",\"replication_index\":\"1\"}\n" + zeroth + "{\"type\":\"step_begin\",\"step\":0,\"cols\":[{\"name\":\"a\"}]}\n" +
		"{\"type\":\"row\",\"row\":[{\"type\":\"text\",\"value\":\"x\"}]}\n{\"type\":\"step_end\",\"affected_row_count\":0,\"last_insert_rowid\":5}\n"
	answer.Store(&good)
	for row, err := range db.Stream(t.Context(), libsql.S("SELECT 1")) {
		if err != nil || row[0] != "x" {
			t.Errorf("got %v, %v", row, err)
		}
	}
}
