package kv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSetGetDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *libsql.DB, s *kv.Store) {
		ctx, k := t.Context(), tuple.Key{"a", 1.0}
		if _, ok, err := s.Get(ctx, k); ok || err != nil {
			t.Fatalf("absent key: %v %v", ok, err)
		}
		first := must[kv.Versionstamp](t)(s.Set(ctx, k, map[string]any{"n": json.Number("9007199254740993")}, 0))
		second := must[kv.Versionstamp](t)(s.Set(ctx, tuple.Key{"b"}, true, time.Hour))
		if second <= first {
			t.Fatalf("stamps %d, then %d", first, second)
		}
		e, ok, err := s.Get(ctx, k)
		if err != nil || !ok || string(e.Value) != `{"n":9007199254740993}` || e.Stamp != first || e.ExpiresAt != 0 || e.Key.String() != k.String() {
			t.Fatalf("got %+v %v %v", e, ok, err)
		}
		if e, _, _ := s.Get(ctx, tuple.Key{"b"}); e.ExpiresAt < time.Now().Add(50*time.Minute).UnixMilli() {
			t.Fatalf("expires at %d", e.ExpiresAt)
		}
		if err := errors.Join(s.Delete(ctx, k), s.Delete(ctx, k)); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := s.Get(ctx, k); ok {
			t.Fatal("still there after delete")
		}
	})
}

func TestConflictChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *libsql.DB, s *kv.Store) {
		ctx := t.Context()
		a, b := tuple.MustEncode("a"), tuple.MustEncode("b")
		stamp := must[kv.Versionstamp](t)(s.Set(ctx, tuple.Key{"a"}, 1, 0))
		for _, c := range []struct {
			name string
			plan *kv.Plan
			ok   bool
		}{
			{"wrong stamp", kv.NewPlan().Check(a, stamp+1).Set(b, "1", 0).Delete(a), false},
			{"one of two wrong", kv.NewPlan().Check(a, stamp).Check(b, stamp).Set(b, "1", 0), false},
			{"absent asserted of a present key", kv.NewPlan().Check(a, 0).Set(b, "1", 0), false},
			{"condition", kv.NewPlan().Check(a, stamp).Require("? = ?", 1, 2).Delete(a), false},
			{"all right", kv.NewPlan().Check(a, stamp).Check(b, 0).Require("? = ?", 1, 1).Set(b, "1", 0), true},
			{"checks see the state before mutations", kv.NewPlan().Set(a, "2", 0).Check(a, stamp), true},
		} {
			v, err := s.Commit(ctx, c.plan)
			if err != nil || v.OK != c.ok {
				t.Fatalf("%s: %+v %v", c.name, v, err)
			}
			_, have, err := s.Get(ctx, tuple.Key{"b"})
			if err != nil || have != c.ok {
				t.Fatalf("%s: b is there: %v %v", c.name, have, err)
			}
		}
	})
}

func TestOneStampACommit(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *libsql.DB, s *kv.Store) {
		v, err := s.Commit(t.Context(), kv.NewPlan().Set(tuple.MustEncode("a"), "1", 0).Set(tuple.MustEncode("b"), "2", 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"a", "b"} {
			if e, _, err := s.Get(t.Context(), tuple.Key{k}); err != nil || e.Stamp != v.Stamp {
				t.Fatalf("%s: %+v, want stamp %d (%v)", k, e, v.Stamp, err)
			}
		}
		// A commit without sets takes no stamp.
		v2, err := s.Commit(t.Context(), kv.NewPlan().Delete(tuple.MustEncode("a")))
		if err != nil || v2.Stamp != v.Stamp {
			t.Fatalf("stamp %d after %d: %v", v2.Stamp, v.Stamp, err)
		}
	})
}

func TestThousandsOfChecksInOneTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		p := kv.NewPlan()
		for i := range 5000 {
			p.Check(tuple.MustEncode("n", float64(i)), 0)
		}
		for i := range 1000 {
			p.Set(tuple.MustEncode("n", float64(i)), "1", 0)
		}
		before := db.Trips()
		v, err := s.Commit(t.Context(), p)
		if err != nil || !v.OK || db.Trips()-before != 1 {
			t.Fatalf("%v %v, %d trips", v.OK, err, db.Trips()-before)
		}
		if v, err = s.Commit(t.Context(), p); err != nil || v.OK {
			t.Fatalf("again: %v %v", v.OK, err)
		}
	})
}

