package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// maxFail bounds how many runs of an alarm are asked to fail, and maxIn how far
// off it is.
const (
	maxFail = 1000
	maxIn   = 10 * 365 * 24 * time.Hour
)

const timerSchema = `
CREATE TABLE IF NOT EXISTS lab_timer (id INTEGER PRIMARY KEY CHECK (id = 0), name TEXT NOT NULL, fail INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS lab_firing (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, due INTEGER NOT NULL, retry INTEGER NOT NULL, replica TEXT NOT NULL) STRICT;`

// attemptSchema is that of the SQL binding. Runs that are undone stay there.
var attemptSchema = []durable.Statement{
	{SQL: `CREATE TABLE IF NOT EXISTS lab_attempt (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at INTEGER NOT NULL, due INTEGER NOT NULL, retry INTEGER NOT NULL, replica TEXT NOT NULL)`},
	{SQL: `CREATE INDEX IF NOT EXISTS lab_attempt_name ON lab_attempt(name)`},
}

// prepareTime bounds the making of the lab's tables when a replica starts.
const prepareTime = 20 * time.Second

// prepare makes the tables of the lab in the SQL binding.
func prepare(db durable.Database) error {
	ctx, cancel := context.WithTimeout(context.Background(), prepareTime)
	defer cancel()
	if _, err := db.Batch(ctx, append(attemptSchema, runSchema)...); err != nil {
		return fmt.Errorf("make the lab's tables in %s: %w", databaseName, err)
	}
	return nil
}

// timer has an alarm. Each run that is committed leaves a firing in the object,
// and each run that was begun an attempt in the SQL binding.
type timer struct {
	state durable.State
	env   durable.Env
}

func newTimer(state durable.State, env durable.Env) (durable.Object, error) {
	if _, err := state.SQL().Exec(context.Background(), timerSchema); err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &timer{state, env}, nil
}

// A firing is one run of the alarm. Times are epoch milliseconds.
type firing struct {
	At      int64  `json:"at"`
	Due     int64  `json:"due"`
	Retry   int64  `json:"retry"`
	Replica string `json:"replica"`
}

func (o *timer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parseTarget(r)
	if !ok || t.kind != "alarm" {
		writeError(w, http.StatusNotFound, "no such path")
		return
	}
	if !t.allowed(w, r) {
		return
	}
	switch r.Method {
	case http.MethodPost:
		o.set(w, r, t.name)
	case http.MethodDelete:
		if err := o.state.DeleteAlarm(); err != nil {
			panic(fmt.Errorf("delete alarm: %w", err))
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		o.show(w, r, t.name)
	}
}

func timerParams(query string) (in time.Duration, fail int64, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return 0, 0, errors.New("the query cannot be read")
	}
	if q.Has("in") {
		if in, err = time.ParseDuration(q.Get("in")); err != nil || in < 0 || in > maxIn {
			return 0, 0, fmt.Errorf("in must be a duration such as 2s, up to %s", maxIn)
		}
	}
	fail, err = intParam(q, "fail", 0, 0, maxFail)
	return in, fail, err
}

func (o *timer) set(w http.ResponseWriter, r *http.Request, name string) {
	in, fail, err := timerParams(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	_, err = o.state.SQL().Exec(r.Context(), `INSERT INTO lab_timer VALUES (0, ?, ?) ON CONFLICT DO UPDATE SET fail = excluded.fail`, name, fail)
	if err == nil {
		err = o.state.SetAlarmIn(in)
	}
	if err != nil {
		panic(fmt.Errorf("set alarm: %w", err))
	}
	pending, _ := o.state.Alarm()
	writeJSON(w, http.StatusOK, struct {
		Name string `json:"name"`
		// Pending counts from the commit, so this is about it.
		Pending int64 `json:"pending"`
	}{name, pending.UnixMilli()})
}

func (o *timer) show(w http.ResponseWriter, r *http.Request, name string) {
	out := struct {
		Name     string   `json:"name"`
		Pending  *int64   `json:"pending,omitempty"`
		Firings  []firing `json:"firings"`
		Attempts []firing `json:"attempts"`
	}{Name: name, Firings: []firing{}, Attempts: []firing{}}
	if at, ok := o.state.Alarm(); ok {
		ms := at.UnixMilli()
		out.Pending = &ms
	}
	var err error
	if out.Firings, err = firings(o.state.SQL().Query(r.Context(), `SELECT at, due, retry, replica FROM lab_firing ORDER BY seq`)); err == nil {
		out.Attempts, err = firings(o.env.Database(databaseName).Query(r.Context(), `SELECT at, due, retry, replica FROM lab_attempt WHERE name = ? ORDER BY seq`, name))
	}
	if err != nil {
		panic(fmt.Errorf("show alarm: %w", err))
	}
	writeJSON(w, http.StatusOK, out)
}

func firings(rows func(yield func(durable.Row, error) bool)) ([]firing, error) {
	out := []firing{}
	for row, err := range rows {
		var f firing
		if err == nil {
			err = row.Scan(&f.At, &f.Due, &f.Retry, &f.Replica)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// Alarm implements durable.Alarmer.
func (o *timer) Alarm(ctx context.Context, info durable.AlarmInfo) error {
	f := firing{At: o.state.Now().UnixMilli(), Due: info.Due.UnixMilli(), Retry: int64(info.RetryCount), Replica: o.env.Replica()}
	var name string
	var fail int64
	for row, err := range o.state.SQL().Query(ctx, `SELECT name, fail FROM lab_timer`) {
		if err == nil {
			err = row.Scan(&name, &fail)
		}
		if err != nil {
			return err
		}
	}
	_, err := o.env.Database(databaseName).Exec(ctx, `INSERT INTO lab_attempt (name, at, due, retry, replica) VALUES (?, ?, ?, ?, ?)`, name, f.At, f.Due, f.Retry, f.Replica)
	if err != nil {
		return fmt.Errorf("record the attempt: %w", err)
	}
	if f.Retry < fail {
		return fmt.Errorf("run %d of %d that were asked to fail", f.Retry+1, fail)
	}
	_, err = o.state.SQL().Exec(ctx, `INSERT INTO lab_firing (at, due, retry, replica) VALUES (?, ?, ?, ?)`, f.At, f.Due, f.Retry, f.Replica)
	return err
}
