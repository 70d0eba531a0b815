package fleettest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// A Ledger is an object to which ops are appended. It refuses none, so that an
// op that was applied twice is in it twice. It remembers what the callers were
// answered.
type Ledger struct {
	Name string

	mu      sync.Mutex
	answers map[string]Answer
}

// NewLedger returns the ledger in the note with this name.
func NewLedger(name string) *Ledger { return &Ledger{Name: name, answers: map[string]Answer{}} }

type statement struct {
	SQL  string `json:"sql"`
	Args []any  `json:"args,omitempty"`
}

// runSQL runs statements in a note's database.
func runSQL(r Caller, note string, list ...statement) Answer {
	body, err := json.Marshal(list)
	if err != nil {
		return Answer{Err: err}
	}
	return r.Do(http.MethodPost, "note/"+note+"/sql", string(body))
}

const createLedger = `CREATE TABLE IF NOT EXISTS ledger(op TEXT NOT NULL)`

// Append appends a new op through a replica.
func (l *Ledger) Append(r Caller) Answer {
	l.mu.Lock()
	op := fmt.Sprintf("op-%d", len(l.answers))
	l.answers[op] = Answer{} // no answer yet
	l.mu.Unlock()
	a := runSQL(r, l.Name, statement{SQL: createLedger}, statement{SQL: `INSERT INTO ledger VALUES(?)`, Args: []any{op}})
	l.mu.Lock()
	l.answers[op] = a
	l.mu.Unlock()
	return a
}

// Read returns how often each op is in the ledger.
func (l *Ledger) Read(r Caller) (map[string]int, Answer) {
	a := runSQL(r, l.Name, statement{SQL: createLedger}, statement{SQL: `SELECT op FROM ledger`})
	if a.Status != http.StatusOK {
		return nil, a
	}
	var results []struct{ Rows [][]string }
	if err := json.Unmarshal([]byte(a.Body), &results); err != nil || len(results) != 2 {
		return nil, Answer{Err: fmt.Errorf("read ledger: %w in %s", err, a.Body)}
	}
	ops := map[string]int{}
	for _, row := range results[1].Rows {
		ops[row[0]]++
	}
	return ops, a
}

// Check fails the test for each problem of the ledger, and returns how many ops
// are there.
func (l *Ledger) Check(t testing.TB, r Caller) int {
	t.Helper()
	problems, n := l.Problems(r)
	for _, p := range problems {
		t.Errorf("%s: %s", l.Name, p)
	}
	return n
}

// Problems reads the ledger and compares it with what the callers were answered:
// an op that was answered 200 is there once, one that was refused is not there,
// and one without an answer, or with an unknown outcome, is there at most once.
// It returns how many ops are there.
func (l *Ledger) Problems(r Caller) (problems []string, n int) {
	ops, a := l.Read(r)
	if ops == nil {
		return []string{fmt.Sprintf("read: %v", a)}, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, op := range slices.Sorted(maps.Keys(l.answers)) {
		a, count := l.answers[op], ops[op]
		delete(ops, op)
		n += count
		lowest, highest, kind := 0, 1, "doubled"
		switch {
		case a.Status == http.StatusOK:
			lowest = 1
		case a.Refused():
			highest, kind = 0, "applied"
		case a.Unknown(), a.Status == 0:
		default:
			wrong("op %s was answered %v", op, a)
		}
		if count < lowest {
			kind = "lost"
		}
		if count < lowest || count > highest {
			wrong("%s: op %s was answered %v and is there %d times", kind, op, a, count)
		}
	}
	if len(ops) > 0 {
		wrong("ops that nobody sent: %v", ops)
	}
	return problems, n
}

// Statuses counts the answers by their status, 0 for none.
func (l *Ledger) Statuses() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := map[int]int{}
	for _, a := range l.answers {
		m[a.Status]++
	}
	return m
}
