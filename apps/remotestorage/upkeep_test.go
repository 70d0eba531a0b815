package remotestorage

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/cli"
)

// run runs an operator's command on the fixture's stores.
func (f *fixture) run(stdin string, args ...string) (code int, out, stderr string) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "dwk.yaml")
	text := fmt.Sprintf(`data_dir: %s
databases: [{name: %s}]
buckets: [{name: %s}]
caches: [{name: %s}]
queues: [{name: %s}]
crons: []
mounts: [{path: /rs, app: remotestorage, settings: {quota: 5000}}]
`, f.cfg.DataDir, databaseName, bucketName, cacheName, queueName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	var o, e bytes.Buffer
	code = cli.Run(context.Background(), cli.Options{
		Args: append([]string{"-c", file, "app", "remotestorage"}, args...), In: strings.NewReader(stdin), Out: &o, Err: &e,
		Environ: []string{}, Apps: []durable.App{App()},
	})
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 100})
	ok := func(stdin string, args ...string) string {
		t.Helper()
		code, out, stderr := f.run(stdin, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, stderr)
		}
		return out
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok("", "create", "alice", "--password-file", file); out != "address  alice@localhost:8080\n" {
		t.Errorf("create: %q", out)
	}
	var made struct{ Name, Address, Password string }
	if err := json.Unmarshal([]byte(ok("", "create", "bob", "--quota", "0", "-o", "json")), &made); err != nil || len(made.Password) < 20 || made.Name != "bob" {
		t.Errorf("create: %v %+v", err, made)
	}
	for _, c := range []struct {
		stdin string
		code  int
		args  []string
	}{
		{"", 1, []string{"create", "alice"}}, {"", 2, []string{"create", "Alice"}}, {"", 2, []string{"create", "a/b"}}, {"", 2, []string{"create"}},
		{"short\n", 2, []string{"create", "carol", "--password-file", "-"}}, {"", 2, []string{"create", "carol", "--password-file", "/none"}},
		{"", 3, []string{"show", "nobody"}}, {"", 3, []string{"password", "nobody"}}, {"", 3, []string{"quota", "nobody", "1"}}, {"", 3, []string{"delete", "nobody", "--yes"}}, {"", 3, []string{"export", "nobody", "-"}},
		{"", 2, []string{"quota", "alice", "-1"}}, {"", 2, []string{"quota", "alice", "1G"}}, {"", 2, []string{"delete", "alice"}}, {"", 2, []string{"token", "alice", "public:rw"}}, {"", 3, []string{"token", "nobody", "m:r"}},
	} {
		if code, _, stderr := f.run(c.stdin, c.args...); code != c.code {
			t.Errorf("%v: exit %d: %s", c.args, code, stderr)
		}
	}
	login := func(name, pass string) int {
		b := f.browser()
		return b.post(b.send("GET", "/rs/", nil), "/rs/login", "username", name, "password", pass).status
	}
	if login("alice", password) != 303 || login("bob", made.Password) != 303 {
		t.Error("a password that was set does not let in")
	}
	ok("new password\n", "password", "alice", "--password-file", "-")
	if login("alice", password) != 403 || login("alice", "new password") != 303 {
		t.Error("the password was not changed")
	}
	var token struct{ Store, Token, Scope string }
	if err := json.Unmarshal([]byte(ok("", "token", "alice", "*:rw", "--for", "https://backup.example", "-o", "json")), &token); err != nil || token.Store != siteOrigin+"/rs/store/alice" {
		t.Errorf("token: %v %+v", err, token)
	}
	u := user{f, "alice", token.Token}
	want := map[string]string{"m/a": "small", "m/b/ü & x": text64(4000), "public/m/p": "", "top": "t"}
	for path, body := range want {
		u.do("PUT", "/"+strings.ReplaceAll(strings.ReplaceAll(path, " ", "%20"), "ü", "%C3%BC"), body, "Content-Type", "text/x; name="+fmt.Sprint(len(body)))
	}
	wants(t, "the quota of the settings", u.do("PUT", "/m/big", text64(4096)), 507)
	ok("", "quota", "alice", "100000")
	u.put("/m/big", text64(4096))
	wants(t, "delete", u.do("DELETE", "/m/big", ""), 200)
	var list []shown
	if err := json.Unmarshal([]byte(ok("", "list", "-o", "json")), &list); err != nil || len(list) != 2 || list[0].Name != "alice" || list[0].Documents != 4 || list[0].Quota != 100000 || list[1].Quota != 0 || len(list[0].Grants) != 1 {
		t.Errorf("list: %v %+v", err, list)
	}
	if out := ok("", "show", "alice"); !strings.Contains(out, "application        https://backup.example *:rw, since ") || strings.Contains(out, token.Token) {
		t.Errorf("show: %s", out)
	}
	out := filepath.Join(t.TempDir(), "alice.tar")
	ok("", "export", "alice", out)
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(body)
		if h.PAXRecords[mimeAttribute] != "text/x; name="+fmt.Sprint(len(body)) || time.Since(h.ModTime) > time.Hour {
			t.Errorf("%s: %+v", h.Name, h)
		}
	}
	for path, body := range want {
		if got["./"+path] != body {
			t.Errorf("%s has %d bytes in the archive, want %d", path, len(got["./"+path]), len(body))
		}
	}
	if len(got) != len(want) {
		t.Errorf("the archive has %d documents", len(got))
	}
	if code, _, _ := f.run("", "export", "alice", out); code != 1 {
		t.Errorf("export over a file: exit %d", code)
	}
	if ok("", "export", "alice", "-") != string(archive) {
		t.Error("the archive on the output is another one")
	}

	// A deleted account is gone at once, its documents soon, and its name is free then.
	old := f.vaultID("alice")
	ok("", "delete", "alice", "--yes")
	wants(t, "deleted", u.get("/m/a"), 401)
	wants(t, "deleted, public", f.anonymous("alice").get("/public/m/p"), 404)
	if login("alice", "new password") != 403 {
		t.Error("a deleted account's password lets in")
	}
	wants(t, "webfinger", f.send("GET", "/.well-known/webfinger?resource=acct:alice@localhost:8080", nil), 404)
	eventually(t, "the name is free", func() bool { code, _, _ := f.run("", "create", "alice"); return code == 0 })
	eventually(t, "the bodies are gone", func() bool { return len(f.keys()) == 0 })
	if f.vaultID("alice").Equal(old) {
		t.Error("the new account has the old Vault")
	}
	wants(t, "the old token", u.get("/m/a"), 401)
	if i := f.info("alice"); i.Documents != 0 || i.Used != 0 {
		t.Errorf("the new account has %+v", i)
	}
}

