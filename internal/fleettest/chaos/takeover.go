package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A hold is a note that a replica works at when a fault befalls it: an event
// that writes, waits and writes again.
type hold struct {
	name   string
	slot   *slot
	victim *fleettest.Replica
	answer chan fleettest.Answer
	// held is set when its replica was seen to have the lease.
	held bool
	// got is the answer when there is one, and other that of the replica that
	// took over, unless nobody did.
	got   fleettest.Answer
	other *fleettest.Answer
}

// holdFor is longer than it takes to make a fault. It is shorter than the
// deadline of an event.
const holdFor = 8 * time.Second

// hold has the slot's replica work at a note of its own for so long.
func (w *world) hold(s *slot, lasts time.Duration) *hold {
	r, _ := s.get()
	h := &hold{name: w.name("hold"), slot: s, victim: r, answer: make(chan fleettest.Answer, 1)}
	c := w.caller(s)
	w.wg.Go(func() {
		h.answer <- c.Do(http.MethodPost, fmt.Sprintf("note/%s/sleep?ms=%d", h.name, lasts.Milliseconds()), "")
	})
	w.mu.Lock()
	w.holds = append(w.holds, h)
	w.mu.Unlock()
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		if h.held = w.holder("Note", h.name) == r.ID; h.held {
			break
		}
		if !w.sleep(10 * time.Millisecond) {
			break
		}
	}
	return h
}

// holder is the replica that has the lease of an object, "" without one.
func (w *world) holder(class, name string) string {
	key := tuple.MustEncode(lease.Prefix, class, id(name))
	res, err := w.store.Decide(w.ctx, libsql.S(`SELECT json_extract(CAST(v AS TEXT), '$.replica') FROM kv WHERE k = ? AND expires_at > CAST(round(unixepoch('subsec')*1000) AS INTEGER)`, key))
	if err != nil || len(res[0].Rows) == 0 {
		return ""
	}
	text, _ := res[0].Rows[0][0].(string)
	return text
}

// takeOver has other replicas write to the note until one has, and records how
// long that took since the fault.
func (w *world) takeOver(h *hold, at time.Time, times func(*figures.Takeovers) *[]int64) {
	random := rand.New(rand.NewPCG(uint64(at.UnixNano()), 3))
	for deadline := at.Add(patience); time.Now().Before(deadline) && w.ctx.Err() == nil; {
		s := w.pick(random)
		if s == h.slot {
			w.sleep(5 * time.Millisecond)
			continue
		}
		a := w.caller(s).Do(http.MethodPost, "note/"+h.name+"/sql", `[{"sql":"CREATE TABLE IF NOT EXISTS taken(x)"},{"sql":"INSERT INTO taken VALUES(1)"}]`)
		if a.Status == http.StatusOK {
			h.other = &a
			if !h.held {
				return // it took over from nobody
			}
			w.note(func(r *figures.Robustness) {
				list := times(&r.Takeovers)
				*list = append(*list, time.Since(at).Milliseconds())
			})
			return
		}
		w.sleep(5 * time.Millisecond)
	}
	if w.ctx.Err() == nil {
		w.violate("single writer", "takeover", "note/"+h.name, "no other replica could write within %v after its replica was gone", patience)
	}
}

// checkHolds compares the notes with what became of the events that held them:
// one that was refused has left nothing, one that was answered both its rows, and
// none of the others half of it.
func (w *world) checkHolds() {
	for _, h := range w.holds {
		select {
		case h.got = <-h.answer:
		case <-time.After(patience):
			w.violate("answers", "quiet", "note/"+h.name, "no answer within %v", patience)
			continue
		}
		var list struct {
			Sleeps []struct {
				ID    int64
				Begun *int64
			}
		}
		a := w.settled("note/" + h.name + "/sleeps")
		if err := json.Unmarshal([]byte(a.Body), &list); a.Status != http.StatusOK || err != nil {
			w.violate("answers", "quiet", "note/"+h.name, "it cannot be read: %v", a)
			continue
		}
		whole, half := 0, 0
		for _, s := range list.Sleeps {
			if s.Begun == nil {
				half++
			} else {
				whole++
			}
		}
		object := "note/" + h.name
		switch n := len(list.Sleeps); {
		case half != whole || n > 2:
			w.violate("one commit", "half", object, "%d rows of one event: %d begin and %d end it; it was answered %v", n, half, whole, h.got)
		case h.got.Status == http.StatusOK && n == 0:
			w.lost(object, "its event was answered %v, and nothing of it is there", h.got)
		case h.got.Refused() && n > 0:
			w.applied(object, "its event was answered %v, and is there", h.got)
		}
	}
}

func (w *world) lost(object, format string, args ...any) {
	w.violateAnd(func(r *figures.Robustness) { r.Lost++ }, "output gate", "lost", object, format, args...)
}

func (w *world) doubled(object, format string, args ...any) {
	w.violateAnd(func(r *figures.Robustness) { r.Doubled++ }, "one commit", "doubled", object, format, args...)
}

func (w *world) applied(object, format string, args ...any) {
	w.violateAnd(func(r *figures.Robustness) { r.Applied++ }, "answers", "applied", object, format, args...)
}

func (w *world) stale(object, format string, args ...any) {
	w.violateAnd(func(r *figures.Robustness) { r.Stale++ }, "single writer", "stale", object, format, args...)
}
