package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// TestHandOverSpeed reports how long the first request to an object takes on a
// replica that has nothing of it, and how long it takes two replicas to hand an
// object to and fro, without and with 5 ms a round trip. It demands nothing of
// the machine.
func TestHandOverSpeed(t *testing.T) {
	if os.Getenv("DWK_TEST_LONG") == "" {
		t.Skip("it measures; set DWK_TEST_LONG=1")
	}
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			f := New(t, Wire)
			a, b := f.Start(), f.Start()
			f.Server.SetHook(func(context.Context, hrana.Request) hrana.Fault { time.Sleep(delay); return hrana.Fault{} })
			ask := func(r *Replica, method, path, body string) time.Duration {
				began := time.Now()
				if got := r.Do(method, path, body); got.Status/100 != 2 {
					t.Fatalf("%s %s: %v", method, path, got)
				}
				return time.Since(began)
			}
			body := strings.Repeat("x", 100<<10)
			var cold, over []time.Duration
			for i := range 100 {
				ask(a, http.MethodPut, fmt.Sprintf("note/n%d", i), body)
			}
			f.WaitFree()
			for i := range 100 {
				cold = append(cold, ask(b, http.MethodGet, fmt.Sprintf("note/n%d", i), ""))
			}
			for i := range 100 {
				r := []*Replica{a, b}[i%2]
				over = append(over, ask(r, http.MethodPost, "counter/shared/add", ""))
			}
			slices.Sort(cold)
			slices.Sort(over)
			t.Logf("first read of an object of 100 KiB: median %v, 95 %% %v; hand-over with a write: median %v, 95 %% %v", cold[50], cold[95], over[50], over[95])
		})
	}
}
