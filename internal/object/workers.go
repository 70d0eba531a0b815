package object

import "sync"

// idleWorkers bounds the goroutines that are kept.
const idleWorkers = 64

// workers are goroutines that run one function after the other. SQLite needs a
// large stack, and a new goroutine would have to grow its own each time.
type workers struct {
	mu     sync.Mutex
	idle   []chan func()
	closed bool
	all    sync.WaitGroup
}

// run runs f on a goroutine that wg counts meanwhile.
func (w *workers) run(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	task := func() {
		defer wg.Done() // also when f ends its goroutine
		f()
	}
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		w.all.Go(func() { w.work(task) })
		return
	}
	next := w.idle[n-1]
	w.idle = w.idle[:n-1]
	w.mu.Unlock()
	next <- task
}

func (w *workers) work(task func()) {
	next := make(chan func(), 1)
	for ok := true; ok; task, ok = <-next {
		task()
		if !w.rest(next) {
			return
		}
	}
}

// rest offers the worker that listens on next for another task, unless there
// are enough.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) == idleWorkers {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// close ends the workers, each behind what it runs.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}
