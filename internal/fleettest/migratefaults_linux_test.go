package fleettest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/davidwkeith/dwk/internal/bucket/s3test"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// moveResult runs a migration that must exit so, and decodes its answer. Nothing
// that did not move may be said to have been verified.
func (f *Fleet) moveResult(code int, args ...string) migrate.Result {
	f.t.Helper()
	report := filepath.Join(f.t.TempDir(), "report.jsonl")
	r := f.move("", append(args, "--yes", "-o", "json", "--report", report)...)
	if r.Code != code {
		f.t.Fatalf("%s: exit %d, want %d: %s%s", args, r.Code, code, r.Stdout, r.Stderr)
	}
	var res migrate.Result
	if r.Stdout != "" {
		if err := json.Unmarshal([]byte(r.Stdout), &res); err != nil {
			f.t.Fatalf("%v in %s", err, r.Stdout)
		}
	}
	lines, err := os.ReadFile(report)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		var l migrate.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			f.t.Fatalf("%v in %s", err, line)
		}
		if l.Type == "item" && l.Outcome != migrate.Moved && l.Outcome != migrate.Already && l.Verified != "" {
			f.t.Errorf("not moved, and verified: %s", line)
		}
	}
	return res
}

// tmpfs mounts a small file system at dir.
func tmpfs(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) }) //nolint:errcheck // it is gone with the container
}

func enlarge(t *testing.T, dir, size string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size); err != nil {
		t.Fatal(err)
	}
}

