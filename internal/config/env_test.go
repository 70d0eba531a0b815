package config

import (
	"slices"
	"strings"
	"testing"
)

func TestOlderNames(t *testing.T) {
	for _, c := range []struct {
		name    string
		text    string
		environ []string
		key     string
		want    string
		origin  string
	}{
		{"port", "", []string{"PORT=9000"}, "listen", "127.0.0.1:9000", "env:PORT"},
		{"host", "", []string{"HOST=0.0.0.0"}, "listen", "0.0.0.0:8080", "env:HOST"},
		{"both", "", []string{"HOST=::", "PORT=80"}, "listen", "[::]:80", "env:HOST and PORT"},
		{"over the file", "listen: ':7000'", []string{"PORT=9000"}, "listen", ":9000", "env:PORT"},
		{"host of the file", "listen: '[::1]:7000'", []string{"PORT=9000"}, "listen", "[::1]:9000", "env:PORT"},
		{"under the name of today", "", []string{"PORT=9000", "DWK_LISTEN=:1"}, "listen", ":1", "env:DWK_LISTEN"},
		{"data", "", []string{"DWK_DATA_DIR=/d"}, "data_dir", "/d", "env:DWK_DATA_DIR"},
		{"replica", "", []string{"DWK_REPLICA_DIR=/r"}, "replica_dir", "/r", "env:DWK_REPLICA_DIR"},
		{"token", "", []string{"DWK_LIBSQL_AUTH_TOKEN=t"}, "libsql.token", "(hidden)", "env:DWK_LIBSQL_AUTH_TOKEN"},
		{"token of today", "", []string{"DWK_LIBSQL_AUTH_TOKEN=t", "DWK_LIBSQL_TOKEN=u"}, "libsql.token", "(hidden)", "env:DWK_LIBSQL_TOKEN"},
		{"region", "object_store: {region: a}", []string{"DWK_S3_REGION=b"}, "object_store.region", "b", "env:DWK_S3_REGION"},
		{"endpoint and bucket", "object_store: {url: 's3://b/p'}", []string{"DWK_R2_ENDPOINT=https://e/"}, "object_store.url", "https://e/b/p", "env:DWK_R2_ENDPOINT"},
		{"endpoint and bucket of today", "", []string{"DWK_R2_ENDPOINT=https://e", "DWK_OBJECT_STORE_URL=s3://b"}, "object_store.url", "https://e/b", "env:DWK_R2_ENDPOINT"},
		{"endpoint with bucket", "object_store: {url: 'https://f/c'}", []string{"DWK_R2_ENDPOINT=https://e/b"}, "object_store.url", "https://e/b", "env:DWK_R2_ENDPOINT"},
		{"url of today", "", []string{"DWK_R2_ENDPOINT=https://e/b", "DWK_OBJECT_STORE_URL=file:x"}, "object_store.url", "file:x", "env:DWK_OBJECT_STORE_URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := loadText(t, c.text, c.environ...)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(cfg.Effective(), Entry{c.key, c.want, c.origin}) {
				t.Errorf("not among %v", cfg.Effective())
			}
		})
	}
	cfg, err := loadText(t, "", "DWK_S3_ACCESS_KEY_ID=a", "DWK_S3_SECRET_ACCESS_KEY=s", "DWK_LIBSQL_AUTH_TOKEN=t")
	if err != nil || cfg.ObjectStore.AccessKey.Reveal() != "a" || cfg.ObjectStore.SecretKey.Reveal() != "s" || cfg.LibSQL.Token.Reveal() != "t" {
		t.Errorf("keys were mixed up, or %v", err)
	}
}

func TestOlderNameProblems(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"PORT=http", `listen (env:PORT): "http" is not a port between 0 and 65535`},
		{"DWK_R2_ENDPOINT=https://e", "object_store.url (env:DWK_R2_ENDPOINT): names no bucket: append it, as in https://endpoint/bucket"},
	} {
		if _, err := loadText(t, "", c.variable); !slices.Equal(problemsOf(err), []string{c.want}) {
			t.Errorf("%s: %v", c.variable, err)
		}
	}
}

