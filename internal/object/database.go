package object

import (
	"context"
	"database/sql"
	"iter"

	"github.com/davidwkeith/dwk/durable"
)

// Database implements durable.Env: each call is a call out.
func (e *instanceEnv) Database(name string) durable.Database {
	return gatedDatabase{e.i, name, e.Env.Database(name)}
}

type gatedDatabase struct {
	i    *instance
	name string
	next durable.Database
}

func (d gatedDatabase) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	if _, err := d.i.callOut(ctx); err != nil {
		return durable.Result{}, err
	}
	return d.next.Exec(ctx, query, args...)
}

func (d gatedDatabase) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		if _, err := d.i.callOut(ctx); err != nil {
			yield(durable.Row{}, err)
			return
		}
		d.next.Query(ctx, query, args...)(yield)
	}
}

func (d gatedDatabase) First(ctx context.Context, query string, args ...any) (durable.Row, error) {
	if _, err := d.i.callOut(ctx); err != nil {
		return durable.Row{}, err
	}
	return d.next.First(ctx, query, args...)
}

func (d gatedDatabase) Batch(ctx context.Context, statements ...durable.Statement) ([]durable.BatchResult, error) {
	if _, err := d.i.callOut(ctx); err != nil {
		return nil, err
	}
	return d.next.Batch(ctx, statements...)
}

// DB implements durable.Database: its connections are those of the shared pool,
// for one statement or transaction at a time.
func (d gatedDatabase) DB() *sql.DB {
	d.i.mu.Lock()
	defer d.i.mu.Unlock()
	if db := d.i.pools[d.name]; db != nil {
		return db
	}
	db := sql.OpenDB(gatedConnector{d.i, d.next.DB()})
	db.SetMaxIdleConns(-1)
	if d.i.pools == nil {
		d.i.pools = map[string]*sql.DB{}
	}
	d.i.pools[d.name] = db
	return db
}
