package fleettest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// The requests that are cut off.
var requests = []struct {
	name  string
	match func(sql string) bool
}{
	{"acquire", isAcquire},
	{"commit", isCommit},
	{"release", isRelease},
}

// A cut says where requests are cut off.
type cut struct {
	name  string
	fault hrana.Fault
}

var cuts = []cut{
	{"before it is executed", hrana.Fault{CutBefore: true}},
	{"after it was executed", hrana.Fault{CutAfter: true}},
}

// eachCut runs a test for each kind of request and cut.
func eachCut(t *testing.T, test func(t *testing.T, request string, match func(sql string) bool, c cut)) {
	for _, r := range requests {
		for _, c := range cuts {
			t.Run(r.name+" "+c.name, func(t *testing.T) { test(t, r.name, r.match, c) })
		}
	}
}

// startCut starts a fleet of two on a server, and a ledger that both have seen
// with one op.
func startCut(t *testing.T, env ...string) (f *Fleet, a, b *Replica, l *Ledger) {
	t.Helper()
	f = New(t, Wire, env...)
	a, b, l = f.Start(), f.Start(), NewLedger("cut")
	if ans := l.Append(a); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	l.Check(t, b)
	f.WaitFree()
	return f, a, b, l
}

// A single cut is made up for, but for a commit that did not reach the server:
// that is refused.
func TestCutOnce(t *testing.T) {
	t.Parallel()
	f, a, b, l := startCut(t)
	eachCut(t, func(t *testing.T, request string, match func(string) bool, c cut) {
		var done atomic.Int32
		f.Server.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
			if match(strings.Join(r.SQL, "\n")) && done.CompareAndSwap(0, 1) {
				return c.fault
			}
			return hrana.Fault{}
		})
		defer f.Server.SetHook(nil)
		var ans Answer
		if request == "release" {
			_, ans = l.Read(a) // has one of its own behind it
		} else {
			ans = l.Append(a)
		}
		if request == "commit" && c.fault.CutBefore {
			wantRefused(t, ans)
		} else if ans.Status != http.StatusOK {
			t.Errorf("answer %v, want 200", ans)
		}
		Eventually(t, "the cut", func() bool { return done.Load() == 1 })
		l.Check(t, b)
		l.Check(t, a)
		f.WaitFree() // no release is left for the next hook
	})
}

// When the server stays away, nothing is claimed that is not known. Replicas
// say that they are not ready, and go on without a restart when it is back.
func TestServerStaysAway(t *testing.T) {
	t.Parallel()
	f, a, b, l := startCut(t, "DWK_EVENT_TIMEOUT=3s", "DWK_LEASE_ACQUIRE_TIMEOUT=2s", "DWK_LIBSQL_TIMEOUT=2s")
	eachCut(t, func(t *testing.T, request string, match func(string) bool, c cut) {
		var away atomic.Bool
		f.Server.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
			switch {
			case away.Load():
				return hrana.Fault{CutBefore: true}
			case match(strings.Join(r.SQL, "\n")):
				away.Store(true)
				return c.fault
			}
			return hrana.Fault{}
		})
		defer f.Server.SetHook(nil)
		ans := func(r *Replica) Answer { return l.Append(r) }
		if request == "release" {
			ans = func(r *Replica) Answer { _, a := l.Read(r); return a }
		}
		switch got := ans(a); {
		case request == "commit" && !got.Unknown():
			t.Errorf("answer %v, want 504 and its header", got)
		case request == "acquire":
			wantRefused(t, got)
		case request == "release" && got.Status != http.StatusOK:
			t.Errorf("answer %v, want 200", got)
		}
		Eventually(t, "the cut", away.Load)
		var wg sync.WaitGroup
		for _, r := range []*Replica{a, b} {
			wg.Go(func() { wantRefused(t, l.Append(r)) })
		}
		wg.Wait()
		for _, r := range []*Replica{a, b} {
			r.WaitStatus(http.StatusServiceUnavailable)
			if ans := send(t.Context(), http.MethodGet, r.Admin+"/healthz", ""); ans.Status != http.StatusOK {
				t.Errorf("/healthz of %s: %v", r.Name, ans)
			}
		}
		f.Server.SetHook(nil)
		for _, r := range []*Replica{a, b} {
			r.WaitStatus(http.StatusOK)
		}
		f.WaitFree()
		for _, r := range []*Replica{a, b} {
			l.Check(t, r)
			if ans := l.Append(r); ans.Status != http.StatusOK {
				t.Errorf("%s after the recovery: %v", r.Name, ans)
			}
		}
		l.Check(t, a)
		f.WaitFree()
	})
}

// Requests and answers are lost at random while clients work on both replicas.
func TestCutAtRandom(t *testing.T) {
	t.Parallel()
	f, a, b, l := startCut(t)
	var cutCount atomic.Int32
	f.Server.SetHook(func(ctx context.Context, r hrana.Request) hrana.Fault {
		switch rand.IntN(40) {
		case 0:
			cutCount.Add(1)
			return hrana.Fault{CutBefore: true}
		case 1, 2:
			cutCount.Add(1)
			return hrana.Fault{CutAfter: true}
		case 3:
			cutCount.Add(1)
			return hrana.Fault{Status: []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable}[rand.IntN(3)]}
		case 4: // late, while the others go on
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return hrana.Fault{}
	})
	var wg sync.WaitGroup
	n := Long(1000, 100)
	for _, r := range []*Replica{a, a, b, b} {
		wg.Go(func() {
			for i := range n {
				l.Append(r)
				if i%5 == 0 {
					l.Read(r)
				}
			}
		})
	}
	wg.Wait()
	f.Server.SetHook(nil)
	count := l.Check(t, a)
	if got := l.Check(t, b); got != count {
		t.Errorf("one replica sees %d ops, the other %d", count, got)
	}
	statuses := l.Statuses()
	if statuses[0] > 0 || statuses[http.StatusOK] < n {
		t.Errorf("answers %v", statuses)
	}
	t.Logf("%d ops are there, answers %v, %d requests cut", count, statuses, cutCount.Load())
	f.WaitFree()
}

// A commit that was on its way when its outcome was decided arrives late. It
// must not be executed then.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	f, a, b, l := startCut(t)
	for _, taken := range []bool{false, true} {
		held := f.Server.Hold(isCommit)
		wantRefused(t, l.Append(a))
		if taken {
			if ans := l.Append(b); ans.Status != http.StatusOK {
				t.Errorf("the other replica: %v", ans)
			}
		}
		if status, body := (<-held).Deliver(); status != http.StatusOK {
			t.Errorf("the late request was answered %d %s", status, body)
		}
		l.Check(t, b)
		if ans := l.Append(a); ans.Status != http.StatusOK {
			t.Errorf("after it: %v", ans)
		}
		l.Check(t, b)
		f.WaitFree()
	}
}

// A request to take the lease that arrives late takes nothing from those that
// went on without it.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	f, a, b, l := startCut(t)
	held := f.Server.Hold(isAcquire)
	if ans := l.Append(a); ans.Status != http.StatusOK {
		t.Errorf("behind the request that was held: %v", ans)
	}
	f.WaitFree()
	(<-held).Deliver()
	if n := len(f.Leases()); n != 1 {
		t.Errorf("the late request was executed: %d leases, want the one of it", n)
	}
	if ans := l.Append(a); ans.Status != http.StatusOK { // it replaces the lease that it gave up
		t.Errorf("after it: %v", ans)
	}
	if ans := l.Append(b); ans.Status != http.StatusOK {
		t.Errorf("the other replica: %v", ans)
	}
	l.Check(t, a)
	f.WaitFree()
}
