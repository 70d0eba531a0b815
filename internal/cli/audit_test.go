package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/audit"
)

func TestAudit(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.log("C", "0a", "a", counting...)
		f.log("C", "0b", "", counting...)
		var sum auditSummaryJSON
		f.json(&sum, "audit", "--deep")
		if s := sum.Summary; !sum.OK || s.Objects != 2 || s.Databases != 2 || s.Rows != 8 || s.Findings != 0 {
			t.Errorf("%+v", sum)
		}
		if out := f.ok("audit"); !strings.HasPrefix(out, "entries") || !strings.Contains(out, "\nfindings") {
			t.Error(out)
		}
		f.ok("kv", "set", `["dwk_replica","r1"]`, `{"a":"\u001b"}`, "--yes")
		f.ok("kv", "set", `["dwk_alarm_by_id","C","0a"]`, `{"epochMs":1700000000000,"retryCount":0}`, "--yes")
		r := f.run("audit", "--settle", "1ms")
		want := []string{
			`entry.endless      ["dwk_replica","r1"]: the entry has no expiry`,
			`alarm.due.missing  C/0a: the alarm at 2023-11-14T22:13:20.000Z is not in the due index: it never fires`,
		}
		for _, line := range want {
			if !strings.Contains(r.out, line+"\n") {
				t.Errorf("no %q in\n%s", line, r.out)
			}
		}
		if r.code != exitFailed || r.err != "dwk audit: 2 findings: alarm.due.missing 1, entry.endless 1\n" {
			t.Error(r)
		}
		r = f.run("audit", "--settle", "1ms", "-o", "json", "--class", "C", "--since", "1h")
		lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
		var got audit.Finding
		if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 2 || got.Check != audit.AlarmDueMissing || got.Class != "C" || got.ID != "0a" || got.Severity != "finding" {
			t.Errorf("%v %s", err, r.out)
		}
		if err := json.Unmarshal([]byte(lines[1]), &sum); err != nil || sum.OK || sum.Summary.Findings != 1 || r.code != exitFailed {
			t.Errorf("%v %s", err, r.out)
		}
	})
}

func TestAuditUsage(t *testing.T) {
	f := newFixture(t)
	for args, words := range map[string]string{
		"--sample -1":       "--sample",
		"--deep --sample 3": "--deep and --sample",
		"--limit -1":        "--limit",
		"--settle 0s":       "--settle",
		"--since yesterday": "--since|24h",
		"--since -1h":       "--since",
		"--overdue soon":    "--overdue",
		"now":               "unexpected",
	} {
		f.fails(exitUsage, words, append([]string{"audit"}, strings.Fields(args)...)...)
	}
	help := f.ok("audit", "--help")
	for _, c := range audit.Checks {
		if !strings.Contains(help, c.Name) {
			t.Errorf("the help does not have %s", c.Name)
		}
	}
}
