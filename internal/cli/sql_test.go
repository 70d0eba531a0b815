package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refuses runs a command that must fail with this code and text.
func (f *fixture) refuses(code int, text string, args ...string) {
	f.t.Helper()
	r := f.run(args...)
	if r.code != code || !strings.Contains(r.err, text) || strings.Count(r.err, "\n") != 1 {
		f.t.Errorf("dwk %s: exit %d: %s, want %d with %q", strings.Join(args, " "), r.code, r.err, code, text)
	}
}

func TestSQLExecAndQuery(t *testing.T) {
	f := newFixture(t)
	f.refuses(exitUsage, "--yes", "sql", "exec", "LAB_DB", "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
	out := f.ok("sql", "exec", "LAB_DB", "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES(1)", "INSERT INTO t(v) VALUES(2), (3)", "--yes")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 4 || !strings.Contains(lines[3], "2") {
		t.Errorf("%s", out)
	}
	var res []struct{ Changes, Rows int }
	f.json(&res, "sql", "exec", "LAB_DB", "INSERT INTO t(id, v) VALUES(9007199254740993, ?) RETURNING id", "--args", `[{"$bytes":"AP8="}]`, "--yes")
	if len(res) != 1 || res[0].Changes != 1 || res[0].Rows != 1 {
		t.Errorf("%+v", res)
	}
	if out := f.ok("sql", "query", "LAB_DB", "SELECT * FROM t WHERE id > ? ORDER BY id", "--args", "[2]", "-o", "json"); strings.Join(strings.Fields(out), "") != `[{"id":3,"v":3},{"id":{"$int":"9007199254740993"},"v":{"$bytes":"AP8="}}]` {
		t.Errorf("%s", out)
	}
	if r := f.run("sql", "query", "LAB_DB", "SELECT v FROM t", "--limit", "2"); r.code != 0 || strings.Count(r.out, "\n") != 3 || !strings.Contains(r.err, "more rows") {
		t.Error(r)
	}
	// All or none.
	f.refuses(exitFailed, "statement 1", "sql", "exec", "LAB_DB", "DELETE FROM t; INSERT INTO t VALUES(1, 1), (1, 2)", "--yes")
	if out := f.ok("sql", "query", "LAB_DB", "SELECT count(*) AS n FROM t", "-o", "json"); !strings.Contains(out, `"n":4`) {
		t.Errorf("%s", out)
	}
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exitUsage, "only read", []string{"sql", "query", "LAB_DB", "DELETE FROM t"}},
		{exitUsage, "BEGIN", []string{"sql", "exec", "LAB_DB", "BEGIN", "--yes"}},
		{exitUsage, "no statement", []string{"sql", "exec", "LAB_DB", "/* nothing */", "--yes"}},
		{exitUsage, "--file", []string{"sql", "exec", "LAB_DB", "--yes"}},
		{exitUsage, "--args", []string{"sql", "query", "LAB_DB", "SELECT ?", "--args", "{}"}},
		{exitUsage, "--args", []string{"sql", "exec", "LAB_DB", "SELECT 1; SELECT 2", "--args", "[1]", "--yes"}},
		{exitNotFound, "LAB_DB", []string{"sql", "query", "NONE", "SELECT 1"}},
		{exitFailed, "missing", []string{"sql", "query", "LAB_DB", "SELECT * FROM missing"}},
		{exitUsage, "QUERY is missing", []string{"sql", "query", "LAB_DB"}},
	} {
		f.refuses(c.code, c.text, c.args...)
	}
	f.environ = append(f.environ, "DWK_DATABASE_LAB_DB_URL=http://127.0.0.1:1")
	f.refuses(exitUnreachable, "LAB_DB", "sql", "query", "LAB_DB", "SELECT 1")
}

func TestSQLDumpAndLoad(t *testing.T) {
	f := newFixture(t)
	f.ok("sql", "exec", "LAB_DB", "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES('a;\n-- end: 1 x\nb'), (x'00ff')", "--yes")
	file := filepath.Join(t.TempDir(), "lab.sql")
	f.ok("sql", "dump", "LAB_DB", "--output-file", file)
	text, err := os.ReadFile(file)
	if err != nil || f.ok("sql", "dump", "LAB_DB") != string(text) {
		t.Fatalf("%v\n%s", err, text)
	}
	f.refuses(exitFailed, "not empty", "sql", "load", "LAB_DB", file, "--yes")
	other := newFixture(t)
	other.ok("sql", "load", "LAB_DB", file, "--dry-run")
	other.refuses(exitUsage, "--yes", "sql", "load", "LAB_DB", file)
	for _, bad := range []string{string(text[:len(text)/2]), strings.Replace(string(text), "'a;", "'b;", 1), "", "SELECT 1;\n", string(text) + "SELECT 1;\n"} {
		path := filepath.Join(t.TempDir(), "bad.sql")
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		other.refuses(exitFailed, "cut or altered", "sql", "load", "LAB_DB", path, "--yes")
	}
	other.ok("sql", "load", "LAB_DB", file, "--yes")
	if got := other.ok("sql", "dump", "LAB_DB"); got != string(text) {
		t.Errorf("loaded\n%s\nof\n%s", got, text)
	}
}

