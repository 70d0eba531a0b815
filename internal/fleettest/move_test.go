package fleettest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A mover moves numbers between counters, which is a call from one object to
// another, and looks at them.
type mover struct {
	t     *testing.T
	crew  *Crew
	began time.Time
	next  atomic.Int64

	mu    sync.Mutex
	moves []*moved
	reads map[string][]porcupine.Operation
	// statuses counts the answers.
	statuses map[int]int
}

// A moved is a move, under one op.
type moved struct {
	op, from, to string
	n            int64
	sent, ended  time.Duration // ended is for ever when nobody knows
	// done is set when it was answered 200, and refused when all that it ever was
	// answered said that nothing was applied.
	done, refused bool
}

var counters = []string{"c0", "c1", "c2"}

func (m *mover) now() time.Duration { return time.Since(m.began) }

func (m *mover) client(seed uint64, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, seed))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
		}
		from := r.IntN(len(counters))
		if r.IntN(3) == 0 {
			m.read(r, counters[from])
			continue
		}
		to := (from + 1 + r.IntN(len(counters)-1)) % len(counters)
		m.move(r, counters[from], counters[to], r.IntN(4) > 0)
	}
}

// move asks for a move, and again until it is done unless the caller gives up at
// the first answer.
func (m *mover) move(r *rand.Rand, from, to string, again bool) {
	mv := &moved{op: fmt.Sprintf("move%d", m.next.Add(1)), from: from, to: to, n: 1 + r.Int64N(9), refused: true, ended: math.MaxInt64}
	mv.sent = m.now()
	path := fmt.Sprintf("counter/%s/move?to=%s&n=%d&op=%s", from, to, mv.n, mv.op)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := m.crew.Pick(r).DoContext(m.t.Context(), http.MethodPost, path, " ")
		m.mu.Lock()
		m.statuses[a.Status]++
		m.mu.Unlock()
		mv.refused = mv.refused && a.Refused()
		if a.Status == http.StatusOK {
			mv.done, mv.ended = true, m.now()
			break
		}
		if !again || time.Now().After(deadline) {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if again && !mv.done {
		m.t.Errorf("%s was not done in a minute", mv.op)
	}
	m.moves = append(m.moves, mv)
}

func (m *mover) read(r *rand.Rand, name string) {
	from := m.now()
	var c struct{ Value int64 }
	a := m.crew.Pick(r).DoContext(m.t.Context(), http.MethodGet, "counter/"+name, "")
	if a.Status != http.StatusOK {
		return
	}
	a.Decode(m.t, &c)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[name] = append(m.reads[name], porcupine.Operation{Input: int64(0), Output: &c.Value, Call: int64(from), Return: int64(m.now())})
}

// moveModel: what adds has no output, and what reads adds nothing.
var moveModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, in, out any) (bool, any) {
		if seen := out.(*int64); seen != nil {
			return *seen == state.(int64), state
		}
		return true, state.(int64) + in.(int64)
	},
}

// Numbers are moved between objects while the fleet suffers: what a caller had
// committed before its call is there, what was refused is not, nothing is added
// that was not taken away, nothing twice; and each counter's history has an order
// that explains what was read.
func TestMovesBetweenObjects(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_LEASE_ACQUIRE_TIMEOUT=1s", "DWK_EVENT_TIMEOUT=5s", "DWK_LIBSQL_TIMEOUT=2s")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &mover{t: t, crew: f.NewCrew(2), began: time.Now(), reads: map[string][]porcupine.Operation{}, statuses: map[int]int{}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() { m.client(seed+uint64(c), stop) })
	}
	r := rand.New(rand.NewPCG(seed, 0))
	short := []string{"killed", "requests and answers cut"}
	for range Long(6, 1) {
		for _, fault := range Faults {
			if Long(1, 0) == 1 || fault.Name == short[0] || fault.Name == short[1] {
				m.crew.Befall(fault, r, func() []string { return []string{"counter/c0", "counter/c1"} })
			}
		}
	}
	close(stop)
	wg.Wait()
	m.check(m.crew.Pick(r))
}

func (m *mover) check(r *Replica) {
	t := m.t
	t.Helper()
	type entry struct {
		Op, To string
		N      int64
		Done   bool
	}
	taken, added := map[string]entry{}, map[string]entry{} // by op
	where := map[string]string{}                           // an op was added to
	left := map[string]int64{}
	for _, name := range counters {
		var out struct{ Moves []entry }
		var in struct{ Ops []entry }
		var c struct{ Value int64 }
		Eventually(t, "the counters can be read", func() bool {
			return r.Get("counter/"+name+"/moves").Status == http.StatusOK
		})
		r.Get("counter/"+name+"/moves").Decode(t, &out)
		r.Get("counter/"+name+"/ops").Decode(t, &in)
		r.Get("counter/"+name).Decode(t, &c)
		for _, e := range out.Moves {
			taken[e.Op] = e
			left[name] -= e.N
		}
		for _, e := range in.Ops {
			if _, twice := added[e.Op]; twice {
				t.Errorf("%s was added twice", e.Op)
			}
			added[e.Op], where[e.Op] = e, name
			left[name] += e.N
		}
		if c.Value != left[name] {
			t.Errorf("%s is %d, its moves add up to %d", name, c.Value, left[name])
		}
	}
	history := m.reads
	parts := 0
	for _, mv := range m.moves {
		out, wasTaken := taken[mv.op]
		in, wasAdded := added[mv.op]
		delete(taken, mv.op)
		delete(added, mv.op)
		switch {
		case wasAdded && (!wasTaken || in.N != mv.n || where[mv.op] != mv.to):
			t.Errorf("%+v was added as %+v to %s, taken: %v", mv, in, where[mv.op], wasTaken)
		case wasTaken && (out.N != mv.n || out.To != mv.to):
			t.Errorf("%+v was taken as %+v", mv, out)
		case mv.done && !(wasAdded && wasTaken && out.Done):
			t.Errorf("%s was answered 200: taken %+v, added %v", mv.op, out, wasAdded)
		case mv.refused && (wasTaken || wasAdded):
			t.Errorf("%s was refused: taken %v, added %v", mv.op, wasTaken, wasAdded)
		}
		if wasTaken && !wasAdded {
			parts++
		}
		o := porcupine.Operation{Output: (*int64)(nil), Call: int64(mv.sent), Return: int64(mv.ended)}
		if wasTaken {
			o.Input = -mv.n
			history[mv.from] = append(history[mv.from], o)
		}
		if wasAdded {
			o.Input = mv.n
			history[mv.to] = append(history[mv.to], o)
		}
	}
	if len(taken)+len(added) > 0 {
		t.Errorf("nobody asked for %v %v", taken, added)
	}
	total := 0
	for name, ops := range history {
		for i := range ops {
			ops[i].ClientId = i
		}
		total += len(ops)
		if got := porcupine.CheckOperationsTimeout(moveModel, ops, checkTime); got != porcupine.Ok {
			t.Errorf("%s: no order of %d operations explains what was read: %v", name, len(ops), got)
		}
	}
	t.Logf("%d moves, %d of them cut off in the middle, %d operations; answers by status: %v", len(m.moves), parts, total, m.statuses)
	if len(m.moves) == 0 || m.statuses[http.StatusOK] == 0 {
		t.Error("nothing was moved")
	}
}
