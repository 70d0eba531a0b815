package hrana_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	client "github.com/tursodatabase/libsql-client-go/libsql"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// start runs a server on loopback for the test.
func start(t *testing.T, cfg hrana.Config) (*hrana.Server, string) {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "new", "hrana.db")
	}
	s, err := hrana.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h.URL
}

// The driver's own suite passes against this server.
func TestClientSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs another module's tests")
	}
	_, url := start(t, hrana.Config{})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-parallel", "1", "github.com/tursodatabase/libsql-client-go/tests/http")
	cmd.Env = append(os.Environ(), "LIBSQL_TEST_HTTP_DB_URL="+url)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// openClient opens a database/sql pool of the foreign driver.
func openClient(t *testing.T, url string) *sql.DB {
	t.Helper()
	c, err := client.NewConnector(url)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

// A transaction of several statements goes through one QueryContext, with one
// result set a statement.
func TestClientOneQueryTransaction(t *testing.T) {
	_, url := start(t, hrana.Config{})
	db := openClient(t, url)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE)"); err != nil {
		t.Fatal(err)
	}
	transaction := func(ctx context.Context, a, b string) (int64, error) {
		rows, err := db.QueryContext(ctx, "BEGIN IMMEDIATE; INSERT INTO t (a) VALUES (?); INSERT INTO t (a) VALUES (?) RETURNING id; SELECT count(*) FROM t; COMMIT", a, b)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for range 3 {
			if !rows.NextResultSet() {
				t.Fatal("a result set is missing")
			}
		}
		var n int64
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		return n, rows.Err()
	}
	if n, err := transaction(t.Context(), "x", "y"); n != 2 || err != nil {
		t.Fatalf("counted %d, %v", n, err)
	}
	if _, err := transaction(t.Context(), "z", "y"); err == nil {
		t.Fatal("a duplicate was taken")
	}
	if n, err := transaction(t.Context(), "z", "w"); n != 4 || err != nil {
		t.Fatalf("counted %d, %v: the failed transaction left something", n, err)
	}
}
