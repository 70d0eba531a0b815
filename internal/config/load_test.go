package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// loadText loads a file of the given text in an empty environment and directory.
func loadText(t testing.TB, text string, environ ...string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, localFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(Options{WorkDir: dir, Environ: append([]string{}, environ...)}, filepath.Join(dir, "none"))
}

// problemsOf returns the problems of err as text.
func problemsOf(err error) []string {
	var out []string
	if e, ok := errors.AsType[*Error](err); ok {
		for _, p := range e.Problems {
			out = append(out, p.String())
		}
	}
	return out
}

func TestDefault(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	loaded, err := load(Options{WorkDir: t.TempDir(), Environ: []string{}}, "none")
	if err != nil || !reflect.DeepEqual(loaded, c) {
		t.Errorf("without a file: %+v, %v", loaded, err)
	}
	for what, ok := range map[string]bool{
		"lease.ttl":          c.Lease.TTL == 10*time.Second,
		"event.body_limit":   c.Event.BodyLimit == 64<<20,
		"retention.hourly":   c.Objects.Retention.Hourly == 24*time.Hour,
		"alarms.retries":     c.Alarms.Retries == 6,
		"otel.sample":        c.Otel.Sample == 0.1,
		"drain.socket_code":  c.Drain.SocketCode == 1001,
		"queue":              reflect.DeepEqual(c.Queues, []Queue{{"default", 10, 1, 30 * time.Second, 5, time.Second, 336 * time.Hour}}),
		"database":           reflect.DeepEqual(c.Databases, []Database{{Name: "LAB_DB"}}),
		"cache":              reflect.DeepEqual(c.Caches, []Cache{{"LAB_CACHE", 10000, 10 * time.Minute}}),
		"cron":               reflect.DeepEqual(c.Crons, []Cron{{App: "lab", Name: "every-five", Schedule: "@every 5s", Zone: "UTC", Overlap: "skip", CatchUp: time.Hour, Timeout: 15 * time.Minute}}),
		"mount":              reflect.DeepEqual(c.Mounts, []Mount{{"/lab", "lab", map[string]any{}}}),
		"no file":            c.File() == "",
		"loopback":           c.Loopback(),
		"object_store.style": c.ObjectStore.PathStyle == "auto",
	} {
		if !ok {
			t.Errorf("%s has another default", what)
		}
	}
}

func TestPrecedence(t *testing.T) {
	const file, env = "lease: {ttl: 2s, waiters: 2}\nlog: {level: warn}", "DWK_LEASE_TTL=3s"
	for _, c := range []struct {
		name    string
		text    string
		environ []string
		flags   map[string]any
		want    time.Duration
		origin  string
	}{
		{"default", "log: {level: warn}", nil, nil, 10 * time.Second, "default"},
		{"null is no value", "lease: {ttl: null}", nil, nil, 10 * time.Second, "default"},
		{"null section", "lease:", nil, nil, 10 * time.Second, "default"},
		{"file", file, nil, nil, 2 * time.Second, "file:dwk.yaml"},
		{"environment", file, []string{env}, nil, 3 * time.Second, "env:DWK_LEASE_TTL"},
		{"empty variable", file, []string{"DWK_LEASE_TTL="}, nil, 2 * time.Second, "file:dwk.yaml"},
		{"flag", file, []string{env}, map[string]any{"lease.ttl": "4s"}, 4 * time.Second, "flag"},
		{"typed flag", file, []string{env}, map[string]any{"lease.ttl": 5 * time.Second}, 5 * time.Second, "flag"},
		{"zero flag does not fall through", file, []string{env}, map[string]any{"drain.grace": time.Duration(0)}, 3 * time.Second, "env:DWK_LEASE_TTL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			os.WriteFile(filepath.Join(dir, localFile), []byte(c.text), 0o600)
			cfg, err := load(Options{WorkDir: dir, Environ: append([]string{}, c.environ...), Flags: c.flags}, "none")
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Lease.TTL != c.want {
				t.Errorf("lease.ttl is %v, want %v", cfg.Lease.TTL, c.want)
			}
			i := slices.IndexFunc(cfg.Effective(), func(e Entry) bool { return e.Key == "lease.ttl" })
			if e := cfg.Effective()[i]; e.Origin != c.origin || e.Value != formatDuration(c.want) {
				t.Errorf("effective %+v", e)
			}
			if c.text == file && (cfg.Lease.Waiters != 2 || cfg.Log.Level != "warn") {
				t.Errorf("other values of the file were lost: %+v", cfg.Lease)
			}
			if _, ok := c.flags["drain.grace"]; ok && cfg.Drain.Grace != 0 {
				t.Errorf("drain.grace is %v", cfg.Drain.Grace)
			}
		})
	}
}

