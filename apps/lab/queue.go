package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const (
	// queueName is the queue that the lab sends to and consumes.
	queueName = "default"
	maxBody   = 128 << 10 // bytes of a message
	maxCopies = 10_000
	maxDelay  = 365 * 24 * time.Hour
	// seenPage bounds the rows that one answer has.
	seenPage = 1000
)

// One row is one delivery.
const seenSchema = `CREATE TABLE IF NOT EXISTS lab_seen(seq INTEGER PRIMARY KEY, id TEXT NOT NULL, attempts INTEGER NOT NULL,
	replica TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT`

// queues serves the queue binding, and what the consumer saw.
type queues struct {
	queue durable.Queue
	*database
}

func newQueues(env durable.Env, db *database) *queues {
	return &queues{env.Queue(queueName), db}
}

func (q *queues) serve(w http.ResponseWriter, r *http.Request, t target) {
	if t.name != queueName {
		writeError(w, http.StatusNotFound, "the lab has no queue but "+queueName)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, "the query cannot be read")
		return
	}
	if t.action == "send" {
		q.send(w, r, query)
	} else {
		q.seen(w, r, query)
	}
}

func (q *queues) send(w http.ResponseWriter, r *http.Request, query url.Values) {
	n, err := intParam(query, "n", 1, 1, maxCopies)
	var delay time.Duration
	if text := query.Get("delay"); err == nil && text != "" {
		delay, err = time.ParseDuration(text)
		if err != nil || delay < 0 || delay > maxDelay {
			err = fmt.Errorf("delay must be a duration such as 2s, at most %s", maxDelay)
		}
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	body, ok := readBody(w, r, maxBody)
	if !ok {
		return
	}
	bodies := make([]any, n)
	for i := range bodies {
		bodies[i] = json.RawMessage(body)
	}
	if err := q.queue.SendBatch(r.Context(), bodies, durable.SendOptions{Delay: delay}); err != nil {
		q.fail(w, r, err, 0)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Queue string `json:"queue"`
		Sent  int64  `json:"sent"`
	}{queueName, n})
}

// seen answers with a page of the deliveries, in the order in which they were
// recorded.
func (q *queues) seen(w http.ResponseWriter, r *http.Request, query url.Values) {
	after, err := intParam(query, "after", 0, 0, 1<<53)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	res, err := q.db.Batch(r.Context(), durable.Statement{SQL: seenSchema},
		durable.Statement{SQL: `SELECT seq, id, attempts, replica, at, body FROM lab_seen WHERE seq > ? ORDER BY seq LIMIT ?`, Args: []any{after, seenPage}})
	if err != nil {
		q.fail(w, r, err, 0)
		return
	}
	type row struct {
		Seq      int64           `json:"seq"`
		ID       string          `json:"id"`
		Attempts int64           `json:"attempts"`
		Replica  string          `json:"replica"`
		At       int64           `json:"at"` // epoch milliseconds
		Body     json.RawMessage `json:"body"`
	}
	list := newListWriter(w, queueName, "seen")
	for _, dbRow := range res[1].Rows {
		var s row
		var body string
		if err := dbRow.Scan(&s.Seq, &s.ID, &s.Attempts, &s.Replica, &s.At, &body); err != nil {
			panic(fmt.Errorf("list deliveries: %w", err))
		}
		s.Body = json.RawMessage(body)
		list.add(s)
	}
	list.end()
}

// wishes are what the body of a message asks of the consumer.
type wishes struct {
	// Fail is how many deliveries fail, and Unacked how many are not
	// acknowledged.
	Fail    int `json:"fail"`
	Unacked int `json:"unacked"`
	// Sleep is how long the consumer takes, in milliseconds.
	Sleep int64 `json:"sleep"`
}

var errAsked = errors.New("the message asked for it")

// consume records deliveries and does to each message what its body asks for.
func consume(ctx context.Context, env durable.Env, b durable.Batch) error {
	statements := []durable.Statement{{SQL: seenSchema}}
	for _, m := range b.Messages() {
		statements = append(statements, durable.Statement{SQL: `INSERT INTO lab_seen(id, attempts, replica, at, body) VALUES(?, ?, ?, ?, ?)`,
			Args: []any{m.ID(), m.Attempts(), env.Replica(), env.Now().UnixMilli(), string(m.Body())}})
	}
	if _, err := env.Database(databaseName).Batch(ctx, statements...); err != nil {
		return fmt.Errorf("record deliveries: %w", err)
	}
	var failed error
	for _, m := range b.Messages() {
		var ask wishes
		_ = json.Unmarshal(m.Body(), &ask) // most bodies ask for nothing
		if err := sleepFor(ctx, ask.Sleep); err != nil {
			return err
		}
		switch {
		case m.Attempts() <= ask.Fail:
			failed = errAsked
		case m.Attempts() > ask.Unacked:
			m.Ack()
		}
	}
	return failed
}

func sleepFor(ctx context.Context, ms int64) error {
	if ms <= 0 {
		return nil
	}
	timer := time.NewTimer(min(time.Duration(ms)*time.Millisecond, maxSleep))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