// TestMoveToFullDisk: a body for which there is no room is named, all others
// move, and with room the next run ends what this one began, there and back. On
// a disk without any room nothing moves.
func TestMoveToFullDisk(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	o := moveData
	o.Large = 48 << 20
	migratetest.Make(t, old, o)
	want := migratetest.Local(t, old)
	tmpfs(t, f.DataDir, "32m")
	tmpfs(t, back, "32m")
	named := func(r migrate.Result) {
		t.Helper()
		if r.ProblemCount != 1 || r.Problems[0].Item != "r2/OTHER/large" || r.Problems[0].Outcome != migrate.Failed || !strings.Contains(r.Problems[0].Reason, "no space") {
			t.Errorf("%+v", r.Problems)
		}
		if r.Total().Moved < 10 {
			t.Errorf("%+v moved", r.Total())
		}
	}
	ballast := filepath.Join(f.DataDir, "ballast")
	fillDisk(t, ballast)
	if r := f.moveResult(1, "to-central", "--data-dir", old); r.Total().Moved > 0 {
		t.Errorf("on a full disk %+v moved", r.Total())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	named(f.moveResult(4, "to-central", "--data-dir", old, "--jobs", "1"))
	enlarge(t, f.DataDir, "128m")
	f.moveResult(0, "to-central", "--data-dir", old)
	dir := filepath.Join(back, "data")
	named(f.moveResult(4, "to-local", "--data-dir", dir, "--jobs", "1"))
	enlarge(t, back, "128m")
	f.moveResult(0, "to-local", "--data-dir", dir)
	migratetest.Compare(t, "back", migratetest.Local(t, dir), want)
}

// TestMoveUnreadable: files and directories that may not be read are named, and
// all others move.
func TestMoveUnreadable(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	f.moveConfig()
	old := filepath.Join(f.Dir, "old")
	migratetest.Make(t, old, moveData)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Root, without the right to read everything.
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("root reads everything, and there is no setpriv to take that from it")
		}
		f.Program = filepath.Join(f.Dir, "restricted")
		text := fmt.Sprintf("#!/bin/sh\nexec %s --bounding-set=-dac_override,-dac_read_search %s \"$@\"\n", setpriv, program)
		if err := os.WriteFile(f.Program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := []string{
		"do/Note/" + migratetest.ID(migratetest.Name(0)) + ".sqlite", "do/Pod", "d1/MAIN_DB.sqlite",
		"r2/FILES/photos/2026/0 ä b+c.txt", "r2/FILES/photos/2026/1 ä b+c.txt.r2meta",
	}
	for _, name := range secret {
		if err := os.Chmod(filepath.Join(old, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := exec.Command(program, "version").Output(); err != nil {
		t.Fatal(err)
	}
	if r := f.Command("version"); r.Code != 0 {
		t.Skipf("the rights of root cannot be taken from it: %s", r.Stderr)
	}
	r := f.moveResult(4, "to-central", "--data-dir", old)
	seen := map[string]bool{}
	for _, p := range r.Problems {
		if p.Outcome != migrate.Failed || !strings.Contains(p.Reason, "permission denied") && !strings.Contains(p.Reason, "unable to open") {
			t.Errorf("%+v", p)
		}
		seen[p.Item] = true
	}
	for _, name := range secret {
		if item := strings.TrimSuffix(strings.TrimSuffix(name, ".sqlite"), ".r2meta"); !seen[item] {
			t.Errorf("%s is not named: %+v", item, r.Problems)
		}
	}
	if len(r.Problems) != len(secret) {
		t.Errorf("%+v", r.Problems)
	}
	for _, name := range secret {
		if err := os.Chmod(filepath.Join(old, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.moveResult(0, "to-central", "--data-dir", old)
}

// TestMoveWithoutPermission: with a token that may only read nothing moves, is
// marked or said to have moved; with keys that may only read from a bucket all
// but its bodies.
func TestMoveWithoutPermission(t *testing.T) {
	t.Parallel()
	f := New(t, Wire)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	migratetest.Make(t, old, moveData)
	want := migratetest.Local(t, old)
	server := s3test.Start(t, "things")
	backend, err := url.Parse("http://" + server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var denied atomic.Bool
	denied.Store(true)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = backend.Scheme, backend.Host, r.In.Host
	}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if denied.Load() && strings.Contains(r.URL.Path, "/bodies/") && r.Method != http.MethodGet && r.Method != http.MethodHead {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // what is left of it
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>`) //nolint:errcheck // the client may be gone
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	config := fmt.Sprintf(`data_dir: ./data
listen: 127.0.0.1:0
libsql: {url: %q, token: "${TEST_TOKEN}"}
databases: [{name: MAIN_DB}, {name: SEARCH_DB}, {name: EMPTY_DB}]
buckets: [{name: FILES, url: %q}, {name: OTHER, url: %q}]
object_store: {url: %q, access_key: %q, secret_key: %q, region: %q, path_style: "true"}
mounts: []
crons: []
`, f.Server.URL, web.URL+"/things/bodies/files", web.URL+"/things/bodies/other", web.URL+"/things/store", server.Access, server.Secret, s3test.Region)
	token := func(name string) {
		t.Helper()
		if err := os.WriteFile(f.config(), []byte(strings.ReplaceAll(config, "${TEST_TOKEN}", name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.Server.Reconfigure(func(c *hrana.Config) { c.Token, c.ReadToken = "all", "some" })
	up := []string{"to-central", "--data-dir", old}
	token("some")
	f.moveResult(1, up...)
	token("all")
	if r := f.Command("migrate", "status"); r.Code == 0 {
		t.Errorf("there is a store set: %s", r.Stdout)
	}
	r := f.moveResult(1, append(up, "--only", "r2")...)
	if c := r.Counts[migrate.Buckets]; c == nil || c.Moved != 0 || c.Bad < int64(moveData.Bodies) {
		t.Errorf("%+v", r.Counts)
	}
	r = f.moveResult(4, up...)
	if c := r.Counts[migrate.Buckets]; c == nil || c.Moved != 0 || r.Total().Bad != c.Bad || r.Total().Moved == 0 {
		t.Errorf("%+v: %+v", r.Counts, r.Problems)
	}
	for _, p := range r.Problems {
		if p.Kind != migrate.Buckets || !strings.Contains(p.Reason, "Access Denied") {
			t.Errorf("%+v", p)
		}
	}
	// Once there is a store set, too.
	token("some")
	f.moveResult(1, up...)
	token("all")
	denied.Store(false)
	f.moveResult(0, up...)
	f.moveResult(0, "to-local", "--data-dir", back)
	migratetest.Compare(t, "back", migratetest.Local(t, back), want)
}

// TestMoveHalfACopy: a database that was half copied when the run was killed, and
// then changed, is named and left alone; replace copies it anew, also when it is
// killed once more.
func TestMoveHalfACopy(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	migratetest.Make(t, old, moveData)
	for _, name := range []string{"SEARCH_DB", "EMPTY_DB"} {
		if err := os.Remove(filepath.Join(old, "d1", name+".sqlite")); err != nil {
			t.Fatal(err)
		}
	}
	up := []string{"to-central", "--data-dir", old}
	f.move("migrate.sql.copied=kill", append(up, "--yes")...)
	migratetest.DB(t, filepath.Join(old, "d1", "MAIN_DB.sqlite"), false, `UPDATE big SET n = -id WHERE id % 2 = 0`, `CREATE TABLE more(a)`)
	want := migratetest.Local(t, old)
	r := f.moveResult(4, append(up, "--dry-run")...)
	if r.ProblemCount != 1 || r.Problems[0].Item != "d1/MAIN_DB" || r.Problems[0].Outcome != migrate.Conflict || !strings.Contains(r.Problems[0].Reason, "--on-conflict replace") {
		t.Errorf("%+v", r.Problems)
	}
	f.moveResult(1, up...)
	f.moveResult(4, append(up, "--on-conflict", "skip")...)
	up = append(up, "--on-conflict", "replace")
	for _, point := range []string{"migrate.sql.begun=kill", "migrate.sql.copied=kill"} {
		f.move(point, append(up, "--yes")...)
	}
	f.moveResult(0, up...)
	f.moveResult(0, "to-local", "--data-dir", back)
	migratetest.Compare(t, "back", migratetest.Local(t, back), want)
}
