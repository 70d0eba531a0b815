// Beside measures dwk beside what people would use instead, on one machine, by
// one load generator, in turn:
//
//   - durable counters: a replica beside workerd, whose Durable Objects have
//     SQLite on a local disk;
//   - locks: the leases of dwk beside the mutexes of etcd's client.
//
// Each side's fsyncs are counted with strace in a run of their own. Where one
// side makes its writes durable and the other does not, the comparison says so
// and is none.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

type options struct {
	dwk, workerd, etcd string // programs
	worker             string // the folder of the worker's configuration
	dir                string // for data
	only               string
	rounds, fsyncs     int
	duration           time.Duration
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == serveCommand {
		exit(serveSQL(os.Args[2]))
	}
	var o options
	var out string
	flag.StringVar(&o.dwk, "dwk", "", "the `program` dwk")
	flag.StringVar(&o.workerd, "workerd", "", "the `program` workerd")
	flag.StringVar(&o.etcd, "etcd", "etcd", "the `program` etcd")
	flag.StringVar(&o.worker, "worker", "workerd", "the `folder` of the worker's configuration")
	flag.StringVar(&o.dir, "dir", "", "keep data below this `folder`, on the disk that is to be measured (default the system's for temporary files)")
	flag.StringVar(&o.only, "only", "", "measure only `cases` whose names contain this")
	flag.IntVar(&o.rounds, "rounds", 5, "`rounds` of each case; the median counts")
	flag.IntVar(&o.fsyncs, "fsyncs", 1000, "count fsyncs over so many `operations`; 0 does not")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long a round takes")
	flag.StringVar(&out, "out", "", "write the record to this `file` (default standard output)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(measure(ctx, o, out))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func measure(ctx context.Context, o options, out string) (err error) {
	if o.dir, err = os.MkdirTemp(o.dir, "beside-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir) //nolint:errcheck // nothing depends on it
	r := figures.Beside{
		Date: time.Now().UTC().Format(time.DateOnly), Processors: runtime.NumCPU(), Rounds: o.rounds, Seconds: o.duration.Seconds(),
		Versions: map[string]string{"go": runtime.Version()},
	}
	disk, err := bench.MeasureDisk(ctx, o.dir, 2*time.Second)
	if err != nil {
		return err
	}
	r.Disk = disk.Rate()
	if r.Load, err = loadAverage(); err != nil {
		return err
	}
	if err := errors.Join(counters(ctx, o, &r), locks(ctx, o, &r)); err != nil {
		return err
	}
	if len(r.Cases) == 0 {
		return fmt.Errorf("no case is called %q", o.only)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if text = append(text, '\n'); out == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(filepath.Clean(out), text, 0o644) //nolint:gosec // it is to be read by everybody
}

// version is the first line that a program says of itself.
func version(ctx context.Context, program string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", program, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), nil
}

// loadAverage says how busy the machine was before, over a minute.
func loadAverage() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	return load, err
}
