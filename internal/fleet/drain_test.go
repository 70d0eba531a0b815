package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

func TestDrainBounds(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		request        fleet.DrainRequest
		grace, timeout time.Duration
	}{
		{fleet.DrainRequest{}, 5 * time.Second, 40 * time.Second},
		{fleet.DrainRequest{TimeoutMs: 60_000}, 5 * time.Second, time.Minute},
		{fleet.DrainRequest{TimeoutMs: 1000}, time.Second, time.Second},
		{fleet.DrainRequest{GraceMs: ms(0)}, 0, 35 * time.Second},
		{fleet.DrainRequest{GraceMs: ms(60_000)}, time.Minute, 95 * time.Second},
		{fleet.DrainRequest{GraceMs: ms(2000), TimeoutMs: 3000}, 2 * time.Second, 3 * time.Second},
		{fleet.DrainRequest{GraceMs: ms(-1), TimeoutMs: -1}, 0, 35 * time.Second},
		{fleet.DrainRequest{GraceMs: ms(1 << 62), TimeoutMs: 1 << 62}, time.Hour, time.Hour},
	} {
		if g, d := c.request.Bounds(5*time.Second, 40*time.Second); g != c.grace || d != c.timeout {
			t.Errorf("%+v: %v, %v, want %v, %v", c.request, g, d, c.grace, c.timeout)
		}
	}
}

func (r *rig) request(d fleet.DrainRequest) {
	r.t.Helper()
	asked, err := fleet.RequestDrain(r.t.Context(), r.store, d, "r1", "gone")
	if err != nil || len(asked) != 1 || asked[0] != "r1" {
		r.t.Fatalf("asked %v, %v", asked, err)
	}
}

func (r *rig) cancel() bool {
	r.t.Helper()
	ok, err := fleet.CancelDrain(r.t.Context(), r.store, "r1")
	if err != nil {
		r.t.Fatal(err)
	}
	return ok
}

func (r *rig) drainee() fleet.Drainee {
	r.t.Helper()
	all, err := fleet.Drainees(r.t.Context(), r.store)
	if err != nil {
		r.t.Fatal(err)
	}
	return all["r1"]
}

// stopping has the registry wait for the decision, which the caller's polls bring.
func (r *rig) stopping(ctx context.Context) <-chan error {
	c := make(chan error, 1)
	go func() { c <- r.reg.SetStopping(ctx) }()
	for !r.reg.Asked() {
		time.Sleep(time.Millisecond)
	}
	return c
}

func TestDrainRequests(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		if asked, err := fleet.RequestDrain(t.Context(), r.store, fleet.DrainRequest{}, "r1"); err != nil || len(asked) != 0 {
			t.Errorf("a replica that is not registered: %v, %v", asked, err)
		}
		r.poll()
		r.become(fleet.Ready)
		if r.cancel() {
			t.Error("withdrew nothing")
		}
		grace := int64(3000)
		r.request(fleet.DrainRequest{By: "a@b", TimeoutMs: 7, GraceMs: &grace})
		r.poll()
		r.poll()
		if len(r.drains) != 1 || r.drains[0].By != "a@b" || r.drains[0].TimeoutMs != 7 || *r.drains[0].GraceMs != 3000 || r.drains[0].RequestedAt < 1e12 {
			t.Errorf("told of %+v", r.drains)
		}
		r.request(fleet.DrainRequest{By: "c@d"})
		r.poll()
		if len(r.drains) != 2 || r.drains[1].By != "c@d" || r.withdrawn != 0 {
			t.Errorf("told of %+v, %d withdrawn", r.drains, r.withdrawn)
		}
		if d := r.drainee(); d.Live == nil || d.Live.State != fleet.Ready || d.Request == nil || d.Request.By != "c@d" {
			t.Errorf("%+v", d)
		}
		if !r.cancel() {
			t.Error("not withdrawn")
		}
		r.poll()
		r.poll()
		if r.withdrawn != 1 {
			t.Errorf("%d withdrawn", r.withdrawn)
		}
	})
}

// Either the cancellation or the stop succeeds.
func TestDrainDecision(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Draining)
		r.request(fleet.DrainRequest{})
		r.poll()
		c := r.stopping(t.Context())
		if !r.cancel() {
			t.Fatal("not withdrawn")
		}
		if again, _ := r.poll(); again {
			t.Error("it goes on trying to stop")
		}
		if err := <-c; !errors.Is(err, fleet.ErrWithdrawn) {
			t.Error(err)
		}
		if v, _, _ := r.entry(); v.State != fleet.Draining || r.withdrawn != 1 {
			t.Errorf("%+v, %d withdrawn", v, r.withdrawn)
		}
		r.become(fleet.Ready)
		r.request(fleet.DrainRequest{})
		r.poll()
		c = r.stopping(t.Context())
		r.poll()
		if err := <-c; err != nil {
			t.Error(err)
		}
		if r.cancel() {
			t.Error("withdrawn from a replica that is stopping")
		}
		if err := r.reg.Remove(t.Context(), "events: 2 run on"); err != nil {
			t.Fatal(err)
		}
		if d := r.drainee(); d.Live != nil || d.Request == nil || d.Request.Left != "events: 2 run on" {
			t.Errorf("%+v", d)
		}
		if r.cancel() {
			t.Error("withdrawn from a replica that is gone")
		}
	})
}

// A replica that could not wait for the decision stops, whatever becomes of the
// request.
func TestDrainUndecided(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Draining)
		r.request(fleet.DrainRequest{})
		r.poll()
		ctx, cancel := context.WithCancel(t.Context())
		c := r.stopping(ctx)
		stmts, sent := r.reg.Poll(0), time.Now()
		cancel()
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if !r.cancel() {
			t.Fatal("not withdrawn")
		}
		res, _, err := r.store.Write(t.Context(), stmts...)
		if err != nil {
			t.Fatal(err)
		}
		if !r.reg.Polled(res, nil, sent) {
			t.Error("it does not go on trying")
		}
		r.poll()
		if v, _, _ := r.entry(); v.State != fleet.Stopping {
			t.Errorf("%+v", v)
		}
	})
}

// An answer that was lost counts: the replica is stopping when its state says so.
func TestDrainDecisionLost(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Draining)
		r.request(fleet.DrainRequest{})
		r.poll()
		c := r.stopping(t.Context())
		stmts := r.reg.Poll(0)
		if _, _, err := r.store.Write(t.Context(), stmts...); err != nil {
			t.Fatal(err)
		}
		r.reg.Polled(nil, errors.New("lost"), time.Now())
		r.exec(`DELETE FROM kv WHERE k = ?`, tuple.MustEncode(fleet.DrainPrefix, "r1")) // as it would expire
		r.poll()
		if err := <-c; err != nil {
			t.Error(err)
		}
	})
}

// Members that this version does not know are none of its business, and one that
// it has added may be missing.
func TestDrainRequestOfAnotherVersion(t *testing.T) {
	var d fleet.DrainRequest
	if err := json.Unmarshal([]byte(`{"requested_at":1,"by":"x","timeout_ms":5,"new":[1]}`), &d); err != nil || d.GraceMs != nil || d.TimeoutMs != 5 {
		t.Errorf("%+v, %v", d, err)
	}
	b, err := json.Marshal(fleet.DrainRequest{RequestedAt: 1, By: "x", TimeoutMs: 5})
	if err != nil || string(b) != `{"requested_at":1,"by":"x","timeout_ms":5}` {
		t.Errorf("%s, %v", b, err)
	}
}
