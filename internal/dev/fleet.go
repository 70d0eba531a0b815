package dev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"sync"
	"time"
)

// A Config says how replicas are run.
type Config struct {
	Replicas int
	// Command makes the command of a replica, a number from 1. Its process must
	// end in order by SIGTERM, and at once when its stdin ends; on stdout it says
	// where it listens when it is ready, as an [Addresses].
	Command func(replica int) *exec.Cmd
	// Line is called with each line of a replica's log. Notef is told what
	// happens to replicas. Both may be called at the same time.
	Line  func(replica int, line []byte)
	Notef func(format string, args ...any)
	// Patience bounds the orderly end of a replica.
	Patience time.Duration
}

// Addresses are where a replica listens, host:port each.
type Addresses struct {
	Public string `json:"public"`
	Admin  string `json:"admin"`
}

// A Fleet keeps replicas running: one that ends is started again.
type Fleet struct {
	cfg     Config
	members []*member
	client  *http.Client
	stop    context.CancelFunc
	running sync.WaitGroup
	// changed is signalled when a replica has become ready.
	changed chan struct{}
	failed  chan error
}

// Start starts the replicas.
func Start(cfg Config) *Fleet {
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{
		cfg: cfg, stop: stop, changed: make(chan struct{}, 1), failed: make(chan error, cfg.Replicas),
		client: &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Second},
	}
	for i := range cfg.Replicas {
		f.members = append(f.members, &member{fleet: f, number: i + 1})
	}
	for _, m := range f.members {
		f.running.Go(func() { m.run(ctx) })
	}
	return f
}

// Failed has an error when a replica ends at its first start, which then is of
// no use to repeat.
func (f *Fleet) Failed() <-chan error { return f.failed }

// WaitReady waits until all replicas are ready.
func (f *Fleet) WaitReady(ctx context.Context) error {
	for len(f.Ready()) < len(f.members) {
		select {
		case <-f.changed:
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Ready returns the public addresses of the ready replicas.
func (f *Fleet) Ready() (list []string) {
	for _, m := range f.members {
		if s := m.state(); s.ready {
			list = append(list, s.Public)
		}
	}
	return list
}

// A Process is a replica's process.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // 0 when it does not run
	Addresses
}

// Processes returns the replicas, whatever their state.
func (f *Fleet) Processes() (list []Process) {
	for _, m := range f.members {
		s := m.state()
		list = append(list, Process{Name: Name(m.number), PID: s.pid, Addresses: s.Addresses})
	}
	return list
}

// Name is what a replica is called: r1, r2 and so on.
func Name(replica int) string { return fmt.Sprintf("r%d", replica) }

// Stop ends all replicas in order, at the same time, and returns who did not.
func (f *Fleet) Stop() error {
	f.stop()
	f.running.Wait()
	f.client.CloseIdleConnections()
	var errs []error
	for _, m := range f.members {
		if m.left != nil {
			errs = append(errs, fmt.Errorf("replica %s: %w", Name(m.number), m.left))
		}
	}
	return errors.Join(errs...)
}
