package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
)

// benchEmbedded loads a fleet of its own, which is gone afterwards.
func benchEmbedded(ctx context.Context, e *env, o benchOptions) (r *benchReport, err error) {
	dir, err := o.tempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := startBenchFleet(ctx, e, o, dir)
	if err != nil {
		return nil, err
	}
	r, err = f.load(ctx, e, o)
	if ended := f.stop(); err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	f.addUsage(r)
	r.Subject, r.Store = "embedded", o.store
	return r, nil
}

// A benchFleet is the replicas and the store of one run, in one directory.
type benchFleet struct {
	dir      string
	config   string      // file
	wire     *bench.Wire // nil when the store is a file
	replicas []*benchReplica
}

func startBenchFleet(ctx context.Context, e *env, o benchOptions, dir string) (*benchFleet, error) {
	f := &benchFleet{dir: dir, config: filepath.Join(dir, "dwk.yaml")}
	if err := f.start(ctx, e, o); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

func (f *benchFleet) start(ctx context.Context, e *env, o benchOptions) (err error) {
	url := ""
	if o.store == "wire" {
		if f.wire, err = bench.OpenWire(ctx, f.dir, o.latency); err != nil {
			return err
		}
		url = f.wire.URL
	}
	if err := f.writeConfig(url); err != nil {
		return err
	}
	begin := f.process
	if o.inProcess {
		begin = f.goroutine
	}
	for i := range o.replicas {
		r, err := begin(ctx, e, filepath.Join(f.dir, fmt.Sprintf("replica-%d.log", i+1)))
		if err != nil {
			return fmt.Errorf("start a replica: %w", err)
		}
		f.replicas = append(f.replicas, r)
	}
	return nil
}

// writeConfig writes the configuration of all replicas: the defaults, on ports
// that are free. JSON is YAML.
func (f *benchFleet) writeConfig(libsqlURL string) error {
	text, err := json.Marshal(map[string]any{
		"data_dir": filepath.Join(f.dir, "data"),
		"listen":   "127.0.0.1:0",
		"admin":    map[string]any{"listen": "127.0.0.1:0", "pprof": true},
		"libsql":   map[string]any{"url": libsqlURL},
		"drain":    map[string]any{"grace": "0s"},
		"log":      map[string]any{"level": "info", "format": "json"},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(f.config, text, 0o600)
}

// stop ends the replicas and then the store.
func (f *benchFleet) stop() error {
	var errs []error
	for _, r := range f.replicas {
		r.end()
	}
	for _, r := range f.replicas {
		errs = append(errs, r.wait())
	}
	if f.wire != nil {
		errs = append(errs, f.wire.Close())
	}
	return errors.Join(errs...)
}

func (f *benchFleet) load(ctx context.Context, e *env, o benchOptions) (*benchReport, error) {
	var urls []string
	for _, r := range f.replicas {
		urls = append(urls, r.public+"/lab")
	}
	lab, err := bench.NewLab(urls, o.load.Seed)
	if err != nil {
		return nil, err
	}
	defer lab.Close()
	s := benchSubject{target: lab, disk: f.dir, trips: f.trips}
	if o.cpuprofile != "" {
		s.profile = func(ctx context.Context) (func() error, error) { return f.profile(ctx, o) }
	}
	return o.measure(ctx, e, s)
}

// profile begins the CPU profile of the first replica, or of this process when
// that is where the replicas are.
func (f *benchFleet) profile(ctx context.Context, o benchOptions) (end func() error, err error) {
	file, err := os.Create(o.cpuprofile)
	if err != nil {
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	if o.inProcess {
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return func() error { pprof.StopCPUProfile(); return file.Close() }, nil
	}
	done := make(chan error, 1)
	go func() { done <- f.replicas[0].fetchProfile(ctx, o.load.Duration, file) }()
	return func() error { return errors.Join(<-done, file.Close()) }, nil
}

// fetchProfile asks a replica for its profile of the next while.
func (r *benchReplica) fetchProfile(ctx context.Context, d time.Duration, to io.Writer) error {
	seconds := max(int(d.Seconds()), 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+"/debug/pprof/profile?seconds="+strconv.Itoa(seconds), nil)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("profile: %s: %s", resp.Status, text)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}
