package object

import (
	"context"
	"database/sql"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

// watched is a SQL binding that notes how many commits are durable whenever it
// is called.
type watched struct {
	durable.Database
	f    *fleet
	seen []int64
}

func (d *watched) look() {
	res, err := d.f.db.Batch(context.Background(), libsql.Read, libsql.S(`SELECT coalesce(sum(txid), 0) FROM obj_head`))
	if err != nil {
		panic(err)
	}
	d.seen = append(d.seen, res[0].Rows[0][0].(int64))
}

func (d *watched) Exec(context.Context, string, ...any) (durable.Result, error) {
	d.look()
	return durable.Result{}, nil
}

func (d *watched) Query(context.Context, string, ...any) iter.Seq2[durable.Row, error] {
	return func(func(durable.Row, error) bool) { d.look() }
}

func (d *watched) First(context.Context, string, ...any) (durable.Row, error) {
	d.look()
	return durable.Row{}, sql.ErrNoRows
}

func (d *watched) Batch(context.Context, ...durable.Statement) ([]durable.BatchResult, error) {
	d.look()
	return nil, nil
}

type databaseEnv struct {
	testEnv
	d *watched
}

func (e databaseEnv) Database(string) durable.Database { return e.d }

// A call to a SQL binding leaves when what the event wrote before is durable.
func TestDatabaseCallsCommitFirst(t *testing.T) {
	f := newFleet(t)
	m := f.join("a")
	d := &watched{f: f}
	if err := m.Register("Caller", Class{New: testClasses["Counter"], Env: databaseEnv{testEnv{rt: m.Runtime}, d}}); err != nil {
		t.Fatal(err)
	}
	calls := []func(durable.Database, context.Context){
		func(d durable.Database, ctx context.Context) { d.Exec(ctx, "") },
		func(d durable.Database, ctx context.Context) {
			for range d.Query(ctx, "") {
			}
		},
		func(d durable.Database, ctx context.Context) { d.First(ctx, "") },
		func(d durable.Database, _ context.Context) { d.Batch(context.Background()) },
	}
	var nested error
	h := handlers{"/call": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		if _, err := o.state.SQL().Exec(r.Context(), `CREATE TABLE t(a)`); err != nil {
			panic(err)
		}
		binding := o.env.Database("D")
		for _, call := range calls {
			if _, err := o.state.SQL().Exec(r.Context(), `INSERT INTO t VALUES(1)`); err != nil {
				panic(err)
			}
			call(binding, r.Context())
		}
		o.state.SQL().Tx(r.Context(), func(durable.SQL) error {
			_, nested = binding.Exec(r.Context(), "")
			return nested
		})
	}}
	w := httptest.NewRecorder()
	ns := m.Namespace("Caller")
	ns.Get(ns.ID("x")).ServeHTTP(w, httptest.NewRequestWithContext(context.WithValue(t.Context(), handlersKey{}, h), "POST", "http://test/call", nil))
	if w.Code != http.StatusOK || !slices.Equal(d.seen, []int64{1, 2, 3, 4}) || nested == nil {
		t.Errorf("%d; commits seen %v; in a Tx: %v", w.Code, d.seen, nested)
	}
}

// DB is the same: each statement, and the commit of a transaction, leaves behind
// what the event wrote before.
func TestDBCallsCommitFirst(t *testing.T) {
	f := newFleet(t)
	m := f.join("a")
	binding, err := sqldb.Open("D", libsql.Config{URL: "file:" + filepath.Join(t.TempDir(), "d.sqlite")})
	if err != nil {
		t.Fatal(err)
	}
	defer binding.Close()
	if err := m.Register("Caller", Class{New: testClasses["Counter"], Env: databaseEnv{testEnv{rt: m.Runtime}, &watched{Database: binding, f: f}}}); err != nil {
		t.Fatal(err)
	}
	committed := func() int64 {
		res, err := f.db.Batch(context.Background(), libsql.Read, libsql.S(`SELECT coalesce(max(txid), 0) FROM obj_head`))
		if err != nil {
			panic(err)
		}
		return res[0].Rows[0][0].(int64)
	}
	var seen []int64
	var got [3]any
	h := handlers{"/call": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		ctx, db := r.Context(), o.env.Database("D").DB()
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		write := func() {
			_, err := o.state.SQL().Exec(ctx, `UPDATE n SET v = v + 1`)
			must(err)
		}
		step := func(call func() error) {
			write()
			must(call())
			seen = append(seen, committed())
		}
		step(func() error { _, err := db.Exec(`CREATE TABLE t(a, b, c)`); return err })
		step(func() error {
			_, err := db.ExecContext(ctx, `INSERT INTO t VALUES(?, :b, ?)`, 1, sql.Named("b", "x"), []byte{1})
			return err
		})
		step(func() error { return db.QueryRow(`SELECT a, b, NULL FROM t`).Scan(&got[0], &got[1], &got[2]) })
		var tx *sql.Tx
		step(func() (err error) { tx, err = db.BeginTx(ctx, nil); return err })
		step(func() error { _, err := tx.Exec(`DELETE FROM t`); return err })
		step(func() error { return tx.Commit() })
		stmt, err := db.Prepare(`SELECT count(*) FROM t`)
		must(err)
		defer stmt.Close()
		step(func() error { return stmt.QueryRow().Scan(&got[0]) })
	}}
	w := httptest.NewRecorder()
	ns := m.Namespace("Caller")
	ns.Get(ns.ID("x")).ServeHTTP(w, httptest.NewRequestWithContext(context.WithValue(t.Context(), handlersKey{}, h), "POST", "http://test/call", nil))
	if w.Code != http.StatusOK || !slices.Equal(seen, []int64{1, 2, 3, 4, 5, 6, 7}) || got[0] != int64(0) || got[1] != "x" || got[2] != nil {
		t.Errorf("%d; commits seen %v; %v", w.Code, seen, got)
	}
}
