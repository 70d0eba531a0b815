package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/backlog"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/queue"
)

// openFleet makes the poller with all its parts. It polls when the replica has
// all else: see join.
func (r *replica) openFleet() error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	scheme := "http"
	if r.cfg.TLS.Cert != "" {
		scheme = "https"
	}
	r.openPoller()
	r.registry = fleet.NewRegistry(fleet.RegistryConfig{
		ID: r.id, Host: host, PID: os.Getpid(), Version: r.opts.Version, Public: scheme + "://" + r.public.Addr().String(),
		StoreID: r.storeID, TTL: r.cfg.Fleet.HeartbeatTTL, Load: r.load, Step: r.stopStep, Wake: r.poller.Wake,
		OnDrain:     func(d fleet.DrainRequest) { r.ask(&d) },
		OnWithdrawn: func() { r.ask(nil) },
		OnRefused:   func(err error) { r.end(ending{by: "the store set", err: err}) },
	}, r.stores.KV, r.log)
	r.openQueues()
	r.poller.AddLasting(r.registry)
	return nil
}

func (r *replica) openPoller() {
	r.poller = fleet.New(fleet.Config{
		Interval: r.cfg.Fleet.PollInterval,
		// A poll is as good as the read that readiness would make.
		Observed: func(err error) { r.ready.Observe(coordination, err) },
	}, r.stores.KV, r.log)
}

// poll adds what is polled until the replica stops, besides the registry. All
// applications are mounted.
func (r *replica) poll() {
	// Sockets hear what others say until they are closed, which comes late in a stop.
	r.poller.AddLasting(r.objects.Holds())
	r.poller.Add(r.objects.Alarms(), r.consumers, r.crons, r.backlog, &fleet.Sweep{Batch: r.cfg.Fleet.SweepBatch, Log: r.log})
}

// watch has the backlog of what the applications have brought counted.
func (r *replica) watch(apps []durable.App) {
	var sources []backlog.Source
	for _, app := range apps {
		for _, class := range slices.Sorted(maps.Keys(app.Classes)) {
			sources = append(sources, backlog.Source{Kind: "alarms", Name: class, Due: alarm.DuePrefix, Dead: alarm.DeadPrefix})
		}
	}
	for _, q := range r.cfg.Queues {
		sources = append(sources, backlog.Source{Kind: "queue", Name: q.Name, Due: queue.PrefixDue, Dead: queue.PrefixDead})
	}
	r.backlog = backlog.New(sources...)
}

// stopStep is the step of the stop, or "".
func (r *replica) stopStep() string {
	step, _ := r.step.Load().(string)
	return step
}

func (r *replica) load() fleet.Load {
	s := r.objects.Stats()
	return fleet.Load{InFlight: r.public.Active(), Objects: s.Objects, Sockets: s.Sockets}
}

// join begins to poll and waits until the replica is registered.
func (r *replica) join(ctx context.Context) error {
	r.poll()
	if err := r.poller.Start(ctx); err != nil {
		return err
	}
	r.undo = append(r.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), r.cfg.LibSQL.Timeout)
		defer cancel()
		return r.leave(ctx, "")
	})
	call, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return r.registry.SetState(call, fleet.Starting)
}

// leave ends polling and removes the registry entry, once. Left is what had not
// finished.
func (r *replica) leave(ctx context.Context, left string) error {
	if r.left {
		return nil
	}
	r.left = true
	return errors.Join(r.poller.Stop(ctx), r.registry.Remove(ctx, left))
}
