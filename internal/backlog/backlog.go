// Package backlog looks, within the fleet's poll, at how much of each kind of
// work is due in the store and how much was given up, for metrics.
package backlog

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/metrics"
)

const (
	// Every is how often a replica looks.
	Every = 10 * time.Second
	// Limit bounds what is counted, so that a long backlog costs no more than a
	// short one.
	Limit = 10_000
)

// A Source is one kind of work. The keys of what waits for its time are Due,
// Name, the time as a number of epoch milliseconds, and more; those of what was
// given up are Dead, Name, and more.
type Source struct {
	Kind, Name string
	Due, Dead  string
}

// A Watch is the part of the poll that looks. It is safe for concurrent use.
type Watch struct {
	sources []Source
	query   libsql.Statement

	mu    sync.Mutex
	asked time.Time
	seen  []metrics.Backlog
}

// New returns a watch of the sources.
func New(sources ...Source) *Watch {
	keys := make([][3]string, len(sources))
	for i, s := range sources {
		dead := tuple.MustEncode(s.Dead, s.Name)
		keys[i] = [3]string{hex.EncodeToString(tuple.MustEncode(s.Due, s.Name)), hex.EncodeToString(dead), hex.EncodeToString(tuple.RangeEnd(dead))}
	}
	list, _ := json.Marshal(keys) // of strings
	return &Watch{sources: sources, query: libsql.S(query, string(list))}
}

// The query answers, for each source, its place in the list, what is due, the
// key of the first of it, what is dead, and the primary's clock. In a key 03
// begins a number.
var (
	fromDue  = `FROM kv WHERE k >= unhex(s.value->>0 || '03') AND k < CAST(unhex(s.value->>0) || ` + kv.KeyNum(kv.Now+` + 1`) + ` AS BLOB) AND ` + kv.Live
	fromDead = `FROM kv WHERE k > unhex(s.value->>1) AND k < unhex(s.value->>2) AND ` + kv.Live

	query = `SELECT s.key, ` + count(fromDue) + `, (SELECT k ` + fromDue + ` ORDER BY k LIMIT 1), ` + count(fromDead) + `, ` + kv.Now + ` FROM json_each(?) s`
)

func count(from string) string {
	return `(SELECT count(*) FROM (SELECT 1 ` + from + ` LIMIT ` + strconv.Itoa(Limit) + `))`
}

// Name is what logs call it.
func (w *Watch) Name() string { return "backlog" }

// Poll returns the statement that looks, when it is time to.
func (w *Watch) Poll(int) []libsql.Statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sources) == 0 || !w.asked.IsZero() && clock.Since(w.asked) < Every {
		return nil
	}
	w.asked = clock.Now()
	return []libsql.Statement{w.query}
}

// Polled takes the statement's result. After an error what was seen before
// stays.
func (w *Watch) Polled(res []libsql.Result, err error, _ time.Time) (again bool) {
	if err != nil || len(res) != 1 {
		return false
	}
	seen := make([]metrics.Backlog, 0, len(res[0].Rows))
	for _, row := range res[0].Rows {
		i, _ := row[0].(int64)
		b := metrics.Backlog{Kind: w.sources[i].Kind, Name: w.sources[i].Name}
		b.Due, _ = row[1].(int64)
		b.Dead, _ = row[3].(int64)
		now, _ := row[4].(int64)
		b.Overdue = overdue(row[2], now)
		seen = append(seen, b)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = seen
	return false
}

// overdue is how long before now the time in a key was.
func overdue(first any, now int64) time.Duration {
	k, _ := first.([]byte)
	if k == nil {
		return 0
	}
	key, err := tuple.Decode(k)
	if err != nil || len(key) < 3 {
		return 0
	}
	at, _ := key[2].(float64)
	return time.Duration(float64(now)-at) * time.Millisecond
}

// Backlogs returns what was seen last.
func (w *Watch) Backlogs() []metrics.Backlog {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