func TestExpiredIsGone(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		ctx := t.Context()
		for i := range 5 {
			must[kv.Versionstamp](t)(s.Set(ctx, tuple.Key{"x", float64(i)}, i, time.Hour))
		}
		must[kv.Versionstamp](t)(s.Set(ctx, tuple.Key{"y"}, 1, 0))
		if _, err := db.Batch(ctx, libsql.Write, libsql.S(`UPDATE kv SET expires_at = 1 WHERE expires_at IS NOT NULL`)); err != nil {
			t.Fatal(err)
		}
		k := tuple.Key{"x", 1.0}
		if _, ok, err := s.Get(ctx, k); ok || err != nil {
			t.Fatalf("get: %v %v", ok, err)
		}
		for e, err := range s.List(ctx, kv.ListOptions{Prefix: tuple.Key{"x"}}) {
			t.Fatalf("list: %+v %v", e, err)
		}
		for e, err := range s.Dump(ctx, tuple.Key{"x"}) {
			t.Fatalf("dump: %+v %v", e, err)
		}
		if ok, err := s.Touch(ctx, k, 2, time.Hour); ok || err != nil {
			t.Fatalf("touch: %v %v", ok, err)
		}
		if v, err := s.Commit(ctx, kv.NewPlan().Check(tuple.MustEncode("x", 1.0), 0).Set(tuple.MustEncode("x", 1.0), "9", 0)); err != nil || !v.OK {
			t.Fatalf("absence of an expired key: %+v %v", v, err)
		}
		if n := must[int64](t)(s.CountExpired(ctx)); n != 4 {
			t.Fatalf("%d expired, want 4", n)
		}
		if n := must[int](t)(s.Sweep(ctx, 3)) + must[int](t)(s.Sweep(ctx, 3)) + must[int](t)(s.Sweep(ctx, 3)); n != 4 {
			t.Fatalf("swept %d, want 4", n)
		}
		if _, ok, _ := s.Get(ctx, k); !ok {
			t.Fatal("sweep took a live entry")
		}
	})
}

func TestTouchKeepsTheStamp(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *libsql.DB, s *kv.Store) {
		ctx, k := t.Context(), tuple.Key{"a"}
		stamp := must[kv.Versionstamp](t)(s.Set(ctx, k, 1, time.Minute))
		if ok, err := s.Touch(ctx, k, stamp, time.Hour); !ok || err != nil {
			t.Fatalf("touch: %v %v", ok, err)
		}
		e, _, err := s.Get(ctx, k)
		if err != nil || e.Stamp != stamp || e.ExpiresAt < time.Now().Add(50*time.Minute).UnixMilli() {
			t.Fatalf("after touch: %+v %v", e, err)
		}
		if ok, err := s.Touch(ctx, k, stamp+1, time.Hour); ok || err != nil {
			t.Fatalf("touch with a wrong stamp: %v %v", ok, err)
		}
	})
}

func TestListPages(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		ctx := t.Context()
		p := kv.NewPlan()
		for i := range 25 {
			p.Set(tuple.MustEncode("l", float64(i)), fmt.Sprint(i), 0)
		}
		p.Set(tuple.MustEncode("la"), "0", 0).Set(tuple.MustEncode("k"), "0", 0)
		if _, err := s.Commit(ctx, p); err != nil {
			t.Fatal(err)
		}
		list := func(o kv.ListOptions) (out []string, trips int64) {
			before := db.Trips()
			for e, err := range s.List(ctx, o) {
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, string(e.Value))
			}
			return out, db.Trips() - before
		}
		for _, c := range []struct {
			o           kv.ListOptions
			n           int
			first, last string
			trips       int64
		}{
			{kv.ListOptions{Prefix: tuple.Key{"l"}}, 25, "0", "24", 1},
			{kv.ListOptions{Prefix: tuple.Key{"l"}, Page: 10}, 25, "0", "24", 3},
			{kv.ListOptions{Prefix: tuple.Key{"l"}, Page: 10, Limit: 10}, 10, "0", "9", 1},
			{kv.ListOptions{Prefix: tuple.Key{"l"}, Page: 10, Limit: 12}, 12, "0", "11", 2},
			{kv.ListOptions{Prefix: tuple.Key{"l"}, Page: 7, Reverse: true}, 25, "24", "0", 4},
			{kv.ListOptions{Prefix: tuple.Key{"l"}, Start: tuple.Key{"l", 5.0}, End: tuple.Key{"l", 8.0}}, 3, "5", "7", 1},
		} {
			got, trips := list(c.o)
			if len(got) != c.n || got[0] != c.first || got[len(got)-1] != c.last || trips != c.trips {
				t.Errorf("%+v: %d entries %s..%s in %d trips", c.o, len(got), got[0], got[len(got)-1], trips)
			}
		}
	})
}

