package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/event"
)

// rows returns the rows of a table in the operators' documentation, by what
// its first column is called.
func rows(t *testing.T, column string) (rows [][]string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case cells[0] == column:
			in = true
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("no table of %s", column)
	}
	return rows
}

var code = regexp.MustCompile("`([^`]+)`")

// quoted returns the names that a cell has.
func quoted(cell string) (names []string) {
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1])
	}
	return names
}

// same reports what only one of two lists has, and what is listed twice.
func same(t *testing.T, what string, documented, real []string) {
	t.Helper()
	slices.Sort(documented)
	slices.Sort(real)
	for i, n := range documented {
		if i > 0 && documented[i-1] == n {
			t.Errorf("%s %s is documented twice", what, n)
		}
		if !slices.Contains(real, n) {
			t.Errorf("%s %s is documented and does not exist", what, n)
		}
	}
	for _, n := range real {
		if !slices.Contains(documented, n) {
			t.Errorf("%s %s is not documented", what, n)
		}
	}
}

func TestEventsAreDocumented(t *testing.T) {
	var names []string
	for _, r := range rows(t, "event") {
		names = append(names, quoted(r[0])...)
		for level := range strings.SplitSeq(r[1], ", ") {
			if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
				t.Errorf("%s: level %q", r[0], level)
			}
		}
	}
	same(t, "event", names, event.Names())
}

// families are the metrics of the program itself, with their labels.
func families(t *testing.T) map[string][]string {
	t.Helper()
	all, err := everything(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range all {
		if name := f.GetName(); strings.HasPrefix(name, "dwk_") {
			found[name] = []string{}
			for _, l := range f.GetMetric()[0].GetLabel() {
				found[name] = append(found[name], l.GetName())
			}
		}
	}
	return found
}

func TestMetricsAreDocumented(t *testing.T) {
	real := families(t)
	var documented, existing []string
	for _, r := range rows(t, "metric") {
		names := quoted(r[0])
		documented = append(documented, names...)
		for _, n := range names {
			same(t, "label of "+n, quoted(r[1]), real[n])
		}
	}
	for n := range real {
		existing = append(existing, n)
	}
	same(t, "metric", documented, existing)
}

// TestAlerts looks for names in the alert rules that do not exist: such a rule
// never fires.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../configs/prometheus-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	real := families(t)
	metrics := regexp.MustCompile(`\bdwk_\w+`).FindAllString(string(rules), -1)
	events := regexp.MustCompile(`event="([^"]+)"`).FindAllStringSubmatch(string(rules), -1)
	if len(metrics) < 10 || len(events) < 5 {
		t.Fatalf("%d metrics and %d events found", len(metrics), len(events))
	}
	for _, name := range metrics {
		if real[name] == nil {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, e := range events {
		if !slices.Contains(event.Names(), e[1]) {
			t.Errorf("there is no event %s", e[1])
		}
	}
}
