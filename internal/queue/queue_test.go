package queue

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is one store set, on which any number of replicas may work.
type fixture struct {
	t  testing.TB
	db *libsql.DB
	s  *kv.Store
}

func newFixture(t testing.TB, open func(testing.TB) libsqltest.Place) *fixture {
	t.Helper()
	db := open(t).Open(t)
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &fixture{t, db, s}
}

func eachPlace(t *testing.T, test func(t *testing.T, f *fixture)) {
	for name, open := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, open)) })
	}
}

// sql runs one statement and returns its rows.
func (f *fixture) sql(q string, args ...any) []libsql.Row {
	f.t.Helper()
	return libsqltest.MustBatch(f.t, f.db, libsql.Write, libsql.S(q, args...))[0].Rows
}

// number runs a statement that returns one number.
func (f *fixture) number(q string, args ...any) int64 {
	f.t.Helper()
	n, _ := f.sql(q, args...)[0][0].(int64)
	return n
}

// nowMs is the primary's clock.
func (f *fixture) nowMs() int64 { return f.number(`SELECT ` + kv.Now) }

func (f *fixture) commit(p *kv.Plan) kv.Verdict {
	f.t.Helper()
	v, err := f.s.Commit(f.t.Context(), p)
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

func near(got, want int64) bool { return got > want-60_000 && got < want+60_000 }

const hour = int64(time.Hour / time.Millisecond)

var fileOf, wireOf = libsqltest.File, libsqltest.Wire
