package probe

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Database is a SQL binding that is probed.
type Database struct {
	Name string
	DB   BatchDB
}

// A BatchDB is what the checks of a SQL binding need of it.
type BatchDB interface {
	Batch(ctx context.Context, m libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error)
	String() string
}

// SQL is what Options.Only calls all SQL bindings; SQL:NAME is one of them.
const SQL = "sql"

func (d Database) store() string { return SQL + ":" + d.Name }

// A binding is a SQL binding while it is checked. Its table is there for the
// check only, under a name that no other one has.
type binding struct {
	Database
	table string
}

// check writes and reads back, and has a batch fail.
func (b binding) check(g *group) (err error) {
	b.table = "dwk_probe_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	q := func(format string, args ...any) libsql.Statement {
		return libsql.S(fmt.Sprintf(format, b.table), args...)
	}
	exists := false
	defer func() {
		if exists {
			ctx, cancel := cleanup(g.ctx)
			defer cancel()
			// The error of the check says more than one of its cleaning up.
			_, _ = b.DB.Batch(ctx, libsql.Write, q(`DROP TABLE IF EXISTS %s`))
		}
	}()
	if err := g.step("write", func(ctx context.Context) error {
		_, err := b.DB.Batch(ctx, libsql.Write, q(`CREATE TABLE %s(id INTEGER PRIMARY KEY, n INTEGER NOT NULL)`), q(`INSERT INTO %s VALUES(1, ?)`, int64(1)<<60+1))
		exists = err == nil || libsql.OutcomeOf(err) == libsql.Unknown
		return err
	}, nil); err != nil {
		return err
	}
	read := func(ctx context.Context) ([]libsql.Row, error) {
		res, err := b.DB.Batch(ctx, libsql.Read, q(`SELECT id, n FROM %s ORDER BY id`), libsql.S(libsql.Primary))
		if err != nil {
			return nil, err
		}
		return res[0].Rows, nil
	}
	var rows []libsql.Row
	if err := g.step("read", func(ctx context.Context) (err error) {
		rows, err = read(ctx)
		return err
	}, func() error { return b.judge(rows, "was written") }); err != nil {
		return err
	}
	var failed error
	if err := g.step("atomicity", func(ctx context.Context) error {
		_, failed = b.DB.Batch(ctx, libsql.Write, q(`UPDATE %s SET n = 2`), q(`INSERT INTO %s VALUES(2, 2)`), q(`INSERT INTO %s VALUES(1, 3)`))
		if kind, _ := libsql.KindOf(failed); failed != nil && kind != libsql.KindConstraint {
			return failed
		}
		var err error
		rows, err = read(ctx)
		return err
	}, func() error {
		if failed == nil {
			return wrong("a batch was applied whose last statement breaks a constraint")
		}
		return b.judge(rows, "a batch that failed should have left")
	}); err != nil {
		return err
	}
	return g.step("delete", func(ctx context.Context) error {
		_, err := b.DB.Batch(ctx, libsql.Write, q(`DROP TABLE %s`))
		exists = err != nil
		return err
	}, nil)
}

func (b binding) judge(rows []libsql.Row, how string) error {
	want := fmt.Sprint([]libsql.Row{{int64(1), int64(1)<<60 + 1}})
	if got := fmt.Sprint(rows); got != want {
		return wrong("the rows are %.200s, and %s %s", got, how, want)
	}
	return nil
}
