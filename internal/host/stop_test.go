package host

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

// A stop ends leases of the replica that none of its parts knows of, as one that
// was taken by a statement whose answer never came.
func TestStopEndsForgottenLeases(t *testing.T) {
	cfg := testConfig(t, nil)
	public, _, stop := serve(t, cfg)
	code, replica := get(t, public+"/echo/")
	if code != http.StatusOK || replica == "" {
		t.Fatalf("echo: %d %q", code, replica)
	}
	s, err := OpenExisting(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for id, of := range map[string]string{"0a": replica, "0b": "another"} {
		p := kv.NewPlan()
		if _, err := (lease.Attempt{Class: "Echo", ID: id, Holder: "h" + id, Replica: of, Event: lease.EventRequest, TTL: time.Hour, DeadlineMs: 1 << 50}).Add(p); err != nil {
			t.Fatal(err)
		}
		if v, err := s.KV.Commit(t.Context(), p); err != nil || !v.OK {
			t.Fatal(v.OK, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]bool{"0a": false, "0b": true} {
		if _, live, err := lease.Inspect(context.Background(), s.KV, "Echo", id); live != want || err != nil {
			t.Errorf("lease of %s after the stop: %v %v, want %v", id, live, err, want)
		}
	}
}
