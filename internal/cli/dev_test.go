package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/config"
)

// Settings of other stores are refused, wherever they come from; others are
// not.
func TestDevRefusesOtherStores(t *testing.T) {
	for _, test := range []struct {
		name, file string
		environ    []string
		refused    string // the key, or "" for none
	}{
		{"nothing", "", nil, ""},
		{"other settings", "lease: {ttl: 3s}\nadmin: {token: abc}\nbase_url: https://example.com\ndatabases: [{name: LAB_DB}, {name: more, namespace: other}]\nobject_store: {timeout: 3s}", []string{"DWK_SECRET_X=1"}, ""},
		{"a server", "libsql: {url: \"http://localhost:1\"}", nil, "libsql.url"},
		{"a file", "libsql: {url: \"file:x\"}", nil, "libsql.url"},
		{"a token", "", []string{"DWK_LIBSQL_AUTH_TOKEN=hush"}, "libsql.token"},
		{"an object store", "object_store: {url: \"https://s3.example.com/b\"}", nil, "object_store.url"},
		{"keys", "", []string{"DWK_OBJECT_STORE_ACCESS_KEY=a", "DWK_OBJECT_STORE_SECRET_KEY=hush"}, "object_store.access_key"},
		{"a database", "databases: [{name: LAB_DB}, {name: other, url: \"file:x\"}]", nil, "databases[1].url"},
		{"a database by variable", "", []string{"DWK_DATABASE_LAB_DB_URL=file:x"}, "databases[0].url"},
		{"a bucket", "", []string{"DWK_BUCKET_LAB_FILES_URL=file:x"}, "buckets[0].url"},
		{"mirrors", "replica_dir: x", nil, "replica_dir"},
	} {
		file := filepath.Join(t.TempDir(), "dwk.yaml")
		if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{File: file, Environ: test.environ})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if err = ownStores(cfg); (err != nil) != (test.refused != "") {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.refused == "" {
			continue
		}
		f := &fixture{t: t, environ: append([]string{"DWK_CONFIG=" + file, "DWK_DATA_DIR=" + t.TempDir(), "DWK_LISTEN=127.0.0.1:0"}, test.environ...)}
		r := f.run("dev")
		f.failed(r, exitUsage, test.refused+" is set|stores of its own|dwk serve", "dev")
		if strings.Contains(r.err, "hush") {
			t.Errorf("%s: a secret: %s", test.name, r.err)
		}
	}
}

func TestDevUsage(t *testing.T) {
	f := &fixture{t: t, environ: quick(t)}
	f.fails(exitUsage, "--replicas", "dev", "--replicas", "0")
	f.fails(exitUsage, "--replicas", "dev", "--replicas", "65")
	f.fails(exitUsage, "--timeout", "dev", "--timeout", "5s")
	f.fails(exitUsage, "listen", "dev", "--listen", "nonsense")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f.fails(exitFailed, l.Addr().String(), "dev", "--listen", l.Addr().String())
}

func TestDevBaseURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "http://localhost:80", "[::1]:81": "http://localhost:81", "0.0.0.0:82": "http://localhost:82", "[::]:83": "http://localhost:83",
		"192.0.2.1:84": "http://192.0.2.1:84", "[2001:db8::1]:85": "http://[2001:db8::1]:85",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := baseURL(a); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// What is written is what a shell reads.
func TestDevEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dwk.env")
	for range 2 {
		if err := writeEnvironment(path, [][2]string{{"A", "it's $HOME"}, {"B", "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "A='it'\\''s $HOME'\nB='x'\n" {
		t.Errorf("%s %v", b, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
}
