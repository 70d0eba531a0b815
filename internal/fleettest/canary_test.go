package fleettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

const canary = Canary

// A cage is what must not be seen: the canary, also as part of what was encoded,
// and other texts.
type cage []string

func newCage(more ...string) cage {
	c := append(cage{canary}, more...)
	for shift := range 3 { // in base64, wherever it begins
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + canary))
		c = append(c, text[[]int{0, 2, 3}[shift]:len(text)-2])
	}
	return c
}

// check fails the test when a text shows what must not be seen.
func (c cage) check(t testing.TB, where, text string) {
	t.Helper()
	for _, secret := range c {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s shows a secret: %.200q", where, text[max(0, i-100):])
		}
	}
}

// checkCommandLine looks at what other users see of a process.
func (c cage) checkCommandLine(t testing.TB, name string, pid int) {
	t.Helper()
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil { // where there is such a thing
		c.check(t, "the command line of "+name, string(text))
	}
}

// checkProcess looks at a process that has no children.
func (c cage) checkProcess(t *testing.T, name string, pid int) {
	t.Helper()
	c.checkCommandLine(t, name, pid)
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Error(err)
	}
	for _, path := range children {
		if text, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(text))) > 0 {
			t.Errorf("%s has children: %s", name, text)
		}
	}
}

// checkReplica looks at all that a replica tells. Headers are for its admin
// listener.
func (c cage) checkReplica(t *testing.T, r *Replica, headers ...string) {
	t.Helper()
	c.check(t, "the log of "+r.Name, r.Log())
	for _, path := range []string{"/metrics", "/readyz", "/healthz"} {
		a := send(t.Context(), http.MethodGet, r.Admin+path, "", headers...)
		if a.Status == 0 || a.Status == http.StatusUnauthorized {
			t.Errorf("%s of %s: %v", path, r.Name, a)
		}
		c.check(t, path+" of "+r.Name, a.Body+fmt.Sprint(a.Header))
	}
	c.checkProcess(t, r.Name, r.cmd.Process.Pid)
}

// tellers are the commands that tell of stores and settings.
var tellers = [][]string{
	{"config", "show"}, {"config", "show", "-o", "json"}, {"config", "check"}, {"probe", "--repeat", "1", "-v"}, {"probe", "--repeat", "1", "-o", "json"},
	{"kv", "list"}, {"kv", "dump"}, {"kv", "stats"}, {"sql", "dump", "LAB_DB"}, {"sql", "query", "LAB_DB", "SELECT * FROM sqlite_schema"}, {"bucket", "list", "LAB_FILES"},
	{"fleet", "status", "-o", "json"}, {"lease", "list"}, {"queue", "list"}, {"cron", "list"}, {"audit"},
}

