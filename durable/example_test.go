package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// A board is an object: a list of posts, each of which is stored once however
// often it is sent.
type board struct {
	state durable.State
	env   durable.Env
}

func newBoard(state durable.State, env durable.Env) (durable.Object, error) {
	// It runs again for every new instance, so it must be harmless to repeat.
	_, err := state.SQL().Exec(context.Background(), `
		CREATE TABLE IF NOT EXISTS post(seq INTEGER PRIMARY KEY, op TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT`)
	return &board{state, env}, err
}

func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		b.list(w, r)
		return
	}
	op := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(r.Body)
	if op == "" || err != nil {
		http.Error(w, "an Idempotency-Key and a body are needed", http.StatusBadRequest)
		return
	}
	seq, err := b.post(r.Context(), op, string(body))
	if err != nil {
		panic(err) // the host undoes the event and answers for it
	}
	fmt.Fprintln(w, seq)
}

// post returns the number of the post with this operation id, which it stores
// unless it is there.
func (b *board) post(ctx context.Context, op, body string) (seq int64, err error) {
	err = b.state.SQL().Tx(ctx, func(tx durable.SQL) error {
		if _, err := tx.Exec(ctx, `INSERT INTO post(op, body) VALUES (?, ?) ON CONFLICT(op) DO NOTHING`, op, body); err != nil {
			return err
		}
		for row, err := range tx.Query(ctx, `SELECT seq FROM post WHERE op = ?`, op) {
			if err != nil {
				return err
			}
			if err := row.Scan(&seq); err != nil {
				return err
			}
		}
		return nil
	})
	return seq, err
}

func (b *board) list(w http.ResponseWriter, r *http.Request) {
	for row, err := range b.state.SQL().Query(r.Context(), `SELECT seq, body FROM post ORDER BY seq`) {
		var seq int64
		var body string
		if err == nil {
			err = row.Scan(&seq, &body)
		}
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(w, seq, body)
	}
}

// An application: the front door picks the object, the object does the work.
func ExampleApp() {
	type settings struct {
		MaxBytes int64 `json:"max_bytes"`
	}
	app := durable.App{
		Name:     "board",
		Classes:  map[string]durable.Class{"Board": newBoard},
		Settings: &settings{MaxBytes: 4096},
		New: func(env durable.Env) (http.Handler, error) {
			limit := env.Settings().(*settings).MaxBytes
			boards := env.Namespace("Board")
			mux := http.NewServeMux()
			mux.HandleFunc("/{name}", func(w http.ResponseWriter, r *http.Request) {
				r.Body = http.MaxBytesReader(w, r.Body, limit)
				boards.Get(boards.ID(r.PathValue("name"))).ServeHTTP(w, r)
			})
			return mux, nil
		},
	}
	_ = app // dwk.Main(app)
}

// A request is made once and may be sent again: 504 leaves it open whether it
// was applied, and the same operation id makes the repetition harmless.
func ExampleSQL_tx() {
	var db durable.SQL // State.SQL()
	deposit := func(ctx context.Context, op string, amount int64) error {
		return db.Tx(ctx, func(tx durable.SQL) error {
			res, err := tx.Exec(ctx, `INSERT INTO done(op) VALUES (?) ON CONFLICT DO NOTHING`, op)
			if err != nil || res.Changes == 0 {
				return err // it failed, or was done before
			}
			_, err = tx.Exec(ctx, `UPDATE account SET balance = balance + ?`, amount)
			return err
		})
	}
	_ = deposit
}

// A call to another object commits first what the event has written, and is an
// event of its own there.
func ExampleStub() {
	var env durable.Env // of the instance
	notify := func(ctx context.Context, inbox, text string) error {
		ns := env.Namespace("Inbox")
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://inbox/deliver", strings.NewReader(text))
		if err != nil {
			return err
		}
		resp, err := ns.Get(ns.ID(inbox)).Do(r)
		switch {
		case errors.Is(err, durable.ErrUnknownOutcome):
			return err // perhaps delivered: repeat it with the same operation id
		case err != nil:
			return err // not delivered
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("inbox %s: %s", inbox, resp.Status)
		}
		return nil
	}
	_ = notify
}

// A flush commits what precedes it and lets it out. What follows is a commit
// of its own.
func Example_flush() {
	var state durable.State
	handler := func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for step := range 3 {
			if _, err := state.SQL().Exec(r.Context(), `INSERT INTO step(n) VALUES (?)`, step); err != nil {
				panic(err)
			}
			fmt.Fprintln(w, "step", step, "is durable")
			if err := rc.Flush(); err != nil {
				return // nothing of this step was applied, and the answer is cut off
			}
		}
	}
	_ = handler
}

// Background work of an event begins after its commit.
func ExampleEnv() {
	var env durable.Env
	handler := func(w http.ResponseWriter, r *http.Request) {
		hook, err := url.Parse(r.FormValue("hook")) // a stranger's address
		if err != nil {
			http.Error(w, "hook is not a URL", http.StatusBadRequest)
			return
		}
		log, client := env.Logger(), env.HTTPClient()
		env.Background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.String(), http.NoBody)
			if err != nil {
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				log.Warn("hook failed", slog.Any("error", err))
				return
			}
			resp.Body.Close()
		})
		w.WriteHeader(http.StatusAccepted)
	}
	_ = handler
}

func ExampleIDFromName() {
	id := durable.IDFromName("front-page")
	again, err := durable.ParseID(id.String())
	fmt.Println(id.String()[:12], id.Name(), err)
	fmt.Println(again.Equal(id), again.Name() == "")
	// Output:
	// d365228668b8 front-page <nil>
	// true true
}

func ExampleRow_Scan() {
	row := durable.Row{Columns: []string{"n", "name", "open"}, Values: []any{int64(1) << 60, "a", int64(1)}}
	var n int64
	var name string
	var open bool
	fmt.Println(row.Scan(&n, &name, &open), n, name, open)
	var f float64
	fmt.Println(row.Scan(&f, &name, &open)) // integers beyond 2^53 do not fit for sure
	// Output:
	// <nil> 1152921504606846976 a true
	// scan column "n": cannot put int64 into *float64
}
