package fleettest

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// descriptors counts the open files of a process, 0 where systems do not tell.
func descriptors(r *Replica) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return len(entries)
}

// Many more objects than fit into memory, or than there are descriptors for,
// are served in turn.
func TestMoreObjectsThanFit(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, "DWK_OBJECTS_RESIDENT=500", "DWK_LEASE_TTL=30s")
		f.Descriptors = 1024
		r := f.Start()
		objects := Long(5000, 800)
		var most atomic.Int64
		for round := 1; round <= 2; round++ {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for i := int(next.Add(1)); i <= objects; i = int(next.Add(1)) {
						a := r.Post(fmt.Sprintf("counter/many-%d/add", i), "")
						if a.Status != http.StatusOK || (call{answer: a}).value() != int64(round) {
							t.Errorf("object %d, event %d: %v", i, round, a)
						}
						if i%50 == 0 {
							most.Store(max(most.Load(), int64(descriptors(r))))
						}
					}
				})
			}
			wg.Wait()
		}
		if n := most.Load(); n > int64(f.Descriptors)*9/10 {
			t.Errorf("%d files were open, %d may be", n, f.Descriptors)
		}
		if n := len(mirrors(t, r)); n == 0 || n > 500 {
			t.Errorf("%d mirrors", n)
		}
		t.Logf("%d objects, %d mirrors at the end, %d files open at most", objects, len(mirrors(t, r)), most.Load())
	})
}
