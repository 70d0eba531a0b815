package queue

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/kvtest"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is one store set, on which any number of replicas may work.
type fixture struct {
	kvtest.Fixture
	t  testing.TB
	db *libsql.DB
	s  *kv.Store
}

func newFixture(t testing.TB, open func(testing.TB) libsqltest.Place) *fixture {
	t.Helper()
	f := kvtest.New(t, open)
	return &fixture{f, t, f.DB, f.S}
}

func eachPlace(t *testing.T, test func(t *testing.T, f *fixture)) {
	kvtest.Each(t, func(t *testing.T, f kvtest.Fixture) { test(t, &fixture{f, t, f.DB, f.S}) })
}

// number runs a statement that returns one number.
func (f *fixture) number(q string, args ...any) int64 {
	f.t.Helper()
	n, _ := f.SQL(q, args...)[0][0].(int64)
	return n
}

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
