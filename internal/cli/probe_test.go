package cli

import (
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/mode"
)

type probeOut struct {
	Store, Address, Check string
	OK                    bool
	Skipped, Error        string
	Trips                 int      `json:"round_trips"`
	P50                   *float64 `json:"p50_ms"`
	P95                   *float64 `json:"p95_ms"`
}

func TestProbe(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var before []entryOut
		f.json(&before, "kv", "list")
		var got []probeOut
		f.json(&got, "probe", "--repeat", "2", "--budget", "1m")
		if len(got) != 31 {
			t.Fatalf("%d results", len(got))
		}
		for _, r := range got {
			if !r.OK || r.P50 == nil || r.P95 == nil || r.Trips < 1 || (r.Address != f.stores.DB.String()) != strings.Contains("sql:LAB_DB object-store bucket:LAB_FILES", r.Store) {
				t.Errorf("%+v", r)
			}
		}
		out := f.ok("probe", "--only", "mode,clock")
		if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], "mode") || !strings.HasPrefix(lines[2], "clock") || strings.Contains(out, "write") {
			t.Errorf("%s", out)
		}
		var after []entryOut
		f.json(&after, "kv", "list")
		if len(after) != len(before) {
			t.Errorf("left behind: %v", after)
		}
	})
}

func TestProbeFindsWhatIsWrong(t *testing.T) {
	f := newFixture(t)
	r := f.run("probe", "--budget", "1ns")
	if r.code != exitFailed || !strings.Contains(r.out, "failed") || !strings.Contains(r.err, "coordination (") || !strings.Contains(r.err, "object-log (") || strings.Count(r.err, "\n") != 1 {
		t.Error(r)
	}
	if _, err := kv.New(f.stores.DB).Set(t.Context(), mode.ModeKey, "migrating:x", 0); err != nil {
		t.Fatal(err)
	}
	r = f.run("probe")
	if r.code != exitFailed || !strings.Contains(r.err, "migration") {
		t.Error(r)
	}
	f.environ = append(f.environ, "DWK_LIBSQL_URL=http://127.0.0.1:1")
	r = f.run("probe", "-o", "json")
	if r.code != exitUnreachable || !strings.Contains(r.out, `"unreachable":true`) || !strings.Contains(r.err, `"kind":"unreachable"`) {
		t.Error(r)
	}
}