func TestElementVariables(t *testing.T) {
	c, err := loadText(t, "databases: [{name: main-db, url: 'https://a'}, {name: Other}]\nsecrets: [{name: KEY, from: old}]",
		"DWK_DATABASE_MAIN_DB_URL=https://b", "DWK_DATABASE_MAIN_DB_TOKEN=t", "DWK_DATABASE_THIRD_URL=https://c",
		"DWK_BUCKET_LAB_FILES_URL=s3://x", "DWK_SECRET_KEY=new", "DWK_SECRET_EXTRA=e", "DWK_DATABASE__URL=x", "DWK_SECRET_EMPTY=")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.names("databases"); !slices.Equal(got, []string{"main-db", "Other", "THIRD"}) {
		t.Errorf("databases %q", got)
	}
	if d := c.Databases[0]; d.URL != "https://b" || d.Token.Reveal() != "t" {
		t.Errorf("database %+v", d)
	}
	if c.Buckets[0].URL != "s3://x" || len(c.Buckets) != 1 {
		t.Errorf("buckets %+v", c.Buckets)
	}
	if got := c.names("secrets"); !slices.Equal(got, []string{"KEY", "EXTRA"}) || c.Secrets[0].From.Reveal() != "new" || c.Secrets[1].From.Reveal() != "e" {
		t.Errorf("secrets %q", got)
	}
	for _, e := range []Entry{
		{"databases[0].url", "https://b", "env:DWK_DATABASE_MAIN_DB_URL"},
		{"databases[0].name", "main-db", "file:dwk.yaml"},
		{"databases[2].name", "THIRD", "env:DWK_DATABASE_THIRD_URL"},
		{"secrets[1].from", "(hidden)", "env:DWK_SECRET_EXTRA"},
	} {
		if !slices.Contains(c.Effective(), e) {
			t.Errorf("%+v is not among the effective values", e)
		}
	}
}

// TestEnvironmentReachesNothingElse gives variables that a looser reading could
// take for settings.
func TestEnvironmentReachesNothingElse(t *testing.T) {
	c, err := loadText(t, "", "LISTEN=:1", "LEASE_TTL=1s", "DWK_LEASE=1s", "DWK_LEASE.TTL=1s", "dwk_lease_ttl=1s", "DWK_QUEUES=x", "DWK_MOUNTS=[]",
		"DWK_QUEUE_DEFAULT_BATCH=1", "DWK_DATABASE_LAB_DB_NAMESPACE=n", "DWK_DATABASES_0_URL=https://a", "DWK_MOUNTS_0_SETTINGS=x", "ADMIN_TOKEN=x")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Effective() {
		if e.Origin != originDefault {
			t.Errorf("%+v", e)
		}
	}
}

func TestVariableWarnings(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"DWK_LEASE_TLT=1s", "environment variable DWK_LEASE_TLT is not known: did you mean DWK_LEASE_TTL?"},
		{"DWK_LIBSQL_AUTHTOKEN=x", "environment variable DWK_LIBSQL_AUTHTOKEN is not known: did you mean DWK_LIBSQL_AUTH_TOKEN?"},
		{"DWK_DATABASE_LAB_DB_URI=x", "environment variable DWK_DATABASE_LAB_DB_URI is not known: did you mean DWK_DATABASE_LAB_DB_URL?"},
		{"DWK_DATABASE_LAB_BD_URL=file:x", "environment variable DWK_DATABASE_LAB_BD_URL adds LAB_BD to databases: did you mean LAB_DB?"},
		{"DWK_FAILPOINTS=x", ""},
		{"DWK_FAILPOINT_LOG=x", ""},
		{"DWK_CLOCK_SHIFT=1h", ""},
		{"DWK_TEST_LISTEN=x", ""},
		{"DWK_SERVICE_HOST=10.0.0.1", ""},
		{"DWK_PORT_8080_TCP=tcp://10.0.0.1:8080", ""},
		{"DWK_LISTEN=127.0.0.1:1", ""},
		{"DWK_" + strings.Repeat("LISTEN", 100) + "=x", ""},
	} {
		cfg, err := loadText(t, "", c.variable)
		if err != nil {
			t.Errorf("%s: %v", c.variable, err)
			continue
		}
		if got := strings.Join(cfg.Warnings(), "\n"); got != c.want {
			t.Errorf("%s: warnings %q, want %q", c.variable, got, c.want)
		}
	}
}
