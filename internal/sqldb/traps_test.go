package sqldb_test

import (
	"context"
	"database/sql"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

// openAt opens a database with a configuration, for DB.
func openAt(t *testing.T, cfg libsql.Config) *sql.DB {
	t.Helper()
	d, err := sqldb.Open("TEST", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.DB()
}

// A server with a certificate of one's own, a token and a namespace, as both
// clients of the database know them. The driver knows of none: what goes its way
// has to be told apart from the program's other requests.
func TestDBCertificate(t *testing.T) {
	dir := t.TempDir()
	h, err := hrana.New(hrana.Config{Path: filepath.Join(dir, "main.db"), Namespaces: filepath.Join(dir, "ns"), Token: "right"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CreateNamespace("one"); err != nil {
		t.Fatal(err)
	}
	var strange atomic.Value
	var requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		for name := range r.Header {
			if strings.Contains(name, "Dwk") {
				strange.Store(name)
			}
		}
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(func() { s.Close(); h.Close() })
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := libsql.Config{URL: s.URL, CA: ca, Token: "right", Namespace: "one", Timeout: time.Minute}
	d, err := sqldb.Open("TEST", cfg)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, d, `CREATE TABLE t AS SELECT 'in one' AS a`)
	var text string
	if err := d.DB().QueryRowContext(t.Context(), `SELECT a FROM t`).Scan(&text); err != nil || text != "in one" {
		t.Errorf("%q, %v", text, err)
	}
	db := d.DB()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("a closed database answered")
	}
	if name := strange.Load(); name != nil {
		t.Errorf("the server was sent %v", name)
	}
	for name, c := range map[string]struct {
		change func(*libsql.Config)
		want   string
	}{
		"not trusted":      {func(c *libsql.Config) { c.CA = "" }, "certificate"},
		"wrong token":      {func(c *libsql.Config) { c.Token = "wrong" }, "401"},
		"another database": {func(c *libsql.Config) { c.Namespace = "two" }, "404"},
	} {
		cfg := cfg
		c.change(&cfg)
		n := requests.Load()
		_, err := openAt(t, cfg).ExecContext(t.Context(), `INSERT INTO t VALUES (1)`)
		if !errors.Is(err, durable.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), s.URL) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "not trusted" && requests.Load() != n {
			t.Error("a server without a certificate that is trusted was sent a request")
		}
	}
	// Others use net/http's client as before.
	if resp, err := http.Get(s.URL); err == nil {
		resp.Body.Close()
		t.Error("the certificate of the database is trusted for everybody")
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	resp, err := http.Get(plain.URL)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

// Many callers share a few connections, and none of them leaves a stream open:
// servers bound those, idle ones included.
func TestDBPool(t *testing.T) {
	const conns = 3
	h, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "a.db"), Expiry: time.Hour, WriteLimit: time.Hour, BusyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var dialed atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialed.Add(1)
		}
	}
	s.Start()
	defer func() { s.Close(); h.Close() }()
	var observed atomic.Int64
	db := openAt(t, libsql.Config{URL: s.URL, MaxConns: conns, Timeout: time.Minute, Observe: func(_ time.Duration, err error) {
		if err == nil {
			observed.Add(1)
		}
	}})
	db.SetConnMaxIdleTime(0) // which would close connections, and their streams with them
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE t (a)`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 10 {
				if _, err := db.ExecContext(t.Context(), `INSERT INTO t VALUES (?)`, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := dialed.Load(); n > conns {
		t.Errorf("%d connections were made, %d are allowed", n, conns)
	}
	if n := observed.Load(); n != 101 {
		t.Errorf("%d round trips were counted, want 101", n)
	}
	if got := db.Stats().MaxOpenConnections; got != conns {
		t.Errorf("%d connections at most", got)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tx.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`)
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	// They end in the background.
	deadline := time.Now().Add(time.Minute)
	for h.Streams() > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if n := h.Streams(); n > 0 {
		t.Errorf("%d streams are open behind all calls", n)
	}
}

