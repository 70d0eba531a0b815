package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// A Survey is what an adoption of a store set would find.
type Survey struct {
	Status
	// Orphans are the alarms of objects that have no log here, at most
	// maxOrphans of them; OrphanCount counts all.
	Orphans     []Orphan
	OrphanCount int

	modeStamp, storeStamp kv.Versionstamp
}

// An Orphan is an alarm whose object has no log here.
type Orphan struct {
	Class string `json:"class"`
	ID    string `json:"id"`
	DueAt int64  `json:"due_at"`
}

// maxOrphans bounds the alarms that are named.
const maxOrphans = 1000

// Inspect surveys a store set that has the tables of a coordination store, and
// changes nothing.
func Inspect(ctx context.Context, s *kv.Store) (Survey, error) {
	var v Survey
	marker, haveMode, err := s.Get(ctx, mode.ModeKey)
	if err != nil {
		return v, err
	}
	id, haveID, err := s.Get(ctx, mode.StoreKey)
	if err != nil {
		return v, err
	}
	if haveMode {
		v.modeStamp = marker.Stamp
	}
	if haveID {
		v.storeStamp = id.Stamp
	}
	if v.Status, err = Look(ctx, s, nil); err != nil {
		return v, err
	}
	return v, v.findOrphans(ctx, s)
}

// findOrphans compares the alarms with the heads, a page at a time.
func (v *Survey) findOrphans(ctx context.Context, s *kv.Store) error {
	res, err := s.Decide(ctx, libsql.S(`SELECT count(*) FROM sqlite_master WHERE name = 'obj_head'`))
	if err != nil {
		return fmt.Errorf("look for objects: %w", err)
	}
	logs := number(res[0], 0) == 1
	var page []Orphan
	flush := func() error {
		known := map[Orphan]bool{}
		if logs {
			if known, err = withLog(ctx, s, page); err != nil {
				return err
			}
		}
		for _, o := range page {
			if known[Orphan{Class: o.Class, ID: o.ID}] {
				continue
			}
			if v.OrphanCount++; len(v.Orphans) < maxOrphans {
				v.Orphans = append(v.Orphans, o)
			}
		}
		page = page[:0]
		return nil
	}
	for e, err := range s.List(ctx, kv.ListOptions{Prefix: tuple.Key{alarm.SlotPrefix}}) {
		if err != nil {
			return err
		}
		if len(e.Key) != 3 {
			continue
		}
		var o Orphan
		var slot alarm.Slot
		o.Class, _ = e.Key[1].(string)
		o.ID, _ = e.Key[2].(string)
		if err := json.Unmarshal(e.Value, &slot); err != nil {
			return fmt.Errorf("alarm %s: %w", e.Key, err)
		}
		o.DueAt = slot.Asked()
		if page = append(page, o); len(page) == 500 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// withLog returns those objects of a list that have a log here.
func withLog(ctx context.Context, s *kv.Store, list []Orphan) (map[Orphan]bool, error) {
	pairs := make([][2]string, len(list))
	for i, o := range list {
		pairs[i] = [2]string{o.Class, o.ID}
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	res, err := s.Decide(ctx, libsql.S(`SELECT h.class, h.id FROM json_each(?) o JOIN obj_head h ON h.class = o.value->>0 AND h.id = o.value->>1 WHERE h.deleted_at IS NULL`, string(text)))
	if err != nil {
		return nil, fmt.Errorf("look for objects: %w", err)
	}
	known := map[Orphan]bool{}
	for _, row := range res[0].Rows {
		class, _ := row[0].(string)
		id, _ := row[1].(string)
		known[Orphan{Class: class, ID: id}] = true
	}
	return known, nil
}

// ErrNothingToAdopt says that a store set is this program's already, or a new
// one.
var ErrNothingToAdopt = errors.New("there is nothing to adopt")

// Adoptable judges whether [Adopt] may take the store set over: one of an older
// host, of which nothing runs any more.
func (v Survey) Adoptable() error {
	switch {
	case v.New():
		return fmt.Errorf("%w: the store set is new, the first dwk serve claims it", ErrNothingToAdopt)
	case mode.Check(v.Mode, v.Store) == nil:
		return ErrNothingToAdopt
	case v.Mode != mode.OlderHost:
		return mode.Check(v.Mode, v.Store)
	case v.Store.ID != "" && v.Store.Layout != mode.Layout:
		return mode.Check(mode.Marker, v.Store)
	case len(v.Replicas) > 0:
		return fmt.Errorf("%w: %s registered, the first is %s: stop them", ErrInUse, count(int64(len(v.Replicas)), "replica"), v.Replicas[0].ID)
	case v.Leases > 0:
		return fmt.Errorf("%w: %s: stop the older host, and wait until they are over", ErrInUse, count(v.Leases, "live lease"))
	}
	return nil
}

// Adopt makes a store set of an older host this program's, when it is still as
// it was surveyed, and adds what is missing. Nothing that is there is changed but
// the marker.
func Adopt(ctx context.Context, s *kv.Store, v Survey) (mode.Store, error) {
	if err := v.Adoptable(); err != nil {
		return mode.Store{}, err
	}
	if err := s.Init(ctx, objlog.Schema...); err != nil {
		return mode.Store{}, err
	}
	p := kv.NewPlan()
	id, err := v.Store, error(nil)
	if id.ID == "" {
		id = mode.Store{ID: uuid.NewString(), Layout: mode.Layout, CreatedAt: v.NowMs}
		err = p.SetKey(mode.StoreKey, id, 0)
	}
	err = errors.Join(err, p.CheckKey(mode.ModeKey, v.modeStamp), p.CheckKey(mode.StoreKey, v.storeStamp), p.SetKey(mode.ModeKey, mode.Marker, 0))
	if err != nil {
		return mode.Store{}, err
	}
	noReplica(p)
	lo := tuple.MustEncode(lease.Prefix)
	p.Require(`NOT EXISTS (SELECT 1 FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+`)`, lo, tuple.RangeEnd(lo))
	verdict, err := s.Commit(ctx, p)
	switch {
	case err != nil:
		return mode.Store{}, fmt.Errorf("adopt the store set: %w", err)
	case !verdict.OK:
		return mode.Store{}, fmt.Errorf("%w: it changed meanwhile, or somebody works on it; nothing was adopted", ErrInUse)
	}
	return id, nil
}
