package alarm

import (
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// an entry of somebody else does not keep a drained replica's leases.
func TestReleaseAllBesideADamagedLease(t *testing.T) {
	r := newRig(t, libsqltest.File(t))
	r.plan(func(p *kv.Plan) { p.Set(lease.Key("A", "00"), `"x"`, time.Hour) })
	r.acquire(id(1), time.Hour)
	n, err := ReleaseAll(t.Context(), r.store, "here")
	if n != 1 || err != nil {
		t.Errorf("%d released, %v", n, err)
	}
}
