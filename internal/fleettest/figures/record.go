// Package figures is what the long runs of the tests have measured: the types of
// their records, and the document that is made of those in docs/figures.
package figures

// The verdicts on a run.
const (
	// Held is that of a run that was checked to its end, with nothing wrong.
	Held = "held"
	// Violated is that of a run in which a promise was broken.
	Violated = "violated"
	// Unclear is that of a run that could not be checked: the harness failed.
	Unclear = "unclear"
)

// A Violation is a promise that was broken.
type Violation struct {
	// Promise says which, in a word or two: "single writer", "alarms" and so on.
	Promise string `json:"promise"`
	// Check is the checker that found it: "lost", "doubled", "applied", "stale",
	// "order", "alarm", "message", "occurrence", "drain", "audit", "mirror",
	// "crash", "quiet".
	Check string `json:"check"`
	// Object is what it befell.
	Object string `json:"object,omitempty"`
	Detail string `json:"detail"`
}

// Conditions are those under which a record was made.
type Conditions struct {
	Commit string `json:"commit"`
	// CPUs and Load are those of the machine, Load when the run began.
	CPUs int     `json:"cpus"`
	Load float64 `json:"load"`
	Go   string  `json:"go"`
	// Replicas and Clients are how many there were.
	Replicas int `json:"replicas"`
	Clients  int `json:"clients"`
	// LeaseTTL is in milliseconds.
	LeaseTTL int64  `json:"lease_ttl_ms"`
	Focus    string `json:"focus"`
	Stores   string `json:"stores"`
}

// Takeovers are the times in milliseconds from a fault until another replica
// changed an object that the victim was working at.
type Takeovers struct {
	Kill  []int64 `json:"kill,omitempty"`
	Stop  []int64 `json:"stop,omitempty"`
	Cut   []int64 `json:"cut,omitempty"`
	Drain []int64 `json:"drain,omitempty"`
}

// Robustness is the record of one seed.
type Robustness struct {
	Seed       uint64     `json:"seed"`
	At         string     `json:"at"`
	Conditions Conditions `json:"conditions"`
	// Verdict is one of the three.
	Verdict string `json:"verdict"`
	// Trouble says why it is unclear.
	Trouble string `json:"trouble,omitempty"`
	// Elapsed is in milliseconds.
	Elapsed int64 `json:"elapsed_ms"`

	// Operations counts the calls that clients made by their kind, and with
	// "message" and "occurrence" what the fleet did by itself.
	Operations map[string]int `json:"operations"`
	// Answers counts the calls by status, 0 for none.
	Answers map[int]int `json:"answers"`
	// Faults counts what was done to the fleet, Skipped what could not be done
	// here.
	Faults  map[string]int `json:"faults"`
	Skipped map[string]int `json:"skipped,omitempty"`

	// Acknowledged are the writes that were answered 200, by the fault during
	// which they were.
	Acknowledged map[string]int `json:"acknowledged"`
	// Lost and Doubled are acknowledged writes that are not there, or twice;
	// Applied are refused ones that are there.
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	Applied int `json:"applied"`
	// Stale are writes of a holder that was no longer the holder which were
	// accepted, of so many StaleAttempts.
	Stale         int `json:"stale"`
	StaleAttempts int `json:"stale_attempts"`
	// Histories were checked, with so many HistoryCalls together, and Timeouts
	// checks that found no verdict in time.
	Histories    int `json:"histories"`
	HistoryCalls int `json:"history_calls"`
	Timeouts     int `json:"timeouts"`

	Violations []Violation `json:"violations"`

	Takeovers Takeovers `json:"takeovers"`
	// Drains were asked for, DrainFailures did not end in order, and
	// DrainRequests are requests that a draining replica had got and did not
	// answer.
	Drains        int `json:"drains"`
	DrainFailures int `json:"drain_failures"`
	DrainRequests int `json:"drain_requests"`

	// Alarms were set, Fired committed a run, Dead were given up. Lateness is in
	// milliseconds.
	Alarms        int     `json:"alarms"`
	AlarmsFired   int     `json:"alarms_fired"`
	AlarmsDead    int     `json:"alarms_dead"`
	AlarmAttempts int     `json:"alarm_attempts"`
	Lateness      []int64 `json:"alarm_lateness_ms,omitempty"`

	// Messages were acknowledged to their senders; Deliveries were all, and
	// Duplicates those beyond what the messages asked for.
	Messages   int `json:"messages"`
	Deliveries int `json:"deliveries"`
	Duplicates int `json:"duplicates"`
	DeadLetter int `json:"dead_letters"`

	Occurrences     int            `json:"occurrences"`
	OccurrenceLines map[string]int `json:"occurrence_lines,omitempty"`

	// Mirrors were compared with the log, and Databases put together by the
	// audit.
	Mirrors   int `json:"mirrors"`
	Databases int `json:"databases"`
}

// Total is the number of operations.
func (r *Robustness) Total() (n int) {
	for _, k := range r.Operations {
		n += k
	}
	return n
}
