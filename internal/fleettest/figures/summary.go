package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A Spread is how figures in milliseconds are distributed.
type Spread struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50_ms"`
	P90 int64 `json:"p90_ms"`
	P99 int64 `json:"p99_ms"`
	Max int64 `json:"max_ms"`
}

// NewSpread sorts the figures.
func NewSpread(list []int64) (s Spread) {
	if len(list) == 0 {
		return s
	}
	slices.Sort(list)
	at := func(percent int) int64 { return list[min(len(list)-1, len(list)*percent/100)] }
	return Spread{len(list), at(50), at(90), at(99), list[len(list)-1]}
}

// A SeedLine is one seed in a summary.
type SeedLine struct {
	Seed       uint64      `json:"seed"`
	Verdict    string      `json:"verdict"`
	Operations int         `json:"operations"`
	Seconds    int         `json:"seconds"`
	Trouble    string      `json:"trouble,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
}

// RobustnessSummary is what many records say together.
type RobustnessSummary struct {
	// Commits are those of the programs, and From and To the first and the last
	// time of a record.
	Commits []string `json:"commits"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	// Conditions are those of the first record. Load is the least and the
	// greatest load of the machine when a seed began.
	Conditions Conditions `json:"conditions"`
	Load       [2]float64 `json:"load"`

	Schedules int            `json:"schedules"`
	Verdicts  map[string]int `json:"verdicts"`
	Total     int            `json:"total"`
	Seconds   int64          `json:"seconds"`

	// The sums of the records' fields of these names.
	Operations      map[string]int `json:"operations"`
	Answers         map[int]int    `json:"answers"`
	Faults          map[string]int `json:"faults"`
	Skipped         map[string]int `json:"skipped,omitempty"`
	Acknowledged    map[string]int `json:"acknowledged"`
	Lost            int            `json:"lost"`
	Doubled         int            `json:"doubled"`
	Applied         int            `json:"applied"`
	Stale           int            `json:"stale"`
	StaleAttempts   int            `json:"stale_attempts"`
	Violations      int            `json:"violations"`
	Histories       int            `json:"histories"`
	HistoryCalls    int            `json:"history_calls"`
	Timeouts        int            `json:"timeouts"`
	Drains          int            `json:"drains"`
	DrainFailures   int            `json:"drain_failures"`
	DrainRequests   int            `json:"drain_requests"`
	Alarms          int            `json:"alarms"`
	AlarmsFired     int            `json:"alarms_fired"`
	AlarmsDead      int            `json:"alarms_dead"`
	AlarmAttempts   int            `json:"alarm_attempts"`
	Messages        int            `json:"messages"`
	Deliveries      int            `json:"deliveries"`
	Duplicates      int            `json:"duplicates"`
	DeadLetter      int            `json:"dead_letters"`
	Occurrences     int            `json:"occurrences"`
	OccurrenceLines map[string]int `json:"occurrence_lines"`
	Mirrors         int            `json:"mirrors"`
	Databases       int            `json:"databases"`

	// Takeovers are by the lifetime of leases in milliseconds and by what ended
	// the replica: "kill", "stop", "cut", "drain".
	Takeovers map[int64]map[string]Spread `json:"takeovers"`
	// Lateness is that of alarms.
	Lateness Spread `json:"alarm_lateness"`

	Seeds []SeedLine `json:"seeds"`
}

// Summarize adds records up.
func Summarize(records []Robustness) (s RobustnessSummary) {
	slices.SortFunc(records, func(a, b Robustness) int { return int(int64(a.Seed) - int64(b.Seed)) })
	s.Verdicts, s.Operations, s.Answers, s.Faults, s.Skipped = map[string]int{}, map[string]int{}, map[int]int{}, map[string]int{}, map[string]int{}
	s.Acknowledged, s.OccurrenceLines, s.Takeovers = map[string]int{}, map[string]int{}, map[int64]map[string]Spread{}
	times, late := map[int64]map[string][]int64{}, []int64(nil)
	for i, r := range records {
		if i == 0 {
			s.Conditions, s.From, s.Load = r.Conditions, r.At, [2]float64{r.Conditions.Load, r.Conditions.Load}
		}
		s.From, s.To = min(s.From, r.At), max(s.To, r.At)
		s.Load = [2]float64{min(s.Load[0], r.Conditions.Load), max(s.Load[1], r.Conditions.Load)}
		if !slices.Contains(s.Commits, r.Conditions.Commit) {
			s.Commits = append(s.Commits, r.Conditions.Commit)
		}
		s.Schedules++
		s.Verdicts[r.Verdict]++
		s.Total += r.Total()
		s.Seconds += r.Elapsed / 1000
		add(s.Operations, r.Operations)
		add(s.Answers, r.Answers)
		add(s.Faults, r.Faults)
		add(s.Skipped, r.Skipped)
		add(s.Acknowledged, r.Acknowledged)
		add(s.OccurrenceLines, r.OccurrenceLines)
		for _, f := range []struct {
			to   *int
			more int
		}{
			{&s.Lost, r.Lost}, {&s.Doubled, r.Doubled}, {&s.Applied, r.Applied}, {&s.Stale, r.Stale}, {&s.StaleAttempts, r.StaleAttempts},
			{&s.Violations, len(r.Violations)}, {&s.Histories, r.Histories}, {&s.HistoryCalls, r.HistoryCalls}, {&s.Timeouts, r.Timeouts},
			{&s.Drains, r.Drains}, {&s.DrainFailures, r.DrainFailures}, {&s.DrainRequests, r.DrainRequests},
			{&s.Alarms, r.Alarms}, {&s.AlarmsFired, r.AlarmsFired}, {&s.AlarmsDead, r.AlarmsDead}, {&s.AlarmAttempts, r.AlarmAttempts},
			{&s.Messages, r.Messages}, {&s.Deliveries, r.Deliveries}, {&s.Duplicates, r.Duplicates}, {&s.DeadLetter, r.DeadLetter},
			{&s.Occurrences, r.Occurrences}, {&s.Mirrors, r.Mirrors}, {&s.Databases, r.Databases},
		} {
			*f.to += f.more
		}
		late = append(late, r.Lateness...)
		ttl := r.Conditions.LeaseTTL
		if times[ttl] == nil {
			times[ttl] = map[string][]int64{}
		}
		for name, list := range map[string][]int64{"kill": r.Takeovers.Kill, "stop": r.Takeovers.Stop, "cut": r.Takeovers.Cut, "drain": r.Takeovers.Drain} {
			times[ttl][name] = append(times[ttl][name], list...)
		}
		s.Seeds = append(s.Seeds, SeedLine{r.Seed, r.Verdict, r.Total(), int(r.Elapsed / 1000), r.Trouble, r.Violations})
	}
	s.Lateness = NewSpread(late)
	for ttl, m := range times {
		s.Takeovers[ttl] = map[string]Spread{}
		for name, list := range m {
			if len(list) > 0 {
				s.Takeovers[ttl][name] = NewSpread(list)
			}
		}
	}
	return s
}

func add[K comparable](to, more map[K]int) {
	for k, n := range more {
		to[k] += n
	}
}

// ReadRecords reads the records in a folder.
func ReadRecords(dir string) (records []Robustness, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "seed-*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		var r Robustness
		err = json.NewDecoder(bufio.NewReader(f)).Decode(&r)
		f.Close() //nolint:errcheck // only read from
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		records = append(records, r)
	}
	return records, nil
}

// sorted are the keys of a map in order.
func sorted[K interface{ ~string | ~int | ~int64 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
