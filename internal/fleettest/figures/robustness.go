package figures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// robustnessFile has the summary of the runs of make robustness.
const robustnessFile = "robustness.json"

const robustnessIntro = `## Robustness

` + "`make robustness`" + ` runs real processes under loads and faults that a seed decides, and checks
afterwards what they answered and what is stored: [testing.md](testing.md#robustness) says how, and how
to run one seed again.
`

func robustnessSection(dir string) (string, error) {
	var s RobustnessSummary
	ok, err := read(dir, robustnessFile, &s)
	if err != nil || !ok {
		return "", err
	}
	return s.Markdown(), nil
}

// Markdown is the part of the document.
func (s RobustnessSummary) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	table := func(heads ...string) {
		line("\n| %s |\n|%s", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	}
	b.WriteString(robustnessIntro)
	c := s.Conditions
	line("\n**Conditions.** %d schedules from %s to %s, commit %s, %s; %d cores, load when a schedule began %.1f to %.1f; %d replicas and %d clients on the same machine; stores: %s. Each schedule took %d s on average, its start and its checks included.",
		s.Schedules, s.From, s.To, strings.Join(s.Commits, ", "), c.Go, c.CPUs, s.Load[0], s.Load[1], c.Replicas, c.Clients, c.Stores, int(s.Seconds)/max(1, s.Schedules))
	table("", "")
	for _, row := range []struct {
		what, n string
	}{
		{"schedules", grouped(s.Schedules)},
		{"operations", grouped(s.Total)},
		{"schedules without a verdict", grouped(s.Verdicts[Unclear])},
		{"lost acknowledged writes", fmt.Sprintf("**%d** of %s", s.Lost, grouped(sum(s.Acknowledged)))},
		{"doubled writes", fmt.Sprintf("**%d**", s.Doubled)},
		{"writes that were refused and are there", fmt.Sprintf("**%d**", s.Applied)},
		{"stale-epoch writes accepted", fmt.Sprintf("**%d** of %s attempts", s.Stale, grouped(s.StaleAttempts))},
		{"violations of any kind", fmt.Sprintf("**%d**", s.Violations)},
		{"histories that porcupine checked", fmt.Sprintf("%s, %s calls, %d without a verdict in time", grouped(s.Histories), grouped(s.HistoryCalls), s.Timeouts)},
		{"databases put together from their logs", grouped(s.Databases)},
		{"mirrors compared with them", grouped(s.Mirrors)},
	} {
		line("| %s | %s |", row.what, row.n)
	}
	line("\nAcknowledged writes to counters and notes by the fault that there was when they were answered, and how often each fault came:")
	table("fault", "times", "acknowledged writes", "lost")
	for _, name := range sorted(s.Faults) {
		line("| %s | %s | %s | %s |", name, grouped(s.Faults[name]), grouped(s.Acknowledged[name]), zero(s.Lost))
	}
	line("| none | | %s | %s |", grouped(s.Acknowledged["none"]), zero(s.Lost))
	for _, name := range sorted(s.Skipped) {
		line("\nNot possible there, and left out: %s, %d times.", name, s.Skipped[name])
	}
	line("\nFrom a fault until another replica had changed an object at which the victim was working:")
	table("lease", "the replica was", "n", "p50", "p99", "max")
	for _, ttl := range sorted(s.Takeovers) {
		for _, name := range []string{"kill", "stop", "cut", "drain"} {
			if t, ok := s.Takeovers[ttl][name]; ok {
				words := map[string]string{"kill": "killed", "stop": "stopped (SIGSTOP)", "cut": "cut off from libSQL", "drain": "drained, 0.5 s of work left"}
				line("| %v s | %s | %d | %s | %s | %s |", float64(ttl)/1000, words[name], t.N, seconds(t.P50), seconds(t.P99), seconds(t.Max))
			}
		}
	}
	table("", "")
	line("| drains | %s, %d failed; %d requests that a draining replica had got were not answered |", grouped(s.Drains), s.DrainFailures, s.DrainRequests)
	line("| alarms | %s accepted, %s fired, %d given up after their retries, %s attempts; late by %s (p50), %s (p99), %s (max), outages included |",
		grouped(s.Alarms), grouped(s.AlarmsFired), s.AlarmsDead, grouped(s.AlarmAttempts), seconds(s.Lateness.P50), seconds(s.Lateness.P99), seconds(s.Lateness.Max))
	line("| messages | %s acknowledged to their senders, %s deliveries, %s of them more than asked for, %s dead letters |", grouped(s.Messages), grouped(s.Deliveries), grouped(s.Duplicates), grouped(s.DeadLetter))
	var lines []string
	for _, name := range sorted(s.OccurrenceLines) {
		lines = append(lines, fmt.Sprintf("%s %s", grouped(s.OccurrenceLines[name]), name))
	}
	line("| occurrences of a schedule | %s |", strings.Join(lines, ", "))
	line("| calls by kind | %s |", byKind(s.Operations))
	var answers []string
	for _, status := range sorted(s.Answers) {
		name := fmt.Sprint(status)
		if status == 0 {
			name = "none"
		}
		answers = append(answers, fmt.Sprintf("%s: %s", name, grouped(s.Answers[status])))
	}
	line("| answers by status | %s |", strings.Join(answers, ", "))
	for _, seed := range s.Seeds {
		for _, v := range seed.Violations {
			line("\n- seed %d: %s, %s: %s: %s", seed.Seed, v.Promise, v.Check, v.Object, v.Detail)
		}
		if seed.Trouble != "" {
			line("\n- seed %d has no verdict: %s", seed.Seed, seed.Trouble)
		}
	}
	return b.String()
}

// zero is 0 where all is 0; which fault lost what is told with the violations.
func zero(n int) string {
	if n == 0 {
		return "0"
	}
	return "see below"
}

func sum[K comparable](m map[K]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// byKind lists the kinds, the most frequent first.
func byKind(m map[string]int) string {
	names := sorted(m)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(m[b], m[a]) })
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("%s %s", grouped(m[n]), n))
	}
	return strings.Join(out, ", ")
}
