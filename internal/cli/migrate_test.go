package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
	"github.com/davidwkeith/dwk/internal/mode"
)

// localData makes a directory with a body, an object with an alarm, and two
// messages of which one is not JSON.
func localData(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "old data")
	if err := os.MkdirAll(filepath.Join(dir, "do", "Note"), 0o700); err != nil {
		t.Fatal(err)
	}
	migratetest.WriteBody(t, dir, "LAB_FILES", "a/b.txt", []byte("body"), "text/plain", nil)
	migratetest.DB(t, filepath.Join(dir, "do", "Note", "0a.sqlite"), true, `CREATE TABLE n(a)`, migratetest.AlarmTable, `INSERT INTO _host_alarm VALUES(1, 1893456000000)`)
	migratetest.DB(t, filepath.Join(dir, "queue.sqlite"), false,
		`CREATE TABLE queue_jobs(id integer primary key autoincrement, queue text not null, body text not null, attempts integer not null default 0, visible_at integer not null, dead integer not null default 0)`,
		`INSERT INTO queue_jobs(queue, body, visible_at) VALUES('default', '{"a":1}', 1700000000000), ('default', '{', 1700000000000)`)
	return dir
}

// empty is a fixture whose stores have never been used.
func empty(t *testing.T) (*fixture, string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	return &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + data}}, data
}

func TestMigrate(t *testing.T) {
	f, data := empty(t)
	old := localData(t)
	report := filepath.Join(t.TempDir(), "report.jsonl")

	// A dry run makes nothing, and says what would be.
	r := f.run("migrate", "to-central", "--data-dir", old, "--dry-run", "-o", "json")
	var plan migrate.Result
	if err := json.Unmarshal([]byte(r.out), &plan); err != nil || r.code != exitPartly || !plan.DryRun {
		t.Fatalf("exit %d, %v: %s %s", r.code, err, r.out, r.err)
	}
	if c := plan.Total(); c.Moved != 3 || c.Bad != 1 || plan.Problems[0].Item != "queue/2" {
		t.Errorf("%+v", plan)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a dry run made %s: %v", data, err)
	}
	f.fails(exitUsage, "--yes", "migrate", "to-central", "--data-dir", old)
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a question made %s: %v", data, err)
	}
	if r := f.ask(strings.NewReader("no\n"), "migrate", "to-central", "--data-dir", old); r.code != exitUsage && r.code != exitFailed {
		t.Errorf("no: exit %d: %s", r.code, r.err)
	}

	r = f.run("migrate", "to-central", "--data-dir", old, "--yes", "--report", report)
	if r.code != exitPartly || !strings.Contains(r.out, "queue/2") || !strings.Contains(r.err, "mkdir '"+old+".old' && mv '"+old+"/do'") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), `"complete":true`) || strings.Count(string(text), "\n") != 6 {
		t.Errorf("%s, %v", text, err)
	}
	var status moveStatusJSON
	f.json(&status, "migrate", "status")
	if len(status.Moves) != 1 || status.Mode != mode.Marker || status.Moving != "" || status.Moves[0].State != migrate.Partly || status.Moves[0].Items != 3 || status.Moves[0].States[migrate.Objects]["verified"] != 1 {
		t.Errorf("%+v", status)
	}
	if out := f.ok("migrate", "status"); !strings.Contains(out, old) {
		t.Errorf("%s", out)
	}
	if out := f.ok("bucket", "get", "LAB_FILES", "a/b.txt"); out != "body" {
		t.Errorf("%q", out)
	}
	if out := f.ok("alarm", "show", "Note", "0a"); !strings.Contains(out, "2030-01-01") {
		t.Errorf("%s", out)
	}

	back := filepath.Join(t.TempDir(), "back")
	f.fails(exitUsage, "--data-dir", "migrate", "to-local", "--yes")
	f.ok("migrate", "to-local", "--data-dir", back, "--dry-run")
	if _, err := os.Stat(back); !os.IsNotExist(err) {
		t.Errorf("a dry run made %s: %v", back, err)
	}
	f.ok("migrate", "to-local", "--data-dir", back, "--yes")
	want, got := migratetest.Local(t, old), migratetest.Local(t, back)
	want.Queue = migratetest.Queue{Pending: map[string]int{"default": 1}}
	want.D1 = got.D1
	migratetest.Compare(t, "back", got, want)
	f.fails(exitFailed, "not empty", "migrate", "to-local", "--data-dir", back, "--yes")
}

