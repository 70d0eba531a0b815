package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/host"
)

// A benchReplica is one replica of an embedded fleet.
type benchReplica struct {
	id            string // "" in process
	public, admin string // URLs
	end           func() // asks it to end
	wait          func() error
	state         func() *os.ProcessState // nil in process
}

// goroutine starts a replica in this process.
func (f *benchFleet) goroutine(ctx context.Context, e *env, logFile string) (*benchReplica, error) {
	cfg, err := config.Load(config.Options{File: f.config, Environ: []string{}})
	if err != nil {
		return nil, err
	}
	out, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	// It ends when it is told to: what is under way at an interrupt would
	// otherwise fail for another reason.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started, done := make(chan *benchReplica, 1), make(chan error, 1)
	go func() {
		done <- errors.Join(host.Serve(serving, host.ServeOptions{
			Config: cfg, Apps: e.opts.Apps, Log: slog.New(slog.NewJSONHandler(out, nil)), Version: buildInfo().Version,
			Started: func(public, admin string) {
				started <- &benchReplica{public: "http://" + public, admin: "http://" + admin, end: cancel}
			},
		}), out.Close())
	}()
	select {
	case r := <-started:
		r.wait = func() error { return <-done }
		return r, nil
	case err := <-done:
		cancel()
		return nil, err
	}
}

// startPatience is how long a replica may take to start.
const startPatience = time.Minute

// process starts a replica as a process of its own.
func (f *benchFleet) process(ctx context.Context, e *env, logFile string) (*benchReplica, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, "serve", "-c", f.config)
	cmd.Env, cmd.Dir, cmd.Stderr = withoutSettings(e.opts.Environ), f.dir, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	r := &benchReplica{
		end:   func() { cmd.Process.Signal(syscall.SIGTERM) }, //nolint:errcheck // it may be gone
		wait:  func() error { return <-done },
		state: func() *os.ProcessState { return cmd.ProcessState },
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if r.readStarted(logFile) {
				return r, nil
			}
		case err := <-done:
			return nil, fmt.Errorf("%w: %s", err, lastLine(logFile))
		case <-ctx.Done():
			r.end()
			return nil, errors.Join(ctx.Err(), r.wait())
		}
	}
}

// readStarted looks in a replica's log for its addresses.
func (r *benchReplica) readStarted(logFile string) bool {
	text, err := os.ReadFile(logFile)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		var l struct{ Msg, Replica, Public, Admin string }
		if json.Unmarshal(line, &l) == nil && l.Msg == event.ServeStarted {
			r.id, r.public, r.admin = l.Replica, "http://"+l.Public, "http://"+l.Admin
			return true
		}
	}
	return false
}

func lastLine(logFile string) string {
	text, _ := os.ReadFile(logFile)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// withoutSettings leaves out of an environment what would change a replica.
func withoutSettings(environ []string) []string {
	out := []string{}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if name == "HOST" || name == "PORT" || strings.HasPrefix(name, "DWK_") && !strings.HasPrefix(name, "DWK_TEST_") {
			continue
		}
		out = append(out, entry)
	}
	return out
}

// addUsage adds what the replicas' processes took. They have ended.
func (f *benchFleet) addUsage(r *benchReport) {
	for _, replica := range f.replicas {
		for i := range r.Replicas {
			if replica.state == nil || r.Replicas[i].Replica != replica.id {
				continue
			}
			state := replica.state()
			if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
				r.Replicas[i].MaxRSS = maxRSS(usage)
			}
			r.Replicas[i].CPUMs = milliseconds(state.UserTime() + state.SystemTime())
		}
	}
}

// maxRSS returns bytes. Only Darwin counts in those.
func maxRSS(u *syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss << 10
}