func TestEveryScalarFromTheEnvironment(t *testing.T) {
	names := map[string]string{}
	for _, info := range Keys() {
		if info.Env == "" {
			continue
		}
		if other, ok := names[info.Env]; ok {
			t.Errorf("%s sets %s and %s", info.Env, other, info.Key)
		}
		names[info.Env] = info.Key
		value := map[string]string{"boolean": "true", "integer": "7", "number": "0.7", "duration": "7s", "size": "7MiB"}[info.Type]
		switch {
		case len(info.OneOf) > 0:
			value = info.OneOf[len(info.OneOf)-1]
		case value == "":
			value = "text"
		}
		// Read without validation, which knows relations.
		l := &loader{cfg: Default(), doc: &document{}, env: environment([]string{info.Env + "=" + value})}
		l.loadScalars()
		i := slices.IndexFunc(l.cfg.Effective(), func(e Entry) bool { return e.Key == info.Key })
		if info.Type == "secret" {
			value = hidden
		}
		if e := l.cfg.Effective()[i]; len(l.problems) > 0 || e.Value != value || e.Origin != "env:"+info.Env {
			t.Errorf("%s=%s gave %+v, %v", info.Env, value, e, l.problems)
		}
	}
	if len(names) < 50 {
		t.Errorf("only %d scalars", len(names))
	}
}

