package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// A crowd counts what others are answered on objects of their own, through the
// same replica, until it is stopped.
type crowd struct {
	answered atomic.Int64
	stop     func()
}

func startCrowd(t *testing.T, r *Replica, name string) *crowd {
	c := &crowd{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				a := r.Post(fmt.Sprintf("counter/%s-%d/add", name, i), "")
				if a.Status != http.StatusOK || (call{answer: a}).value() != int64(n) {
					t.Errorf("another object, event %d: %v", n, a)
					return
				}
				c.answered.Add(1)
			}
		})
	}
	c.stop = func() { cancel(); wg.Wait() }
	return c
}

const endless = `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c`

// An object that misbehaves is answered for what it does, and the others on its
// replica are served meanwhile.
func TestObjectMisbehaves(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, "DWK_LEASE_TTL=30s")
		impatient, patient := f.Start("DWK_EVENT_TIMEOUT=5s", "DWK_LEASE_ACQUIRE_TIMEOUT=4s"), f.Start()
		for _, c := range []struct {
			name string
			r    *Replica
			do   func(t *testing.T, r *Replica)
			// least is how many events of others are answered meanwhile: a small
			// part of their share, and more than those that had begun.
			least int
		}{
			{"endless statement", impatient, func(t *testing.T, r *Replica) { wantRefused(t, runSQL(r, "bad", statement{SQL: endless})) }, 12},
			{"huge transaction", patient, func(t *testing.T, r *Replica) {
				if kind == Wire {
					t.Skip("once is enough")
				}
				// As much as one event may change, and more.
				for _, n := range []int{50, 70} {
					a := runSQL(r, "bad", statement{SQL: `CREATE TABLE IF NOT EXISTS big(b)`}, statement{SQL: fmt.Sprintf(`WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < %d)
	INSERT INTO big SELECT randomblob(1000000) FROM c`, n)})
					if n == 50 && a.Status != http.StatusOK || n == 70 && a.Status != http.StatusRequestEntityTooLarge {
						t.Errorf("%d MB: %v", n, a)
					}
				}
			}, 12},
			{"very many requests", patient, func(t *testing.T, r *Replica) { flood(t, f, r, Long(10_000, 800)) }, 5},
		} {
			t.Run(c.name, func(t *testing.T) {
				others := startCrowd(t, c.r, c.name[:4])
				before := others.answered.Load()
				c.do(t, c.r)
				during := others.answered.Load() - before
				others.stop()
				if during < int64(c.least) {
					t.Errorf("%d events of others were answered meanwhile, want %d at least", during, c.least)
				}
				t.Logf("%d events of others were answered meanwhile", during)
			})
		}
		if a := addRow(patient, "bad"); a.Status != http.StatusOK {
			t.Errorf("the object afterwards: %v", a)
		}
		f.WaitFree()
	})
}

// flood sends very many requests to an object at once. It may have 64 waiting;
// the others are told so.
func flood(t *testing.T, f *Fleet, r *Replica, n int) {
	var served, overloaded atomic.Int64
	busy := r.Go(http.MethodPost, "note/bad/sleep?ms=2000", "")
	Eventually(t, "an event of the object runs", func() bool {
		return slices.ContainsFunc(f.Leases(), func(l Lease) bool { return l.Class == "Note" })
	})
	var wg sync.WaitGroup
	connections := make(chan struct{}, 1000) // at a time
	for range n {
		connections <- struct{}{}
		wg.Go(func() {
			defer func() { <-connections }()
			switch a := runSQL(r, "bad", statement{SQL: `SELECT 1`}); {
			case a.Status == http.StatusOK:
				served.Add(1)
			case a.Refused() && a.Header.Get("Dwk-Overload") == "object":
				overloaded.Add(1)
			case a.Refused(): // its turn did not come in time
			default:
				t.Errorf("one of many: %v", a)
			}
		})
	}
	wg.Wait()
	if a := <-busy; a.Status != http.StatusOK && !a.Refused() {
		t.Errorf("the event before them: %v", a)
	}
	if served.Load() == 0 || overloaded.Load() == 0 {
		t.Errorf("%d were served, %d turned away", served.Load(), overloaded.Load())
	}
	t.Logf("%d were served, %d turned away", served.Load(), overloaded.Load())
}
