package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

const (
	maxAdd = 1_000_000_000
	maxOp  = 128 // bytes of an op id
)

const counterSchema = `
CREATE TABLE IF NOT EXISTS lab_counter (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS lab_ops (seq INTEGER PRIMARY KEY, op TEXT NOT NULL UNIQUE, n INTEGER NOT NULL, value INTEGER NOT NULL) STRICT;`

// counter adds numbers. Handlers panic on errors that are not the caller's:
// the host then undoes the event and answers for it.
type counter struct {
	db  durable.SQL
	env durable.Env
}

func newCounter(state durable.State, env durable.Env) (durable.Object, error) {
	db := state.SQL()
	if _, err := db.Exec(context.Background(), counterSchema+moveSchema); err != nil {
		return nil, fmt.Errorf("create counter: %w", err)
	}
	return &counter{db, env}, nil
}

// value is the answer of most paths of a counter.
type value struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parseTarget(r)
	if !ok || t.kind != "counter" {
		writeError(w, http.StatusNotFound, "no such path")
		return
	}
	if !t.allowed(w, r) {
		return
	}
	switch t.action {
	case "add":
		c.serveAdd(w, r, t.name)
	case "ops":
		c.serveOps(w, r, t.name)
	case "move":
		c.serveMove(w, r, t.name)
	case "moves":
		c.serveMoves(w, r, t.name)
	default:
		v, err := readValue(r.Context(), c.db)
		if err != nil {
			panic(fmt.Errorf("read counter: %w", err))
		}
		writeJSON(w, http.StatusOK, value{t.name, v})
	}
}

func (c *counter) serveAdd(w http.ResponseWriter, r *http.Request, name string) {
	n, op, err := addParams(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	v, err := c.add(r.Context(), n, op)
	if err != nil {
		panic(fmt.Errorf("add to counter: %w", err))
	}
	writeJSON(w, http.StatusOK, value{name, v})
}

func addParams(query string) (n int64, op string, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return 0, "", errors.New("the query cannot be read")
	}
	if n, err = intParam(q, "n", 1, -maxAdd, maxAdd); err != nil {
		return 0, "", err
	}
	op = q.Get("op")
	if len(op) > maxOp || strings.ToValidUTF8(op, "") != op || (q.Has("op") && op == "") {
		return 0, "", fmt.Errorf("op must be UTF-8 of 1 to %d bytes", maxOp)
	}
	return n, op, nil
}

// add adds n and returns the new value. An op that was counted before changes
// nothing.
func (c *counter) add(ctx context.Context, n int64, op string) (v int64, err error) {
	err = c.db.Tx(ctx, func(tx durable.SQL) error {
		if v, err = readValue(ctx, tx); err != nil {
			return err
		}
		if op != "" {
			res, err := tx.Exec(ctx, `INSERT INTO lab_ops (op, n, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, op, n, v+n)
			if err != nil || res.Changes == 0 {
				return err
			}
		}
		v += n
		_, err := tx.Exec(ctx, `INSERT INTO lab_counter VALUES (0, ?) ON CONFLICT DO UPDATE SET value = excluded.value`, v)
		return err
	})
	return v, err
}

func readValue(ctx context.Context, db durable.SQL) (v int64, err error) {
	for row, err := range db.Query(ctx, `SELECT value FROM lab_counter`) {
		if err != nil {
			return 0, err
		}
		if err := row.Scan(&v); err != nil {
			return 0, err
		}
	}
	return v, nil
}

// serveOps lists all ops, however many: a checker that missed some would
// report what did not happen.
func (c *counter) serveOps(w http.ResponseWriter, r *http.Request, name string) {
	type op struct {
		Op    string `json:"op"`
		N     int64  `json:"n"`
		Value int64  `json:"value"` // after it
	}
	list := newListWriter(w, name, "ops")
	for row, err := range c.db.Query(r.Context(), `SELECT op, n, value FROM lab_ops ORDER BY seq`) {
		var o op
		if err == nil {
			err = row.Scan(&o.Op, &o.N, &o.Value)
		}
		if err != nil {
			panic(fmt.Errorf("list ops: %w", err))
		}
		list.add(o)
	}
	list.end()
}