func TestFileLookup(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"explicit.yaml", "named.yaml", "system.yaml", "local/dwk.yaml"} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		os.WriteFile(path, fmt.Appendf(nil, "object_store: {region: %q}", name), 0o600)
	}
	os.MkdirAll(filepath.Join(dir, "odd", localFile), 0o755)
	system := filepath.Join(dir, "system.yaml")
	for _, c := range []struct {
		file, named, work, system string
		want, file2               string
		problem                   string
	}{
		{"../explicit.yaml", "../named.yaml", "local", system, "explicit.yaml", "../explicit.yaml", ""},
		{"", "../named.yaml", "local", system, "named.yaml", "../named.yaml", ""},
		{"", "", "local", system, "local/dwk.yaml", "dwk.yaml", ""},
		{"", "", ".", system, "system.yaml", system, ""},
		{"", "", ".", "none", "", "", ""},
		{"absent.yaml", "", ".", system, "", "", "cannot read the file: open"},
		{"", "absent.yaml", ".", system, "", "", "cannot read the file: open"},
		{"", "", "odd", system, "", "", "is a directory"},
	} {
		cfg, err := load(Options{File: c.file, WorkDir: filepath.Join(dir, c.work), Environ: []string{"DWK_CONFIG=" + c.named}}, c.system)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%+v: error %v", c, err)
			}
			continue
		}
		if err != nil || cfg.ObjectStore.Region != c.want || cfg.File() != c.file2 {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestFileProblems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "lisen: x", []string{"lisen (dwk.yaml:1): unknown key: did you mean listen?"}},
		{"case", "Listen: x", []string{"Listen (dwk.yaml:1): unknown key: did you mean listen?"}},
		{"nested unknown", "lease:\n  ttl: 2s\n  acquire_timout: 1s", []string{"lease.acquire_timout (dwk.yaml:3): unknown key: did you mean lease.acquire_timeout?"}},
		{"wrong section", "lease:\n  poll_interval: 1s", []string{"lease.poll_interval (dwk.yaml:2): unknown key: did you mean fleet.poll_interval?"}},
		{"unknown in list", "queues:\n- name: a\n- name: b\n  bacth: 2", []string{"queues[1].bacth (dwk.yaml:4): unknown key: did you mean queues[].batch?"}},
		{"dotted", "lease.ttl: 2s", []string{"lease.ttl (dwk.yaml:1): unknown key: sections are nested, not dotted"}},
		{"section", "lease: 5", []string{"lease (dwk.yaml:1): not a mapping of text keys to values"}},
		{"section keys", "lease: {1: 2}", []string{"lease (dwk.yaml:1): not a mapping of text keys to values"}},
		{"list", "queues: {name: a}", []string{"queues (dwk.yaml:1): not a list"}},
		{"element", "queues: [a]", []string{
			"queues[0] (dwk.yaml:1): not a mapping of text keys to values", "queues[0].name (dwk.yaml:1): required"}},
		{"duration", "lease:\n  ttl: 10", []string{"lease.ttl (dwk.yaml:2): 10 is not a duration such as 10s or 1h30m"}},
		{"size", "event: {buffer: 1.5}", []string{"event.buffer (dwk.yaml:1): 1.5 is not a size such as 256KiB"}},
		{"boolean", "dev: yes please", []string{`dev (dwk.yaml:1): "yes please" is not true or false`}},
		{"integer", "alarms: {batch: 1.5}", []string{"alarms.batch (dwk.yaml:1): 1.5 is not a whole number"}},
		{"number", "otel: {sample: .nan}", []string{"otel.sample (dwk.yaml:1): NaN is not a number"}},
		{"text", "object_store: {region: 5}", []string{"object_store.region (dwk.yaml:1): 5 is not text: put it in quotes"}},
		{"secret", "admin: {token: 5}", []string{"admin.token (dwk.yaml:1): the value is not text: put it in quotes"}},
		{"settings", "mounts: [{path: /lab, app: lab, settings: 5}]", []string{"mounts[0].settings (dwk.yaml:1): 5 is not a mapping"}},
		{"several, and relations", "dev: maybe\nlease: {ttl: 1ms}\nevent: {timeout: 1s}\ntsl: 1", []string{
			"tsl (dwk.yaml:4): unknown key: did you mean tls?",
			`dev (dwk.yaml:1): "maybe" is not true or false`,
			"lease.ttl (dwk.yaml:2): 1ms is less than 500ms",
			"event.timeout (dwk.yaml:3): 1s is not longer than lease.acquire_timeout, 5s"}},
		{"root", "- a", []string{"dwk.yaml: not a mapping of text keys to values"}},
		{"syntax", "a: b: c", []string{"dwk.yaml: not valid YAML: mapping values are not allowed in this context"}},
		{"twice", "dev: true\ndev: false", []string{"dwk.yaml: not valid YAML: line 2: mapping key \"dev\" already defined at line 1"}},
		{"two documents", "dev: true\n---\ndev: false", []string{"dwk.yaml: more than one YAML document"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := loadText(t, c.text)
			if got := problemsOf(err); cfg != nil || !slices.Equal(got, c.want) {
				t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "x%d: 1\n", i)
	}
	_, err := loadText(t, b.String())
	got := problemsOf(err)
	if len(got) != maxProblems+1 || got[maxProblems] != "and 4950 more" {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
	_, err = loadText(t, "queues: ["+strings.Repeat("{name: a},", maxElements+1)+"]")
	if got := problemsOf(err); len(got) != 1 || !strings.HasSuffix(got[0], "more than 1000 elements") {
		t.Errorf("problems %q", got)
	}
	_, err = loadText(t, "# "+strings.Repeat("x", maxFile))
	if got := problemsOf(err); len(got) != 1 || !strings.HasSuffix(got[0], "larger than 256KiB") {
		t.Errorf("problems %q", got)
	}
}

func TestErrorText(t *testing.T) {
	for text, want := range map[string]string{
		"dev: maybe":                       `configuration: dev (dwk.yaml:1): "maybe" is not true or false`,
		"dev: 1\nlisten: 2":                "configuration has 2 problems:\n  listen (dwk.yaml:2): 2 is not text: put it in quotes\n  dev (dwk.yaml:1): 1 is not true or false",
		"dev: " + strings.Repeat("x", 200): `configuration: dev (dwk.yaml:1): "` + strings.Repeat("x", maxShown-1) + `... is not true or false`,
	} {
		if _, err := loadText(t, text); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPlainNumbers(t *testing.T) {
	c, err := loadText(t, "event: {buffer: 4096}\ndrain: {grace: 0}\notel: {sample: 1}\nobject_store: {path_style: true}")
	if err != nil {
		t.Fatal(err)
	}
	if c.Event.Buffer != 4096 || c.Drain.Grace != 0 || c.Otel.Sample != 1 || c.ObjectStore.PathStyle != "true" {
		t.Errorf("read as %v, %v, %v, %q", c.Event.Buffer, c.Drain.Grace, c.Otel.Sample, c.ObjectStore.PathStyle)
	}
}

func TestFlagProblems(t *testing.T) {
	_, err := Load(Options{File: referencePath, Environ: []string{}, Flags: map[string]any{"queues": "x", "lease.ttl": "soon", "tls.cert": "c"}})
	want := []string{
		"queues (flag): no key that a flag can set",
		`lease.ttl (flag): "soon" is not a duration such as 10s or 1h30m`,
		"tls: cert and key go together",
	}
	if got := problemsOf(err); !slices.Equal(got, want) {
		t.Errorf("problems %q", got)
	}
}

func TestListsReplaceTheirDefaults(t *testing.T) {
	c, err := loadText(t, `
queues: [{name: a, batch: 3}, {name: b}]
caches: []
mounts:
- path: /lab
  app: lab
  settings: {AllowRemote: true, Nested: {KeyCase: [1, {Aa: b}]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Queues) != 2 || c.Queues[0].Batch != 3 || c.Queues[1].Batch != 10 || c.Queues[1].Visibility != 30*time.Second {
		t.Errorf("queues %+v", c.Queues)
	}
	if len(c.Caches) != 0 || len(c.Databases) != 1 || len(c.Crons) != 1 {
		t.Errorf("caches %v, databases %v, crons %v", c.Caches, c.Databases, c.Crons)
	}
	want := map[string]any{"AllowRemote": true, "Nested": map[string]any{"KeyCase": []any{1, map[string]any{"Aa": "b"}}}}
	if !reflect.DeepEqual(c.Mounts[0].Settings, want) {
		t.Errorf("settings %#v", c.Mounts[0].Settings)
	}
	got := map[string]Entry{}
	for _, e := range c.Effective() {
		got[e.Key] = e
	}
	for _, e := range []Entry{
		{"queues[0].batch", "3", "file:dwk.yaml"},
		{"queues[1].batch", "10", "default"},
		{"caches", "[]", "file:dwk.yaml"},
		{"databases[0].name", "LAB_DB", "default"},
		{"mounts[0].settings", `{"AllowRemote":true,"Nested":{"KeyCase":[1,{"Aa":"b"}]}}`, "file:dwk.yaml"},
	} {
		if got[e.Key] != e {
			t.Errorf("%+v, want %+v", got[e.Key], e)
		}
	}
}

func TestLabDefaultsGoWithTheLab(t *testing.T) {
	c, err := loadText(t, "mounts: [{path: /s, app: other}]\ncaches: [{name: C}]")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Databases)+len(c.Buckets)+len(c.Crons) != 0 || len(c.Caches) != 1 || len(c.Queues) != 1 {
		t.Errorf("left %v %v %v %v %v", c.Databases, c.Buckets, c.Crons, c.Caches, c.Queues)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(Reference())
	for _, text := range []string{"", "a: &a [*a]", "lease: &x {ttl: 1s}\nevent: *x", "<<: {dev: true}", "queues: [{}, null, 5]",
		"mounts: [{settings: {1: 2}}]", "? {a: b}\n: c", "dev: !!binary eA==", "listen: 2020-01-01", "otel: {sample: 1e999}"} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := parseDocument("fuzz.yaml", text)
		if err != nil {
			return
		}
		l := &loader{cfg: Default(), doc: doc, dir: dir}
		c, err := l.load()
		if err != nil {
			if len(problemsOf(err)) == 0 {
				t.Fatalf("error without a problem: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("loaded, but not valid: %v", err)
		}
		c.Effective()
		c.Warnings()
	})
}
