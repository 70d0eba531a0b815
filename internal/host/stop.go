package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/server"
)

// stateTimeout bounds how long a stop waits until the registry shows a state.
// The polls go on trying, and nothing depends on it.
const stateTimeout = 2 * time.Second

// run serves until something ends it, and stops in order.
func (r *replica) run(ctx context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- r.public.Serve(r.site) }()
	go func() { failed <- r.admin.Serve(r.control) }()
	r.serving(ctx)
	public, admin := r.public.Addr().String(), r.admin.Addr().String()
	r.log.Info(event.ServeStarted, "public", public, "admin", admin, "version", r.opts.Version)
	if r.opts.Started != nil {
		r.opts.Started(public, admin)
	}
	running := 2
	var e ending
	var err error
	for {
		e = r.wait(ctx, failed)
		if err = r.drain(ctx, e); !errors.Is(err, fleet.ErrWithdrawn) {
			break
		}
		r.log.Info(event.DrainWithdrawn, "by", e.by)
		r.serving(ctx)
	}
	if e.failed {
		running--
	}
	for ; running > 0; running-- {
		err = errors.Join(err, <-failed)
	}
	r.close()
	if err == nil {
		r.log.Info(event.ServeStopped)
	}
	return err
}

// serving has the replica show as ready.
func (r *replica) serving(ctx context.Context) {
	r.public.Stay()
	r.step.Store("")
	r.objects.Hasten(false)
	r.ready.SetState(server.StateReady)
	r.announce(ctx, fleet.Ready)
}

// announce has the registry show a state.
func (r *replica) announce(ctx context.Context, s fleet.State) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	if err := r.registry.SetState(ctx, s); err != nil {
		r.log.Warn(event.FleetReplicaState, event.KeyError, err)
	}
}

// drain is the orderly end of a replica. It fails with [fleet.ErrWithdrawn],
// and has ended nothing, when the request to stop is withdrawn before the replica
// is stopping.
func (r *replica) drain(ctx context.Context, e ending) error {
	r.log.Info(event.ServeStopping, "by", e.by, "grace", e.grace.String(), "timeout", e.timeout.String())
	r.step.Store("grace")
	if r.opts.Stopping != nil {
		r.opts.Stopping(r.abandon)
	}
	r.ready.SetState(server.StateDraining)
	r.public.Leave()
	r.objects.Hasten(true)
	r.announce(context.Background(), fleet.Draining)
	e, err := r.grace(ctx, e)
	if err == nil {
		err = r.decide(ctx, e)
	}
	if err != nil {
		return err
	}
	r.ready.SetState(server.StateStopping)
	return errors.Join(e.err, r.stop(e))
}

// decide has the registry show that the replica is stopping, from when nothing
// stops it. A request that can be withdrawn has to be there still: the store is
// given time to say so, and the stop goes on when it cannot.
func (r *replica) decide(ctx context.Context, e ending) error {
	if !e.asked {
		r.announce(context.Background(), fleet.Stopping)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.LibSQL.Timeout, max(e.left(), stateTimeout)))
	defer cancel()
	err := r.registry.SetStopping(ctx)
	if err == nil || errors.Is(err, fleet.ErrWithdrawn) {
		return err
	}
	r.log.Warn(event.FleetReplicaState, event.KeyError, err)
	return nil
}

// stop ends all that the replica does, step by step.
func (r *replica) stop(e ending) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.left())
	defer cancel()
	var left []string
	step := func(name string, f func() error) {
		r.step.Store(name)
		began := clock.Now()
		if err := f(); err != nil {
			left = append(left, name+": "+err.Error())
			return
		}
		r.log.Info(event.DrainStepDone, "step", name, event.KeyTook, clock.Since(began))
	}
	// What is claimed from now on would not be finished. Heartbeats go on.
	step("poller", func() error { return r.poller.Quiesce(ctx) })
	step("requests", func() error { return errors.Join(r.public.Shutdown(ctx), r.public.Close()) })
	// Schedules and consumers call objects.
	step("schedules", func() error { return r.crons.Stop(ctx) })
	step("consumers", func() error { return r.stopConsumers(ctx, e.left()) })
	// Objects are told of the ends of their sockets, so events come behind.
	step("sockets", func() error { return r.objects.CloseSockets(ctx, r.cfg.Drain.SocketCode) })
	step("events", func() error { return r.objects.Stop(ctx) })
	// The store has its own time for what others would wait for.
	last := func(f func(context.Context) error) func() error {
		return func() error {
			call, cancel := context.WithTimeout(context.Background(), r.cfg.LibSQL.Timeout)
			defer cancel()
			return f(call)
		}
	}
	step("leases", last(r.releaseLeases))
	step("registry", last(func(call context.Context) error { return r.leave(call, strings.Join(left, "; ")) }))
	step("admin", func() error { return errors.Join(r.admin.Shutdown(ctx), r.admin.Close()) })
	if len(left) > 0 {
		return fmt.Errorf("replica %s stopped, but not everything had finished: %s", r.id, strings.Join(left, "; "))
	}
	return nil
}

// releaseLeases ends what leases the replica has not ended itself, and removes
// the entries of its sockets.
func (r *replica) releaseLeases(ctx context.Context) error {
	n, err := alarm.ReleaseAll(ctx, r.stores.KV, r.id)
	if n > 0 {
		r.log.Warn(event.LeaseReleaseLost, event.KeyCount, n)
	}
	return errors.Join(err, holders.RemoveAll(ctx, r.stores.KV, r.id))
}

// abandon logs what has not finished.
func (r *replica) abandon() {
	consumers := 0
	for _, s := range r.consumers.Stats() {
		consumers += s.Running
	}
	runs := 0
	for _, s := range r.crons.Statuses() {
		runs += s.Running
	}
	r.log.Error(event.DrainAbandoned, "step", r.step.Load(), "requests", r.public.Active(), "events", r.objects.Stats().Running, "sockets", r.objects.Stats().Sockets, "consumers", consumers, "runs", runs)
}
