package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const canary = "canary-5f0e"

// holder keeps a configuration where fmt cannot call methods.
type holder struct {
	cfg    Config
	secret Secret
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	c, err := Load(Options{WorkDir: t.TempDir(), Environ: []string{
		"DWK_ADMIN_TOKEN=" + canary,
		"DWK_LIBSQL_AUTH_TOKEN=" + canary,
		"DWK_S3_ACCESS_KEY_ID=" + canary,
		"DWK_S3_SECRET_ACCESS_KEY=" + canary,
		"DWK_DATABASE_LAB_DB_TOKEN=" + canary,
		"DWK_SECRET_SIGNING=env:OTHER",
		"OTHER=" + canary,
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Mounts[0].Settings = map[string]any{"nested": []any{map[string]any{"apiToken": canary}}}
	for _, s := range []Secret{c.Admin.Token, c.LibSQL.Token, c.ObjectStore.AccessKey, c.ObjectStore.SecretKey, c.Databases[0].Token, c.Secrets[0].From} {
		if s.Reveal() != canary || s.IsZero() {
			t.Fatalf("a secret is %q", s.Reveal())
		}
	}
	var out bytes.Buffer
	for _, e := range c.Effective() {
		fmt.Fprintln(&out, e.Key, e.Value, e.Origin)
	}
	c.Mounts[0].Settings = nil
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", c.Admin.Token)
		fmt.Fprintf(&out, verb+"\n", c)
		fmt.Fprintf(&out, verb+"\n", *c)
		fmt.Fprintf(&out, verb+"\n", holder{*c, c.Admin.Token})
		fmt.Fprintf(&out, verb+"\n", []any{&c.Secrets, c.Databases})
	}
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	if err := yaml.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "token", c.Admin.Token, "config", c, "admin", c.Admin)
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprint([]byte(canary))} {
		if i := strings.Index(out.String(), form); i >= 0 {
			t.Errorf("printed: ...%s", out.String()[max(0, i-200):i+len(form)])
		}
	}
	if !strings.Contains(out.String(), "admin.token (hidden) env:DWK_ADMIN_TOKEN") {
		t.Error("the effective values do not say that the token is hidden")
	}
}

func TestSecretForms(t *testing.T) {
	for _, c := range []struct {
		secret        Secret
		v, q, js, all string
	}{
		{NewSecret(canary), "(hidden)", `"(hidden)"`, `"(hidden)"`, canary},
		{NewSecret(""), "", `""`, `""`, ""},
		{Secret{}, "", `""`, `""`, ""},
	} {
		js, err := json.Marshal(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		if v, q := fmt.Sprintf("%v", c.secret), fmt.Sprintf("%#v", c.secret); v != c.v || q != c.q || string(js) != c.js {
			t.Errorf("forms are %s, %s, %s", v, q, js)
		}
		if c.secret.Reveal() != c.all {
			t.Errorf("revealed %q, want %q", c.secret.Reveal(), c.all)
		}
	}
}

func TestSecretReferences(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"plain": canary, "newline": canary + "\n", "crlf": canary + "\r\n", "two": canary + "\n\n", "empty": "\n", "large": strings.Repeat("x", maxSecret+1)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ raw, want, problem string }{
		{canary, canary, ""},
		{"env:THERE", canary, ""},
		{"file:plain", canary, ""},
		{"file:" + filepath.Join(dir, "newline"), canary, ""},
		{"file:crlf", canary, ""},
		{"file:two", canary + "\n", ""},
		{"env:ABSENT", "", "admin.token (env:DWK_ADMIN_TOKEN): environment variable ABSENT is not set"},
		{"env:EMPTY", "", "environment variable EMPTY is not set"},
		{"file:absent", "", "admin.token (env:DWK_ADMIN_TOKEN): secret file: open " + filepath.Join(dir, "absent")},
		{"file:empty", "", "is empty"},
		{"file:large", "", "larger than 64KiB"},
		{"file:.", "", "is a directory"},
	} {
		// An address that needs a token: one that cannot be read is not missing as well.
		cfg, err := Load(Options{WorkDir: dir, Environ: []string{
			"DWK_ADMIN_TOKEN=" + c.raw, "THERE=" + canary, "EMPTY=", "DWK_ADMIN_LISTEN=:9080",
		}})
		switch {
		case c.problem == "" && (err != nil || cfg.Admin.Token.Reveal() != c.want):
			t.Errorf("%s: error %v", c.raw, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: error %v; want %q", c.raw, err, c.problem)
		}
	}
}

func TestErrorsDoNotShowSecrets(t *testing.T) {
	for _, text := range []string{
		"admin: {token: [" + canary + "]}",
		"admin: {token: {a: " + canary + "}}",
		"admin: {token: !!int " + canary + "}",
		canary,
		"- " + canary,
		"databases: [{name: A, token: [" + canary + "]}]",
		"secrets: [{name: A, from: {b: " + canary + "}}]",
		"libsql: {url: 'https://user:" + canary + "@host'}",
		"libsql: {url: 'libsql://host?authToken=" + canary + "'}",
		"libsql: {url: 'https://user:" + canary + "'}",
		"libsql: {url: 'https://us er:" + canary + "@host'}",
		"object_store: {url: 'https://key:" + canary + "@host/bucket'}",
		"base_url: 'https://user:" + canary + "@host'",
		"otel: {endpoint: 'https://user:" + canary + "@host'}",
	} {
		_, err := loadText(t, text)
		if err == nil {
			t.Errorf("%s: accepted", text)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
