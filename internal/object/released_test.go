package object

import (
	"context"
	"fmt"
	"testing"
)

// TestReleasedHoldersAreForgotten: an object that is read all the time does not
// carry the holder ids of all its leases along.
func TestReleasedHoldersAreForgotten(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	for range 20 {
		a.do(t, "x", "/get", nil)
		a.settled(t, f)
	}
	eventually(t, "no holder id left", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		left := 0
		for _, actor := range a.actors {
			actor.forgetLocked()
			left += len(actor.givenUp)
		}
		return left == 0
	})
}

// A stop that has no time left names only what still runs.
func TestStopWithoutTime(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	for i := range 20 {
		a.do(t, fmt.Sprint(i), "/add", nil)
	}
	eventually(t, "nothing runs", func() bool { return a.Stats().Running == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Stop(ctx); err != nil {
		t.Error(err)
	}
}
