package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/mode"
)

// BeginMove marks the store set as being migrated by the move with this id, a
// UUID, so that no replica serves it. A move that has begun already goes on. It
// fails with [ErrInUse] when a replica or lease lives, and with
// [mode.ErrRefused] when the store set is not one to work on.
func BeginMove(ctx context.Context, s *kv.Store, id string) error {
	marker, stamp, err := readMarker(ctx, s)
	if err != nil || marker == mode.Moving(id) {
		return err
	}
	_, store, err := mode.Read(ctx, s)
	if err == nil {
		err = mode.Check(marker, store)
	}
	if err != nil {
		return err
	}
	p := kv.NewPlan()
	if err := errors.Join(p.CheckKey(mode.ModeKey, stamp), p.SetKey(mode.ModeKey, mode.Moving(id), 0)); err != nil {
		return err
	}
	noReplica(p)
	lo := tuple.MustEncode(lease.Prefix)
	// Commands leave leases when they are killed; who works on an object waits for
	// them.
	p.Require(`NOT EXISTS (SELECT 1 FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` AND NOT (json_valid(v) AND coalesce(json_extract(v, '$.event'), '') = ?))`,
		lo, tuple.RangeEnd(lo), lease.EventOperator)
	v, err := s.Commit(ctx, p)
	switch {
	case err != nil:
		return fmt.Errorf("mark the store set as being migrated: %w", err)
	case !v.OK:
		return fmt.Errorf("%w: a replica is registered or a lease lives; nothing was changed", ErrInUse)
	}
	return nil
}

// EndMove takes the mark of a move away, when it is there.
func EndMove(ctx context.Context, s *kv.Store, id string) error {
	marker, stamp, err := readMarker(ctx, s)
	if err != nil || marker != mode.Moving(id) {
		return err
	}
	p := kv.NewPlan()
	if err := errors.Join(p.CheckKey(mode.ModeKey, stamp), p.SetKey(mode.ModeKey, mode.Marker, 0)); err != nil {
		return err
	}
	v, err := s.Commit(ctx, p)
	if err == nil && !v.OK {
		err = errors.New("somebody else has changed it meanwhile")
	}
	if err != nil {
		return fmt.Errorf("take the mark of the migration away: %w", err)
	}
	return nil
}

// readMarker reads the mode with its stamp.
func readMarker(ctx context.Context, s *kv.Store) (marker string, stamp kv.Versionstamp, err error) {
	e, ok, err := s.Get(ctx, mode.ModeKey)
	if err != nil || !ok {
		return "", 0, err
	}
	if err := json.Unmarshal(e.Value, &marker); err != nil {
		return "", 0, fmt.Errorf("mode marker %s: %w", e.Value, err)
	}
	return marker, e.Stamp, nil
}
