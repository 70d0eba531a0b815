package fleettest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A pair is a fleet of two tracked replicas, and a note that both have seen
// with one row.
func startPair(t *testing.T, kind Kind, env ...string) (f *Fleet, a, b *Replica) {
	t.Helper()
	f = New(t, kind, append(env, Tracked)...)
	a, b = f.Start(), f.Start()
	if ans := addRow(a, "n"); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	wantRows(t, b, "n", 1)
	f.WaitFree()
	return f, a, b
}

// noPolls is for replicas that are stopped where they are: none of them may stand
// still in a poll, with the lock of the file that the others need.
var noPolls = []string{"DWK_FLEET_POLL_INTERVAL=1h", "DWK_FLEET_HEARTBEAT_TTL=4h"}

// wantFenced fails the test unless the answer is that of an event whose lease
// was lost.
func wantRefused(t *testing.T, a Answer) {
	t.Helper()
	if !a.Refused() {
		t.Errorf("answer %v, want 503 and Retry-After", a)
	}
}

func wantNoSleeps(t *testing.T, r *Replica) {
	t.Helper()
	if rows := sleeps(t, r, "n"); len(rows) > 0 {
		t.Errorf("%s sees what a fenced event wrote: %v", r.Name, rows)
	}
}

// A replica that was stopped inside an event for longer than its lease has lost
// the object: its event changes nothing, and it goes on with what the other
// wrote.
func TestStoppedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		_, a, b := startPair(t, kind, noPolls...)
		asleep := a.Sleep("n", 10*TTL) // the loss of the lease ends it
		a.Stop()
		if ans := addRow(b, "n"); ans.Status != http.StatusOK { // it waits for the lease to end
			t.Errorf("the other replica: %v", ans)
		}
		a.Continue()
		wantRefused(t, <-asleep)
		for _, r := range []*Replica{a, b} {
			wantRows(t, r, "n", 2)
			wantNoSleeps(t, r)
		}
		if ans := addRow(a, "n"); ans.Status != http.StatusOK {
			t.Errorf("the former holder: %v", ans)
		}
		wantRows(t, b, "n", 3)
	})
}

// A replica that stops by itself at the worst moments.
func TestStoppedAroundTheCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point   string
		applied bool
	}{
		{"object.acquire.after", false},
		{"object.run.after", false},
		{"object.commit.before", false},
		{"object.commit.after", true},
		{"object.answer.before", true},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			Each(t, func(t *testing.T, kind Kind) {
				f := New(t, kind, noPolls...)
				a, b := f.Start("DWK_FAILPOINTS="+c.point+"=2*stop"), f.Start()
				if ans := addRow(a, "n"); ans.Status != http.StatusOK {
					t.Fatal(ans)
				}
				pending := a.Go(http.MethodPost, "note/n/sleep?ms=0", "")
				a.WaitHit(c.point, 1)
				// The commit that was applied has released the lease, or the other
				// replica waits for its end.
				if ans := addRow(b, "n"); ans.Status != http.StatusOK {
					t.Errorf("the other replica: %v", ans)
				}
				a.Continue()
				ans := <-pending
				want := 0
				if c.applied {
					want = 2
					if ans.Status != http.StatusOK {
						t.Errorf("the event whose commit was applied: %v", ans)
					}
				} else {
					wantRefused(t, ans)
				}
				for _, r := range []*Replica{a, b} {
					wantRows(t, r, "n", 2)
					if rows := sleeps(t, r, "n"); len(rows) != want {
						t.Errorf("%s sees %d rows of the event, want %d", r.Name, len(rows), want)
					}
				}
			})
		})
	}
}

// A replica that was killed inside an event leaves nothing of it, and its
// lease ends by itself.
func TestKilledInsideAnEvent(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind)
		asleep := a.Sleep("n", time.Minute)
		held := f.Leases()
		if len(held) != 1 || held[0].Replica != a.ID {
			t.Errorf("leases %+v, want one of %s", held, a.ID)
		}
		a.Kill()
		if ans := <-asleep; ans.Err == nil {
			t.Errorf("an answer of a dead replica: %v", ans)
		}
		if ans := addRow(b, "n"); ans.Status != http.StatusOK {
			t.Errorf("the other replica: %v", ans)
		}
		wantRows(t, b, "n", 2)
		wantNoSleeps(t, b)
		f.WaitFree()
	})
}