// Streams that the server has ended, by itself or by a restart, are never
// noticed outside a transaction; within one it is lost as a whole.
func TestDBLostStreams(t *testing.T) {
	p := libsqltest.Wire(t)
	_, db := openDB(t, p)
	ctx := t.Context()
	if _, err := db.ExecContext(ctx, `CREATE TABLE t (a)`); err != nil {
		t.Fatal(err)
	}
	for name, lose := range map[string]func(){"expired": p.Server.ExpireStreams, "restarted": p.Server.ForgetStreams} {
		if _, err := db.ExecContext(ctx, `DELETE FROM t`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for range 3 {
			lose()
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM t`).Scan(new(int)); err != nil {
				t.Errorf("%s: a read: %v", name, err)
			}
			lose()
			if _, err := db.ExecContext(ctx, `UPDATE t SET a = 1`); err != nil {
				t.Errorf("%s: a write: %v", name, err)
			}
		}
		for _, end := range []string{"statement", "commit", "rollback"} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (2)`); err != nil {
				t.Fatal(err)
			}
			lose()
			switch end {
			case "statement":
				for range 2 { // the second one would commit alone
					if _, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (3)`); !errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) {
						t.Errorf("%s: a statement: %v", name, err)
					}
				}
				if err := tx.Commit(); err == nil {
					t.Errorf("%s: committed", name)
				}
			case "commit":
				if err := tx.Commit(); !errors.Is(err, durable.ErrUnavailable) {
					t.Errorf("%s: a commit: %v", name, err)
				}
			case "rollback":
				tx.Rollback()
			}
			var n int
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM t`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows behind a transaction that was lost at a %s, %v", name, n, end, err)
			}
		}
	}
	// What is lost in a transaction is not lost for the next one.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx.ExecContext(ctx, `INSERT INTO t VALUES (4)`)
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}

// A server that does not answer keeps nobody for longer than the timeout,
// whatever the call.
func TestDBDeadlines(t *testing.T) {
	p := libsqltest.Wire(t)
	db := openAt(t, libsql.Config{URL: p.URL, Timeout: 200 * time.Millisecond})
	stall := func(text string) {
		p.Server.SetHook(func(ctx context.Context, r hrana.Request) hrana.Fault {
			if strings.Contains(strings.Join(r.SQL, ";"), text) {
				<-ctx.Done()
			}
			return hrana.Fault{}
		})
	}
	defer p.Server.SetHook(nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // one of its own is no reason to wait for that long
	defer cancel()
	for text, call := range map[string]func() error{
		"1":        func() error { return db.PingContext(ctx) },
		"2":        func() error { return db.QueryRowContext(ctx, `SELECT 2`).Scan(new(int)) },
		"CREATE":   func() error { _, err := db.ExecContext(ctx, `CREATE TABLE t (a)`); return err },
		"BEGIN":    func() error { _, err := db.BeginTx(ctx, nil); return err },
		"ROLLBACK": func() error { return endOf(db, (*sql.Tx).Rollback) },
		"COMMIT":   func() error { return endOf(db, (*sql.Tx).Commit) },
	} {
		stall(text)
		if err := call(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", text, err)
		}
	}
	p.Server.SetHook(nil)
	deadline := time.Now().Add(time.Minute)
	for err := db.PingContext(ctx); err != nil; err = db.PingContext(ctx) { // the machine may be that slow too
		if time.Now().After(deadline) {
			t.Fatalf("afterwards: %v", err)
		}
	}
}

func endOf(db *sql.DB, end func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	return end(tx)
}

// What a server may answer instead of a result, and what an application is
// told: whether it may repeat the call.
func TestDBAnswers(t *testing.T) {
	var status int
	var body string
	var cutOff bool
	var moved atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { moved.Add(1) }))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", other.URL)
		w.WriteHeader(status)
		io.WriteString(w, body)
		if cutOff {
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	s.Config.ErrorLog = quiet
	defer s.Close()
	const (
		result = `{"baton":null,"base_url":null,"results":[{"type":"ok","response":{"type":"execute","result":`
		rest   = `}}]}`
	)
	for _, c := range []struct {
		name   string
		status int
		body   string
		cut    bool
		write  error // of a write; that of a read is ErrUnavailable
	}{
		{"stream expired", 400, `{"message":"The stream has expired due to inactivity","code":"STREAM_EXPIRED"}`, false, durable.ErrUnavailable},
		{"baton of before a restart", 400, "Received an invalid baton", false, durable.ErrUnavailable},
		{"stream not found", 404, "stream not found: 12:34", false, durable.ErrUnavailable},
		{"no token", 401, `{"error":"Unauthorized"}`, false, durable.ErrUnavailable},
		{"weak token", 403, `{"error":"Forbidden"}`, false, durable.ErrUnavailable},
		{"too many", 429, `{"error":"Too many concurrent requests"}`, false, durable.ErrUnavailable},
		{"an error of the server", 500, `{"error":"internal"}`, false, durable.ErrUnknownOutcome},
		{"a gateway's", 502, `<html>Bad Gateway</html>`, false, durable.ErrUnknownOutcome},
		{"shutting down", 503, `{"error":"shutting down"}`, false, durable.ErrUnknownOutcome},
		{"redirected", 307, ``, false, durable.ErrUnknownOutcome},
		{"cut off", 200, result, true, durable.ErrUnknownOutcome},
		{"a gateway's page", 200, `<html>Welcome</html>`, false, durable.ErrUnknownOutcome},
		{"nothing", 200, ``, false, durable.ErrUnknownOutcome},
		{"no result", 200, `{"baton":null,"base_url":null,"results":[]}`, false, durable.ErrUnknownOutcome},
		{"no response", 200, `{"results":[{"type":"ok"}]}`, false, durable.ErrUnknownOutcome},
		{"of another type", 200, `{"results":{}}`, false, durable.ErrUnknownOutcome},
		{"too many changes", 200, result + `{"cols":[],"rows":[],"affected_row_count":3000000000,"last_insert_rowid":null}` + rest, false, durable.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body, cutOff = c.status, c.body, c.cut
			db := openAt(t, libsql.Config{URL: s.URL, Token: "canary", Timeout: time.Minute})
			_, err := db.ExecContext(t.Context(), `INSERT INTO t VALUES (1)`)
			if !errors.Is(err, c.write) || c.write == durable.ErrUnavailable && errors.Is(err, durable.ErrUnknownOutcome) {
				t.Errorf("a write: %v", err)
			}
			err = db.QueryRowContext(t.Context(), `SELECT 1`).Scan(new(int))
			if !errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome) || strings.Contains(err.Error(), s.URL) || strings.Contains(err.Error(), "canary") {
				t.Errorf("a read: %v", err)
			}
		})
	}
	if moved.Load() > 0 {
		t.Error("a redirection was followed, with the token")
	}
}

