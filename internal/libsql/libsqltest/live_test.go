package libsqltest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A test at a server with namespaces has one of its own, which is deleted.
func TestLiveNamespaces(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	defer admin.Close()
	t.Setenv("DWK_TEST_LIVE_SQL_URL", "http://127.0.0.1:1")
	t.Setenv("DWK_TEST_LIVE_SQLD_ADMIN_URL", admin.URL+"/")
	t.Setenv("DWK_TEST_LIVE_SQLD_ADMIN_KEY", "key")
	var names []string
	for range 2 {
		t.Run("one", func(t *testing.T) { names = append(names, libsqltest.Live(t).Namespace) })
	}
	if names[0] == names[1] || !strings.HasPrefix(names[0], "dwk-test-") {
		t.Errorf("namespaces %q", names)
	}
	var want []string
	for _, n := range names {
		want = append(want, "POST /v1/namespaces/"+n+"/create basic key", "DELETE /v1/namespaces/"+n+" basic key")
	}
	if got, want := strings.Join(seen, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
}

// A database that has something is not touched.
func TestLiveRefusesADatabaseInUse(t *testing.T) {
	p := libsqltest.Wire(t)
	t.Setenv("DWK_TEST_LIVE_SQL_URL", p.URL)
	t.Setenv("DWK_TEST_LIVE_SQLD_ADMIN_URL", "")
	db := p.Open(t)
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S(`CREATE TABLE precious (a)`))
	refused := &recorder{TB: t}
	func() {
		defer func() { recover() }() //nolint:errcheck // what Fatal of the recorder does
		libsqltest.Live(refused)
	}()
	for _, f := range slices.Backward(refused.cleanups) {
		f()
	}
	if !strings.Contains(refused.fatal, "precious") {
		t.Errorf("not refused: %q", refused.fatal)
	}
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S(`INSERT INTO precious VALUES (1)`))
}

// A recorder keeps why a test failed, and what it cleans up.
type recorder struct {
	testing.TB
	fatal    string
	cleanups []func()
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	panic(r)
}
