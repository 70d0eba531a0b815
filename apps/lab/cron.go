package lab

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const (
	// maxRuns is how many runs of the schedule are kept and shown.
	maxRuns = 1000
	// maxCronSleep bounds how long a run is asked to take.
	maxCronSleep = time.Hour
)

var runSchema = durable.Statement{SQL: `CREATE TABLE IF NOT EXISTS lab_run (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at INTEGER NOT NULL, attempt INTEGER NOT NULL,
	replica TEXT NOT NULL, began INTEGER NOT NULL, ended INTEGER)`}

// everyFive is the lab's schedule: each run leaves a row in the SQL binding.
func everyFive() durable.Cron {
	return durable.Cron{Name: "every-five", Schedule: "@every 5s", Run: recordRun}
}

// A run is one run of the schedule. Times are epoch milliseconds by the
// primary's clock, as the replica estimates it.
type run struct {
	Name    string `json:"name"`
	At      int64  `json:"at"`
	Attempt int64  `json:"attempt"`
	Replica string `json:"replica"`
	Began   int64  `json:"began"`
	// Ended is null for a run that is under way, or was cut off.
	Ended *int64 `json:"ended"`
}

func recordRun(ctx context.Context, env durable.Env, o durable.Occurrence) error {
	db := env.Database(databaseName)
	res, err := db.Batch(ctx,
		durable.Statement{SQL: `INSERT INTO lab_run (name, at, attempt, replica, began) VALUES (?, ?, ?, ?, ?) RETURNING seq`,
			Args: []any{o.Name, o.At.UnixMilli(), o.Attempt, env.Replica(), env.Now().UnixMilli()}},
		durable.Statement{SQL: `DELETE FROM lab_run WHERE seq <= (SELECT max(seq) FROM lab_run) - ?`, Args: []any{maxRuns}})
	if err != nil {
		return fmt.Errorf("record the run: %w", err)
	}
	var seq int64
	if err := res[0].Rows[0].Scan(&seq); err != nil {
		return fmt.Errorf("record the run: %w", err)
	}
	if s, ok := env.Settings().(*Settings); ok && s.CronSleepMs > 0 {
		select {
		case <-time.After(min(time.Duration(s.CronSleepMs)*time.Millisecond, maxCronSleep)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	_, err = db.Exec(ctx, `UPDATE lab_run SET ended = ? WHERE seq = ?`, env.Now().UnixMilli(), seq)
	return err
}

// serveRuns shows the runs of the schedule, oldest first.
func (d *database) serveRuns(w http.ResponseWriter, r *http.Request) {
	out := struct {
		Runs []run `json:"runs"`
	}{[]run{}}
	for row, err := range d.db.Query(r.Context(), `SELECT name, at, attempt, replica, began, ended FROM lab_run ORDER BY seq DESC LIMIT ?`, maxRuns) {
		var one run
		var ended any
		if err == nil {
			err = row.Scan(&one.Name, &one.At, &one.Attempt, &one.Replica, &one.Began, &ended)
		}
		if err != nil {
			d.fail(w, r, err, 0)
			return
		}
		if ms, ok := ended.(int64); ok {
			one.Ended = &ms
		}
		out.Runs = append(out.Runs, one)
	}
	slices.Reverse(out.Runs)
	writeJSON(w, http.StatusOK, out)
}
