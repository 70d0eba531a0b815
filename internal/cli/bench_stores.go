package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
)

// cleanTimeout bounds the removal of what a load has written.
const cleanTimeout = 30 * time.Second

// benchStores loads the coordination store of the configuration.
func benchStores(ctx context.Context, e *env, o benchOptions) (r *benchReport, err error) {
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := o.permit(ctx, e, s); err != nil {
		return nil, err
	}
	subject := benchSubject{target: bench.Entries{Store: s.KV, Seed: o.load.Seed}, trips: func(context.Context) (int64, error) { return s.DB.Trips(), nil }}
	if path, err := config.FilePath(s.Config.LibSQLURLOrDefault()); err == nil {
		subject.disk = filepath.Dir(path)
	} else if o.disk {
		return nil, usagef("--disk-baseline: the disk of %s is not known", s.DB)
	}
	r, err = o.measure(ctx, e, subject)
	// Also what an interrupted run has written goes.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	removed, cleanErr := bench.Entries{Store: s.KV, Seed: o.load.Seed}.Clean(clean)
	if cleanErr != nil {
		e.term.Notef("entries with the prefix [%q] are left, and expire within the hour: %v", "dwk_bench", cleanErr)
	}
	if err != nil {
		return nil, err
	}
	e.term.Detailf("removed %d entries", removed)
	r.Subject, r.Store = "stores", s.DB.String()
	if cleanErr != nil {
		r.Left = append(r.Left, `entries with the prefix ["dwk_bench"], which expire within the hour`)
	}
	return r, nil
}

// benchTargets loads a fleet that runs.
func benchTargets(ctx context.Context, e *env, o benchOptions) (*benchReport, error) {
	lab, err := bench.NewLab(o.targets, o.load.Seed)
	if err != nil {
		return nil, usageError{err}
	}
	defer lab.Close()
	s, err := e.open(ctx)
	switch {
	case err == nil:
		defer s.Close()
	case errors.Is(err, host.ErrNoStore): // the target has another one
	default:
		return nil, err
	}
	if err := o.permit(ctx, e, s); err != nil {
		return nil, err
	}
	r, err := o.measure(ctx, e, benchSubject{target: lab})
	if err != nil {
		return nil, withHint(err, "objects that were made, named %s and so on, stay", lab.Name(0))
	}
	r.Subject = "target"
	r.Left = append(r.Left, fmt.Sprintf("objects named %s to %s", lab.Name(0), lab.Name(o.load.Objects-1)))
	return r, nil
}

// permit refuses to load stores that hold objects of others, or of which that
// is not known (nil), unless it was told twice.
func (o benchOptions) permit(ctx context.Context, e *env, s *host.Stores) error {
	what := "what else is in the target's stores is not known: they are not those of the configuration"
	if s != nil {
		n, some, err := bench.Foreign(ctx, s.DB)
		if err != nil {
			return err
		}
		if what = ""; n > 0 {
			what = fmt.Sprintf("%s holds %d objects that are no bench's (%s)", s.DB, n, strings.Join(some, ", "))
		}
	}
	if what != "" && !(o.yes && o.told) {
		return withHint(errors.New(what), "to load it all the same: --yes --i-know-this-store-has-data")
	}
	where := "the target"
	if len(o.targets) == 0 {
		where = s.DB.String()
	}
	return e.confirm(ctx, o.yes, "Load %s?", where)
}
