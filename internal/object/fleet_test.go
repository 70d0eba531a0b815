package object

import (
	"sync"
	"testing"
)

func TestCountsOverTwoReplicas(t *testing.T) { eachFleet(t, countOverTwoReplicas) }

func countOverTwoReplicas(t *testing.T, f *fleet) {
	a, b := f.join("a"), f.join("b")
	for i := range 20 {
		m := a
		if i%2 == 1 {
			m = b
		}
		if w := m.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != itoa(i+1) {
			t.Fatalf("add %d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := a.value(t, "x"); n != 20 {
		t.Fatalf("value %d, want 20", n)
	}
}

func TestConcurrentAddsOverTwoReplicas(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) { addConcurrently(t, f) })
}

func addConcurrently(t *testing.T, f *fleet, change ...func(*Config)) {
	members := []*member{f.join("a", change...), f.join("b", change...)}
	const clients, each = 8, 50
	var mu sync.Mutex
	done := map[int]int{}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for range each {
				w := members[c%2].do(t, "x", "/add", nil)
				if w.Code != 200 {
					t.Errorf("add: %d %s", w.Code, w.Body)
					return
				}
				mu.Lock()
				done[c%2]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := members[0].value(t, "x"); n != clients*each {
		t.Fatalf("value %d, want %d", n, clients*each)
	}
	eventually(t, "leases gone", func() bool { return f.leases() == 0 })
}
