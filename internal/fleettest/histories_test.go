package fleettest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var historySeed = flag.Uint64("fleettest.seed", 0, "seed of the histories' test; 0 draws one")

// A stage is what clients use: some objects at a time. One whose history is
// full gives way to another.
type stage struct {
	crew *Crew

	mu       sync.Mutex
	current  []*History
	all      []*History
	tags     map[*History]string // of each note, as last seen
	clients  atomic.Int64
	sequence atomic.Int64
}

// slots is how many objects are used at a time, counters and notes.
const slots = 4

func newStage(t *testing.T, crew *Crew) *stage {
	s := &stage{crew: crew, tags: map[*History]string{}, current: make([]*History, slots)}
	for i := range s.current {
		s.replace(t, i, nil)
	}
	return s
}

// replace gives a slot a new object, unless somebody has done so.
func (s *stage) replace(t *testing.T, slot int, full *History) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[slot] != full {
		return
	}
	h := NewHistory([]string{"counter", "note"}[slot%2], fmt.Sprintf("h%d", len(s.all)))
	if h.isNote() { // that it is there is known
		Eventually(t, "the first put", func() bool {
			a, _ := h.Do(s.crew.Pick(rand.New(rand.NewPCG(1, 1))), int(s.clients.Add(1)), Op{Kind: "put", Body: "first"}, s.crew.Fault)
			return a.Status == http.StatusCreated || a.Status == http.StatusNoContent
		})
	}
	s.current[slot], s.all = h, append(s.all, h)
}

func (s *stage) objects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, h := range s.current {
		names = append(names, h.Name)
	}
	return names
}

// client makes calls until stop is closed.
func (s *stage) client(t *testing.T, seed uint64, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, uint64(s.clients.Load())))
	id := int(s.clients.Add(1))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(12)) * time.Millisecond):
		}
		slot := r.IntN(slots)
		s.mu.Lock()
		h := s.current[slot]
		tag := s.tags[h]
		s.mu.Unlock()
		o := Op{Kind: "read"}
		switch write := r.IntN(5) > 1; {
		case h.isNote() && write:
			o = Op{Kind: "put", Body: fmt.Sprintf("body %d", s.sequence.Add(1))}
			if r.IntN(3) == 0 {
				o.Match = tag
			}
		case h.isNote():
			o.Kind = "get"
		case write:
			o = Op{Kind: "add", ID: fmt.Sprintf("op%d", s.sequence.Add(1)), N: 1 + r.Int64N(1_000_000)}
		}
		a, ok := h.Do(s.crew.Pick(r), id, o, s.crew.Fault)
		if !ok {
			s.replace(t, slot, h)
			continue
		}
		if a.Unknown() || a.Status == 0 {
			id = int(s.clients.Add(1)) // that call may still be under way
		}
		if tag := a.Header.Get("ETag"); tag != "" {
			s.mu.Lock()
			s.tags[h] = tag
			s.mu.Unlock()
		}
	}
}

// Whatever befalls the fleet, there is an order of the calls on each object that
// explains all answers, in which each call lies between its sending and its
// answer.
func TestHistories(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		seed := *historySeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Logf("seed %d", seed)
		f := New(t, kind, "DWK_LEASE_ACQUIRE_TIMEOUT=2s", "DWK_EVENT_TIMEOUT=5s", "DWK_LIBSQL_TIMEOUT=2s")
		crew := f.NewCrew(3)
		s := newStage(t, crew)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() { s.client(t, seed+uint64(c), stop) })
		}
		r := rand.New(rand.NewPCG(seed, 0))
		for range Long(12, 1) {
			for _, i := range r.Perm(len(Faults)) {
				if fault := Faults[i]; kind == Wire || !fault.Wire {
					crew.Befall(fault, r, s.objects)
				}
			}
		}
		close(stop)
		wg.Wait()
		s.check(t)
	})
}

// check settles and checks all histories.
func (s *stage) check(t *testing.T) {
	t.Helper()
	reader := s.crew.Pick(rand.New(rand.NewPCG(1, 2)))
	acknowledged, statuses := map[string]int{}, map[int]int{}
	wrong, ops := 0, 0
	for _, h := range s.all {
		var err error
		Eventually(t, "the last read of "+h.Name, func() bool {
			err = h.Settle(reader, int(s.clients.Add(1)))
			return err == nil
		})
		problems, n := h.Check()
		if ops += n; len(problems) > 0 {
			wrong++
			t.Errorf("%s:\n%s", h.Name, strings.Join(problems, "\n"))
		}
		for _, c := range h.calls {
			statuses[c.answer.Status]++
			if c.acknowledged() {
				acknowledged[c.during]++
			}
		}
	}
	t.Logf("%d histories checked, %d calls in them, %d histories with violations; answers by status: %v", len(s.all), ops, wrong, statuses)
	t.Logf("leases ended by operators: %d", s.crew.released.Load())
	for _, name := range slices.Sorted(maps.Keys(acknowledged)) {
		t.Logf("acknowledged writes, fault %q: %d", name, acknowledged[name])
	}
}
