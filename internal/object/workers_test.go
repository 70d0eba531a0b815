package object

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWorkers: every task runs once and is counted, also one that ends its
// goroutine, and after close none is left.
func TestWorkers(t *testing.T) {
	var w workers
	var wg sync.WaitGroup
	var ran atomic.Int64
	const n = 10 * idleWorkers
	for i := range n {
		w.run(&wg, func() {
			ran.Add(1)
			if i%7 == 0 {
				runtime.Goexit()
			}
		})
		if i%100 == 0 {
			wg.Wait() // some find idle workers
		}
	}
	wg.Wait()
	if ran.Load() != n {
		t.Errorf("%d tasks ran of %d", ran.Load(), n)
	}
	w.close()
	w.run(&wg, func() { ran.Add(1) })
	wg.Wait()
	w.all.Wait()
	if ran.Load() != n+1 {
		t.Error("a task behind close did not run")
	}
}
