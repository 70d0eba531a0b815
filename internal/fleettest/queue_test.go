package fleettest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newQueueFleet is a fleet whose queue has these settings.
func newQueueFleet(t *testing.T, kind Kind, settings string) *Fleet {
	t.Helper()
	f := New(t, kind, "DWK_FLEET_POLL_INTERVAL=200ms")
	file, err := os.OpenFile(f.config(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "queues: [{name: default, backoff: 10ms, %s}]\n", settings)
		err = firstError(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// produce sends the messages {"n": from} to {"n": to-1} through whatever
// replica pick gives, each until it is surely sent.
func produce(t *testing.T, pick func() *Replica, from, to int) {
	var wg sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(from))
	for range 4 {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(to); n = next.Add(1) - 1 {
				deadline := time.Now().Add(patience)
				for a := pick().Post("queue/default/send", fmt.Sprintf(`{"n":%d}`, n)); a.Status != http.StatusOK; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Errorf("message %d cannot be sent: %v", n, a)
						return
					}
					a = pick().Post("queue/default/send", fmt.Sprintf(`{"n":%d}`, n))
				}
			}
		})
	}
	wg.Wait()
}

type queueInfo struct {
	Due, Delayed, Claimed, Dead int
}

func (f *Fleet) queue() queueInfo {
	f.t.Helper()
	var list []queueInfo
	f.JSON(&list, "queue", "list")
	return list[0]
}

// waitQuiet waits until no message is left but the dead ones.
func (f *Fleet) waitQuiet() {
	f.t.Helper()
	Eventually(f.t, "a quiet queue", func() bool {
		q := f.queue()
		return q.Due+q.Delayed+q.Claimed == 0
	})
}

// delivered returns the deliveries by the message's body.
func delivered(t *testing.T, r *Replica) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for after := 0; ; {
		var page struct {
			Seen []struct {
				Seq, Attempts int
				ID            string
				Body          json.RawMessage
			}
		}
		r.Get(fmt.Sprintf("queue/default/seen?after=%d", after)).Decode(t, &page)
		if len(page.Seen) == 0 {
			return seen
		}
		for _, s := range page.Seen {
			seen[string(s.Body)]++
			after = s.Seq
		}
	}
}

// wantDelivered checks that the messages 0 to n-1 were, and returns how many
// deliveries there were beyond one each.
func wantDelivered(t *testing.T, r *Replica, n int) (more int) {
	t.Helper()
	seen := delivered(t, r)
	lost := 0
	for i := range n {
		c := seen[fmt.Sprintf(`{"n":%d}`, i)]
		if c == 0 {
			lost++
		}
		more += max(0, c-1)
	}
	if lost > 0 {
		t.Errorf("%d of %d messages were lost", lost, n)
	}
	return more
}

func queueLoad() int {
	if testing.Short() {
		return 300
	}
	return Long(10_000, 2000)
}

func TestQueueDeliversOnce(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := newQueueFleet(t, kind, "batch: 10, concurrency: 2, visibility: 30s")
		replicas := []*Replica{f.Start("DWK_CLOCK_SHIFT=1h"), f.Start("DWK_CLOCK_SHIFT=-1h"), f.Start()}
		n := queueLoad()
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { produce(t, func() *Replica { return replicas[i] }, i*n/2, (i+1)*n/2) })
		}
		wg.Wait()
		f.waitQuiet()
		if more := wantDelivered(t, replicas[0], n); more > 0 {
			t.Errorf("%d deliveries too many", more)
		}
		if q := f.queue(); q.Dead != 0 {
			t.Errorf("%+v", q)
		}
	})
}

// Whatever is killed, nothing is lost.
func TestQueueLosesNothing(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := newQueueFleet(t, kind, "batch: 10, concurrency: 2, visibility: 2s, max_attempts: 100")
		var mu sync.Mutex
		replicas := []*Replica{f.Start(), f.Start(), f.Start()}
		pick := func() *Replica {
			mu.Lock()
			defer mu.Unlock()
			return replicas[rand.IntN(len(replicas))]
		}
		n := queueLoad()
		var wg sync.WaitGroup
		var done atomic.Bool
		for i := range 2 {
			wg.Go(func() { produce(t, pick, i*n/2, (i+1)*n/2) })
		}
		go func() { wg.Wait(); done.Store(true) }()
		kills := 0
		for ; kills < Long(20, 5) || !done.Load() && kills < 100; kills++ {
			time.Sleep(time.Duration(Long(1000, 300)) * time.Millisecond)
			fresh := f.Start()
			mu.Lock()
			i := rand.IntN(len(replicas))
			victim := replicas[i]
			replicas[i] = fresh
			mu.Unlock()
			victim.Kill()
		}
		wg.Wait()
		f.waitQuiet()
		more := wantDelivered(t, replicas[0], n)
		if q := f.queue(); q.Dead != 0 {
			t.Errorf("%+v", q)
		}
		t.Logf("%d messages, %d kills, %d deliveries more than one each", n, kills, more)
	})
}

// A message that fails does not stop the others and ends as a dead letter; one
// that takes longer than the visibility is not delivered twice.
func TestQueuePoisonAndSlow(t *testing.T) {
	t.Parallel()
	f := newQueueFleet(t, File, "batch: 5, concurrency: 2, visibility: 3s, max_attempts: 3")
	a, b := f.Start(), f.Start()
	slow := `{"sleep":5000}` // its claim is renewed
	poison := `{"fail":1000}`
	for _, body := range []string{poison, slow} {
		if ans := a.Post("queue/default/send", body); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
	}
	produce(t, func() *Replica { return b }, 0, 50)
	f.waitQuiet()
	wantDelivered(t, a, 50)
	if seen := delivered(t, a); seen[poison] != 3 || seen[slow] != 1 {
		t.Errorf("%d deliveries of the poison, %d of the slow one", seen[poison], seen[slow])
	}
	if q := f.queue(); q.Dead != 1 {
		t.Errorf("%+v", q)
	}
	// Sent back, it dies again; a replica that stops in order leaves no claim.
	if r := f.Command("queue", "redrive", "default", "--yes"); r.Code != 0 {
		t.Fatal(r)
	}
	f.waitQuiet()
	if seen := delivered(t, b); seen[poison] != 6 {
		t.Errorf("%d deliveries of the poison", seen[poison])
	}
	if ans := a.Post("queue/default/send", `{"sleep":600,"last":true}`); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	for _, r := range []*Replica{a, b} {
		r.Terminate()
	}
	for _, r := range []*Replica{a, b} {
		if code := r.Wait(); code != 0 {
			t.Errorf("%s: exit %d", r.Name, code)
		}
	}
	if q := f.queue(); q.Claimed != 0 {
		t.Errorf("a claim was left: %+v", q)
	}
}
