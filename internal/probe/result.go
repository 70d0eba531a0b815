package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Result is what one check found.
type Result struct {
	// Store is one of [Names], Address where it is, without secrets, and Check
	// what was checked.
	Store, Address, Check string
	OK                    bool
	// Skipped says why the check was not made, or is "".
	Skipped string
	// Err is why the check failed.
	Err error
	// Trips is the number of store round trips of one repetition, P50 and P95
	// are percentiles of the time of one round trip over all repetitions.
	Trips    int
	P50, P95 time.Duration
	// Note is a remark, which is a warning when Warn is set.
	Note string
	Warn bool
}

// Reason is the text of Err without the store's address, or "".
func (r Result) Reason() string {
	if r.Err == nil {
		return ""
	}
	if e, ok := errors.AsType[*libsql.Error](r.Err); ok {
		return strings.ReplaceAll(r.Err.Error(), "database "+e.Addr+": ", "")
	}
	return r.Err.Error()
}

// Unreachable reports whether the check failed because the store did not
// answer, and not because of what it answered.
func (r Result) Unreachable() bool { return Unreachable(r.Err) }

// Unreachable reports whether err says that a store could not be reached or
// did not answer in time.
func Unreachable(err error) bool {
	kind, ok := libsql.KindOf(err)
	if !ok {
		return errors.Is(err, durable.ErrUnavailable) || errors.Is(err, durable.ErrUnknownOutcome)
	}
	return (kind == libsql.KindUnreachable || kind == libsql.KindTimeout)
}

// MarshalJSON writes the result with its durations as milliseconds; those of a
// check that was not made are null.
func (r Result) MarshalJSON() ([]byte, error) {
	out := struct {
		Store       string   `json:"store"`
		Address     string   `json:"address"`
		Check       string   `json:"check"`
		OK          bool     `json:"ok"`
		Skipped     string   `json:"skipped,omitempty"`
		Error       string   `json:"error,omitempty"`
		Unreachable bool     `json:"unreachable,omitempty"`
		Trips       int      `json:"round_trips"`
		P50         *float64 `json:"p50_ms"`
		P95         *float64 `json:"p95_ms"`
		Note        string   `json:"note,omitempty"`
		Warn        bool     `json:"warning,omitempty"`
	}{r.Store, r.Address, r.Check, r.OK, r.Skipped, "", r.Unreachable(), r.Trips, nil, nil, r.Note, r.Warn}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	if r.Trips > 0 {
		p50, p95 := millis(r.P50), millis(r.P95)
		out.P50, out.P95 = &p50, &p95
	}
	return json.Marshal(out)
}

func millis(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }

// An Error is the failure of a probe. Its message names every store that
// failed and why.
type Error struct {
	// Failed are the results of the checks that failed, at least one.
	Failed []Result
}

// Summarize returns an [*Error] when a check failed.
func Summarize(results []Result) error {
	var failed []Result
	for _, r := range results {
		if r.Err != nil {
			failed = append(failed, r)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &Error{failed}
}

func (e *Error) Error() string {
	parts := make([]string, len(e.Failed))
	for i, r := range e.Failed {
		parts[i] = fmt.Sprintf("%s (%s): %s: %s", r.Store, r.Address, r.Check, r.Reason())
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the errors of the checks.
func (e *Error) Unwrap() []error {
	out := make([]error, len(e.Failed))
	for i, r := range e.Failed {
		out[i] = r.Err
	}
	return out
}

// Unreachable reports whether all that is wrong is that stores did not answer.
func (e *Error) Unreachable() bool {
	for _, r := range e.Failed {
		if !r.Unreachable() {
			return false
		}
	}
	return true
}
