package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/davidwkeith/dwk/durable"
)

const moveSchema = `
CREATE TABLE IF NOT EXISTS lab_move (seq INTEGER PRIMARY KEY, op TEXT NOT NULL UNIQUE, dest TEXT NOT NULL, n INTEGER NOT NULL, done INTEGER NOT NULL) STRICT;`

// serveMove moves a number from this counter to another one. Both are objects, so
// it is two commits: the call commits what was taken away and written down, the
// other side adds it once for the op, and whoever repeats the op completes a move
// that was cut off in between.
func (c *counter) serveMove(w http.ResponseWriter, r *http.Request, name string) {
	n, op, err := addParams(r.URL.RawQuery)
	to := r.URL.Query().Get("to")
	if err == nil && (op == "" || n < 0) {
		err = fmt.Errorf("a move needs an op, and takes no less than 0")
	}
	if err == nil {
		err = checkName(to)
	}
	if err == nil && to == name {
		err = fmt.Errorf("a counter moves nothing to itself")
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	to, n, done, err := c.moveOut(r.Context(), op, to, n)
	if err != nil {
		panic(fmt.Errorf("move from counter: %w", err))
	}
	if !done {
		if err := c.moveIn(r.Context(), op, to, n); err != nil {
			c.env.Logger().WarnContext(r.Context(), "move is not complete", "error", err)
			writeError(w, http.StatusBadGateway, "the move is not complete, repeat it")
			return
		}
		if _, err := c.db.Exec(r.Context(), `UPDATE lab_move SET done = 1 WHERE op = ?`, op); err != nil {
			panic(fmt.Errorf("complete a move: %w", err))
		}
	}
	v, err := readValue(r.Context(), c.db)
	if err != nil {
		panic(fmt.Errorf("read counter: %w", err))
	}
	writeJSON(w, http.StatusOK, value{name, v})
}

// moveOut takes the number away and writes the move down, or returns the one that
// was written down under this op.
func (c *counter) moveOut(ctx context.Context, op, to string, n int64) (string, int64, bool, error) {
	done := int64(0)
	err := c.db.Tx(ctx, func(tx durable.SQL) error {
		res, err := tx.Exec(ctx, `INSERT INTO lab_move (op, dest, n, done) VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING`, op, to, n)
		if err != nil {
			return err
		}
		if res.Changes == 0 {
			for row, err := range tx.Query(ctx, `SELECT dest, n, done FROM lab_move WHERE op = ?`, op) {
				if err == nil {
					err = row.Scan(&to, &n, &done)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		_, err = tx.Exec(ctx, `INSERT INTO lab_counter VALUES (0, -?1) ON CONFLICT DO UPDATE SET value = value - ?1`, n)
		return err
	})
	return to, n, done == 1, err
}

// moveIn adds the number to the other counter.
func (c *counter) moveIn(ctx context.Context, op, to string, n int64) error {
	path := fmt.Sprintf("/counter/%s/add?n=%d&op=%s", url.PathEscape(to), n, url.QueryEscape(op))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab"+path, nil)
	if err != nil {
		return err
	}
	ns := c.env.Namespace(classes["counter"])
	resp, err := ns.Get(ns.ID(to)).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the other counter answers %d", resp.StatusCode)
	}
	return nil
}

func (c *counter) serveMoves(w http.ResponseWriter, r *http.Request, name string) {
	type move struct {
		Op   string `json:"op"`
		To   string `json:"to"`
		N    int64  `json:"n"`
		Done bool   `json:"done"`
	}
	list := newListWriter(w, name, "moves")
	for row, err := range c.db.Query(r.Context(), `SELECT op, dest, n, done FROM lab_move ORDER BY seq`) {
		var m move
		var done int64
		if err == nil {
			err = row.Scan(&m.Op, &m.To, &m.N, &done)
		}
		if err != nil {
			panic(fmt.Errorf("list moves: %w", err))
		}
		m.Done = done == 1
		list.add(m)
	}
	list.end()
}
