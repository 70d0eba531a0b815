package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

func openDB(t *testing.T, p libsqltest.Place) (*sqldb.Database, *sql.DB) {
	t.Helper()
	d := open(t, p)
	return d, d.DB()
}

// The way that a migration tool works: its own table, and each file in a
// transaction.
func TestMigrateAndQuery(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		d, db := openDB(t, p)
		ctx := t.Context()
		if err := db.PingContext(ctx); err != nil {
			t.Fatal(err)
		}
		for version, file := range []string{
			"CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, born DATETIME, alive BOOLEAN NOT NULL DEFAULT 1)",
			"CREATE TABLE book (id INTEGER PRIMARY KEY, author INTEGER NOT NULL REFERENCES author(id), title TEXT NOT NULL)",
			"CREATE TRIGGER t AFTER INSERT ON book BEGIN UPDATE author SET alive = CASE WHEN NEW.title = 'x' THEN 0 ELSE alive END; END;",
		} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{"CREATE TABLE IF NOT EXISTS version (v INTEGER, at TIMESTAMP DEFAULT (datetime('now')))", file} {
				if _, err := tx.ExecContext(ctx, q); err != nil {
					t.Fatalf("%s: %v", q, err)
				}
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO version (v) VALUES (?)", version); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		// What generated code does.
		born := time.Date(1920, 1, 2, 3, 4, 5, 600, time.FixedZone("", -7200))
		insert, err := db.PrepareContext(ctx, "INSERT INTO author (name, born, alive) VALUES (?, ?, ?) RETURNING id")
		if err != nil {
			t.Fatal(err)
		}
		defer insert.Close()
		for i, name := range []string{"Asimov", "日本"} {
			var id int64
			if err := insert.QueryRowContext(ctx, name, born, i == 0).Scan(&id); err != nil || id != int64(i+1) {
				t.Fatalf("%d, %v", id, err)
			}
		}
		res, err := db.ExecContext(ctx, "INSERT INTO book (author, title) VALUES (:author, :title)", sql.Named("author", 1), sql.Named("title", "I, Robot"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		rows, err := db.QueryContext(ctx, "SELECT a.id, a.name, a.born, a.alive, b.title, count(b.id) FROM author a LEFT JOIN book b ON b.author = a.id GROUP BY a.id ORDER BY a.id")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		n := 0
		for rows.Next() {
			var id, count int64
			var name string
			var at time.Time
			var alive bool
			var title sql.NullString
			if err := rows.Scan(&id, &name, &at, &alive, &title, &count); err != nil {
				t.Fatal(err)
			}
			if n++; !at.Equal(born) || alive != (n == 1) || title.Valid != (n == 1) || count != int64(2-n) {
				t.Errorf("row %d: %v %v %v %v %v", n, name, at, alive, title, count)
			}
		}
		if err := rows.Err(); err != nil || n != 2 {
			t.Errorf("%d rows, %v", n, err)
		}
		if row, err := d.First(ctx, "SELECT born FROM author"); err != nil || row.Values[0] != "1920-01-02T05:04:05.0000006+00:00" {
			t.Errorf("%v, %v", row, err)
		}
		if err := db.QueryRowContext(ctx, "SELECT 1 WHERE 0").Scan(new(int)); !errors.Is(err, sql.ErrNoRows) {
			t.Error(err)
		}
	})
}

func TestDBErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, p libsqltest.Place) {
		_, db := openDB(t, p)
		ctx := t.Context()
		if _, err := db.ExecContext(ctx, "CREATE TABLE t (id INTEGER PRIMARY KEY, later REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
			t.Fatal(err)
		}
		db.ExecContext(ctx, "INSERT INTO t VALUES (1, NULL)")
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1, NULL)")
		if e, ok := errors.AsType[*durable.ConstraintError](err); !ok || e.Constraint != durable.Unique {
			t.Errorf("%v", err)
		}
		if _, err := db.ExecContext(ctx, "SELEC"); err == nil || errors.Is(err, durable.ErrUnavailable) || strings.Contains(err.Error(), p.URL) {
			t.Errorf("%v", err)
		}
		if _, err := db.QueryContext(ctx, "SELECT * FROM missing"); err == nil || errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		// An error that leaves the transaction open is not its end.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		tx.ExecContext(ctx, "INSERT INTO t VALUES (2, NULL)")
		if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1, NULL)"); err == nil {
			t.Error("inserted twice")
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (3, NULL)"); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		// A deferred constraint fails the commit, and nothing stays open.
		if tx, err = db.BeginTx(ctx, nil); err != nil {
			t.Fatal(err)
		}
		tx.ExecContext(ctx, "INSERT INTO t VALUES (4, 99)")
		if e, ok := errors.AsType[*durable.ConstraintError](tx.Commit()); !ok || e.Constraint != durable.ForeignKey {
			t.Errorf("%v", e)
		}
		// One that takes the transaction along has nothing behind it commit alone.
		if tx, err = db.BeginTx(ctx, nil); err != nil {
			t.Fatal(err)
		}
		tx.ExecContext(ctx, "INSERT INTO t VALUES (5, NULL)")
		if _, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO t VALUES (1, NULL)"); err == nil {
			t.Error("inserted twice")
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (6, NULL)"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("after the transaction was lost: %v", err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("committed what was lost")
		}
		var ids string
		if err := db.QueryRowContext(ctx, "SELECT group_concat(id) FROM (SELECT id FROM t ORDER BY id)").Scan(&ids); err != nil || ids != "1,2,3" {
			t.Errorf("%s, %v", ids, err)
		}
	})
}

// A failing text of several statements takes the transaction with it over the
// wire: what follows must not commit alone.
func TestLostTransaction(t *testing.T) {
	p := libsqltest.Wire(t)
	_, db := openDB(t, p)
	ctx := t.Context()
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)"); err == nil {
		t.Error("inserted twice")
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (3)"); !errors.Is(err, durable.ErrUnavailable) {
		t.Errorf("after the transaction was lost: %v", err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("committed what was lost")
	}
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// Reads outside a transaction hold what has the primary answer them; commits
// have a deadline; a lost answer of a write is an unknown outcome; no stream is
// left open by calls that are over.
func TestDBOverTheWire(t *testing.T) {
	p := libsqltest.Wire(t)
	d, err := sqldb.Open("TEST", libsql.Config{URL: p.URL, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	db, ctx := d.DB(), t.Context()
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (a)"); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Value
	p.Server.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
		if strings.Contains(strings.Join(r.SQL, ";"), "count") {
			seen.Store(strings.Join(r.SQL, ";"))
		}
		return hrana.Fault{}
	})
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM t WHERE a = ?", 1).Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	if s, _ := seen.Load().(string); !strings.Contains(s, libsql.Primary) {
		t.Errorf("sent %q", s)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	p.Server.SetHook(func(ctx context.Context, r hrana.Request) hrana.Fault {
		if strings.Contains(strings.Join(r.SQL, ";"), "COMMIT") {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return hrana.Fault{}
	})
	if err := tx.Commit(); !errors.Is(err, durable.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit without an answer: %v", err)
	}
	close(release)
	p.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{CutAfter: true} })
	if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)"); !errors.Is(err, durable.ErrUnknownOutcome) || strings.Contains(err.Error(), p.URL) {
		t.Errorf("a cut answer: %v", err)
	}
	p.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { return hrana.Fault{Status: 429} })
	if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)"); !errors.Is(err, durable.ErrUnavailable) {
		t.Errorf("too many: %v", err)
	}
	p.Server.SetHook(nil)
}
