package host

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/mode"
)

// ErrNotMounted says that a configuration does not mount an application.
var ErrNotMounted = errors.New("the configuration does not mount the application")

// Operate runs work of an operator in the environment that an application has
// on a replica, without being one: it serves nothing, is not registered, and
// takes no alarm, message or schedule. The objects that the work calls run in
// this process, and their leases have ended when it returns. It fails with
// [ErrNoStore] when no replica has ever run on the stores.
func Operate(ctx context.Context, o ServeOptions, app string, work func(context.Context, durable.Env) error) error {
	if err := mode.CheckDataDir(o.Config.DataDir); err != nil {
		return err
	}
	existing, err := OpenExisting(ctx, o.Config)
	if err != nil {
		return err
	}
	if err := existing.Close(); err != nil {
		return err
	}
	r := newReplica(o)
	defer r.close()
	e, err := r.operator(ctx, app)
	if err != nil {
		return err
	}
	err = work(ctx, e)
	if err != nil {
		err = errors.Join(r.refused(), err)
	}
	return errors.Join(err, r.settle())
}

// refused is the error of a store set that is no longer one to work on.
func (r *replica) refused() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.LibSQL.Timeout)
	defer cancel()
	marker, id, err := mode.Read(ctx, r.stores.KV)
	if err != nil {
		return nil // the work's own error says what is wrong
	}
	return mode.Check(marker, id)
}

// operator starts what an operator's work needs of a replica.
func (r *replica) operator(ctx context.Context, app string) (*env, error) {
	base, err := url.Parse(r.cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	envs, err := r.environments(base)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(envs, func(e *env) bool { return e.app.Name == app })
	if i < 0 {
		return nil, fmt.Errorf("%w %s", ErrNotMounted, app)
	}
	if err := r.openStores(ctx); err != nil {
		return nil, err
	}
	// Nothing tells it when the store set is to be moved: no commit of it, that
	// takes a lease for one, passes any more when the mark is another one.
	cond, args := mode.Serving()
	r.stores.KV = r.stores.KV.Guarded(cond, args...)
	if err := r.openObjects(); err != nil {
		return nil, err
	}
	r.openPoller() // told of work, but never started
	r.openQueues()
	if err := r.require([]durable.App{envs[i].app}); err != nil {
		return nil, err
	}
	for _, e := range envs {
		if err := r.register(e); err != nil {
			return nil, err
		}
	}
	return envs[i], nil
}

// settle waits for the events and the background work, and ends all leases.
func (r *replica) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Drain.Timeout)
	defer cancel()
	err := r.objects.Stop(ctx)
	call, end := context.WithTimeout(context.Background(), r.cfg.LibSQL.Timeout)
	defer end()
	return errors.Join(err, r.releaseLeases(call))
}
