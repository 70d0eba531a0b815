package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// deliveries returns when the messages of the lab's queue were delivered.
func deliveries(t *testing.T, r *Replica, after int) (at []time.Time, last int) {
	t.Helper()
	for last = after; ; {
		var page struct {
			Seen []struct{ Seq, At int64 }
		}
		r.Get(fmt.Sprintf("queue/default/seen?after=%d", last)).Decode(t, &page)
		if len(page.Seen) == 0 {
			return at, last
		}
		for _, s := range page.Seen {
			at, last = append(at, time.UnixMilli(s.At)), int(s.Seq)
		}
	}
}

// TestQueueSpeed reports how fast messages are sent, delivered and acknowledged,
// by one replica and by two, on a file and with 5 ms a round trip. It demands
// nothing of the machine.
func TestQueueSpeed(t *testing.T) {
	if os.Getenv("DWK_TEST_LONG") == "" {
		t.Skip("it measures; set DWK_TEST_LONG=1")
	}
	for _, kind := range []Kind{File, Wire} {
		for _, n := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d", kind, n), func(t *testing.T) {
				f := newQueueFleet(t, kind, "batch: 100, concurrency: 4")
				if f.Server != nil {
					f.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault {
						time.Sleep(5 * time.Millisecond)
						return hrana.Fault{}
					})
				}
				var r *Replica
				for range n {
					r = f.Start()
				}
				const messages = 10_000
				began := time.Now()
				if a := r.Post(fmt.Sprintf("queue/default/send?n=%d", messages), `{"some":"body"}`); a.Status != http.StatusOK {
					t.Fatal(a)
				}
				sent := time.Since(began)
				f.waitQuiet()
				at, last := deliveries(t, r, 0)
				if len(at) != messages {
					t.Fatalf("%d deliveries of %d messages", len(at), messages)
				}
				all := slices.MaxFunc(at, time.Time.Compare).Sub(began)
				var late []time.Duration
				for range 50 {
					began := time.Now()
					r.Post("queue/default/send", `{"one":1}`)
					Eventually(t, "it is delivered", func() bool {
						var one []time.Time
						if one, last = deliveries(t, r, last); len(one) > 0 {
							late = append(late, one[0].Sub(began))
						}
						return len(one) > 0
					})
				}
				slices.Sort(late)
				t.Logf("%d messages sent in %v, delivered after %v: %.0f a second; one alone after %v (median), %v at most",
					messages, sent.Round(time.Millisecond), all.Round(time.Millisecond), messages/all.Seconds(), late[len(late)/2], late[len(late)-1])
			})
		}
	}
}
