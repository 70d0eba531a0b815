package dev

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/libsql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStores(t *testing.T, dir string, namespaces ...string) *Stores {
	t.Helper()
	s, err := OpenStores(t.Context(), dir, namespaces)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openBucket(t *testing.T, s *Stores, key string) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(s3.Config{
		URL: s.ObjectStore, Region: "us-east-1", PathStyle: "true", Timeout: time.Minute, TempDir: t.TempDir(),
		Keys: func() (string, string, error) { return key, "unchecked", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// The object store does what every bucket must.
func TestObjects(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) durable.Bucket {
		s := openStores(t, t.TempDir())
		return bucket.Retry(openBucket(t, s, s.AccessKey))
	}, buckettest.Faults{
		"Metadata": "refuses metadata that only just fits: as the client writes it, it is longer",
		"Large":    "holds the parts of a large body in memory, in the process of the test",
	})
}

func TestWithoutKey(t *testing.T) {
	s := openStores(t, t.TempDir())
	if _, err := openBucket(t, s, "wrong").Head(t.Context(), "a"); !errors.Is(err, durable.ErrUnavailable) {
		t.Error(err)
	}
	for _, test := range []struct {
		name, query, authorization string
		status                     int
	}{
		{"nothing", "", "", 403},
		{"another scheme", "", "Bearer " + s.AccessKey, 403},
		{"wrong key", "", "AWS4-HMAC-SHA256 Credential=" + s.AccessKey + "x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0", 403},
		{"empty key", "", "AWS4-HMAC-SHA256 Credential=/20260101", 403},
		{"key", "", "AWS4-HMAC-SHA256 Credential=" + s.AccessKey + "/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0", 404},
		{"signed URL", "?X-Amz-Credential=" + s.AccessKey + "%2F20260101", "", 404},
		{"wrong signed URL", "?X-Amz-Credential=x%2F20260101", "", 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ObjectStore+"/a"+test.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.authorization != "" {
			req.Header.Set("Authorization", test.authorization)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != test.status {
			t.Errorf("%s: status %d, want %d", test.name, res.StatusCode, test.status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	db, err := libsql.Open(libsql.Config{URL: s.LibSQL, Namespace: "default", Token: s.Token + "x", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT 1`)); err == nil || strings.Contains(err.Error(), s.Token) {
		t.Errorf("with a wrong token: %v", err)
	}
}

// Everything is there after a restart; meanwhile nobody else gets in.
func TestStoresStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dev")
	query := func(url, namespace, token, sql string) libsql.Result {
		t.Helper()
		db, err := libsql.Open(libsql.Config{URL: url, Namespace: namespace, Token: token, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		res, err := db.Batch(t.Context(), libsql.Write, libsql.S(sql))
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	for i := range int64(2) {
		s, err := OpenStores(t.Context(), dir, []string{"ONE", "two"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenStores(t.Context(), dir, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("a second process: %v", err)
		}
		for n, place := range []struct{ url, namespace string }{{s.LibSQL, "default"}, {s.DatabaseURL("ONE"), ""}, {s.LibSQL, "two"}} {
			query(place.url, place.namespace, s.Token, `CREATE TABLE IF NOT EXISTS t (n)`)
			query(place.url, place.namespace, s.Token, []string{`INSERT INTO t VALUES (0)`, `INSERT INTO t VALUES (1)`, `INSERT INTO t VALUES (2)`}[n])
			if got := query(place.url, place.namespace, s.Token, `SELECT count(*), max(n) FROM t`).Rows[0]; got[0] != i+1 || got[1] != int64(n) {
				t.Errorf("%v: %v in run %d", place, got, i)
			}
		}
		b := openBucket(t, s, s.AccessKey)
		if _, err := b.Head(t.Context(), "a/b"); (err == nil) != (i == 1) {
			t.Errorf("run %d: %v", i, err)
		}
		if _, err := b.Put(t.Context(), "a/b", strings.NewReader("x"), durable.PutOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := b.Put(t.Context(), "a/b/c", strings.NewReader("x"), durable.PutOptions{}); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("a key below a key: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st.Mode(), err)
	}
}
