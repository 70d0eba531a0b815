package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// entryTTL ends an entry that could not be removed.
const entryTTL = 60 * time.Second

// open looks for the tables and creates them in a new store set, and has the
// coordination store learn the primary's clock. It adds nothing to a store set
// of another mode.
func (p *prober) open(g *group) error {
	return g.step("open", func(ctx context.Context) error {
		res, err := p.DB.Batch(ctx, libsql.Read, libsql.S(`SELECT
		(SELECT count(*) FROM sqlite_master WHERE name IN ('kv', 'kv_meta')), (SELECT count(*) FROM sqlite_master WHERE name IN ('obj_head', 'obj_log'))`))
		if err != nil {
			return err
		}
		entries, logs := res[0].Rows[0][0], res[0].Rows[0][1]
		marker := ""
		if entries == int64(2) {
			if marker, _, err = mode.Read(ctx, p.KV); err != nil {
				return err
			}
		}
		switch {
		case entries == int64(2) && logs == int64(2):
		case marker == "" || marker == mode.Marker:
			if err := p.KV.Init(ctx, objlog.Schema...); err != nil {
				return err
			}
			g.note("open", "new store set: its empty tables were created", false)
		default:
			p.noLogs = fmt.Sprintf("the store set has no object logs (mode %q)", marker)
		}
		_, err = p.KV.Now(ctx)
		return err
	}, nil)
}

// entries writes, reads, compares and removes one entry.
func (p *prober) entries(g *group) (err error) {
	key := tuple.Key{"dwk_meta", "probe", uuid.NewString()}
	gone := false
	defer func() {
		if !gone {
			ctx, cancel := cleanup(g.ctx)
			defer cancel()
			_ = p.KV.Delete(ctx, key) // the entry expires by itself
		}
	}()
	var stamp kv.Versionstamp
	if err := g.step("write", func(ctx context.Context) (err error) {
		stamp, err = p.KV.Set(ctx, key, true, entryTTL)
		gone = err != nil && libsql.OutcomeOf(err) != libsql.Unknown
		return err
	}, nil); err != nil {
		return err
	}
	if err := p.read(g, key, stamp); err != nil {
		return err
	}
	if err := p.compareAndSet(g, key, stamp); err != nil {
		return err
	}
	var still bool
	return g.step("delete", func(ctx context.Context) error {
		err := p.KV.Delete(ctx, key)
		if err == nil {
			_, still, err = p.KV.Get(ctx, key)
		}
		return err
	}, func() error {
		if still {
			return wrong("an entry that was deleted is still there")
		}
		gone = true
		return nil
	})
}

func (p *prober) read(g *group, key tuple.Key, stamp kv.Versionstamp) error {
	var e kv.Entry
	var ok bool
	return g.step("read", func(ctx context.Context) (err error) {
		e, ok, err = p.KV.Get(ctx, key)
		return err
	}, func() error {
		switch {
		case !ok:
			return wrong("an entry that was written is not there")
		case string(e.Value) != "true" || e.Stamp != stamp || e.ExpiresAt == 0:
			return wrong("an entry was read back as %s with versionstamp %s, and was written as true with %s", e.Value, e.Stamp, stamp)
		}
		return nil
	})
}

// compareAndSet has one commit refused, because of a stamp that is not the
// entry's, and one applied.
func (p *prober) compareAndSet(g *group, key tuple.Key, stamp kv.Versionstamp) error {
	commit := func(ctx context.Context, expected kv.Versionstamp) (kv.Verdict, error) {
		plan := kv.NewPlan()
		if err := errors.Join(plan.CheckKey(key, expected), plan.SetKey(key, true, entryTTL)); err != nil {
			return kv.Verdict{}, err
		}
		return p.KV.Commit(ctx, plan)
	}
	var refused, applied kv.Verdict
	return g.step("compare-and-set", func(ctx context.Context) (err error) {
		if refused, err = commit(ctx, 0); err == nil {
			applied, err = commit(ctx, stamp)
		}
		return err
	}, func() error {
		switch {
		case refused.OK:
			return wrong("a commit was applied that demands the absence of an entry that is there")
		case !applied.OK:
			return wrong("a commit was refused that names the versionstamp of its entry")
		case applied.Stamp <= stamp:
			return wrong("versionstamp %s was given after %s", applied.Stamp, stamp)
		}
		return nil
	})
}