// Values come back as they were stored.
func TestDBValues(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		_, db := openDB(t, p)
		if _, err := db.ExecContext(t.Context(), `CREATE TABLE t (id INTEGER PRIMARY KEY, v)`); err != nil {
			t.Fatal(err)
		}
		values := []any{int64(math.MaxInt64), int64(math.MinInt64), int64(1)<<53 + 1, 0.1, "", "é\x01", []byte{}, []byte{0, 0xff, 0x10}, nil}
		for i, v := range values {
			if _, err := db.ExecContext(t.Context(), `INSERT INTO t VALUES (?, ?)`, i, v); err != nil {
				t.Fatalf("%#v: %v", v, err)
			}
			var got any
			var kind string
			if err := db.QueryRowContext(t.Context(), `SELECT v, typeof(v) FROM t WHERE id = ?`, i).Scan(&got, &kind); err != nil {
				t.Fatalf("%#v: %v", v, err)
			}
			if b, ok := v.([]byte); ok {
				if g, ok := got.([]byte); kind != "blob" || len(b) > 0 && (!ok || !slices.Equal(b, g)) {
					t.Errorf("%#v is %#v (%s)", v, got, kind)
				}
			} else if got != v {
				t.Errorf("%#v is %#v (%s)", v, got, kind)
			}
		}
		for _, v := range []any{math.NaN(), math.Inf(1), uint64(math.MaxUint64), "\xff"} {
			if _, err := db.ExecContext(t.Context(), `INSERT INTO t (v) VALUES (?)`, v); err == nil {
				t.Errorf("%v was stored", v)
			}
		}
	})
}

// quiet is for servers whose clients hang up on purpose.
var quiet = log.New(io.Discard, "", 0)
