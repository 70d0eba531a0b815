package fleettest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A replica that is told to stop finishes what it began and leaves nothing.
func TestOrderlyStop(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind, steadyLeases)
		// One event runs, some wait behind it, some are of other objects.
		asleep := a.Sleep("n", 4*time.Second)
		var waiting []<-chan Answer
		for range 3 {
			waiting = append(waiting, a.Go(http.MethodPost, "note/n/sleep?ms=0", ""))
		}
		other := a.Sleep("other", 4*time.Second)
		Eventually(t, "all arrive", func() bool { return a.figure("dwk_http_requests_running") == 5 })
		a.Terminate()
		a.WaitStatus(http.StatusServiceUnavailable)
		for _, c := range append(waiting, asleep, other) {
			// A request that had not reached the replica may be turned away.
			if ans := <-c; ans.Status != http.StatusOK {
				t.Errorf("a request that was under way: %v", ans)
			}
		}
		if code := a.Wait(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		if left := f.Leases(); len(left) > 0 {
			t.Errorf("leases are left: %+v", left)
		}
		wantNothingLeft(t, a)
		if ans := send(t.Context(), http.MethodGet, a.Public+"/lab/whoami", ""); ans.Err == nil {
			t.Errorf("it still answers: %v", ans)
		}
		if n := len(sleeps(t, b, "n")); n != 8 {
			t.Errorf("%d rows of sleeps, want 8", n)
		}
	})
}

// wantNothingLeft fails the test when the directory of a replica that ended in
// order, or a lock, is still there.
func wantNothingLeft(t *testing.T, r *Replica) {
	t.Helper()
	if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
		t.Errorf("the directory %s is left: %v", r.Dir(), err)
	}
	gate, err := os.Open(filepath.Join(filepath.Dir(r.Dir()), ".lock"))
	if err != nil {
		t.Error(err)
		return
	}
	defer gate.Close()
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("%s is locked: %v", gate.Name(), err)
	}
}

// A second signal ends a replica at once, whatever it still does.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		_, a, b := startPair(t, kind)
		asleep := a.Sleep("n", 20*time.Second)
		begun := time.Now()
		a.Terminate()
		Eventually(t, "the stop begins", func() bool { return strings.Contains(a.Log(), `"serve.stopping"`) })
		a.TerminateAgain()
		if code, d := a.Wait(), time.Since(begun); code != 1 || d > 15*time.Second {
			t.Errorf("exit code %d after %v, want 1 at once", code, d)
		}
		if ans := <-asleep; ans.Err == nil {
			t.Errorf("the event that was cut off: %v", ans)
		}
		if ans := addRow(b, "n"); ans.Status != http.StatusOK { // it waits for the lease to end
			t.Errorf("the other replica: %v", ans)
		}
		wantNoSleeps(t, b)
	})
}

// A fleet whose replicas are replaced one after the other goes on counting.
func TestRollingReplacement(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		l := NewLedger("rolling")
		for range 3 {
			old, next := f.Start(), f.Start()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for l.Append(old).Err == nil {
				}
			}()
			for range 20 {
				if ans := l.Append(next); ans.Status != http.StatusOK {
					t.Errorf("beside the old one: %v", ans)
				}
			}
			old.Terminate()
			if code := old.Wait(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			<-done
			wantNothingLeft(t, old)
			if ans := l.Append(next); ans.Status != http.StatusOK {
				t.Errorf("after the old one's end: %v", ans)
			}
			l.Check(t, next)
			next.Terminate()
			if code := next.Wait(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		}
		if left := f.Leases(); len(left) > 0 {
			t.Errorf("leases are left: %+v", left)
		}
	})
}

// Sockets hear what is said on other replicas for as long as they are there: also
// while a replica that stops waits for its requests.
func TestSocketsHearUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_DRAIN_GRACE=0s", "DWK_DRAIN_TIMEOUT=10m", "DWK_EVENT_TIMEOUT=10m")
	a, b := f.Start(), f.Start()
	stopping, other := newParty(t, a.Public, "hall"), newParty(t, b.Public, "hall")
	listener, speaker := stopping.join(1)[0], other.join(1)[0]
	asleep := make(chan error, 1)
	go func() { // with a client that waits for longer than all of this may take
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.Public+"/lab/note/n/sleep?ms=540000", nil)
		if err == nil {
			var res *http.Response
			if res, err = bulk.Do(req); err == nil {
				err = res.Body.Close()
			}
		}
		asleep <- err
	}()
	Eventually(t, "the event runs", func() bool { return strings.Contains(a.Log(), `"class":"Note"`) })
	a.Terminate()
	Eventually(t, "it waits for its requests", func() bool { return strings.Contains(a.Log(), `"step":"poller"`) })
	for i := range 3 {
		speaker.say(fmt.Sprintf("m%d", i))
		Eventually(t, "the socket of the other replica hears it", func() bool { return listener.last.Load() == int64(i+1) })
	}
	stopping.problems.check(t)
	other.problems.check(t)
	a.TerminateAgain()
	wantExit(t, a, 1)
	if err := <-asleep; err == nil {
		t.Error("the event has ended")
	}
}
