package alarm

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

// ReleaseAll ends every lease of a replica that stops, and makes the alarms that
// are claimed under them due again, uncounted. It returns how many leases there
// were.
func ReleaseAll(ctx context.Context, s *kv.Store, replica string) (int, error) {
	n := 0
	for info, err := range lease.List(ctx, s, "") {
		if err != nil {
			return n, fmt.Errorf("leases of replica %s: %w", replica, err)
		}
		if info.Replica != replica {
			continue
		}
		h := lease.Held{Class: info.Class, ID: info.ID, Holder: info.Holder, Stamp: info.Stamp}
		p := kv.NewPlan()
		h.Require(p)
		AddHandBack(p, h, 0)
		h.AddRelease(p)
		v, err := s.Commit(ctx, p)
		if err != nil {
			return n, fmt.Errorf("release lease of %s/%s: %w", info.Class, info.ID, err)
		}
		if v.OK {
			n++
		}
	}
	return n, nil
}
