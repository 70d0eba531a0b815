package host

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/mode"
)

// A store set whose object store is in S3.
func TestObjectStoreInS3(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("things"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	defer s.Close()
	change := map[string]any{
		"object_store.url": s.URL + "/things/fleet", "object_store.region": "us-east-1", "object_store.path_style": "true",
		"object_store.access_key": "a", "object_store.secret_key": "s",
	}
	cfg := testConfig(t, change)
	_, admin, stop := serve(t, cfg)
	if code, body := get(t, admin+"/readyz"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	stores, err := OpenExisting(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	_, store, err := mode.Read(t.Context(), stores.KV)
	if err != nil {
		t.Fatal(err)
	}
	files := stores.Files(store.ID)
	defer files.Close()
	if err := files.Put(t.Context(), "objects/x/C/0a/1.ltx", strings.NewReader("entry"), 5); err != nil {
		t.Error(err)
	}
	if refs, _, err := files.List(t.Context(), "objects/", ""); err != nil || len(refs) != 1 || refs[0] != "objects/x/C/0a/1.ltx" {
		t.Errorf("%q, %v", refs, err)
	}
	b, err := OpenBucket(cfg, "LAB_FILES")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := backend.HeadObject("things", "fleet/buckets/LAB_FILES/k"); err != nil {
		t.Error(err)
	}
	refused(t, testConfig(t, change), mode.ErrRefused, "belongs to store set")
	change["object_store.url"] = "http://127.0.0.1:1/things"
	err = Serve(t.Context(), ServeOptions{Config: testConfig(t, change), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !errors.Is(err, durable.ErrUnavailable) && !strings.Contains(err.Error(), "object-store (http://127.0.0.1:1/things)") || !strings.Contains(err.Error(), "bucket:LAB_FILES") {
		t.Errorf("%v", err)
	}
}

// Readiness tells a bucket that is missing from a key that is.
func TestBucketCheck(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("things"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	defer s.Close()
	for name, want := range map[string]error{"things": nil, "others": durable.ErrUnavailable} {
		b, err := s3.Open(s3.Config{URL: s.URL + "/" + name, Region: "us-east-1", PathStyle: "true", Keys: func() (string, string, error) { return "a", "s", nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := bucketCheck("b", b, time.Minute).Run(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		b.Close()
	}
}

// A read-only bucket needs no right to write, neither at the start nor later.
func TestReadOnlyBucket(t *testing.T) {
	backend := s3mem.New()
	if err := errors.Join(backend.CreateBucket("things"), backend.CreateBucket("shared")); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.PutObject("shared", "k", map[string]string{"Last-Modified": "Mon, 2 Jan 2006 15:04:05 GMT"}, strings.NewReader("there"), 5, nil); err != nil {
		t.Fatal(err)
	}
	h := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/shared") && (r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Query().Has("uploads")) {
			t.Errorf("%s %s", r.Method, r.URL)
			http.Error(w, "", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer s.Close()
	cfg := testConfig(t, map[string]any{
		"object_store.url": s.URL + "/things/fleet", "object_store.region": "us-east-1", "object_store.path_style": "true",
		"object_store.access_key": "a", "object_store.secret_key": "s",
	})
	cfg.Buckets = []config.Bucket{{Name: "SHARED", URL: s.URL + "/shared", ReadOnly: true}}
	cfg.Mounts = append(cfg.Mounts, config.Mount{Path: "/reader", App: "reader"})
	reader := durable.App{Name: "reader", Requires: durable.Requirements{Buckets: []string{"SHARED"}}, New: func(e durable.Env) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b := e.Bucket("SHARED")
			_, put := b.Put(r.Context(), "new", strings.NewReader("x"), durable.PutOptions{})
			body, _, err := b.Get(r.Context(), "k", durable.GetOptions{})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer body.Close()
			text, err := io.ReadAll(body)
			fmt.Fprint(w, string(text), errors.Is(put, durable.ErrReadOnly), errors.Is(b.Delete(r.Context(), "k"), durable.ErrReadOnly), err)
		}), nil
	}}
	public, _, stop := serve(t, cfg, reader)
	if code, body := get(t, public+"/reader/"); code != http.StatusOK || body != "theretrue true <nil>" {
		t.Errorf("%d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