func TestMigrateRefuses(t *testing.T) {
	f := newFixture(t)
	old := localData(t)
	up := []string{"migrate", "to-central", "--data-dir", old, "--yes"}
	for _, c := range [][]string{{"--only", "x"}, {"--map", "x"}, {"--map", "a=b", "--map", "c=b"}, {"--verify", "x"}, {"--jobs", "0"}, {"--on-conflict", "x"}} {
		f.fails(exitUsage, c[0], append(append([]string{}, up...), c...)...)
	}
	f.fails(exitFailed, "data directory", "migrate", "to-central", "--data-dir", old+"x", "--yes")
	f.hold("Note", "0b", "r1", "request", time.Minute)
	if r := f.run(up...); r.code != exitFailed || !strings.Contains(r.err, "dwk drain") {
		t.Errorf("beside a lease: exit %d: %s", r.code, r.err)
	}
	if _, err := f.stores.KV.Set(t.Context(), mode.ModeKey, mode.Moving("another"), 0); err != nil {
		t.Fatal(err)
	}
	if r := f.run(up...); r.code != exitFailed || !strings.Contains(r.err, "migrate status") {
		t.Errorf("beside another move: exit %d: %s", r.code, r.err)
	}
	var status moveStatusJSON
	f.json(&status, "migrate", "status")
	if status.Moving != "another" {
		t.Errorf("%+v", status)
	}
	f.fails(exitUsage, "--yes", "migrate", "abandon")
	f.ok("migrate", "abandon", "--yes")
	f.fails(exitNotFound, mode.Marker, "migrate", "abandon", "--yes")
	if err := f.stores.KV.Delete(t.Context(), tuple.Key{"dwk_lease", "Note", "0b"}); err != nil {
		t.Fatal(err)
	}
	// The object store of another store set.
	if err := f.stores.ClaimObjectStore(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	f.fails(exitFailed, "belongs to store set another", up...)
	g, _ := empty(t)
	g.fails(exitNotFound, "", "migrate", "status")
	g.fails(exitNotFound, "", "migrate", "to-local", "--data-dir", filepath.Join(t.TempDir(), "x"), "--yes")
}

func TestProgressText(t *testing.T) {
	list := []migrate.Snapshot{
		{Kind: migrate.Objects, TotalItems: 1000, TotalBytes: 100 << 20, Items: 400, Bytes: 40 << 20, Skipped: 20 << 20},
		{Kind: migrate.Buckets, TotalItems: 1, TotalBytes: 28 << 20},
		{Kind: migrate.Queues},
	}
	if got := progressText(list, 10*time.Second); got != "400 of 1000 objects, 0 of 1 body; 40.0 MiB of 128.0 MiB, 2.0 MiB/s, 44s left" {
		t.Error(got)
	}
	if got := progressText(list, 0); strings.Contains(got, "left") {
		t.Error(got)
	}
}

// TestMigrateReport: a proof is replaced by that of a run that nothing refused,
// as a whole, and nothing is left beside it.
func TestMigrateReport(t *testing.T) {
	f := newFixture(t)
	old := localData(t)
	dir := t.TempDir()
	report := filepath.Join(dir, "moved.jsonl")
	const before = "the proof of an earlier run"
	if err := os.WriteFile(report, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 {
			t.Errorf("%v in %s, %v", list, dir, err)
		}
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	up := []string{"migrate", "to-central", "--data-dir", old, "--report", report}
	f.fails(exitUsage, "--yes", up...) // nobody is there to ask
	f.hold("Note", "0b", "r1", "request", time.Minute)
	if r := f.run(append(up, "--yes")...); r.code != exitFailed {
		t.Errorf("beside a lease: exit %d", r.code)
	}
	f.fails(exitFailed, "data directory", "migrate", "to-central", "--data-dir", old+"x", "--report", report, "--yes")
	if got := read(); got != before {
		t.Errorf("refused runs have made it %q", got)
	}
	f.run(append(up, "--dry-run")...)
	if got := read(); !strings.Contains(got, `"dry_run":true`) {
		t.Errorf("a dry run: %s", got)
	}
	if err := f.stores.KV.Delete(t.Context(), tuple.Key{"dwk_lease", "Note", "0b"}); err != nil {
		t.Fatal(err)
	}
	f.run(append(up, "--yes")...)
	if got := read(); strings.Contains(got, before) || !strings.Contains(got, `"complete":true`) {
		t.Errorf("%s", got)
	}
}
