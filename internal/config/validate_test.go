package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	mount := func(paths ...string) func(*Config) {
		return func(c *Config) {
			for _, p := range paths {
				c.Mounts = append(c.Mounts, Mount{Path: p, App: "other"})
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // the only problem's beginning, "" for none
	}{
		{"base https", func(c *Config) { c.BaseURL = "https://example.org/base" }, ""},
		{"base loopback", func(c *Config) { c.BaseURL = "http://[::1]:1" }, ""},
		{"base http", func(c *Config) { c.BaseURL = "http://example.org" }, "base_url: plain http needs dev: true"},
		{"base http, dev", func(c *Config) { c.BaseURL, c.Dev = "http://example.org", true }, ""},
		{"base relative", func(c *Config) { c.BaseURL = "/x" }, "base_url: not an absolute URL"},
		{"base empty", func(c *Config) { c.BaseURL = "" }, "base_url: not an absolute URL"},
		{"base scheme", func(c *Config) { c.BaseURL = "ftp://localhost" }, "base_url: not an http or https URL"},
		{"base user", func(c *Config) { c.BaseURL = "https://a@b" }, "base_url: a URL with user information"},
		{"base query", func(c *Config) { c.BaseURL = "https://b?" }, "base_url: a URL with a query"},
		{"base fragment", func(c *Config) { c.BaseURL = "https://b#" }, "base_url: a URL with a fragment"},

		{"listen all", func(c *Config) { c.Listen = ":0" }, ""},
		{"listen no port", func(c *Config) { c.Listen = "localhost" }, `listen: "localhost" is not an address`},
		{"listen port", func(c *Config) { c.Listen = "localhost:65536" }, `listen: "65536" is not a port`},
		{"listen port form", func(c *Config) { c.Listen = "localhost:080" }, `listen: "080" is not a port`},
		{"listen URL", func(c *Config) { c.Listen = "http://localhost:80" }, "listen: "},
		{"listen twice", func(c *Config) { c.Listen = c.Admin.Listen }, "admin.listen: 127.0.0.1:9080 is the address of the public listener"},
		{"listen any port twice", func(c *Config) { c.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0" }, ""},
		{"admin open", func(c *Config) { c.Admin.Listen = ":9080" }, "admin.token: required, since"},
		{"admin open with token", func(c *Config) { c.Admin.Listen, c.Admin.Token = ":9080", NewSecret("t") }, ""},
		{"admin named", func(c *Config) { c.Admin.Listen = "box.example:9080" }, "admin.token: required"},
		{"admin loopback", func(c *Config) { c.Admin.Listen = "[::1]:9080" }, ""},
		{"tls half", func(c *Config) { c.TLS.Cert = "c" }, "tls: cert and key go together"},
		{"tls", func(c *Config) { c.TLS = TLS{"c", "k"} }, ""},

		{"libsql", func(c *Config) { c.LibSQL.URL = "libsql://db.example" }, ""},
		{"libsql file", func(c *Config) { c.LibSQL.URL = "file:/x/y.sqlite" }, ""},
		{"libsql path", func(c *Config) { c.LibSQL.URL = "x.sqlite" }, "libsql.url: not an absolute URL"},
		{"libsql memory", func(c *Config) { c.LibSQL.URL = "file::memory:" }, "libsql.url: not a file URL"},
		{"libsql file options", func(c *Config) { c.LibSQL.URL = "file:x?mode=ro" }, "libsql.url: not a file URL"},
		{"libsql scheme", func(c *Config) { c.LibSQL.URL = "wss://db.example" }, "libsql.url: not a file, http, https or libsql URL"},
		{"libsql token in URL", func(c *Config) { c.LibSQL.URL = "libsql://h?authToken=x" }, "libsql.url: a URL with a query"},
		{"store", func(c *Config) { c.ObjectStore.URL = "https://e/bucket/prefix" }, ""},
		{"store s3", func(c *Config) { c.ObjectStore.URL = "s3://bucket" }, ""},
		{"store no bucket", func(c *Config) { c.ObjectStore.URL = "https://e/" }, "object_store.url: names no bucket"},
		{"store no s3 bucket", func(c *Config) { c.ObjectStore.URL = "s3:///prefix" }, "object_store.url: not an absolute URL"},
		{"store scheme", func(c *Config) { c.ObjectStore.URL = "gs://bucket" }, "object_store.url: not a file, s3"},
		{"store keys", func(c *Config) { c.ObjectStore.AccessKey = NewSecret("x") }, "object_store: access_key and secret_key go together"},
		{"store style", func(c *Config) { c.ObjectStore.PathStyle = "on" }, `object_store.path_style: "on" is not one of auto, true, false`},
		{"bucket", func(c *Config) { c.Buckets[0].URL = "x" }, "buckets[0].url: not an absolute URL"},
		{"database", func(c *Config) { c.Databases[0].URL = "x" }, "databases[0].url: not an absolute URL"},
		{"otel", func(c *Config) { c.Otel.Endpoint = "localhost:4318" }, "otel.endpoint: not an absolute URL"},
		{"otel scheme", func(c *Config) { c.Otel.Endpoint = "grpc://localhost:4318" }, "otel.endpoint: not an http or https URL"},
		{"otel share", func(c *Config) { c.Otel.Sample = 1.1 }, "otel.sample: 1.1 is more than 1"},

		{"ttl", func(c *Config) { c.Lease.TTL = 499 * time.Millisecond }, "lease.ttl: 499ms is less than 500ms"},
		{"short ttl", func(c *Config) { c.Lease.TTL = 500 * time.Millisecond }, ""},
		{"acquire", func(c *Config) { c.Lease.AcquireTimeout = 0 }, "lease.acquire_timeout: 0s is not positive"},
		{"waiters", func(c *Config) { c.Lease.Waiters = 0 }, "lease.waiters: 0 is not positive"},
		{"event", func(c *Config) { c.Event.Timeout = c.Lease.AcquireTimeout }, "event.timeout: 5s is not longer than lease.acquire_timeout, 5s"},
		{"spool", func(c *Config) { c.Event.Spool = 1 }, "event.spool: 1B is less than event.buffer, 1MiB"},
		{"size", func(c *Config) { c.Event.BodyLimit = -1 }, "event.body_limit: -1B is not positive"},
		{"inline", func(c *Config) { c.Objects.InlineLimit = 2 << 20 }, "objects.inline_limit: 2MiB is more than 1MiB"},
		{"object size", func(c *Config) { c.Objects.MaxSize = 1 << 10 }, "objects.max_size: 1KiB is less than objects.inline_limit"},
		{"retention", func(c *Config) { c.Objects.Retention.Hourly = time.Minute }, "objects.retention.hourly: 1m is shorter than objects.retention.full, 15m"},
		{"no retries", func(c *Config) { c.Alarms.Retries = 0 }, ""},
		{"retries", func(c *Config) { c.Alarms.Retries = -1 }, "alarms.retries: -1 is less than 0"},
		{"batch", func(c *Config) { c.Alarms.Batch = 1001 }, "alarms.batch: 1001 is more than 1000"},
		{"heartbeat", func(c *Config) { c.Fleet.HeartbeatTTL = 2 * time.Second }, "fleet.heartbeat_ttl: 2s is less than three times"},
		{"drain", func(c *Config) { c.Drain.Timeout = c.Drain.Grace }, "drain.timeout: 5s is not longer than drain.grace, 5s"},
		{"no grace", func(c *Config) { c.Drain.Grace = 0 }, ""},
		{"socket code", func(c *Config) { c.Drain.SocketCode = 1000 }, `drain.socket_code: "1000" is not one of 1001, 1012`},
		{"level", func(c *Config) { c.Log.Level = "loud" }, `log.level: "loud" is not one of`},

		{"queue name", func(c *Config) { c.Queues[0].Name = "" }, "queues[0].name: required"},
		{"queue name form", func(c *Config) { c.Queues[0].Name = "1a" }, `queues[0].name: "1a" is not a name`},
		{"queue name slash", func(c *Config) { c.Queues[0].Name = "a/b" }, `queues[0].name: "a/b" is not a name`},
		{"queue name length", func(c *Config) { c.Queues[0].Name = strings.Repeat("a", 65) }, "queues[0].name: longer than 64"},
		{"queue name longest", func(c *Config) { c.Queues[0].Name = strings.Repeat("a", 64) }, ""},
		{"queue visibility", func(c *Config) { c.Queues[0].Visibility = 0 }, "queues[0].visibility: 0s is less than 1s"},
		{"queue twice", func(c *Config) { c.Queues = append(c.Queues, c.Queues[0]) }, "queues[1].name: default clashes with the name of queues[0]"},
		{"queue like a cache", func(c *Config) { c.Queues[0].Name = "LAB_CACHE" }, ""},
		{"binding clash", func(c *Config) { c.Caches[0].Name = "LAB_DB" }, "caches[0].name: LAB_DB clashes with the name of databases[0]"},
		{"variable clash", func(c *Config) { c.Buckets[0].Name = "lab-db" }, "buckets[0].name: lab-db clashes with the name of databases[0]"},
		{"secret clash", func(c *Config) { c.Secrets = []NamedSecret{{"LAB_DB", NewSecret("x")}} }, "secrets[0].name: LAB_DB clashes"},
		{"secret empty", func(c *Config) { c.Secrets = []NamedSecret{{Name: "A"}} }, "secrets[0].from: required"},
		{"coordination file", func(c *Config) { c.Databases[0].Name = "Coordination" }, "databases[0].name: Coordination is the file of the coordination database"},
		{"coordination elsewhere", func(c *Config) { c.Databases[0] = Database{Name: "coordination", URL: "file:x"} }, ""},

		{"cron app", func(c *Config) { c.Crons[0].App = "labb" }, "crons[0].app: labb is not mounted"},
		{"cron zone", func(c *Config) { c.Crons[0].Zone = "Europe/Atlantis" }, `crons[0].zone: "Europe/Atlantis" is not a time zone`},
		{"cron local zone", func(c *Config) { c.Crons[0].Zone = "Local" }, `crons[0].zone: "Local" is not a time zone`},
		{"cron overlap", func(c *Config) { c.Crons[0].Overlap = "queue" }, `crons[0].overlap: "queue" is not one of skip, allow`},
		{"cron twice", func(c *Config) { c.Crons = append(c.Crons, c.Crons[0]) }, "crons[1].name: every-five clashes"},

		{"mounts", mount("/a", "/b/c", "/b/d", "/labs", "/"), ""},
		{"mount relative", mount("a"), `mounts[1].path: "a" is not a clean path`},
		{"mount empty", mount(""), `mounts[1].path: "" is not a clean path`},
		{"mount slash", mount("/a/"), `mounts[1].path: "/a/" is not a clean path`},
		{"mount dots", mount("/a/../b"), `mounts[1].path: "/a/../b" is not a clean path`},
		{"mount pattern", mount("/{a}"), `mounts[1].path: "/{a}" is not a clean path`},
		{"mount escape", mount("/%41"), `mounts[1].path: "/%41" is not a clean path`},
		{"mount reserved", mount("/.well-known"), "mounts[1].path: /.well-known is reserved"},
		{"mount in reserved", mount("/.well-known/acme"), "mounts[1].path: /.well-known is reserved"},
		{"mount health", mount("/healthz"), "mounts[1].path: /healthz is reserved"},
		{"mount twice", mount("/lab"), "mounts[1].path: /lab overlaps /lab of mounts[0]"},
		{"mount case", mount("/Lab"), "mounts[1].path: /Lab overlaps /lab of mounts[0]"},
		{"mount below", mount("/lab/x"), "mounts[1].path: /lab/x overlaps /lab of mounts[0]"},
		{"root twice", mount("/", "/"), "mounts[2].path: / overlaps / of mounts[1]"},
		{"mount app", func(c *Config) { c.Mounts = append(c.Mounts, Mount{Path: "/x"}) }, "mounts[1].app: required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Default()
			c.change(cfg)
			err := cfg.Validate()
			got := problemsOf(err)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("problems %q, want one: %q", got, c.want)
			}
		})
	}
}

func TestValidateReportsAll(t *testing.T) {
	problems := problemsOf((&Config{}).Validate())
	for _, want := range []string{"base_url", "listen", "admin.listen", "lease.ttl", "event.buffer", "log.level", "drain.socket_code"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want+": ") }) {
			t.Errorf("no problem with %s among %q", want, problems)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"token over http", func(c *Config) { c.Databases[0].URL, c.Databases[0].Token = "http://db.example", NewSecret("t") },
			[]string{"databases[0].token is sent over plain http to db.example"}},
		{"token over http on loopback", func(c *Config) { c.Databases[0].URL, c.Databases[0].Token = "http://localhost:1", NewSecret("t") }, nil},
		{"http without token", func(c *Config) { c.Databases[0].URL = "http://db.example" }, nil},
		{"token for a file", func(c *Config) { c.LibSQL.Token = NewSecret("t") },
			[]string{"libsql.token has no effect: the database is a file"}},
		{"server and files", func(c *Config) { c.LibSQL.URL, c.Buckets[0].URL = "libsql://db.example", "file:b" }, []string{
			"object_store.url is a directory of this machine while libsql.url is a server: replicas elsewhere do not see it",
			"databases[0] (LAB_DB) is a file of this machine while libsql.url is a server: replicas elsewhere do not see it",
			"buckets[0] (LAB_FILES) is a directory of this machine while libsql.url is a server: replicas elsewhere do not see it"}},
		{"store over http", func(c *Config) { c.ObjectStore.URL = "http://minio.example/b" },
			[]string{"object_store.url is plain http to minio.example: what is stored can be read on the way"}},
		{"short drain", func(c *Config) { c.Drain.Timeout = 10 * time.Second },
			[]string{"drain.timeout, 10s, is shorter than drain.grace and event.timeout together: a drain may cut off an event"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Default()
			c.change(cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := cfg.Warnings(); !slices.Equal(got, c.want) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

func TestDerived(t *testing.T) {
	c := Default()
	c.Databases = append(c.Databases, Database{Name: "B", URL: "https://b"})
	c.Buckets = append(c.Buckets, Bucket{Name: "B", URL: "s3://b"})
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}
	url := func(s string, ok bool) string {
		if !ok {
			return "none"
		}
		return s
	}
	check("replica dir", c.ReplicaDirOrDefault(), "data/mirrors")
	check("libsql", c.LibSQLURLOrDefault(), "file:data/central/coordination.sqlite")
	check("store", c.ObjectStoreURLOrDefault(), "file:data/central/store")
	check("database", url(database(c, "LAB_DB")), "file:data/central/LAB_DB.sqlite")
	check("database", url(database(c, "B")), "https://b")
	check("database", url(database(c, "b")), "none")
	check("bucket", url(c.BucketURL("LAB_FILES")), "file:data/central/store/buckets/LAB_FILES")
	check("bucket", url(c.BucketURL("B")), "s3://b")
	check("bucket", url(c.BucketURL("C")), "none")
	c.DataDir, c.ReplicaDir, c.ObjectStore.URL, c.LibSQL.URL = "/var/lib/50% #1?", "/r", "s3://b/p/", "libsql://x"
	check("replica dir", c.ReplicaDirOrDefault(), "/r")
	check("libsql", c.LibSQLURLOrDefault(), "libsql://x")
	check("store", c.ObjectStoreURLOrDefault(), "s3://b/p/")
	check("bucket", url(c.BucketURL("LAB_FILES")), "s3://b/p/buckets/LAB_FILES")
	check("database", url(database(c, "LAB_DB")), "file:/var/lib/50%25 %231%3F/central/LAB_DB.sqlite")
	path, err := FilePath(url(database(c, "LAB_DB")))
	if check("path", path, "/var/lib/50% #1?/central/LAB_DB.sqlite"); err != nil {
		t.Error(err)
	}
}

func TestFilePath(t *testing.T) {
	for text, want := range map[string]string{
		"file:a/b": "a/b", "file:/a": "/a", "file:///a b": "/a b", "file://localhost/a": "/a", "file:./a%20b": "./a b",
		"file:": "", "file://": "", "file://host/a": "", "file:a?b": "", "file:a%": "", "file:a%00": "", "a": "", "https://a/b": "",
	} {
		if got, err := FilePath(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "localhost:1": true, "LOCALHOST:1": true, "a.localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.example:1": false, "bad": false,
	} {
		if got := (&Config{Listen: address}).Loopback(); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestKeys(t *testing.T) {
	types := map[string]int{}
	for _, info := range Keys() {
		types[info.Type]++
		if strings.Contains(info.Key, "[]") != (info.Env == "" && info.Type != "section" && info.Type != "list") {
			t.Errorf("%+v: only scalars outside lists have a variable", info)
		}
	}
	for _, name := range []string{"text", "boolean", "integer", "number", "duration", "size", "secret", "mapping", "section", "list"} {
		if types[name] == 0 {
			t.Errorf("no key of type %s", name)
		}
	}
	i := slices.IndexFunc(Keys(), func(k KeyInfo) bool { return k.Key == "log.level" })
	want := KeyInfo{"log.level", "text", "info", []string{"debug", "info", "warn", "error"}, "DWK_LOG_LEVEL", "The least level that is logged."}
	if !reflect.DeepEqual(Keys()[i], want) {
		t.Errorf("%+v", Keys()[i])
	}
}

func database(c *Config, name string) (url string, ok bool) {
	d, ok := c.DatabaseOrDefault(name)
	return d.URL, ok
}

func TestDatabaseAccess(t *testing.T) {
	c, err := loadText(t, `
libsql: {url: "https://db.example", token: main, namespace: fleet}
databases: [{name: OWN, url: "https://other.example"}, {name: SPACE, namespace: app}, {name: BOTH, namespace: app2, token: mine}, {name: FILE}]
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ name, url, token, namespace string }{
		{"OWN", "https://other.example", "", ""}, {"SPACE", "https://db.example", "main", "app"},
		{"BOTH", "https://db.example", "mine", "app2"}, {"FILE", "file:data/central/FILE.sqlite", "", ""},
	} {
		d, ok := c.DatabaseOrDefault(want.name)
		if !ok || d.URL != want.url || d.Token.Reveal() != want.token || d.Namespace != want.namespace {
			t.Errorf("%s: %+v (token %q)", want.name, d, d.Token.Reveal())
		}
	}
	if w := c.Warnings(); len(w) != 2 { // the object store and FILE
		t.Errorf("warnings %q", w)
	}
	for text, want := range map[string]string{
		`libsql: {url: "https://db", namespace: a}` + "\ndatabases: [{name: A, namespace: a}]":                      "databases[0].namespace (dwk.yaml:2): a is the namespace of the coordination database",
		`libsql: {url: "https://db", namespace: a}` + "\ndatabases: [{name: A, url: \"https://db\", namespace: a}]": "databases[0].url (dwk.yaml:2): it is the coordination database",
		`libsql: {url: "libsql://db"}` + "\ndatabases: [{name: A, url: \"https://db/\"}]":                           "databases[0].url (dwk.yaml:2): it is the coordination database",
		`libsql: {url: "file:data/x.sqlite"}` + "\ndatabases: [{name: A, url: \"file:data/y/../x.sqlite\"}]":        "databases[0].url (dwk.yaml:2): it is the coordination database",
		`databases: [{name: A, url: "file:data/x.sqlite"}, {name: B, url: "file:data/x.sqlite"}]`:                   "",
	} {
		_, err := loadText(t, text)
		got := ""
		if err != nil {
			got = strings.Join(problemsOf(err), ";")
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant %s", text, got, want)
		}
	}
}
