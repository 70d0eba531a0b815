package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// gateDB lets a test hold batches back, count them and lose their answers.
type gateDB struct {
	*libsql.DB
	batches atomic.Int64
	before  func(stmts []libsql.Statement)
	after   func(stmts []libsql.Statement) error
}

func (g *gateDB) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	g.batches.Add(1)
	if g.before != nil {
		g.before(stmts)
	}
	res, err := g.DB.Batch(ctx, mode, stmts...)
	if err == nil && g.after != nil {
		err = g.after(stmts)
	}
	return res, err
}

func (g *gateDB) Stream(ctx context.Context, s libsql.Statement) iter.Seq2[libsql.Row, error] {
	return g.DB.Stream(ctx, s)
}

// newGroup returns a group whose first transaction is held until the plans of
// the others wait behind it.
func newGroup(t *testing.T) (*gateDB, *kv.Store, *kv.Group) {
	t.Helper()
	db := &gateDB{DB: openFile(t)}
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := kv.NewGroup(s)
	t.Cleanup(g.Wait)
	return db, s, g
}

// together commits the plans so that all but the first share what they can.
func together(t *testing.T, db *gateDB, g *kv.Group, ctx func(i int) context.Context, plans ...*kv.Plan) ([]kv.Verdict, []error) {
	t.Helper()
	var once sync.Once
	held, goOn := make(chan struct{}), make(chan struct{})
	db.before = func([]libsql.Statement) { once.Do(func() { close(held); <-goOn }) }
	vs, errs := make([]kv.Verdict, len(plans)), make([]error, len(plans))
	var wg sync.WaitGroup
	wg.Go(func() { vs[0], errs[0] = g.Commit(ctx(0), plans[0]) })
	<-held
	for i := 1; i < len(plans); i++ {
		wg.Go(func() { vs[i], errs[i] = g.Commit(ctx(i), plans[i]) })
		for g.Waiting() < i {
			time.Sleep(time.Millisecond)
		}
	}
	close(goOn)
	wg.Wait()
	db.before = nil
	return vs, errs
}

func background(int) context.Context { return context.Background() }

func TestGroupSharesATransaction(t *testing.T) {
	db, s, g := newGroup(t)
	var plans []*kv.Plan
	for i := range 10 {
		p := kv.NewPlan().Set(tuple.MustEncode("g", float64(i)), fmt.Sprint(i), 0)
		if i == 4 {
			p.Check(tuple.MustEncode("nothing"), 7) // does not hold
		}
		plans = append(plans, p)
	}
	start := db.batches.Load()
	vs, errs := together(t, db, g, background, plans...)
	if n := db.batches.Load() - start; n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
	seen := map[kv.Versionstamp]bool{}
	for i, v := range vs {
		if errs[i] != nil || v.OK != (i != 4) {
			t.Errorf("member %d: %+v %v", i, v, errs[i])
		}
		e, ok, err := s.Get(t.Context(), tuple.Key{"g", float64(i)})
		if err != nil || ok != (i != 4) || ok && e.Stamp != v.Stamp {
			t.Errorf("entry %d: %+v %v %v", i, e, ok, err)
		}
		if v.OK && seen[v.Stamp] {
			t.Errorf("stamp %d was given twice", v.Stamp)
		}
		seen[v.Stamp] = v.OK
	}
}

// TestGroupOneFailingMember: an SQL error of one plan concerns no other.
func TestGroupOneFailingMember(t *testing.T) {
	db, s, g := newGroup(t)
	bad := kv.NewPlan().Set(tuple.MustEncode("g", 1.0), "1", 0)
	bad.Add(`INSERT INTO nowhere VALUES (1)`)
	vs, errs := together(t, db, g, background,
		kv.NewPlan().Set(tuple.MustEncode("g", 0.0), "0", 0), bad, kv.NewPlan().Set(tuple.MustEncode("g", 2.0), "2", 0))
	if errs[0] != nil || errs[2] != nil || !vs[2].OK || libsql.OutcomeOf(errs[1]) != libsql.Failed {
		t.Fatalf("%v", errs)
	}
	for i, want := range []bool{true, false, true} {
		if _, ok, _ := s.Get(t.Context(), tuple.Key{"g", float64(i)}); ok != want {
			t.Errorf("entry %d is there: %v", i, ok)
		}
	}
}

// TestGroupLostAnswer: all members of the transaction are told that nobody
// knows.
func TestGroupLostAnswer(t *testing.T) {
	db, _, g := newGroup(t)
	db.after = func(stmts []libsql.Statement) error {
		if len(stmts) < 6 {
			return nil
		}
		return &libsql.Error{Outcome: libsql.Unknown, Statement: -1, Err: errors.New("cut")}
	}
	_, errs := together(t, db, g, background, kv.NewPlan(), kv.NewPlan().Set([]byte("a"), "1", 0), kv.NewPlan().Set([]byte("b"), "1", 0))
	if errs[0] != nil || errs[1] == nil || errs[2] == nil || libsql.OutcomeOf(errs[1]) != libsql.Unknown {
		t.Fatalf("%v", errs)
	}
}

func TestGroupCallerLeavesBeforeItIsSent(t *testing.T) {
	db, s, g := newGroup(t)
	gone, cancel := context.WithCancel(t.Context())
	ctx := func(i int) context.Context {
		if i == 1 {
			return gone
		}
		return context.Background()
	}
	var once sync.Once
	inner := kv.NewPlan().Set(tuple.MustEncode("first"), "1", 0)
	held, goOn := make(chan struct{}), make(chan struct{})
	db.before = func([]libsql.Statement) { once.Do(func() { close(held); <-goOn }) }
	var wg sync.WaitGroup
	wg.Go(func() { g.Commit(ctx(0), inner) })
	<-held
	var err error
	left := make(chan struct{})
	go func() {
		_, err = g.Commit(ctx(1), kv.NewPlan().Set(tuple.MustEncode("left"), "1", 0))
		close(left)
	}()
	for g.Waiting() < 1 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-left
	close(goOn)
	wg.Wait()
	g.Wait()
	if libsql.OutcomeOf(err) != libsql.Refused || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, ok, _ := s.Get(t.Context(), tuple.Key{"left"}); ok {
		t.Fatal("a plan whose caller left was applied")
	}
}

// TestGroupDividesBudgets: the members share the answer.
func TestGroupDividesBudgets(t *testing.T) {
	db, _, g := newGroup(t)
	plan := func() *kv.Plan {
		p := kv.NewPlan()
		p.AddShared(`SELECT ?`, 1000)
		return p
	}
	vs, errs := together(t, db, g, background, plan(), plan(), plan(), plan(), plan())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if vs[0].Results[0].Rows[0][0] != int64(1000) || vs[1].Results[0].Rows[0][0] != int64(250) {
		t.Fatalf("%v %v", vs[0].Results, vs[1].Results)
	}
}
