package fleettest

import (
	"encoding/json"
	"net/http"
	"testing"
)

// addRow adds a row to a note, in a table of its own.
func addRow(r *Replica, note string) Answer {
	return runSQL(r, note, statement{SQL: `CREATE TABLE IF NOT EXISTS rows(replica TEXT)`},
		statement{SQL: `INSERT INTO rows VALUES(?)`, Args: []any{r.ID}})
}

// countRows returns the number of a note's rows, unless the answer is not 200.
func countRows(t *testing.T, r *Replica, note string) (int, Answer) {
	t.Helper()
	a := runSQL(r, note, statement{SQL: `CREATE TABLE IF NOT EXISTS rows(replica TEXT)`}, statement{SQL: `SELECT count(*) FROM rows`})
	if a.Status != http.StatusOK {
		return 0, a
	}
	var results []struct{ Rows [][]int }
	if err := json.Unmarshal([]byte(a.Body), &results); err != nil || len(results) != 2 {
		t.Errorf("%v in %s", err, a.Body) // not Fatal: it is used on other goroutines too
		return 0, a
	}
	return results[1].Rows[0][0], a
}

// wantRows fails the test unless the note has n rows.
func wantRows(t *testing.T, r *Replica, note string, n int) {
	t.Helper()
	if got, a := countRows(t, r, note); a.Status != http.StatusOK || got != n {
		t.Errorf("%s sees %d rows, want %d: %v", r.Name, got, n, a)
	}
}

// sleeps returns the replicas that the rows of a note's sleeps name: two for
// each that was committed.
func sleeps(t *testing.T, r *Replica, note string) []string {
	t.Helper()
	var list struct{ Sleeps []struct{ Replica string } }
	r.Get("note/"+note+"/sleeps").Decode(t, &list)
	var out []string
	for _, s := range list.Sleeps {
		out = append(out, s.Replica)
	}
	return out
}
