package cron

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// The first elements of the keys.
const (
	PrefixOccurrence = "dwk_cron"
	PrefixLast       = "dwk_cron_last"
	PrefixRun        = "dwk_cron_run"
	PrefixPause      = "dwk_cron_pause"
	PrefixRequest    = "dwk_cron_request"
)

// Limits.
const (
	// MaxName bounds a schedule's name, in bytes.
	MaxName = 256
	// History is how many runs of a schedule are kept, and Keep how long.
	History = 1000
	Keep    = 30 * 24 * time.Hour
	// RequestTTL is how long a request waits for a replica that can run it.
	RequestTTL = time.Hour
	// maxError bounds the text of an error that is kept, in bytes.
	maxError = 1 << 10
	// maxMissed bounds the occurrences before a run that are listed as missed.
	maxMissed = 100
)

// othersBefore is the error of the oldest occurrence that was listed as missed
// when there were more.
const othersBefore = "and others before it"

// CheckName refuses what cannot be the name of a schedule.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("schedule name %.80q: %w: 1 to %d bytes of UTF-8", name, durable.ErrInvalid, MaxName)
	}
	return nil
}

// The outcomes of runs. A run that has none is under way.
const (
	OK          = "ok"
	Failed      = "failed"
	Interrupted = "interrupted" // its replica died or lost its claim
	Skipped     = "skipped"     // not run: the one before was under way
	Missed      = "missed"      // not run: no replica was there
)

// An occurrence is the value of what has been won. Times are epoch milliseconds
// by the primary's clock.
type occurrence struct {
	Holder  string `json:"holder"`
	Replica string `json:"replica"`
	Attempt int    `json:"attempt"`
	// Tries are the runs that have begun since it was won, or was asked for by a
	// Request; nil of an older version, which counted attempts alone.
	Tries   *int   `json:"tries"`
	Request bool   `json:"request"`
	State   string `json:"state"`
	// Until is when the claim ends unless it is renewed.
	Until     int64 `json:"until"`
	StartedAt int64 `json:"started_at"`
}

// tries are the runs since it was won. What is stored may be damaged.
func (o occurrence) tries() int {
	if o.Tries == nil {
		return o.Attempt
	}
	return min(max(0, *o.Tries), maxAttempts)
}

// last is what is known of a schedule beside its runs.
type last struct {
	// Bucket is the newest occurrence that was won, and Since the instant up to
	// which nothing is made up for: the schedule was new, or paused.
	Bucket int64 `json:"bucket"`
	Since  int64 `json:"since"`
	// From is the first occurrence that was won by the present expression.
	From       int64  `json:"from"`
	Replica    string `json:"replica"`
	Attempt    int    `json:"attempt"`
	StartedAt  int64  `json:"started_at"`
	FinishedAt int64  `json:"finished_at"`
	Outcome    string `json:"outcome"`
	Schedule   string `json:"schedule"`
	Zone       string `json:"zone"`
}

// settled is the instant up to which occurrences are dealt with.
func (l last) settled() int64 { return max(l.Bucket, l.Since) }

func ms(t time.Time) int64 { return t.UnixMilli() }

func runKey(name string, at int64, attempt int) []byte {
	return tuple.MustEncode(PrefixRun, name, tuple.Millis(at), attempt)
}

// encoded is v as JSON, which cannot fail for what this package makes.
func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("cron: " + err.Error())
	}
	return string(text)
}

// Parts of statements. An entry that an operator or a program of somebody else
// has put there may be anything: nothing may fail on it.

// field is a member of the JSON object in the column v of a row.
func field(row, name string) string {
	return `(CASE WHEN json_valid(` + row + `.v) THEN json_extract(` + row + `.v, '$.` + name + `') END)`
}

// object tells that a row holds a JSON object.
func object(row string) string {
	return `(CASE WHEN json_valid(` + row + `.v) THEN json_type(` + row + `.v) END) = 'object'`
}

// number is a member that is a whole number, 0 without it.
func number(row, name string) string {
	return `CAST(coalesce(` + field(row, name) + `, 0) AS INTEGER)`
}

// tries is [occurrence.tries] of a row.
func tries(row string) string {
	return `CAST(coalesce(` + field(row, "tries") + `, ` + field(row, "attempt") + `, 0) AS INTEGER)`
}

func live(row string) string {
	return `(` + row + `.expires_at IS NULL OR ` + row + `.expires_at > ` + kv.Now + `)`
}

// running tells that a row is an occurrence that was won and not ended.
func running(row string) string { return live(row) + ` AND ` + field(row, "state") + ` = 'running'` }

// listed are the occurrences o that the row l, of a schedule, lists as running.
const listed = `json_each(CASE WHEN json_valid(l.v) AND json_type(l.v, '$.open') = 'array' THEN json_extract(l.v, '$.open') ELSE '[]' END) o`

// key is the key that a prefix and the instant expr make.
func key(prefix, expr string) string {
	return `CAST(` + prefix + ` || ` + kv.KeyNum(expr) + ` AS BLOB)`
}

// open are the occurrences e of a schedule that were won and not ended.
var open = `kv l CROSS JOIN ` + listed + ` CROSS JOIN kv e WHERE l.k = :last AND o.type = 'integer' AND e.k = ` + key(`:entries`, `o.value`) + ` AND ` + running("e")

// The instants that statements can encode as keys, in epoch milliseconds: 2004 to
// 2039.
const minMs, maxMs = 1 << 40, 1<<41 - 1