func TestListBoundsAPageByBytes(t *testing.T) {
	db := openFile(t)
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	big, _ := json.Marshal(strings.Repeat("x", 1<<20))
	for i := range 10 {
		if _, err := s.Commit(t.Context(), kv.NewPlan().Set(tuple.MustEncode("b", float64(i)), string(big), 0)); err != nil {
			t.Fatal(err)
		}
	}
	n, before := 0, db.Trips()
	for _, err := range s.List(t.Context(), kv.ListOptions{Prefix: tuple.Key{"b"}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if trips := db.Trips() - before; n != 10 || trips < 3 || trips > 5 {
		t.Fatalf("%d entries in %d trips", n, trips)
	}
}

func TestMissingVerdictRowIsAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`DELETE FROM kv_meta`)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Set(t.Context(), tuple.Key{"a"}, 1, 0); !errors.Is(err, kv.ErrNoVerdict) {
			t.Fatalf("set without a verdict row: %v", err)
		}
		if _, ok, _ := s.Get(t.Context(), tuple.Key{"a"}); ok {
			t.Fatal("it was stored all the same")
		}
	})
}

func TestEveryOperationIsOneTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		ctx, k := t.Context(), tuple.Key{"a"}
		for name, op := range map[string]func() error{
			"get":    func() error { _, _, err := s.Get(ctx, k); return err },
			"set":    func() error { _, err := s.Set(ctx, k, 1, 0); return err },
			"touch":  func() error { _, err := s.Touch(ctx, k, 1, time.Hour); return err },
			"delete": func() error { return s.Delete(ctx, k) },
			"sweep":  func() error { _, err := s.Sweep(ctx, 10); return err },
			"now":    func() error { _, err := s.Now(ctx); return err },
		} {
			before := db.Trips()
			if err := op(); err != nil || db.Trips()-before != 1 {
				t.Errorf("%s: %v, %d trips", name, err, db.Trips()-before)
			}
		}
	})
}

func TestRefusedInput(t *testing.T) {
	s := kv.New(openFile(t))
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"lease without expiry": second(s.Set(t.Context(), tuple.Key{"dwk_lease", "C", "0a"}, 1, 0)),
		"not JSON":             second(s.Set(t.Context(), tuple.Key{"a"}, func() {}, 0)),
		"not a key":            second(s.Set(t.Context(), tuple.Key{struct{}{}}, 1, 0)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestModel compares random operations with a map.
func TestModel(t *testing.T) {
	db := openFile(t)
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		ctx := context.Background()
		type val struct {
			v     string
			stamp kv.Versionstamp
		}
		model := map[string]val{}
		key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		for range rapid.IntRange(1, 15).Draw(rt, "ops") {
			p, wantOK := kv.NewPlan(), true
			enc := func(k string) []byte { return tuple.MustEncode("m", float64(run), k) }
			for range rapid.IntRange(0, 2).Draw(rt, "checks") {
				k := key.Draw(rt, "check")
				stamp := model[k].stamp
				if rapid.Bool().Draw(rt, "wrong") {
					stamp++
				}
				p.Check(enc(k), stamp)
				wantOK = wantOK && stamp == model[k].stamp
			}
			next := map[string]val{}
			for k, v := range model {
				next[k] = v
			}
			var set []string
			for range rapid.IntRange(0, 3).Draw(rt, "mutations") {
				k := key.Draw(rt, "key")
				if rapid.Bool().Draw(rt, "delete") {
					p.Delete(enc(k))
					delete(next, k)
				} else {
					v := fmt.Sprint(rapid.Int().Draw(rt, "v"))
					p.Set(enc(k), v, 0)
					next[k] = val{v: v}
					set = append(set, k)
				}
			}
			v, err := s.Commit(ctx, p)
			if err != nil || v.OK != wantOK {
				rt.Fatalf("verdict %+v %v, want %v", v, err, wantOK)
			}
			if wantOK {
				for _, k := range set {
					if x, ok := next[k]; ok {
						x.stamp = v.Stamp
						next[k] = x
					}
				}
				model = next
			}
			got := map[string]val{}
			for e, err := range s.List(ctx, kv.ListOptions{Prefix: tuple.Key{"m", float64(run)}}) {
				if err != nil {
					rt.Fatal(err)
				}
				got[e.Key[2].(string)] = val{string(e.Value), e.Stamp}
			}
			if fmt.Sprint(got) != fmt.Sprint(model) {
				rt.Fatalf("store %v, model %v", got, model)
			}
		}
	})
}

