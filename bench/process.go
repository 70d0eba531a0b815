package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
)

// A process is a server that was started for the comparison.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts a program whose output goes to a file in dir.
func start(dir, name string, env []string, program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the process has it
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, append(os.Environ(), env...), out, out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.cmd.Wait() //nolint:errcheck // how it ended is in its state
		close(p.done)
	}()
	return p, nil
}

// end kills it: what it stored is no longer wanted.
func (p *process) end() {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-p.done
}

// await waits until ok, as long as the process lives.
func (p *process) await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended: %s", filepath.Base(p.cmd.Path), p.lastLine())
		case <-ctx.Done():
			return fmt.Errorf("%s does not start: %w: %s", filepath.Base(p.cmd.Path), ctx.Err(), p.lastLine())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (p *process) lastLine() string {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}

// freePort is a loopback port that nobody has now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close() //nolint:errcheck // the status counts
	return resp.StatusCode < 300
}

// processorTime is what a process has used, in ticks of 10 ms.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond, nil
}

var straceLine = regexp.MustCompile(`(?m)^\s*[0-9.]+\s+[0-9.]+\s+[0-9]+\s+([0-9]+)\s+(?:[0-9]+\s+)?f(?:data)?sync$`)

// fsyncs counts those of an operation with strace, in a run of its own: it makes
// each of them slower.
func fsyncs(ctx context.Context, o options, load bench.Load, s contender) (float64, error) {
	if o.fsyncs == 0 {
		return -1, nil
	}
	if err := bench.Populate(ctx, load, s.target); err != nil { // as before each round
		return -1, err
	}
	out := filepath.Join(o.dir, "strace")
	cmd := exec.Command("strace", "-f", "-c", "-o", out, "-e", "trace=fsync,fdatasync", "-p", strconv.Itoa(s.pid))
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return -1, fmt.Errorf("count fsyncs: %w", err)
	}
	stderr.Read(make([]byte, 1)) //nolint:errcheck // it says when it is attached
	time.Sleep(time.Second)      // to the other threads
	load.Duration, load.Requests = 0, int64(o.fsyncs)
	report, err := bench.Run(ctx, load, s.target)
	cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // it may have ended
	io.Copy(io.Discard, stderr)        //nolint:errcheck // until it ends
	cmd.Wait()                         //nolint:errcheck // it ends by a signal
	if err != nil {
		return -1, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return -1, fmt.Errorf("count fsyncs: %w", err)
	}
	total := 0
	for _, m := range straceLine.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[1])
		total += n
	}
	return float64(total) / float64(max(report.OK, 1)), nil
}
