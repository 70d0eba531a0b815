package libsqltest_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFile(t *testing.T) {
	libsqltest.Run(t, func(t *testing.T) *libsql.DB {
		return open(t, libsql.Config{URL: "file:" + filepath.Join(t.TempDir(), "new folder", "a b.db")})
	})
}

func TestWire(t *testing.T) {
	libsqltest.Run(t, func(t *testing.T) *libsql.DB {
		s, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "hrana.db")})
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
		return open(t, libsql.Config{URL: h.URL})
	})
}

func open(t *testing.T, cfg libsql.Config) *libsql.DB {
	t.Helper()
	db, err := libsql.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db
}
