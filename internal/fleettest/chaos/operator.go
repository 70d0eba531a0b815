package chaos

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/keeper"
)

// drain ends a replica in order, by a signal or by a command, and starts another.
func (w *world) drain(s *slot, st step) {
	r, _ := s.get()
	var h *hold
	if st.seed%2 == 0 {
		h = w.hold(s, 500*time.Millisecond)
	}
	s.put(r, false)
	w.end(r)
	w.drains.begin(r)
	at := time.Now()
	var wg sync.WaitGroup
	if h != nil {
		wg.Go(func() { w.takeOver(h, at, func(t *figures.Takeovers) *[]int64 { return &t.Drain }) })
	}
	if st.seed%3 == 0 {
		if res := w.fleet.Command("drain", r.ID, "--yes", "--wait"); res.Code != 0 && r.Exited() && r.ExitCode() == 0 {
			w.violate("drain", "drain", r.Name, "dwk drain: exit %d: %s", res.Code, res.Stderr)
		}
	} else {
		r.Terminate()
	}
	code := r.Wait()
	wg.Wait()
	w.drained(r.ID, r.Name, code, r.Log)
	w.join(s, st.shift)
}

// drained checks what a replica that ended in order has left.
func (w *world) drained(replica, name string, code int, log func() string) {
	w.note(func(r *figures.Robustness) { r.Drains++ })
	left := w.leasesOf(replica)
	if code == 0 && left == "" {
		return
	}
	w.violateAnd(func(r *figures.Robustness) { r.DrainFailures++ }, "drain", "drain", name, "it ended with %d and left the leases %q: %s", code, left, lastLines(log()))
}

// release has operators end leases that are in use: one by the command, and many
// as that would, for a while.
func (w *world) release(_ *slot, st step) {
	random := rand.New(rand.NewPCG(st.seed, 5))
	kind, name, _ := strings.Cut(w.stage.some(random), "/")
	class := map[string]string{"counter": "Counter", "note": "Note"}[kind]
	released := 0
	if w.fleet.CommandEnv([]string{"DWK_LIBSQL_TIMEOUT=10s"}, "lease", "release", class, "--name", name, "--yes").Code == 0 {
		released++
	}
	for end := time.Now().Add(st.lasts); time.Now().Before(end) && w.sleep(5*time.Millisecond); {
		for i, err := range lease.List(w.ctx, w.store, "") {
			if err != nil {
				break
			}
			if i.Class == "Timer" || random.IntN(2) == 0 {
				continue // an alarm that is cut off often enough is given up
			}
			h := lease.Held{Class: i.Class, ID: i.ID, Holder: i.Holder, Stamp: i.Stamp}
			if ok, err := h.Release(w.ctx, w.store); ok && err == nil {
				released++
			}
		}
	}
	w.note(func(r *figures.Robustness) { r.StaleAttempts += released })
}

func (w *world) redrive(*slot, step) { w.fleet.Command("queue", "redrive", "default", "--yes") }
func (w *world) sweep(*slot, step)   { w.fleet.Command("kv", "sweep") }

// merge merges logs as a replica would now and then.
func (w *world) merge(*slot, step) {
	b, err := s3.Open(w.objects)
	if err != nil {
		w.Errorf("open the object store: %v", err)
		return
	}
	defer b.Close()
	_, set, err := mode.Read(w.ctx, w.store)
	if err != nil {
		return // a fault is under way
	}
	k := keeper.New(keeper.Config{StoreID: set.ID, Dir: w.TempDir(), InlineLimit: inlineLimit}, w.store, keeper.InBucket(bucket.Retry(b)), slog.New(slog.DiscardHandler))
	k.Round(w.ctx) //nolint:errcheck // a fault may keep it from that
}

// restore brings a note that nobody else uses back to what it was.
func (w *world) restore(_ *slot, st step) {
	random := rand.New(rand.NewPCG(st.seed, 6))
	name := w.name("restored")
	var first int64
	for i := range 3 {
		a := w.caller(w.pick(random)).Do(http.MethodPut, "note/"+name, fmt.Sprintf("state %d", i))
		if a.Status/100 != 2 {
			return
		}
		if i == 0 {
			first = a.Txid()
		}
	}
	res := w.fleet.Command("object", "restore", "Note", "--name", name, "--to", strconv.FormatInt(first, 10), "--yes", "-o", "json")
	var out struct{ Txid int64 }
	if res.Code != 0 {
		return // it was refused, or could not be done
	}
	if err := json.Unmarshal([]byte(res.Stdout), &out); err != nil {
		w.Errorf("dwk object restore: %v in %s", err, res.Stdout)
		return
	}
	for _, s := range w.slots {
		a := w.caller(s).Do(http.MethodGet, "note/"+name, "")
		if a.Status == http.StatusOK && (a.Body != "state 0" || a.Txid() != out.Txid) {
			w.lost("note/"+name, "it was brought back to commit %d as commit %d, and is %q at %d", first, out.Txid, a.Body, a.Txid())
		}
	}
}