// checkCommands looks at what commands tell, of which none may be told wrongly
// used.
func (c cage) checkCommands(t *testing.T, f *Fleet, commands [][]string, env ...string) {
	t.Helper()
	for _, args := range commands {
		res := f.CommandEnv(env, args...)
		where := "dwk " + strings.Join(args, " ")
		if res.Code == 2 && len(env) == 0 {
			t.Errorf("%s: %+v", where, res)
		}
		c.check(t, where, res.Stdout+res.Stderr)
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns lines
// of the key.
func selfSigned(t *testing.T, cert, key string) []string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(text))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[1 : len(lines)-1]
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// No secret of any kind is told by anything: tokens and keys in the
// configuration, in variables, in files and in a folder, those of clients, the
// key of a certificate.
func TestCanaries(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	o := startObjectStore(t)
	token := func(name string) string { return canary + "-" + name }
	s := startServer(t, hrana.Config{Path: filepath.Join(f.Dir, "server", "a.db"), Token: token("primary")})
	other := startServer(t, hrana.Config{Path: filepath.Join(f.Dir, "server", "b.db"), Token: token("database")})
	f.Server = s
	file := func(name string) string { return filepath.Join(f.Dir, "secrets", name) }
	for _, name := range []string{"access", "admin", "named"} {
		write(t, file(name), token(name)+"\n")
	}
	write(t, file("mounted/MOUNTED"), token("mounted"))
	key := selfSigned(t, file("cert.pem"), file("key.pem"))
	text, err := os.ReadFile(f.config())
	if err != nil {
		t.Fatal(err)
	}
	config := strings.ReplaceAll(string(text), `admin: {listen: "127.0.0.1:0"}`, `admin: {listen: "127.0.0.1:0", token: "file:`+file("admin")+`"}`) + `
tls: {cert: "` + file("cert.pem") + `", key: "` + file("key.pem") + `"}
libsql: {url: "` + s.URL + `", token: "env:PRIMARY_TOKEN"}
databases: [{name: LAB_DB, url: "` + other.URL + `", token: "` + token("database") + `"}]
object_store: {access_key: "file:` + file("access") + `"}
secrets_dir: "` + file("mounted") + `"
secrets:
  - {name: BY_ENV, from: env:NAMED_SECRET}
  - {name: BY_FILE, from: "file:` + file("named") + `"}
  - {name: PLAIN, from: "` + token("plain") + `"}
`
	write(t, f.config(), config)
	f.Env = append(f.Env, append(o.Env()[:3], "PRIMARY_TOKEN="+token("primary"), "NAMED_SECRET="+token("named"), "DWK_SECRET_BY_NAME="+token("by-name"),
		"DWK_OBJECT_STORE_SECRET_KEY="+token("secret"))...)
	c := newCage(key...)
	r := f.Start("DWK_EVENT_TIMEOUT=2s", "DWK_LEASE_ACQUIRE_TIMEOUT=1s")
	r.Public = strings.Replace(r.Public, "http:", "https:", 1)
	https := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ask := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.Public+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token("client"))
		req.Header.Set("Cookie", "session="+token("cookie"))
		resp, err := https.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		c.check(t, "the answer to "+method+" "+path, string(answer)+fmt.Sprint(resp.Header))
	}
	admin := []string{"Authorization", "Bearer " + token("admin")}
	all := func() {
		t.Helper()
		ask(http.MethodPost, "/lab/counter/n/add?token="+token("query"), "")
		ask(http.MethodPost, "/lab/note/n/sql", `{"sql":"SELECT '`+token("sql")[:0]+`'"}`)
		ask(http.MethodPut, "/lab/bucket/k?signature="+token("query"), token("body"))
		ask(http.MethodPost, "/lab/sql", sqlText(`SELECT 1`))
		ask(http.MethodGet, "/nowhere?key="+token("query"), "")
		send(t.Context(), http.MethodGet, r.Admin+"/metrics?token="+token("query"), "", "Authorization", "Bearer "+token("wrong"))
	}
	all()
	c.checkReplica(t, r, admin...)
	c.checkCommands(t, f, tellers)
	for _, fault := range []hrana.Fault{{CutAfter: true}, {Status: http.StatusUnauthorized}} {
		s.SetHook(every(fault))
		other.SetHook(every(fault))
		o.SetFault(Always(ObjectDenied))
		all()
		c.checkCommands(t, f, tellers[3:6])
	}
	s.SetHook(nil)
	other.SetHook(nil)
	o.SetFault(nil)
	write(t, file("named"), token("rotated"))
	if err := os.Remove(file("mounted/MOUNTED")); err != nil {
		t.Error(err)
	}
	all()
	c.checkReplica(t, r, admin...)
	r.Terminate()
	r.Wait()
	c.check(t, "the log of the stop", r.Log())
}

// A secret in a place where none belongs is refused, and not shown.
func TestCanariesInURLs(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	c := newCage()
	for name, env := range map[string]string{
		"user information of libsql": "DWK_LIBSQL_URL=https://user:" + canary + "@localhost:1",
		"token of libsql":            "DWK_LIBSQL_URL=https://localhost:1?authToken=" + canary,
		"a bad URL of libsql":        "DWK_LIBSQL_URL=https://%zz" + canary,
		"user information of S3":     "DWK_OBJECT_STORE_URL=https://user:" + canary + "@localhost:1/b",
		"signature of S3":            "DWK_OBJECT_STORE_URL=https://localhost:1/b?X-Amz-Signature=" + canary,
		"fragment of S3":             "DWK_OBJECT_STORE_URL=https://localhost:1/b#" + canary,
		"a database":                 "DWK_DATABASE_LAB_DB_URL=https://user:" + canary + "@localhost:1",
		"a bucket":                   "DWK_BUCKET_LAB_FILES_URL=https://user:" + canary + "@localhost:1/b",
		"the base URL":               "DWK_BASE_URL=https://user:" + canary + "@localhost",
	} {
		for _, args := range [][]string{{"config", "check"}, {"config", "show"}, {"probe"}, {"kv", "list"}, {"serve"}} {
			res := f.CommandEnv([]string{env}, args...)
			if res.Code == 0 && args[0] != "config" {
				t.Errorf("%s: dwk %v took it", name, args)
			}
			c.check(t, name+": dwk "+strings.Join(args, " "), res.Stdout+res.Stderr)
		}
	}
}
