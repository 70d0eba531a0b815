package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

const (
	// firstPause is the time before a replica that ended is started again. It
	// doubles up to lastPause, until one has run for longer.
	firstPause, lastPause = time.Second, 30 * time.Second
	// lookInterval is the time between two looks whether a replica is ready.
	lookInterval = 100 * time.Millisecond
	// maxLine bounds a line of a log; more of it is another line.
	maxLine = 64 << 10
)

// A member is one replica of the fleet, over all its processes.
type member struct {
	fleet  *Fleet
	number int
	left   error // why it did not end in order; read after its run

	mu  sync.Mutex
	now memberState
}

type memberState struct {
	Addresses
	pid         int
	ready, ever bool // ever: it has been ready
}

func (m *member) state() memberState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *member) change(f func(*memberState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.now)
}

// run keeps the replica running until ctx ends.
func (m *member) run(ctx context.Context) {
	pause := firstPause
	for {
		began := clock.Now()
		err := m.once(ctx)
		if ctx.Err() != nil {
			m.left = err
			return
		}
		if !m.state().ever {
			m.fleet.failed <- fmt.Errorf("replica %s ended at its start: %w", Name(m.number), err)
			return
		}
		if clock.Since(began) > lastPause {
			pause = firstPause
		}
		m.fleet.cfg.Notef("replica %s ended (%v); it is started again in %v", Name(m.number), err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// once runs one process. After ctx has ended nil means that it ended in order;
// before that there is always an error.
func (m *member) once(ctx context.Context) error {
	cmd := m.fleet.cfg.Command(m.number)
	// A group of its own: what a terminal sends to the group is for this process,
	// which then stops the replicas in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe() // ends with this process, however it ends
	if err != nil {
		return err
	}
	defer alive.Close()
	log := &lines{max: maxLine, take: func(line []byte) { m.fleet.cfg.Line(m.number, line) }}
	started := make(chan Addresses, 1)
	cmd.Stderr, cmd.Stdout = log, &lines{max: maxLine, take: announce(started)}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.change(func(s *memberState) { s.pid = cmd.Process.Pid })
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { m.end(ctx, cmd, done) })
	others.Go(func() { m.look(done, started) })
	cmd.Wait() //nolint:errcheck // it is in ProcessState
	close(done)
	others.Wait()
	log.flush()
	served := m.state().Admin != ""
	m.change(func(s *memberState) { *s = memberState{ever: s.ever} })
	if ctx.Err() != nil && (cmd.ProcessState.Success() || !served) {
		return nil // one that has not served yet ends as it can
	}
	return exited{cmd.ProcessState.String()}
}

// An exited error says how a process ended.
type exited struct{ state string }

func (e exited) Error() string { return e.state }

// end ends the process when ctx does: in order, and at once when that takes too
// long.
func (m *member) end(ctx context.Context, cmd *exec.Cmd, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	t := time.NewTimer(m.fleet.cfg.Patience)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		cmd.Process.Kill() //nolint:errcheck // it may have ended
	}
}

// look follows the readiness of a process until its end.
func (m *member) look(done <-chan struct{}, started <-chan Addresses) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var at Addresses
	for {
		select {
		case <-done:
			return
		case at = <-started:
			m.change(func(s *memberState) { s.Addresses = at })
		case <-tick.C:
		}
		if at.Admin == "" {
			continue
		}
		ready := m.ask(at.Admin)
		was := m.state().ready
		m.change(func(s *memberState) { s.ready, s.ever = ready, s.ever || ready })
		if ready && !was {
			select {
			case m.fleet.changed <- struct{}{}:
			default:
			}
		}
	}
}

func (m *member) ask(admin string) (ready bool) {
	res, err := m.fleet.client.Get("http://" + admin + "/readyz")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	io.Copy(io.Discard, io.LimitReader(res.Body, maxLine)) //nolint:errcheck // for the next request
	return res.StatusCode == http.StatusOK
}

// announce takes the line by which a replica says where it listens.
func announce(started chan<- Addresses) func([]byte) {
	return func(line []byte) {
		var at Addresses
		if json.Unmarshal(line, &at) != nil || at.Admin == "" {
			return
		}
		select {
		case started <- at:
		default:
		}
	}
}

// lines is a Writer that takes apart lines.
type lines struct {
	max  int
	take func(line []byte)
	buf  []byte
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 && len(l.buf)+len(p) < l.max {
			l.buf = append(l.buf, p...)
			break
		}
		rest := []byte(nil)
		if i >= 0 && len(l.buf)+i <= l.max {
			p, rest = p[:i], p[i+1:]
		} else if room := max(l.max-len(l.buf), 0); room < len(p) {
			p, rest = p[:room], p[room:]
		}
		l.buf = append(l.buf, p...)
		l.flush()
		p = rest
	}
	return n, nil
}

// flush takes what has no end yet.
func (l *lines) flush() {
	if len(l.buf) > 0 {
		l.take(l.buf)
		l.buf = l.buf[:0]
	}
}
