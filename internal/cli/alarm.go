package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/objectops"
)

func newAlarm(e *env) *cobra.Command {
	return group("alarm", "Alarms of objects, and those that were given up", `Look at the alarms of objects and change them. An object has one alarm at most.
A replica of the fleet runs it when it is due; a run that fails or whose replica
dies is tried again, alarms.retries times, then it goes to the dead letters.

Changes take the object's lease, like an event, so that they never meet a run.`,
		newAlarmList(e), newAlarmShow(e), newAlarmSet(e), newAlarmCancel(e), newAlarmRetry(e))
}

// alarmJSON is a pending alarm as commands write it. Times are epoch
// milliseconds by the primary's clock.
type alarmJSON struct {
	// At is when it is due; while it is claimed, when the claim ends.
	At int64 `json:"at"`
	// Asked is the time that was asked for, from which retries go on.
	Asked     int64  `json:"asked"`
	DueInMs   int64  `json:"due_in_ms"`
	Retries   int    `json:"retries"`
	Claim     string `json:"claim,omitempty"`
	ClaimedBy string `json:"claimed_by,omitempty"`
}

func alarmAsJSON(s alarm.Slot, replica string, nowMs int64) alarmJSON {
	return alarmJSON{s.EpochMs, s.Asked(), s.EpochMs - nowMs, s.RetryCount, s.Claim, replica}
}

// deadAlarmJSON is an alarm that was given up.
type deadAlarmJSON struct {
	Asked   int64  `json:"asked"`
	DiedAt  int64  `json:"died_at"`
	Retries int    `json:"retries"`
	Error   string `json:"error"`
}

func deadAlarmAsJSON(d alarm.Dead) deadAlarmJSON {
	return deadAlarmJSON{d.Due, d.DiedAt, d.RetryCount, d.Error}
}

// alarmHint says what to do about a change that failed.
func alarmHint(err error, o objectFlags) error {
	switch {
	case errors.Is(err, durable.ErrUnknownOutcome):
		return withHint(err, "whether it was done is not known; look with: dwk alarm show %s %s", o.class, o.id)
	case errors.Is(err, objectops.ErrNotFound):
		return err
	case errors.Is(err, durable.ErrInvalid):
		return usageError{err}
	}
	return changeHint(err, o)
}

// claimText says who runs an alarm.
func claimText(claim, replica string) string {
	switch {
	case claim == "":
		return ""
	case replica == "":
		return "a holder that is gone"
	}
	return "replica " + replica
}

// dueText says how far away the time of an alarm is.
func dueText(a alarmJSON) string {
	if a.DueInMs < 0 {
		return "overdue by " + ageOf(0, a.DueInMs)
	}
	return "in " + ageOf(a.DueInMs, 0)
}
