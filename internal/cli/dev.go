package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/dev"
	"github.com/davidwkeith/dwk/internal/server"
)

// maxDevReplicas is what one machine is asked to run at most.
const maxDevReplicas = 64

func newDev(e *env) *cobra.Command {
	var replicas int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole fleet on this machine, to try things",
		Long: `Run a whole fleet on this machine: a libSQL server and an S3-compatible server
on loopback ports, replicas as processes of their own that use them as they
would use real ones, and a listener in front that passes requests to the
replicas in turn. It is for trying things and for tests, and for nothing else:
one machine, one disk, no copies.

Data is kept in the folder dev of data_dir and found again by the next dwk dev.
Applications, queues, schedules, secrets and all other settings are those of the
configuration. The stores are its own: it refuses a configuration that names others.

A replica that ends is started again, so that any of them may be killed. On
stdout it says where everything listens, once all replicas are ready; the logs go
to stderr, on a terminal with the name of the replica before each line. The file
dwk.env in its folder has the variables for other commands, also for a further
dwk serve.

SIGINT or SIGTERM stops the listener, then the replicas, then the stores, and it
exits 0; a second signal ends all of them at once with status 1.`,
		Example: `  dwk dev
  dwk dev --replicas 3 --listen 127.0.0.1:0
  set -a; . data/dev/dwk.env; dwk lease list`,
		Args: arguments(),
	}
	cmd.Flags().IntVar(&replicas, "replicas", 2, "run `N` replicas")
	cmd.Flags().String("listen", "", "`ADDRESS` of the listener (default 127.0.0.1:8080; port 0 takes a free one)")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		if replicas < 1 || replicas > maxDevReplicas {
			return usagef("--replicas must be from 1 to %d", maxDevReplicas)
		}
		if e.timeout.set {
			return usagef("--timeout does not go with dev, which runs until it is told to stop")
		}
		flags := map[string]any{}
		if cmd.Flags().Changed("listen") {
			flags["listen"], _ = cmd.Flags().GetString("listen")
		}
		cfg, err := e.load(flags)
		if err == nil {
			err = ownStores(cfg)
		}
		if err != nil {
			return err
		}
		return (&devFleet{e: e, cfg: cfg, dir: filepath.Join(cfg.DataDir, "dev"), replicas: replicas}).run(ctx)
	})
	return cmd
}

// foreignStore are the settings that say where stores and mirrors are, and how
// to get there.
var foreignStore = regexp.MustCompile(`^(libsql\.(url|token|namespace|ca)|object_store\.(url|access_key|secret_key|region|path_style|ca)|databases\[\d+\]\.(url|token)|buckets\[\d+\]\.url|replica_dir|tls\.(cert|key))$`)

// ownStores refuses a configuration that would mix in other stores.
func ownStores(cfg *config.Config) error {
	for _, entry := range cfg.Effective() {
		if foreignStore.MatchString(entry.Key) && entry.Value != "" && entry.Origin != "default" {
			return withHint(usagef("%s is set (%s), but dwk dev uses stores of its own only", entry.Key, entry.Origin),
				"take it out, or name a configuration without it: dwk dev -c FILE; dwk serve runs a replica on the stores of this one")
		}
	}
	return nil
}

// A devFleet is one run of dwk dev.
type devFleet struct {
	e        *env
	cfg      *config.Config
	dir      string
	replicas int
	program  string
	stores   *dev.Stores
	baseURL  string
	logging  sync.Mutex // one line after the other
}

// devPatience is what a replica gets to end in order, beyond its own bound.
const devPatience = 15 * time.Second

func (d *devFleet) run(ctx context.Context) (err error) {
	if d.program, err = os.Executable(); err != nil {
		return err
	}
	front, err := server.Listen(ctx, server.Config{Name: "front", Addr: d.cfg.Listen})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, front.Close()) }()
	d.baseURL = baseURL(front.Addr())
	if d.stores, err = dev.OpenStores(ctx, d.dir, d.namespaces()); err != nil {
		return fmt.Errorf("stores of dwk dev: %w", err)
	}
	defer func() { err = errors.Join(err, d.stores.Close()) }()
	vars := filepath.Join(d.dir, "dwk.env")
	if err := writeEnvironment(vars, d.variables()); err != nil {
		return err
	}
	defer os.Remove(vars) //nolint:errcheck // it only misleads
	d.e.term.Notef("dwk dev is for trying things and for tests: its stores are files of this machine in %s", d.dir)
	fleet := dev.Start(dev.Config{
		Replicas: d.replicas, Command: d.command, Line: d.line, Notef: d.notef, Patience: d.cfg.Drain.Timeout + devPatience,
	})
	handler, closeIdle := dev.NewFront(fleet.Ready)
	defer closeIdle()
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- front.Serve(handler) })
	err = d.watch(ctx, fleet, served, vars)
	d.notef("stopping %d replicas", d.replicas)
	stop, cancel := context.WithTimeout(context.Background(), d.cfg.Drain.Timeout)
	defer cancel()
	if down := front.Shutdown(stop); down != nil {
		err = errors.Join(err, down, front.Close())
	}
	serving.Wait()
	return errors.Join(err, fleet.Stop())
}

// watch returns when it is time to stop; nil when somebody asked for it.
func (d *devFleet) watch(ctx context.Context, fleet *dev.Fleet, served <-chan error, vars string) error {
	if err := fleet.WaitReady(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := d.answer(fleet, vars); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		return err
	case err := <-fleet.Failed():
		return err
	}
}

// baseURL is how clients on this machine reach the listener.
func baseURL(at net.Addr) string {
	a, ok := at.(*net.TCPAddr)
	if !ok {
		return "http://" + at.String()
	}
	if a.IP.IsLoopback() || a.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", a.Port)
	}
	return "http://" + a.String()
}

// namespaces are the databases that the server needs besides the coordination
// one.
func (d *devFleet) namespaces() (list []string) {
	for _, db := range d.cfg.Databases {
		list = append(list, namespaceOf(db))
	}
	return list
}

// namespaceOf is where a database is: where its setting says, else it has its
// own.
func namespaceOf(db config.Database) string {
	if db.Namespace != "" {
		return db.Namespace
	}
	return db.Name
}

// command is a replica's.
func (d *devFleet) command(int) *exec.Cmd {
	args := []string{
		"serve", "--supervised", "--dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--base-url", d.baseURL,
		"--replica-dir", filepath.Join(d.dir, "mirrors"), "--libsql-url", d.stores.LibSQL, "--object-store", d.stores.ObjectStore,
	}
	if d.e.configFile != "" {
		args = append(args, "--config", d.e.configFile)
	}
	if d.e.term.ErrIsTerminal() && d.cfg.Log.Format == "auto" {
		args = append(args, "--log-format", "text")
	}
	if d.e.term.Verbose {
		args = append(args, "--verbose")
	}
	if d.e.term.Quiet {
		args = append(args, "--quiet")
	}
	cmd := exec.Command(d.program, args...)
	cmd.Env = append(append([]string{}, d.e.opts.Environ...), "DWK_DRAIN_GRACE="+devGrace.String())
	for _, v := range d.variables() {
		cmd.Env = append(cmd.Env, v[0]+"="+v[1])
	}
	return cmd
}

// devGrace is long enough for the listener in front to notice.
const devGrace = 500 * time.Millisecond
