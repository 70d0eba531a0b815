// Package alarm is the one alarm of each object: its slot, the index of what is
// due, dead letters and the history of runs. All are entries of the coordination
// store, and every change joins a kv.Plan that holds the object's lease: the
// lease is the claim of an alarm, so that it cannot fire twice, nor after it was
// replaced.
//
// A claimed alarm has the end of the lease as its time: when its replica dies,
// it is due again when the lease is free.
package alarm

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// The first elements of the keys.
const (
	SlotPrefix = "dwk_alarm_by_id"
	DuePrefix  = "dwk_alarm_due"
	DeadPrefix = "dwk_alarm_dead"
	RunPrefix  = "dwk_alarm_run"
)

// How long what happened is kept, and how many runs of an object.
const (
	deadTTL = 30 * 24 * time.Hour
	runTTL  = 7 * 24 * time.Hour
	maxRuns = 20
)

// Times of alarms in epoch milliseconds: 3 November 2004 and 15 May 2109. The
// statements can encode only these as keys. An earlier alarm is due at once.
const (
	minMs = 1 << 40
	maxMs = 1<<42 - 1
)

// A Slot is the stored JSON of a pending alarm. An older host wrote EpochMs and
// RetryCount only. Times are epoch milliseconds by the primary's clock.
type Slot struct {
	// EpochMs is when the alarm is due. It names the entry of the due index.
	EpochMs int64 `json:"epochMs"`
	// RetryCount is the number of runs that failed or crashed.
	RetryCount int `json:"retryCount"`
	// Due is the time that was asked for, where EpochMs is another one.
	Due *int64 `json:"due,omitempty"`
	// Claim is the holder of the lease under which the alarm runs.
	Claim string `json:"claim,omitempty"`
	// Crashed is 1 when the claim follows one whose replica died.
	Crashed int `json:"crashed,omitempty"`
}

// Asked is the time that was asked for.
func (s Slot) Asked() int64 {
	if s.Due != nil {
		return *s.Due
	}
	return s.EpochMs
}

// A Dead is the stored JSON of an alarm that was given up.
type Dead struct {
	Due        int64  `json:"due"`
	RetryCount int    `json:"retryCount"`
	Error      string `json:"error"`
	DiedAt     int64  `json:"died_at"`
}

// The outcomes of a run.
const (
	OutcomeOK      = "ok"
	OutcomeFailed  = "failed"
	OutcomeCrashed = "crashed"
)

// A Run is the stored JSON of one run. A crashed one was noticed at its key's
// time by the replica that took the alarm over.
type Run struct {
	Due        int64  `json:"due"`
	Replica    string `json:"replica"`
	FinishedAt int64  `json:"finished_at,omitempty"`
	Outcome    string `json:"outcome"`
	Error      string `json:"error,omitempty"`
}

// Check refuses a time that cannot be stored.
func Check(t time.Time) error {
	if t.UnixMilli() > maxMs {
		return fmt.Errorf("alarm at %s: %w, the latest is %s", t.UTC().Format(time.RFC3339), durable.ErrInvalid, time.UnixMilli(maxMs).UTC().Format(time.RFC3339))
	}
	return nil
}

// SlotKey returns the encoded key of an object's slot.
func SlotKey(class, id string) []byte { return tuple.MustEncode(SlotPrefix, class, id) }

// DueKey returns the encoded key of an entry of the due index.
func DueKey(class string, ms int64, id string) []byte {
	return tuple.MustEncode(DuePrefix, class, tuple.Millis(ms), id)
}

// DeadKey returns the encoded key of an object's dead letter.
func DeadKey(class, id string) []byte { return tuple.MustEncode(DeadPrefix, class, id) }

// epoch is the time of a slot, NULL when its value is damaged.
func epoch(v string) string {
	return `CASE WHEN json_valid(` + v + `) THEN json_extract(` + v + `, '$.epochMs') END`
}

// keyOf returns SQL for the encoded number of a column or placeholder, epoch
// milliseconds between minMs and maxMs.
func keyOf(expr string) string {
	return `unhex('03'||printf('%016X', CASE WHEN ` + expr + ` < 2199023255552 THEN -4436045632959938560 + ((` + expr + ` - 1099511627776) << 12)
	ELSE -4431542033332568064 + ((` + expr + ` - 2199023255552) << 11) END))`
}

// A Shown is a slot as a statement saw it.
type Shown struct {
	Slot
	// Set tells whether there is one.
	Set bool
	// NowMs is the primary's clock at that moment.
	NowMs int64
}

// Due reports whether the slot was due when it was seen.
func (s Shown) Due() bool { return s.Set && s.EpochMs <= s.NowMs }

// AddShow adds the reading of an object's slot to a plan and returns its result,
// for [Read]. It shows the slot as the plan's statements before it have left it.
func AddShow(p *kv.Plan, class, id string) int { return p.Add(showSQL, SlotKey(class, id)) }

// ShowStatement reads an object's slot, for [Read].
func ShowStatement(class, id string) libsql.Statement { return libsql.S(showSQL, SlotKey(class, id)) }

const showSQL = `SELECT v, ` + kv.Now + ` FROM kv WHERE k = ?`

// Read returns the slot that a result shows.
func Read(class, id string, r libsql.Result) (Shown, error) {
	if len(r.Rows) == 0 {
		return Shown{}, nil
	}
	s := Shown{Set: true}
	v, _ := r.Rows[0][0].(string)
	s.NowMs, _ = r.Rows[0][1].(int64)
	if err := json.Unmarshal([]byte(v), &s.Slot); err != nil {
		return Shown{}, fmt.Errorf("alarm of %s/%s: %w", class, id, err)
	}
	return s, nil
}