// A lease that an operator ended: its holder's event is refused, and no read of
// the former holder is stale, however long it has waited.
func TestReleasedByAnOperator(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind)
		asleep := a.Sleep("n", 10*TTL) // the loss of the lease ends it
		var wg sync.WaitGroup
		for range 4 {
			// These wait behind the event. They may see what was there when they
			// arrived, and what has come since.
			wg.Go(func() {
				if n, ans := countRows(t, a, "n"); !ans.Refused() && (ans.Status != http.StatusOK || n < 1 || n > 2) {
					t.Errorf("a read of the former holder: %d rows, %v", n, ans)
				}
			})
		}
		if r := f.Command("lease", "release", "Note", "--name", "n", "--yes"); r.Code != 0 {
			t.Fatalf("release: exit %d: %s", r.Code, r.Stderr)
		}
		if ans := addRow(b, "n"); ans.Status != http.StatusOK {
			t.Errorf("the other replica: %v", ans)
		}
		for range 4 {
			// These arrive after the other's write was answered.
			wg.Go(func() {
				if n, ans := countRows(t, a, "n"); !ans.Refused() && (ans.Status != http.StatusOK || n != 2) {
					t.Errorf("a stale read of the former holder: %d rows, %v", n, ans)
				}
			})
		}
		wantRefused(t, <-asleep)
		wg.Wait()
		wantRows(t, a, "n", 2)
		wantNoSleeps(t, a)
		f.WaitFree()
		if r := f.Command("lease", "release", "Note", "--name", "n", "--yes"); r.Code != 3 {
			t.Errorf("release without a lease: exit %d, want 3: %s", r.Code, r.Stderr)
		}
	})
}

// Reads that wait behind another read under a lease that was ended meanwhile:
// having a lease once is not having it.
func TestKeptLeaseIsNotTrusted(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		// Shorter than the time after which the lease would be renewed, and long
		// enough for a command.
		a, b := f.Start("DWK_FAILPOINTS=object.run.after=2*sleep:4s"), f.Start()
		if ans := addRow(a, "n"); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
		first := a.Go(http.MethodGet, "note/n/sleeps", "")
		a.WaitHit("object.run.after", 1)
		if r := f.Command("lease", "release", "Note", "--name", "n", "--yes"); r.Code != 0 {
			t.Fatalf("release: exit %d: %s", r.Code, r.Stderr)
		}
		if ans := addRow(b, "n"); ans.Status != http.StatusOK {
			t.Errorf("the other replica: %v", ans)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if n, ans := countRows(t, a, "n"); !ans.Refused() && (ans.Status != http.StatusOK || n != 2) {
					t.Errorf("a stale read: %d rows, %v", n, ans)
				}
			})
		}
		wg.Wait()
		if ans := <-first; ans.Status != http.StatusOK && !ans.Refused() {
			t.Errorf("the read before: %v", ans)
		}
		wantRows(t, a, "n", 2)
	})
}

// The event of a client that went away commits nothing, and its handler does
// not write into the events that follow.
func TestCancelledByItsClient(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind, steadyLeases)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := a.Hits(runBefore)
		gone := make(chan Answer, 1)
		go func() { gone <- a.DoContext(ctx, http.MethodPost, "note/n/sleep?ms=60000", "") }()
		a.WaitHit(runBefore, n+1)
		cancel()
		<-gone
		for i := range 20 {
			if ans := addRow(a, "n"); ans.Status != http.StatusOK {
				t.Errorf("event %d after it: %v", i, ans)
			}
		}
		wantRows(t, b, "n", 21)
		wantNoSleeps(t, b)
		f.WaitFree()
	})
}
