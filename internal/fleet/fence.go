package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
)

// FenceStep is what a fence adds to the store's last versionstamp: more than any
// primary can have given out after its last backup.
const FenceStep = 1 << 32

// ErrInUse says that live replicas or leases are in the way.
var ErrInUse = errors.New("the store set is in use")

// Fenced is what a fence did.
type Fenced struct {
	Before, After kv.Versionstamp
	// Leases is how many were ended.
	Leases int
}

// noReplica demands, within a plan, that no replica is registered.
func noReplica(p *kv.Plan) {
	lo := tuple.MustEncode(ReplicaPrefix)
	p.Require(`NOT EXISTS (SELECT 1 FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+`)`, lo, tuple.RangeEnd(lo))
}

// Fence raises the versionstamps and ends all leases, in one commit: nobody who
// held a lease before passes as its holder any more, also when the primary has
// lost its last commits and would give their stamps again. It fails with
// [ErrInUse] when a replica lives, unless force.
func Fence(ctx context.Context, s *kv.Store, force bool) (Fenced, error) {
	p := kv.NewPlan()
	if !force {
		noReplica(p)
	}
	lo := tuple.MustEncode(lease.Prefix)
	seq := p.Add(`UPDATE kv_meta SET seq = seq + ? WHERE id = 0 AND ok = 1 RETURNING seq`, int64(FenceStep))
	leases := p.Add(`DELETE FROM kv WHERE k >= ? AND k < ? AND `+kv.OK+` RETURNING 1`, lo, tuple.RangeEnd(lo))
	// Replicas that live, if any, store theirs again.
	sockets := tuple.MustEncode(holders.Prefix)
	p.Add(`DELETE FROM kv WHERE k >= ? AND k < ? AND `+kv.OK, sockets, tuple.RangeEnd(sockets))
	v, err := s.Commit(ctx, p)
	switch {
	case err != nil:
		return Fenced{}, fmt.Errorf("fence: %w", err)
	case !v.OK:
		return Fenced{}, fmt.Errorf("%w: a replica is registered, nothing was changed", ErrInUse)
	}
	after := number(v.Results[seq], 0)
	return Fenced{Before: kv.Versionstamp(after - FenceStep), After: kv.Versionstamp(after), Leases: len(v.Results[leases].Rows)}, nil
}
