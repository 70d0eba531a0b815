// Package fleettest runs fleets of real processes for tests: it builds the
// program once, with failpoints, starts replicas of it on one store set, and
// kills, stops and continues them.
//
// Nothing in it repeats a request: what a test sent is what a replica got.
// Everything that it started is ended with the test, and what the processes
// logged is shown when the test failed.
package fleettest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// TTL is the lifetime of leases in a fleet of tests: short, for tests wait for
// their end, and not so short that a loaded machine loses them.
const TTL = 4 * time.Second

// steadyLeases is for tests in which no lease may end by itself, not even on a
// machine that stands still for seconds.
const steadyLeases = "DWK_LEASE_TTL=20s"

// patience bounds every wait for something that should happen at once. It is
// long because machines stall, and nothing is slower for it that works.
const patience = time.Minute

// A Kind says where the stores of a fleet are.
type Kind string

// The kinds: an SQLite file that all processes open, and a libSQL server in the
// process of the test.
const (
	File Kind = "file"
	Wire Kind = "wire"
)

// A Fleet is a store set and the replicas that a test started on it.
type Fleet struct {
	// Dir is the working directory of all its processes, and DataDir their
	// data_dir.
	Dir, DataDir string
	// Server is the store, nil on files.
	Server *Server
	// Program is the binary of what starts from now on, when it is not the one
	// that is being tested.
	Program string
	// Env is added to the environment of all processes that start from now on.
	Env []string
	// Descriptors is how many files a process that starts from now on may have
	// open; 0 is as many as the test may.
	Descriptors int

	t        testing.TB
	sql      *libsqltest.Place // the coordination database, when it is a live one
	objects  *s3.Config        // where the object store is, nil in a directory
	replicas int
}

// New makes an empty store set. Env are settings of all its processes, as
// variables ("DWK_EVENT_TIMEOUT=3s").
func New(t testing.TB, kind Kind, env ...string) *Fleet {
	t.Helper()
	dir := t.TempDir()
	f := &Fleet{Dir: dir, DataDir: filepath.Join(dir, "data"), Env: env, t: t}
	config := fmt.Sprintf(`data_dir: ./data
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
lease: {ttl: %s, acquire_timeout: 20s}
drain: {grace: 0s}
log: {format: json, level: debug}
`, TTL)
	if kind == Wire {
		f.Server = startServer(t, hrana.Config{Path: filepath.Join(dir, "server", "primary.db")})
		config += fmt.Sprintf("libsql: {url: %q}\n", f.Server.URL)
	}
	if err := os.WriteFile(f.config(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Each runs a test on both kinds of stores, beside others.
func Each(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, kind := range []Kind{File, Wire} {
		t.Run(string(kind), func(t *testing.T) { t.Parallel(); test(t, kind) })
	}
}

// Configure adds lines to the configuration of what starts from now on.
func (f *Fleet) Configure(yaml string) {
	f.t.Helper()
	b, err := os.ReadFile(f.config())
	if err == nil {
		err = os.WriteFile(f.config(), append(b, yaml...), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *Fleet) config() string { return filepath.Join(f.Dir, "dwk.yaml") }

// environ is the whole environment of a process: nothing that a developer has
// set for himself gets into a test.
func (f *Fleet) environ(more []string) []string {
	env := []string{"DWK_CONFIG=" + f.config()}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(append(env, f.Env...), more...)
}

// Long is n in a long run (DWK_TEST_LONG=1), and else short.
func Long(n, short int) int {
	if os.Getenv("DWK_TEST_LONG") != "" {
		return n
	}
	return short
}

// Eventually polls until ok, and fails the test when that takes too long.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}
