package fleet_test

import (
	"testing"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// A registry entry that somebody has damaged is written again.
func TestDamagedRegistryEntry(t *testing.T) {
	eachRig(t, func(t *testing.T, r *rig) {
		r.poll()
		r.become(fleet.Ready)
		r.exec(`UPDATE kv SET v = 'no JSON', ver = ver + 1 WHERE k = ?`, tuple.MustEncode(fleet.ReplicaPrefix, "r1"))
		ctx := t.Context()
		go r.reg.SetState(ctx, fleet.Draining) //nolint:errcheck
		var err error
		for range 50 {
			if stmts := r.reg.Poll(0); len(stmts) > 0 {
				if _, _, err = r.store.Write(ctx, stmts...); err != nil {
					break
				}
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}
