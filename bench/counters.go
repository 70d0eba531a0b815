package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// counterCases are the loads of counters.
var counterCases = []struct {
	name             string
	objects, clients int
	aim              float64
}{
	{"counters of 500 objects", 500, 16, 10},
	{"one counter", 1, 8, 3},
}

// counters compares a replica with workerd.
func counters(ctx context.Context, o options, r *figures.Beside) error {
	for _, c := range counterCases {
		if !o.wanted(c.name) {
			continue
		}
		if err := counterCase(ctx, o, r, c.name, c.aim, bench.Load{Mix: bench.Counters, Objects: c.objects, Clients: c.clients, Seed: 1}); err != nil {
			return err
		}
	}
	return nil
}

// counterCase measures on servers that are new and of which only the one that
// is measured has anything to do.
func counterCase(ctx context.Context, o options, r *figures.Beside, name string, aim float64, load bench.Load) (err error) {
	dir, err := os.MkdirTemp(o.dir, "counters-")
	if err != nil {
		return err
	}
	if r.Versions["dwk"], err = version(ctx, o.dwk, "version"); err != nil {
		return err
	}
	if r.Versions["workerd"], err = version(ctx, o.workerd, "--version"); err != nil {
		return err
	}
	ours, ourLab, err := startReplica(ctx, o, dir)
	if err != nil {
		return err
	}
	defer ours.end()
	defer ourLab.Close()
	theirs, theirLab, err := startWorkerd(ctx, o, dir)
	if err != nil {
		return err
	}
	defer theirs.end()
	defer theirLab.Close()
	return compare(ctx, o, r, name, aim, load,
		contender{"dwk", ours.cmd.Process.Pid, true, ourLab}, contender{"workerd", theirs.cmd.Process.Pid, true, theirLab})
}

// startReplica starts a replica on files, which sync each commit.
func startReplica(ctx context.Context, o options, dir string) (*process, *bench.Lab, error) {
	public, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	admin, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	program, err := filepath.Abs(o.dwk)
	if err != nil {
		return nil, nil, err
	}
	p, err := start(dir, "dwk", []string{
		"DWK_DATA_DIR=" + filepath.Join(dir, "dwk"), fmt.Sprintf("DWK_LISTEN=127.0.0.1:%d", public), fmt.Sprintf("DWK_ADMIN_LISTEN=127.0.0.1:%d", admin),
	}, program, "serve")
	if err != nil {
		return nil, nil, err
	}
	if err := p.await(ctx, func() bool { return answers(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", admin)) }); err != nil {
		p.end()
		return nil, nil, err
	}
	lab, err := bench.NewLab([]string{fmt.Sprintf("http://127.0.0.1:%d/lab", public)}, 1)
	return p, lab, err
}

// startWorkerd starts workerd with its objects on the same disk.
func startWorkerd(ctx context.Context, o options, dir string) (*process, *bench.Lab, error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	program, err := filepath.Abs(o.workerd)
	if err != nil {
		return nil, nil, err
	}
	config, err := filepath.Abs(filepath.Join(o.worker, "config.capnp"))
	if err != nil {
		return nil, nil, err
	}
	objects := filepath.Join(dir, "workerd")
	if err := os.Mkdir(objects, 0o755); err != nil {
		return nil, nil, err
	}
	p, err := start(dir, "workerd", nil, program, "serve", config, "--experimental", fmt.Sprintf("--socket-addr=http=127.0.0.1:%d", port), "--directory-path=objects="+objects)
	if err != nil {
		return nil, nil, err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/lab", port)
	if err := p.await(ctx, func() bool { return answers(ctx, url+"/counter/ready") }); err != nil {
		p.end()
		return nil, nil, err
	}
	lab, err := bench.NewLab([]string{url}, 1)
	return p, lab, err
}
