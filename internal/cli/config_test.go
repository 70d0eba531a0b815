package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/config"
)

func TestConfigCheck(t *testing.T) {
	f := &fixture{t: t, environ: []string{}}
	path := filepath.Join(t.TempDir(), "dwk.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("lease: {ttl: 5s}\n")
	var got checked
	f.json(&got, "config", "check", "-c", path)
	if !got.OK || got.File != path || len(got.Problems) > 0 {
		t.Errorf("%+v", got)
	}
	if out := f.ok("config", "check", "-c", path); out != "ok  "+path+"\n" {
		t.Error(out)
	}
	write("lease: {tll: 5s}\nmounts: [{path: /x, app: nothing}]\n")
	r := f.run("config", "check", "-c", path)
	if r.code != exitUsage || !strings.Contains(r.out, "lease.tll") || !strings.Contains(r.out, "ttl") || strings.Count(r.err, "\n") != 1 {
		t.Error(r)
	}
	write("mounts: [{path: /x, app: nothing}]\n")
	r = f.run("config", "check", "-c", path, "-o", "json")
	if r.code != exitUsage || !strings.Contains(r.out, `"mounts[0].app"`) || !strings.Contains(r.out, "lab") || !strings.Contains(r.err, `"kind":"usage"`) {
		t.Error(r)
	}
	write("lease: [")
	f.fails(exitUsage, "configuration|dwk config check", "config", "show", "-c", path)
}

func TestConfigShow(t *testing.T) {
	f := &fixture{t: t, environ: []string{"DWK_LEASE_TTL=7s"}}
	var all, changed []config.Entry
	f.json(&all, "config", "show")
	f.json(&changed, "config", "show", "--changed")
	if len(all) < 50 || len(changed) != 1 || changed[0] != (config.Entry{Key: "lease.ttl", Value: "7s", Origin: "env:DWK_LEASE_TTL"}) {
		t.Errorf("%d values, changed %v", len(all), changed)
	}
	if out := f.ok("config", "show", "--changed"); out != "KEY        VALUE  ORIGIN\nlease.ttl  7s     env:DWK_LEASE_TTL\n" {
		t.Error(out)
	}
}

func TestConfigInit(t *testing.T) {
	f := &fixture{t: t, environ: []string{}}
	path := filepath.Join(t.TempDir(), "dwk.yaml")
	f.ok("config", "init", path)
	f.ok("config", "check", "-c", path)
	f.fails(exitFailed, "is there already", "config", "init", path)
	if out := f.ok("config", "init", "-"); out != string(config.Reference()) {
		t.Error("another file")
	}
}
