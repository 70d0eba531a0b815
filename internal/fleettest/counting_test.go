package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counted is the answer of a counter.
type counted struct{ Value int }

// The clocks of two replicas: right, and each an hour wrong in another
// direction.
var clocks = map[string][2]string{
	"right clocks": {},
	"wrong clocks": {"DWK_CLOCK_SHIFT=1h", "DWK_CLOCK_SHIFT=-1h"},
}

func eachClock(t *testing.T, test func(t *testing.T, clocks [2]string, wrong bool)) {
	for name, c := range clocks {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, c, name == "wrong clocks") })
	}
}

// A write that was answered is seen by a read on the other replica that is sent
// then, every time.
func TestReadsSeeWritesOfTheOtherReplica(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		eachClock(t, func(t *testing.T, clocks [2]string, wrong bool) {
			f := New(t, kind, steadyLeases)
			replicas := [2]*Replica{f.Start(clocks[0]), f.Start(clocks[1])}
			n := Long(5000, 1000)
			if wrong {
				n /= 5
			}
			var last Answer
			for i := 1; i <= n; i++ {
				writer, reader := replicas[i%2], replicas[(i+1)%2]
				write := writer.Post("counter/shared/add", "")
				read := reader.Get("counter/shared")
				for _, a := range []struct {
					Answer
					from *Replica
				}{{write, writer}, {read, reader}} {
					var c counted
					a.Decode(t, &c)
					if c.Value != i || a.Txid() != int64(i) || a.Replica() != a.from.ID {
						t.Fatalf("write %d: %s answered %v with %v", i, a.from.Name, a.Answer, a.Header)
					}
					// A replica may still have the lease of its last event.
					if a.Epoch() < last.Epoch() || a.Epoch() == last.Epoch() && a.Replica() != last.Replica() {
						t.Fatalf("write %d: %s answered under the lease %d, after %s under %d", i, a.from.ID, a.Epoch(), last.Replica(), last.Epoch())
					}
					last = a.Answer
				}
			}
		})
	})
}

// Clients that count on one object over both replicas lose nothing and count
// nothing twice, and each replica gets its turn.
func TestConcurrentCounting(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		eachClock(t, func(t *testing.T, clocks [2]string, _ bool) {
			f := New(t, kind, steadyLeases)
			replicas := [2]*Replica{f.Start(clocks[0]), f.Start(clocks[1])}
			n := Long(10_000, 2000)
			const clients = 8
			answers := make([]Answer, n)
			var next atomic.Int64
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
						answers[i] = replicas[c%2].Post(fmt.Sprintf("counter/shared/add?op=op-%d", i), "")
					}
				})
			}
			wg.Wait()
			checkCounting(t, replicas, answers)
		})
	})
}

// checkCounting compares the answers to the ops op-0, op-1 and so on with the
// list of those that were counted.
func checkCounting(t *testing.T, replicas [2]*Replica, answers []Answer) {
	t.Helper()
	var list struct {
		Ops []struct {
			Op    string
			Value int
		}
	}
	replicas[0].Get("counter/shared/ops").Decode(t, &list)
	seen := map[string]bool{}
	for i, o := range list.Ops {
		if seen[o.Op] || o.Value != i+1 {
			t.Errorf("op %s, number %d, has value %d; seen before: %v", o.Op, i+1, o.Value, seen[o.Op])
		}
		seen[o.Op] = true
	}
	by, want := map[string]int{}, 0
	for i, a := range answers {
		op := fmt.Sprintf("op-%d", i)
		switch {
		case a.Status == http.StatusOK:
			by[a.Replica()]++
			want++
			if !seen[op] {
				t.Errorf("%s was answered %v and is not there", op, a)
			}
		case a.Refused():
			if seen[op] {
				t.Errorf("%s was answered %v and is there", op, a)
			}
		case a.Unknown():
			if seen[op] {
				want++
			}
		default:
			t.Errorf("%s was answered %v", op, a)
		}
	}
	var final counted
	replicas[1].Get("counter/shared").Decode(t, &final)
	if final.Value != want || len(seen) != want {
		t.Errorf("the counter is at %d with %d ops, want %d", final.Value, len(seen), want)
	}
	for _, r := range replicas {
		if by[r.ID] < want/5 { // machines stall
			t.Errorf("%s answered %d of %d", r.Name, by[r.ID], want)
		}
	}
	t.Logf("%d counted; answered by each: %v", want, by)
}

// A replica that always has events waiting lets the other have the object too.
func TestBusyReplicaYields(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		busy, other := f.Start(), f.Start()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					busy.DoContext(ctx, http.MethodPost, "note/n/sleep?ms=20", "")
				}
			})
		}
		Eventually(t, "the replica is busy", func() bool { return len(f.Leases()) == 1 })
		for i := range 10 {
			if a := addRow(other, "n"); a.Status != http.StatusOK {
				t.Errorf("event %d: %v", i, a)
			}
		}
	})
}

// A clock that is wrong neither ends a lease early nor keeps it for longer.
func TestLeasesWithWrongClocks(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		fast := f.Start("DWK_CLOCK_SHIFT=1h", Tracked)
		slow := f.Start("DWK_CLOCK_SHIFT=-1h", Tracked)
		for _, pair := range [][2]*Replica{{fast, slow}, {slow, fast}} {
			holder, other := pair[0], pair[1]
			asleep := holder.Sleep("n", TTL+TTL/2) // it has to renew
			if a := addRow(other, "n"); a.Status != http.StatusOK {
				t.Errorf("%s wants the object: %v", other.Name, a)
			}
			if a := <-asleep; a.Status != http.StatusOK {
				t.Errorf("%s holds the object: %v", holder.Name, a)
			}
		}
		begun := time.Now()
		fast.Sleep("n", time.Minute)
		fast.Kill()
		if a := addRow(slow, "n"); a.Status != http.StatusOK {
			t.Errorf("after the holder's death: %v", a)
		}
		if d := time.Since(begun); d < TTL/2 {
			t.Errorf("the dead replica's lease ended after %v", d)
		}
		if n := len(sleeps(t, slow, "n")); n != 4 {
			t.Errorf("%d rows of sleeps, want 4", n)
		}
	})
}
