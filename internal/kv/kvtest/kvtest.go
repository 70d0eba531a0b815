// Package kvtest has what tests of packages on the coordination store share.
package kvtest

import (
	"context"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A Fixture is one store, on which any number of replicas may work.
type Fixture struct {
	T  testing.TB
	DB *libsql.DB
	S  *kv.Store
}

// New makes a store that knows the primary's clock.
func New(t testing.TB, open func(testing.TB) libsqltest.Place) Fixture {
	t.Helper()
	db := open(t).Open(t)
	f := Fixture{t, db, kv.New(db)}
	if err := f.S.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.S.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Each runs a test on a store in each place.
func Each(t *testing.T, test func(t *testing.T, f Fixture)) {
	for name, open := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(t, New(t, open)) })
	}
}

// SQL runs one statement and returns its rows.
func (f Fixture) SQL(q string, args ...any) []libsql.Row {
	f.T.Helper()
	return libsqltest.MustBatch(f.T, f.DB, libsql.Write, libsql.S(q, args...))[0].Rows
}

// NowMs is the primary's clock in epoch milliseconds.
func (f Fixture) NowMs() int64 {
	f.T.Helper()
	n, _ := f.SQL(`SELECT ` + kv.Now)[0][0].(int64)
	return n
}

// Eventually waits for something that is under way.
func (f Fixture) Eventually(what string, ok func() bool) {
	f.T.Helper()
	for deadline := clock.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if clock.Now().After(deadline) {
			f.T.Fatalf("%s did not come", what)
		}
	}
}

// A Part is a part of a poll.
type Part interface {
	Poll(room int) []libsql.Statement
	Polled(res []libsql.Result, err error, sent time.Time) (again bool)
}

// A Fault says what happens to a poll; run has it executed.
type Fault func(run func() ([]libsql.Result, error)) ([]libsql.Result, error)

// Unanswered is the fault of a poll that is executed and whose answer is lost.
func Unanswered(run func() ([]libsql.Result, error)) ([]libsql.Result, error) {
	_, _ = run()
	return nil, &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindUnreachable}
}

// Poll polls for a part as a host does, unless it wants nothing, and returns the
// results too. A fault befalls this poll alone.
func (f Fixture) Poll(p Part, fault *Fault) (res []libsql.Result, again bool, err error) {
	stmts := p.Poll(4 << 20)
	if len(stmts) == 0 {
		return nil, false, nil
	}
	sent := clock.Now()
	run := func() ([]libsql.Result, error) { return f.DB.Batch(context.Background(), libsql.Write, stmts...) }
	if do := *fault; do != nil {
		*fault = nil
		res, err = do(run)
	} else {
		res, err = run()
	}
	return res, p.Polled(res, err, sent), err
}
