package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// stopReserve is what a process needs after its drain.timeout to say what is left
// and end.
const stopReserve = 20 * time.Second

// What starts replicas gives them the time to stop in order.
func TestExamplesLeaveTimeToStop(t *testing.T) {
	unit, err := os.ReadFile("../../configs/dwk.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(unit)
	if m == nil {
		t.Fatal("dwk.service has no TimeoutStopSec")
	}
	given, err := time.ParseDuration(string(m[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	wantTime(t, "dwk.service", given, loadExample(t, ""))

	file, err := os.ReadFile("../../configs/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for d := yaml.NewDecoder(bytes.NewReader(file)); ; {
		var o struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Seconds int64 `yaml:"terminationGracePeriodSeconds"`
					}
				}
			}
		}
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ConfigMap":
			text = o.Data["dwk.yaml"]
		case "Deployment":
			given = time.Duration(o.Spec.Template.Spec.Seconds) * time.Second
		}
	}
	wantTime(t, "kubernetes.yaml", given, loadExample(t, text))
}

// loadExample reads a configuration, whose secrets are in files that are not here.
func loadExample(t *testing.T, text string) *Config {
	t.Helper()
	secrets := t.TempDir()
	for _, name := range []string{"libsql-token", "admin-token", "s3-key", "s3-secret"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "dwk.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "file:/etc/dwk/secret", "file:"+secrets)), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{File: file, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	return c
}

func wantTime(t *testing.T, name string, given time.Duration, c *Config) {
	t.Helper()
	if given < c.Drain.Timeout+stopReserve {
		t.Errorf("%s gives %v, drain.timeout is %v and %v come on top", name, given, c.Drain.Timeout, stopReserve)
	}
}
