package kv_test

import (
	"testing"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// eachStore runs a test on an embedded store and over the wire.
func eachStore(t *testing.T, test func(t *testing.T, db *libsql.DB, s *kv.Store)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			db := place(t).Open(t)
			s := kv.New(db)
			if err := s.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, db, s)
		})
	}
}

func openFile(t *testing.T) *libsql.DB {
	t.Helper()
	return libsqltest.File(t).Open(t)
}
