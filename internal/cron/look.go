package cron

import (
	"encoding/hex"
	"encoding/json"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A seen schedule is what a look has found of it.
type seen struct {
	last *last // nil when the schedule was never seen
	// paused in the whole fleet.
	paused bool
	// running are the occurrences that were won and not ended.
	running []openRun
	request *request
}

// An openRun is an occurrence that was won and not ended.
type openRun struct {
	occurrence
	at int64
}

// A request is what an operator has asked for.
type request struct {
	key []byte
	// at is the occurrence that was asked for, 0 for the present instant, and
	// runs how many runs of it there were.
	at   int64
	runs int
}

// The looks read all schedules of a replica at once. Their parameter lists, for
// each schedule, the keys in hexadecimal digits: last, pause, and the prefixes
// of requests, runs and occurrences.
var (
	lookSQL = `SELECT s.key, l.v, EXISTS (SELECT 1 FROM kv p WHERE p.k = unhex(s.value->>1) AND ` + live("p") + `), r.k, ` + number("r", "bucket") + `,
		(SELECT h.k FROM kv h WHERE h.k > ` + key(`unhex(s.value->>3)`, number("r", "bucket")) + ` AND h.k < CAST(` + key(`unhex(s.value->>3)`, number("r", "bucket")) + ` || x'FF' AS BLOB) ORDER BY h.k DESC LIMIT 1),
		` + kv.Now + `
	FROM json_each(?) s LEFT JOIN kv l ON l.k = unhex(s.value->>0) AND ` + live("l") + ` AND ` + object("l") + `
	LEFT JOIN kv r ON r.k = (SELECT q.k FROM kv q WHERE q.k > unhex(s.value->>2) AND q.k < unhex((s.value->>2) || 'FF') AND ` + live("q") + ` ORDER BY q.k LIMIT 1)`

	openSQL = `SELECT s.key, o.value, e.v FROM json_each(?) s JOIN kv l ON l.k = unhex(s.value->>0) CROSS JOIN ` + listed + `
	JOIN kv e ON e.k = ` + key(`unhex(s.value->>4)`, `o.value`) + ` WHERE o.type = 'integer' AND ` + running("e")
)

// look returns the statements that look at schedules.
func look(names []string) []libsql.Statement {
	list := make([][5]string, len(names))
	for i, name := range names {
		for j, prefix := range []string{PrefixLast, PrefixPause, PrefixRequest, PrefixRun, PrefixOccurrence} {
			list[i][j] = hex.EncodeToString(tuple.MustEncode(prefix, name))
		}
	}
	arg := encoded(list)
	return []libsql.Statement{libsql.S(lookSQL, arg), libsql.S(openSQL, arg)}
}

// maxAttempts bounds the attempts that are read: what is stored may be damaged.
const maxAttempts = 1_000_000

// readLook reads the results of look, in the order of the names, and the
// primary's time.
func readLook(res []libsql.Result, n int) (list []seen, nowMs int64) {
	list = make([]seen, n)
	for _, row := range res[0].Rows {
		i, _ := row[0].(int64)
		s := &list[i]
		if text, ok := row[1].(string); ok {
			s.last = &last{}
			_ = json.Unmarshal([]byte(text), s.last) // what can be had
		}
		paused, _ := row[2].(int64)
		s.paused = paused != 0
		if k, ok := row[3].([]byte); ok {
			s.request = &request{key: k}
			s.request.at, _ = row[4].(int64)
			if h, ok := row[5].([]byte); ok {
				if parts, err := tuple.Decode(h); err == nil && len(parts) == 4 {
					runs, _ := parts[3].(float64)
					s.request.runs = int(min(max(0, runs), maxAttempts))
				}
			}
		}
		nowMs, _ = row[6].(int64)
	}
	for _, row := range res[1].Rows {
		i, _ := row[0].(int64)
		var r openRun
		r.at, _ = row[1].(int64)
		if text, ok := row[2].(string); ok && json.Unmarshal([]byte(text), &r.occurrence) == nil {
			r.Attempt = min(max(0, r.Attempt), maxAttempts)
			list[i].running = append(list[i].running, r)
		}
	}
	return list, nowMs
}
