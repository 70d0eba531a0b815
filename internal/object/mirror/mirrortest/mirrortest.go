// Package mirrortest makes random events for tests of what mirrors capture and
// logs carry.
package mirrortest

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

// A DB is a mirror, as far as an event uses it.
type DB interface {
	Exec(ctx context.Context, query string, args ...any) (durable.Result, error)
	Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error]
	Begin(ctx context.Context) error
	Commit(ctx context.Context) error
	Rollback() error
}

// schema is what the steps of events work on.
const schema = `
	CREATE TABLE IF NOT EXISTS kv(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
	CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b);
	CREATE VIRTUAL TABLE IF NOT EXISTS ft USING fts5(body)`

// Event runs an event of n random steps, after it has made the tables they need.
func Event(t testing.TB, db DB, r *rand.Rand, n int) {
	t.Helper()
	e := event{t, db, r}
	e.exec(schema)
	for range n {
		e.step()
	}
}

type event struct {
	testing.TB
	db DB
	r  *rand.Rand
}

func (e event) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e event) exec(query string, args ...any) {
	e.Helper()
	if _, err := e.db.Exec(e.Context(), query, args...); err != nil {
		e.Fatalf("%.80s: %v", query, err)
	}
}

// blob returns n bytes that cannot be compressed.
func (e event) blob(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], e.r.Uint64())
		copy(b[i:], w[:])
	}
	return b
}

func (e event) step() {
	e.Helper()
	r, ctx := e.r, e.Context()
	switch r.IntN(16) {
	case 0, 1, 2:
		e.exec("INSERT INTO kv VALUES(?1, ?2) ON CONFLICT DO UPDATE SET v = excluded.v", fmt.Sprint("k", r.IntN(200)), e.blob(r.IntN(300)))
	case 3:
		e.exec("INSERT INTO t(a, b) VALUES(?, ?)", r.Int64(), e.blob(r.IntN(9000)))
	case 4:
		e.exec("UPDATE t SET a = a + 1, b = ? WHERE id % 7 = ?", e.blob(r.IntN(400)), r.IntN(7))
	case 5:
		e.exec("DELETE FROM t WHERE id % 5 = ?", r.IntN(5))
	case 6:
		e.exec("INSERT INTO ft(body) VALUES(?)", fmt.Sprintf("hello w%d x%d lorem ipsum w%d", r.IntN(50), r.IntN(50), r.IntN(999)))
	case 7:
		e.exec(fmt.Sprintf("CREATE TABLE IF NOT EXISTS x%d(a, b UNIQUE)", r.IntN(5)))
	case 8:
		e.exec(fmt.Sprintf("DROP TABLE IF EXISTS x%d", r.IntN(5)))
	case 9:
		e.exec("CREATE INDEX IF NOT EXISTS ti ON t(a)")
		if r.IntN(2) == 0 {
			e.exec("DROP INDEX ti")
		}
	case 10: // rolled back, after the cache has spilled into the WAL
		e.must(e.db.Begin(ctx))
		for i := range 60 {
			e.exec("INSERT INTO t(a, b) VALUES(?, ?)", i, e.blob(6000))
		}
		e.must(e.db.Rollback())
	case 11: // committed, with savepoints
		e.must(e.db.Begin(ctx))
		for i := range 40 {
			e.exec("SAVEPOINT s; INSERT INTO t(a, b) VALUES(?, ?)", i, e.blob(3000))
			if i%3 == 0 {
				e.exec("ROLLBACK TO s")
			}
			e.exec("RELEASE s")
		}
		e.must(e.db.Commit(ctx))
	case 12:
		if r.IntN(4) == 0 {
			e.exec("VACUUM")
		}
	case 13:
		e.exec("DELETE FROM t")
	case 14:
		e.exec("CREATE TEMP TABLE IF NOT EXISTS tmpx(a); INSERT INTO tmpx VALUES(?)", e.blob(5000))
	case 15: // written while rows are being read
		n := 0
		for row, err := range e.db.Query(ctx, "SELECT id, b FROM t ORDER BY id LIMIT 5") {
			e.must(err)
			e.exec("UPDATE t SET b = ? WHERE id = ?", e.blob(n*100), row.Values[0])
			n++
		}
	}
}