// laterEnv is some hours ahead.
type laterEnv struct{ durable.Env }

func (e laterEnv) Now() time.Time { return e.Env.Now().Add(2 * time.Hour) }

// What a crash can leave between the database, the objects and the bucket is
// put right by the daily run.
func TestSweep(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 10, "grace": "1h"})
	f.account("alice")
	f.account("bob")
	u := f.user("alice", "m:rw")
	u.put("/m/x", text64(160))
	bucket := f.env.Bucket(bucketName)
	for _, key := range []string{blobFolder(f.vaultID("alice")) + "lost", blobFolder(durable.NewUniqueID()) + "lost"} {
		if _, err := bucket.Put(t.Context(), key, strings.NewReader("lost"), durable.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Marked, and the message was never sent.
	if _, err := f.env.Database(databaseName).Exec(t.Context(), `UPDATE rs_account SET deleted = 1 WHERE name = 'bob'`); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), f.env, durable.Occurrence{}); err != nil {
		t.Fatal(err)
	}
	if keys := f.keys(); len(keys) != 3 {
		t.Errorf("bodies within the grace: %v", keys)
	}
	if err := sweep(t.Context(), laterEnv{f.env}, durable.Occurrence{}); err != nil {
		t.Fatal(err)
	}
	if keys := f.keys(); len(keys) != 1 {
		t.Errorf("bodies: %v", keys)
	}
	if a := u.get("/m/x"); a.body != text64(160) {
		t.Errorf("%v", a)
	}
	eventually(t, "bob is gone", func() bool {
		row, err := f.env.Database(databaseName).First(t.Context(), `SELECT count(*) FROM rs_account`)
		return err == nil && row.Values[0] == int64(1)
	})
	// A message about an account that is not marked does nothing.
	if err := purge(t.Context(), f.env, f.vaultID("alice").String()); err != nil {
		t.Error(err)
	}
	wants(t, "not deleted", u.get("/m/x"), 200)
}
