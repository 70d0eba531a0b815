package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/fleet"
)

// completes checks what a shell would offer, descriptions included.
func (f *fixture) completes(want []string, args ...string) {
	f.t.Helper()
	out := f.ok(append([]string{"__complete"}, args...)...)
	got, _, _ := strings.Cut("\n"+out, "\n:")
	if list := strings.Split(got, "\n")[1:]; !slices.Equal(list, want) {
		f.t.Errorf("%q completes to %q, want %q", args, list, want)
	}
}

func TestCompletionFromTheStores(t *testing.T) {
	f := newFixture(t)
	f.log("Counter", "0a", "first", counting...)
	f.log("Counter", "0b", "second", counting...)
	f.log("Counter", "1c", "", counting...)
	f.log("Note", "0d", "", counting...)
	f.replica("r1", fleet.Ready, "1.0.0")
	f.replica("r2", fleet.Draining, "0.9.0")
	f.send("jobs", 1)
	for _, cmd := range []string{"object info", "lease inspect", "alarm show", "object history", "object delete"} {
		words := strings.Fields(cmd)
		f.completes([]string{"0a\tfirst", "0b\tsecond", "1c"}, append(words, "Counter", "")...)
		f.completes([]string{"0a\tfirst", "0b\tsecond"}, append(words, "Counter", "0")...)
		f.completes(nil, append(words, "Counter", "0a", "")...)
		f.completes([]string{"second"}, append(words, "Counter", "--name", "s")...)
		f.completes(nil, append(words, "Counter", "--name", "x", "")...)
	}
	f.completes([]string{"0d"}, "object", "export", "Note", "")
	f.completes([]string{"r1\tready on h", "r2\tdraining on h"}, "lease", "list", "--replica", "")
	f.completes([]string{"r2\tdraining on h"}, "drain", "r1", "")
	f.completes([]string{"0.9.0", "1.0.0"}, "fleet", "wait", "--version", "")
	f.completes([]string{"default", "jobs"}, "queue", "pause", "")
	f.completes(nil, "queue", "pause", "jobs", "")
	f.completes([]string{"every-five"}, "cron", "run", "")
	f.completes([]string{"table", "json"}, "kv", "stats", "-o", "")
}

// Without stores there is what the configuration has, and nothing is created.
func TestCompletionWithoutStores(t *testing.T) {
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + t.TempDir() + "/data"}}
	f.completes([]string{"every-five"}, "cron", "run", "")
	f.completes([]string{"default"}, "queue", "pause", "")
	f.completes(nil, "object", "info", "Counter", "")
	f.completes(nil, "object", "info", "Counter", "--name", "")
	f.completes(nil, "drain", "")
	f.completes(nil, "fleet", "wait", "--version", "")
}