func TestConcurrentCompareAndSet(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *libsql.DB, s *kv.Store) {
		const clients, each = 4, 25
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for done := 0; done < each; {
					e, ok, err := s.Get(t.Context(), tuple.Key{"n"})
					n := 0
					if ok {
						err = json.Unmarshal(e.Value, &n)
					}
					if err != nil {
						t.Error(err)
						return
					}
					v, err := s.Commit(t.Context(), kv.NewPlan().Check(tuple.MustEncode("n"), e.Stamp).Set(tuple.MustEncode("n"), fmt.Sprint(n+1), 0))
					if err != nil {
						t.Error(err)
						return
					}
					if v.OK {
						done++
					}
				}
			})
		}
		wg.Wait()
		if e, _, _ := s.Get(t.Context(), tuple.Key{"n"}); string(e.Value) != fmt.Sprint(clients*each) {
			t.Fatalf("counted %s, want %d", e.Value, clients*each)
		}
	})
}

// TestKeyNum proves that the key numbers that SQL computes are those of the codec.
func TestKeyNum(t *testing.T) {
	db := openFile(t)
	rapid.Check(t, func(rt *rapid.T) {
		ms := rapid.Int64Range(1<<40, 1<<41-1).Draw(rt, "ms")
		res, err := db.Batch(context.Background(), libsql.Read, libsql.S(`SELECT `+kv.KeyNum("?"), ms))
		if err != nil || string(res[0].Rows[0][0].([]byte)) != string(tuple.MustEncode(tuple.Millis(ms))) {
			rt.Fatalf("%d: %x %v", ms, res, err)
		}
	})
}

func TestWriteRunsStatementsTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, db *libsql.DB, s *kv.Store) {
		if _, err := s.Set(t.Context(), tuple.Key{"a"}, 1, 0); err != nil {
			t.Fatal(err)
		}
		trips := db.Trips()
		res, now, err := s.Write(t.Context(), libsql.S(`UPDATE kv SET v = '2' RETURNING v`), libsql.S(`SELECT v FROM kv`))
		if err != nil || len(res) != 2 || res[0].Rows[0][0] != "2" || res[1].Rows[0][0] != "2" {
			t.Fatalf("%v, %v", res, err)
		}
		if d := time.Since(now).Abs(); d > time.Hour || s.Skew().Abs() > time.Hour {
			t.Errorf("the primary's time is %v", now)
		}
		if _, _, err := s.Write(t.Context(), libsql.S(`UPDATE kv SET v = '3'`), libsql.S(`SELECT nonsense`)); libsql.OutcomeOf(err) != libsql.Failed {
			t.Errorf("got %v", err)
		}
		if e, _, _ := s.Get(t.Context(), tuple.Key{"a"}); string(e.Value) != "2" {
			t.Errorf("a failed batch left %s", e.Value)
		}
		if n := db.Trips() - trips; n != 3 {
			t.Errorf("%d round trips", n)
		}
	})
}

func TestBind(t *testing.T) {
	s := kv.Bind(`SELECT :a, '$.x', :bb, :a`, map[string]any{":a": 1, ":bb": "two"})
	if s.SQL != `SELECT ?, '$.x', ?, ?` || fmt.Sprint(s.Args) != "[1 two 1]" {
		t.Errorf("%+v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a parameter without an argument is bound")
		}
	}()
	kv.Bind(`SELECT :a`, nil)
}
