package bench

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake target keeps what it was asked.
type fake struct {
	do func(n int, op Op) Answer

	mu      sync.Mutex
	ops     []Op
	clients map[int]bool
	now     map[int]bool // clients with an operation under way
}

func newFake(do func(n int, op Op) Answer) *fake {
	return &fake{do: do, clients: map[int]bool{}, now: map[int]bool{}}
}

func (f *fake) Do(_ context.Context, client int, op Op) Answer {
	f.mu.Lock()
	if f.now[client] {
		panic("a client has two operations under way")
	}
	f.now[client], f.clients[client] = true, true
	n := len(f.ops)
	f.ops = append(f.ops, op)
	f.mu.Unlock()
	a := f.do(n, op)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now[client] = false
	return a
}

func fine(int, Op) Answer { return Answer{OK: true, Replica: "a"} }

func TestCheck(t *testing.T) {
	good := Load{Mix: Mixed, Objects: 1, Clients: 1, Requests: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for words, change := range map[string]func(*Load){
		"counters":  func(l *Load) { l.Mix = "nonsense" },
		"objects":   func(l *Load) { l.Objects = 0 },
		"clients":   func(l *Load) { l.Clients = maxClients + 1 },
		"duration":  func(l *Load) { l.Requests = 0 },
		"requests":  func(l *Load) { l.Requests = -1 },
		"positive":  func(l *Load) { l.Duration = -1 },
		"rate must": func(l *Load) { l.Rate = -1 },
	} {
		l := good
		change(&l)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
		if _, err := Run(t.Context(), l, newFake(fine)); err == nil {
			t.Errorf("%s: it runs", words)
		}
	}
}

func TestClosedLoopCounts(t *testing.T) {
	f := newFake(func(n int, _ Op) Answer {
		switch {
		case n%10 == 3:
			return Answer{Status: "503", Replica: "a"}
		case n%10 == 4:
			return Answer{Status: "timeout"}
		}
		return Answer{OK: true, Replica: []string{"a", "b"}[n%2]}
	})
	r, err := Run(t.Context(), Load{Mix: Mixed, Objects: 5, Clients: 7, Requests: 1000, Seed: 3}, f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 1000 || len(f.ops) != 1000 || r.OK != 800 || r.Errors["503"] != 100 || r.Errors["timeout"] != 100 || r.Latency.Count != 800 || r.Unsent != 0 {
		t.Errorf("%+v, %d asked", r, len(f.ops))
	}
	if r.Replicas["a"] != 500 || r.Replicas["b"] != 400 {
		t.Errorf("by replica: %v", r.Replicas)
	}
	var sum int64
	for _, l := range r.Kinds {
		sum += l.Count
	}
	if sum != r.OK || len(r.Kinds) != 3 {
		t.Errorf("by kind: %+v", r.Kinds)
	}
}

func TestSeedDecides(t *testing.T) {
	ops := func(seed uint64) map[Op]int {
		f := newFake(fine)
		if _, err := Run(t.Context(), Load{Mix: Mixed, Objects: 3, Clients: 1, Requests: 2000, Seed: seed}, f); err != nil {
			t.Fatal(err)
		}
		n := map[Op]int{}
		for _, op := range f.ops {
			n[op]++
		}
		return n
	}
	a, b, c := ops(1), ops(1), ops(2)
	if !maps.Equal(a, b) || maps.Equal(a, c) {
		t.Errorf("%v, %v, %v", a, b, c)
	}
	for kind, share := range map[Kind]float64{Read: .6, Increment: .3, WriteNote: .1} {
		for object := range 3 {
			if got := float64(a[Op{kind, object}]) / 2000 * 3; math.Abs(got-share) > .1 {
				t.Errorf("%s of object %d: %.2f, want %.2f", kind, object, got, share)
			}
		}
	}
}

func TestClosedLoopEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(int, Op) Answer { time.Sleep(300 * time.Millisecond); return Answer{OK: true} })
		r, err := Run(t.Context(), Load{Mix: Counters, Objects: 1, Clients: 2, Duration: time.Second}, f)
		// Each client begins at 0, 300, 600 and 900 ms, and the last is waited for.
		if err != nil || r.OK != 8 || r.Elapsed != 1200*time.Millisecond || r.Unsent != 0 || r.Throughput() != 8/1.2 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// A target that stalls delays what is due behind it, and this shows.
func TestOpenLoopCountsFromWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(n int, _ Op) Answer {
			if n == 0 {
				time.Sleep(time.Second)
			}
			return Answer{OK: true}
		})
		r, err := Run(t.Context(), Load{Mix: Counters, Objects: 1, Clients: 1, Rate: 10, Duration: 2 * time.Second}, f)
		if err != nil || r.OK != 20 || r.Unsent != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		// 1 s, then 0.9 s down to 0 for those that were due meanwhile, then 0.
		near := func(what string, got, want time.Duration) {
			if math.Abs(float64(got-want)) > .002*float64(want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		near("mean", r.Latency.Mean, 275*time.Millisecond)
		near("max", r.Latency.Max, time.Second)
		near("p90", r.Latency.P90, 800*time.Millisecond)
	})
}

func TestOpenLoopCountsWhatWasNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(int, Op) Answer { time.Sleep(10 * time.Second); return Answer{OK: true} }
		r, err := Run(t.Context(), Load{Mix: Counters, Objects: 1, Clients: 2, Rate: 10, Duration: 2 * time.Second}, newFake(slow))
		if err != nil || r.OK != 2 || r.Unsent != 18 {
			t.Errorf("%+v %v", r, err)
		}
		r, err = Run(t.Context(), Load{Mix: Counters, Objects: 1, Clients: 2, Rate: 10, Requests: 5}, newFake(slow))
		if err != nil || r.OK != 5 || r.Unsent != 0 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestInterrupt(t *testing.T) {
	for _, rate := range []float64{0, 1} {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFake(func(int, Op) Answer { cancel(); return Answer{Status: "no answer"} })
		if r, err := Run(ctx, Load{Mix: Counters, Objects: 1, Clients: 3, Duration: time.Hour, Rate: rate}, f); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v %v", r, err)
		}
	}
}

func TestPopulate(t *testing.T) {
	for mix, want := range map[Mix]map[Kind]int{
		Counters: {CreateCounter: 4}, Reads: {CreateCounter: 4}, Notes: {CreateNote: 4}, Mixed: {CreateCounter: 4, CreateNote: 4}, Commits: {},
	} {
		f, got := newFake(fine), map[Op]bool{}
		if err := Populate(t.Context(), Load{Mix: mix, Objects: 4, Clients: 9}, f); err != nil {
			t.Fatal(err)
		}
		for _, op := range f.ops {
			got[op] = true
		}
		for kind, n := range want {
			for i := range n {
				if !got[Op{kind, i}] {
					t.Errorf("%s: no %s of %d", mix, kind, i)
				}
				delete(got, Op{kind, i})
			}
		}
		if len(got) > 0 {
			t.Errorf("%s: more: %v", mix, got)
		}
	}
	broken := newFake(func(int, Op) Answer { return Answer{Status: "500"} })
	if err := Populate(t.Context(), Load{Mix: Reads, Objects: 4, Clients: 2}, broken); err == nil || !strings.Contains(err.Error(), "4 of 4 objects could not be created: 500") {
		t.Error(err)
	}
}

// A latency beyond the histogram's range is its end and no lost sample.
func TestRecordIsBounded(t *testing.T) {
	r := newRecord()
	for _, d := range []time.Duration{-1, 0, time.Millisecond, 24 * time.Hour} {
		r.add(Read, Answer{OK: true}, d)
	}
	rep := r.report(time.Second)
	if rep.OK != 4 || rep.Latency.Max < longest || rep.Latency.Max > longest+longest/500 {
		t.Errorf("%+v", rep)
	}
}
