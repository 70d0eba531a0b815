package libsqltest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// Variables that name a live server for [Live]: its URL and token, and, for
// sqld with namespaces, its admin API and the key of that.
const (
	liveURL      = "DWK_TEST_LIVE_SQL_URL"
	liveToken    = "DWK_TEST_LIVE_SQL_TOKEN"
	liveAdmin    = "DWK_TEST_LIVE_SQLD_ADMIN_URL"
	liveAdminKey = "DWK_TEST_LIVE_SQLD_ADMIN_KEY"
)

// IsLive reports whether a live server is named.
func IsLive() bool { return os.Getenv(liveURL) != "" }

func init() {
	if IsLive() {
		Places["live"] = Live
	}
}

// liveOnce is held by the test that has the one database of a live server.
var liveOnce sync.Mutex

// Live is a database at the server that DWK_TEST_LIVE_SQL_URL names, else the test is
// skipped. With DWK_TEST_LIVE_SQLD_ADMIN_URL it is a namespace of its own, which is
// deleted afterwards; without, it is the database of the URL, which must be
// empty, is for one test at a time, and is emptied.
func Live(t testing.TB) Place {
	t.Helper()
	p := Place{URL: os.Getenv(liveURL), Token: os.Getenv(liveToken)}
	if p.URL == "" {
		t.Skip(liveURL + " names no server")
	}
	if admin := os.Getenv(liveAdmin); admin != "" {
		p.Namespace = "dwk-test-" + uuid.NewString()
		namespace(t, http.MethodPost, admin, p.Namespace+"/create")
		t.Cleanup(func() { namespace(t, http.MethodDelete, admin, p.Namespace) })
		return p
	}
	liveOnce.Lock()
	t.Cleanup(liveOnce.Unlock)
	db, err := libsql.Open(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := contents(t.Context(), db)
	if err != nil || len(list) > 0 {
		db.Close() //nolint:errcheck // the test fails anyway
		t.Fatalf("%s must name an empty database that is for tests only; it has %v (%v)", liveURL, list, err)
	}
	t.Cleanup(func() {
		if err := empty(context.Background(), db); err != nil {
			t.Errorf("empty the live database: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// namespace asks the admin API of sqld.
func namespace(t testing.TB, method, admin, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(admin, "/")+"/v1/namespaces/"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key := os.Getenv(liveAdminKey); key != "" {
		req.Header.Set("Authorization", "basic "+key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("the admin API of sqld: %v", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) //nolint:errcheck // it is for people
		t.Fatalf("the admin API of sqld, %s %s: %d %s", method, path, res.StatusCode, text)
	}
}

// contents are the tables and views of a database, each as what DROP takes.
func contents(ctx context.Context, db *libsql.DB) (list []string, err error) {
	res, err := db.Batch(ctx, libsql.Write, libsql.S(`SELECT type, name FROM sqlite_schema WHERE type IN ('view', 'table') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
	AND name NOT LIKE 'libsql\_%' ESCAPE '\' AND name NOT LIKE '\_%' ESCAPE '\' ORDER BY type DESC, rowid DESC`))
	if err != nil {
		return nil, err
	}
	for _, row := range res[0].Rows {
		list = append(list, fmt.Sprintf(`%v IF EXISTS "%s"`, row[0], strings.ReplaceAll(fmt.Sprint(row[1]), `"`, `""`)))
	}
	return list, nil
}

// empty drops all tables and views.
func empty(ctx context.Context, db *libsql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	list, err := contents(ctx, db)
	if err != nil || len(list) == 0 {
		return err
	}
	stmts := []libsql.Statement{libsql.S(`PRAGMA defer_foreign_keys = ON`)}
	for _, what := range list {
		stmts = append(stmts, libsql.S("DROP "+what))
	}
	_, err = db.Batch(ctx, libsql.Write, stmts...)
	return err
}
