package fleettest

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/internal/event"
)

var update = flag.Bool("update", false, "write docs/failures.md")

const failuresFile = "../../docs/failures.md"

const failuresIntro = `# What happens when a store fails

Each failure below is a test: it is done to real replicas, clients ask the lab for
what is in the tables, and their answers, the metrics and what is stored afterwards
are compared with them. This file is made of the tests' own table
(` + "`go test ./internal/fleettest -run TestFailuresDocument -update`" + `): change it there.

What clients see:

| answer | means |
| --- | --- |
| 200 | it was done |
| 503 | nothing of it was done; ` + "`Retry-After`" + ` says when to repeat it, and any replica will do |
| 504 | ` + "`Dwk-Outcome: unknown`" + `: it was sent to the store, and it could not be found out whether it was done. It is done as a whole or not at all. Repeat it only if that does no harm, or look first |
| cut off | the connection breaks: what has come is never taken for a whole body. A client that is still sending a large body when it is refused may see this instead of 503 |

An object's events are 504 only when the primary stays away until their deadline: else
the replica finds out. Batches on SQL databases and changes of buckets are not part of
an object's log, and their outcome is known by the store alone.

*Counted* names what grows at ` + "`/metrics`" + `: a store and an outcome are the labels of
` + "`dwk_store_round_trips_total`" + `, an event that of ` + "`dwk_events_total`" + `. The answers are counted
by ` + "`dwk_http_requests_total{status}`" + `. Alerts are those of
[configs/prometheus-alerts.yaml](../configs/prometheus-alerts.yaml).

No failure here needs a restart of a replica, unless it says so. A replica that cannot
use a store fails ` + "`/readyz`" + `, which sees a database within 2 s and a bucket within 30 s, goes
on being alive (` + "`/healthz`" + `), and is ready by itself when the store is back.
`

var (
	tripsPattern  = regexp.MustCompile(`^dwk_store_round_trips_total\{outcome="(.*)",store="(.*)"\}$`)
	eventsPattern = regexp.MustCompile(`^dwk_events_total\{event="(.*)"\}$`)
)

// shortSeries is a series in the document's words.
func shortSeries(series string) string {
	if m := tripsPattern.FindStringSubmatch(series); m != nil {
		return "`" + m[2] + "` " + m[1]
	}
	if m := eventsPattern.FindStringSubmatch(series); m != nil {
		return "`" + m[1] + "`"
	}
	return "`" + series + "`"
}

func failuresDocument() string {
	var b strings.Builder
	b.WriteString(failuresIntro)
	for _, part := range []struct {
		title string
		table []failure
	}{{"The libSQL server", wireFailures}, {"The object store", s3Failures}} {
		fmt.Fprintf(&b, "\n## %s\n", part.title)
		for _, f := range part.table {
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", f.title, f.happens)
			if f.unready {
				b.WriteString("The replica is not ready meanwhile.\n")
			}
			b.WriteString("\n| asked for | answer | counted | stored then |\n| --- | --- | --- | --- |\n")
			for _, a := range f.asks {
				var answers, counted []string
				for _, w := range a.answers {
					answers = append(answers, string(w))
				}
				for _, c := range a.counted {
					counted = append(counted, shortSeries(c))
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.do, strings.Join(answers, " or "), strings.Join(counted, ", "), a.stored)
			}
			fmt.Fprintf(&b, "\n- **Alert:** %s\n- **Do:** %s\n", f.alert, f.todo)
		}
	}
	return b.String()
}

// The operators' document says what the tests do.
func TestFailuresDocument(t *testing.T) {
	want := failuresDocument()
	if *update {
		if err := os.WriteFile(failuresFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(failuresFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the tests say: run them with -update", failuresFile)
	}
}

// A failure says all that it has to, and names alerts, events and outcomes that
// there are.
func TestFailuresAreWhole(t *testing.T) {
	alerts, err := os.ReadFile("../../configs/prometheus-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Dwk[A-Za-z]+)`")
	seen := map[string]bool{}
	for _, f := range append(slices.Clone(wireFailures), s3Failures...) {
		if f.arm == nil || len(f.asks) == 0 {
			t.Errorf("%s: no fault, or nothing that is asked for", f.name)
		}
		for what, text := range map[string]string{"title": f.title, "happens": f.happens, "alert": f.alert, "todo": f.todo} {
			if text == "" || what != "title" && !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is %q", f.name, what, text)
			}
		}
		for _, m := range named.FindAllStringSubmatch(f.alert, -1) {
			if !strings.Contains(string(alerts), "alert: "+m[1]+"\n") {
				t.Errorf("%s: there is no alert %s", f.name, m[1])
			}
		}
		counted := 0
		for _, a := range f.asks {
			counted += len(a.counted)
			if _, ok := actions[a.do]; !ok || len(a.answers) == 0 || a.stored == "" || (actions[a.do].stored == nil) != (a.stored == reads) {
				t.Errorf("%s: %+v", f.name, a)
			}
			for _, c := range a.counted {
				if m := eventsPattern.FindStringSubmatch(c); m != nil && !slices.Contains(event.Names(), m[1]) {
					t.Errorf("%s: there is no event %s", f.name, m[1])
				}
			}
		}
		if counted == 0 && f.name != "restart" {
			t.Errorf("%s: nothing counts it", f.name)
		}
		if seen[f.title] {
			t.Errorf("%q is there twice", f.title)
		}
		seen[f.title] = true
	}
}