func TestSQLMigrate(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.refuses(exitNotFound, ".sql", "sql", "migrate", "LAB_DB", dir, "--yes")
	write("1_a.sql", "CREATE TABLE a(x);")
	write("2_b.sql", "CREATE TABLE b(x);")
	if out := f.ok("sql", "migrate", "LAB_DB", dir, "--dry-run"); strings.Count(out, "pending") != 2 {
		t.Errorf("%s", out)
	}
	f.refuses(exitUsage, "--yes", "sql", "migrate", "LAB_DB", dir)
	if out := f.ok("sql", "migrate", "LAB_DB", dir, "--yes"); strings.Count(out, "applied") != 2 {
		t.Errorf("%s", out)
	}
	var list []struct{ State string }
	f.json(&list, "sql", "migrate", "LAB_DB", dir) // nothing to ask about
	if len(list) != 2 || list[0].State != "applied before" {
		t.Errorf("%+v", list)
	}
	write("3_c.sql", "CREATE TABLE c(x);")
	write("4_d.sql", "CREATE TABLE c(x);")
	f.refuses(exitPartly, "4_d.sql", "sql", "migrate", "LAB_DB", dir, "--yes")
	write("1_a.sql", "CREATE TABLE a(y);")
	f.refuses(exitFailed, "1_a.sql was changed", "sql", "migrate", "LAB_DB", dir, "--yes")
}

func TestBucket(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Key         string
		Size        int
		ContentType string `json:"content_type"`
		Metadata    map[string]string
	}
	f.json(&body, "bucket", "put", "LAB_FILES", "d/ü k", in, "--content-type", "text/x", "--meta", "by=me=ü", "--if-absent")
	f.json(&body, "bucket", "head", "LAB_FILES", "d/ü k")
	if body.Key != "d/ü k" || body.Size != 10 || body.ContentType != "text/x" || body.Metadata["by"] != "me=ü" {
		t.Errorf("%+v", body)
	}
	f.refuses(exitFailed, "precondition", "bucket", "put", "LAB_FILES", "d/ü k", in, "--if-absent")
	f.refuses(exitUsage, "--yes", "bucket", "put", "LAB_FILES", "d/ü k", in)
	f.ok("bucket", "put", "LAB_FILES", "d/ü k", in, "--yes")
	if r := execute(t.Context(), Options{Args: []string{"bucket", "put", "LAB_FILES", "e", "-"}, In: strings.NewReader("piped"), Environ: f.environ}); r.code != 0 {
		t.Error(r)
	}
	if out := f.ok("bucket", "get", "LAB_FILES", "d/ü k", "--offset", "-3", "--length", "2"); out != "78" {
		t.Errorf("%q", out)
	}
	out := filepath.Join(dir, "out")
	f.ok("bucket", "get", "LAB_FILES", "e", out)
	if text, err := os.ReadFile(out); string(text) != "piped" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	f.refuses(exitNotFound, "no key", "bucket", "get", "LAB_FILES", "none")
	f.refuses(exitNotFound, "no key", "bucket", "head", "LAB_FILES", "none")
	f.refuses(exitNotFound, "LAB_FILES", "bucket", "list", "NONE")
	f.refuses(exitUsage, "segment", "bucket", "head", "LAB_FILES", "../x")
	f.refuses(exitUsage, "NAME=VALUE", "bucket", "put", "LAB_FILES", "k", in, "--meta", "x")
	var list []struct{ Key, Prefix string }
	f.json(&list, "bucket", "list", "LAB_FILES", "--delimiter", "/", "--limit", "0")
	if len(list) != 2 || list[0].Prefix != "d/" || list[1].Key != "e" {
		t.Errorf("%+v", list)
	}
	if r := f.run("bucket", "list", "LAB_FILES", "--limit", "1"); r.code != 0 || !strings.Contains(r.out, "d/ü k") || strings.Contains(r.out, "e  ") || !strings.Contains(r.err, "more keys") {
		t.Error(r)
	}
	f.refuses(exitUsage, "--yes", "bucket", "delete", "LAB_FILES", "e")
	if out := f.ok("bucket", "delete", "LAB_FILES", "--prefix", "d/", "--dry-run"); out != "d/ü k\n" {
		t.Errorf("%q", out)
	}
	f.ok("bucket", "delete", "LAB_FILES", "--prefix", "d/", "--yes")
	f.ok("bucket", "delete", "LAB_FILES", "e", "gone", "--yes")
	f.json(&list, "bucket", "list", "LAB_FILES")
	if len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
