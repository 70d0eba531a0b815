package libsql_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
)

func BenchmarkFile(b *testing.B) {
	benchmark(b, "file:"+filepath.Join(b.TempDir(), "a.db"))
}

func BenchmarkWire(b *testing.B) {
	s, err := hrana.New(hrana.Config{Path: filepath.Join(b.TempDir(), "hrana.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	h := httptest.NewServer(s)
	defer h.Close()
	benchmark(b, h.URL)
}

func benchmark(b *testing.B, url string) {
	db, err := libsql.Open(libsql.Config{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	ctx := b.Context()
	if _, err := db.Batch(ctx, libsql.Write, libsql.S("CREATE TABLE kv (k BLOB PRIMARY KEY, v INTEGER) WITHOUT ROWID"),
		libsql.S("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 1000) INSERT INTO kv SELECT CAST(i AS BLOB), i FROM n")); err != nil {
		b.Fatal(err)
	}
	key, count := []byte("1"), 0
	batches := map[string]func() error{
		"write": func() error {
			count++
			_, err := db.Batch(ctx, libsql.Write,
				libsql.S("INSERT INTO kv VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v", key, count),
				libsql.S("SELECT v FROM kv WHERE k = ?", key))
			return err
		},
		"read": func() error {
			_, err := db.Batch(ctx, libsql.Read, libsql.S("SELECT v FROM kv WHERE k = ?", key), libsql.S("SELECT k FROM kv WHERE v = 0"))
			return err
		},
		"rows": func() error {
			_, err := db.Batch(ctx, libsql.Read, libsql.S("SELECT k, v FROM kv"))
			return err
		},
	}
	for _, name := range []string{"write", "read", "rows"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := batches[name](); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
