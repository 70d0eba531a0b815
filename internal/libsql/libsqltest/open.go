package libsqltest

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Place is a database that lasts as long as the test.
type Place struct {
	// URL, Token and Namespace are what libsql.Config takes.
	URL, Token, Namespace string
	// Server is behind the URL, or nil when it is a file.
	Server *hrana.Server
}

// Places are the kinds of databases that everything above must work on: "file",
// "wire" and, when a variable names one, "live" ([Live]).
var Places = map[string]func(testing.TB) Place{"file": File, "wire": Wire}

// File returns a new database file.
func File(t testing.TB) Place {
	return Place{URL: "file:" + filepath.Join(t.TempDir(), "new folder", "a b.sqlite")}
}

// Wire returns a new database behind a server on a loopback port.
func Wire(t testing.TB) Place {
	t.Helper()
	s, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "hrana.sqlite"), WriteLimit: time.Minute})
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
	return Place{URL: h.URL, Server: s}
}

// Config is that of the place. The race detector on a loaded machine is slow;
// what tests a timeout sets its own.
func (p Place) Config() libsql.Config {
	return libsql.Config{URL: p.URL, Token: p.Token, Namespace: p.Namespace, Timeout: time.Minute}
}

// Open opens the place once more.
func (p Place) Open(t testing.TB) *libsql.DB {
	t.Helper()
	db, err := libsql.Open(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
