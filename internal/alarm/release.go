package alarm

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

// ReleaseAll ends every lease of a replica that stops, and makes the alarms that
// are claimed under them due again, uncounted. It returns how many leases there
// were.
func ReleaseAll(ctx context.Context, s *kv.Store, replica string) (int, error) {
	n := 0
	var failed error
	for info, err := range lease.List(ctx, s, "") {
		if err != nil {
			// A damaged lease is nobody's; it stops nobody from releasing his own.
			if info.ID == "" {
				failed = errors.Join(failed, fmt.Errorf("leases of replica %s: %w", replica, err))
			}
			continue
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
			failed = errors.Join(failed, fmt.Errorf("release lease of %s/%s: %w", info.Class, info.ID, err))
			continue
		}
		if v.OK {
			n++
		}
	}
	return n, failed
}
