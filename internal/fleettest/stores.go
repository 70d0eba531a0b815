package fleettest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/bucket/s3test"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// combinations are the stores that a fleet may have: SQL in files or on a
// server, bodies in a directory, in an S3-compatible server in this process, or
// in one that is a process of its own.
var combinations = []struct {
	name    string
	kind    Kind
	objects func(testing.TB) (config s3.Config, env []string) // nil: a directory
}{
	{"file and directory", File, nil},
	{"wire and directory", Wire, nil},
	{"wire and gofakes3", Wire, inProcess},
	{"wire and versitygw", Wire, ownProcess},
}

// EachStores runs a test on a fleet on each combination of stores, and on live
// ones when variables name them. On the wire the lab's SQL database is on a
// server of its own.
func EachStores(t *testing.T, test func(t *testing.T, f *Fleet)) {
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := New(t, c.kind)
			if f.Server != nil {
				f.Env = append(f.Env, "DWK_DATABASE_LAB_DB_URL="+startServer(t, hrana.Config{Path: filepath.Join(f.Dir, "server", "lab.db")}).URL)
			}
			if c.objects != nil {
				config, env := c.objects(t)
				f.objects = &config
				f.Env = append(f.Env, env...)
			}
			test(t, f)
		})
	}
	t.Run("live", func(t *testing.T) { test(t, live(t)) })
}

// live is a fleet on the stores that variables name, each of which may be
// missing: then it is in files.
func live(t *testing.T) *Fleet {
	t.Helper()
	if !libsqltest.IsLive() {
		s3test.Live(t) // or it is skipped
	}
	f := New(t, File)
	if libsqltest.IsLive() {
		p := libsqltest.Live(t)
		f.sql = &p
		f.Env = append(f.Env, "DWK_LIBSQL_URL="+p.URL, "DWK_LIBSQL_TOKEN="+p.Token, "DWK_LIBSQL_NAMESPACE="+p.Namespace)
	}
	if s3test.IsLive() {
		s := s3test.Live(t)
		config := s3Config(s.URL, s.Region, s.Access, s.Secret)
		config.PathStyle = s.PathStyle
		f.objects = &config
		f.Env = append(f.Env, objectEnv(config, s.Access, s.Secret)...)
		t.Cleanup(func() { buckettest.Empty(t, f.Objects()) })
	}
	return f
}

// objectEnv are the settings of a fleet for its object store.
func objectEnv(c s3.Config, access, secret string) []string {
	return []string{
		"DWK_OBJECT_STORE_URL=" + c.URL, "DWK_OBJECT_STORE_REGION=" + c.Region, "DWK_OBJECT_STORE_PATH_STYLE=" + c.PathStyle,
		"DWK_OBJECT_STORE_ACCESS_KEY=" + access, "DWK_OBJECT_STORE_SECRET_KEY=" + secret,
	}
}

func inProcess(t testing.TB) (s3.Config, []string) {
	o := startObjectStore(t)
	return s3Config(o.URL, "us-east-1", "key", "secret"), o.Env()
}

func ownProcess(t testing.TB) (s3.Config, []string) {
	return gatewayStore(s3test.Start(t, objectBucket))
}

// Gateway starts an S3 server as a process of its own, and returns where the
// object store of a fleet is in it, and its keys.
func Gateway(t testing.TB) (c s3.Config, access, secret string) {
	t.Helper()
	s := s3test.Start(t, objectBucket)
	c, _ = gatewayStore(s)
	return c, s.Access, s.Secret
}

// ObjectEnv are the settings of a fleet for its object store.
func ObjectEnv(c s3.Config, access, secret string) []string { return objectEnv(c, access, secret) }

// gatewayStore is a part of a server's bucket.
func gatewayStore(s *s3test.Server) (s3.Config, []string) {
	c := s3Config(s.URL(objectBucket)+"/fleet", s3test.Region, s.Access, s.Secret)
	return c, objectEnv(c, s.Access, s.Secret)
}

func s3Config(url, region, access, secret string) s3.Config {
	return s3.Config{URL: url, Region: region, PathStyle: "true", Timeout: time.Minute, Keys: func() (string, string, error) { return access, secret, nil }}
}

// Objects opens the fleet's object store, until the end of the test. A replica
// must have started before.
func (f *Fleet) Objects() durable.Bucket {
	f.t.Helper()
	if f.objects == nil {
		b, err := dir.Open(filepath.Join(f.DataDir, "central", "store"))
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { b.Close() })
		return b
	}
	b, err := s3.Open(*f.objects)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { b.Close() })
	return bucket.Retry(b)
}

// Keys are the keys in the object store with a prefix.
func (f *Fleet) Keys(prefix string) map[string]bool {
	f.t.Helper()
	b, found := f.Objects(), map[string]bool{}
	for opts := (durable.ListOptions{Prefix: prefix}); ; {
		page, err := b.List(f.t.Context(), opts)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, o := range page.Objects {
			found[o.Key] = true
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return found
		}
	}
}
