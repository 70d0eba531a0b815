package libsql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// Several processes share the write lock of a file. SQLite's own waits are
// coarse and leave one of two busy processes without a chance: the other one
// begins again at once after each commit. So who waits looks about every
// millisecond, and who has written without a gap for a while makes one in which
// a waiting process surely looks; the shorter a while, the more recently another
// process was met.
const (
	firstWait = 200 * time.Microsecond
	lastWait  = time.Millisecond

	gap        = 2 * time.Millisecond
	aloneRun   = 50 * time.Millisecond
	sharedRun  = 5 * time.Millisecond
	sharedRuns = 64 // counted from the last time that the lock was taken
)

// A file is a database file. One connection writes, in the turn of its gate;
// up to MaxConns read. Other processes may use the file at the same time.
type file struct {
	path    string
	timeout time.Duration
	gate    chan struct{} // holds one token: the right to use writer
	writer  *fileConn
	turn    turn // of the writer

	slots chan struct{} // a token a connection for reading
	mu    sync.Mutex
	idle  []*fileConn
}

func openFile(path string, cfg Config) (*file, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	return &file{
		path:    path,
		timeout: cfg.Timeout,
		gate:    make(chan struct{}, 1),
		slots:   make(chan struct{}, cfg.MaxConns),
	}, nil
}

func (f *file) batch(ctx context.Context, mode Mode, stmts []Statement) ([]Result, error) {
	if mode == Read {
		return f.read(ctx, stmts)
	}
	return f.write(ctx, mode, stmts)
}

func (f *file) write(ctx context.Context, mode Mode, stmts []Statement) ([]Result, error) {
	select {
	case f.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, lockTimeout(ctx)
	}
	defer func() { <-f.gate }()
	if f.writer == nil {
		c, err := f.connect(ctx, false)
		if err != nil {
			return nil, err
		}
		f.writer = c
	}
	if err := f.writer.prepare(mode); err != nil {
		f.dropBroken()
		return nil, fromSQLite(ctx, Refused, -1, err)
	}
	f.turn.begin(ctx)
	waited, err := f.writer.begin(ctx)
	f.turn.began(waited)
	if err != nil {
		return nil, err
	}
	defer f.turn.end()
	results, err := f.writer.write(ctx, stmts)
	f.dropBroken()
	return results, err
}

// dropBroken closes a writer that cannot be used any more.
func (f *file) dropBroken() {
	if f.writer.broken {
		f.writer.Close()
		f.writer = nil
	}
}

func (f *file) read(ctx context.Context, stmts []Statement) ([]Result, error) {
	c, err := f.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer f.release(c)
	var results []Result
	err = retryBusy(ctx, func() (err error) {
		results, err = c.read(ctx, stmts)
		return err
	})
	return results, err
}

func (f *file) stream(ctx context.Context, stmt Statement, head func([]string), yield func(Row) bool) error {
	wait, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	c, err := f.reader(wait)
	if err != nil {
		return err
	}
	defer f.release(c)
	return retryBusy(wait, func() error { return c.stream(ctx, stmt, head, yield) })
}

// reader takes a connection for reading.
func (f *file) reader(ctx context.Context) (*fileConn, error) {
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, refused(KindTimeout, fmt.Errorf("waiting for a connection: %w", ctx.Err()))
	}
	f.mu.Lock()
	var c *fileConn
	if n := len(f.idle); n > 0 {
		c, f.idle = f.idle[n-1], f.idle[:n-1]
	}
	f.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := f.connect(ctx, true)
	if err != nil {
		<-f.slots
		return nil, err
	}
	return c, nil
}

func (f *file) release(c *fileConn) {
	if c.broken {
		c.Close()
	} else {
		f.mu.Lock()
		f.idle = append(f.idle, c)
		f.mu.Unlock()
	}
	<-f.slots
}

// connect opens a connection. Several processes may open a new file at the
// same moment; all but one then find it locked while it becomes a WAL file.
func (f *file) connect(ctx context.Context, readOnly bool) (*fileConn, error) {
	var c *fileConn
	err := retryBusy(ctx, func() (err error) {
		if c, err = openConn(f.path, readOnly); err != nil {
			return fromSQLite(ctx, Refused, -1, err)
		}
		return nil
	})
	return c, err
}

func (f *file) close() error {
	var errs []error
	for _, c := range f.idle {
		errs = append(errs, c.Close())
	}
	if f.writer != nil {
		errs = append(errs, f.writer.Close())
	}
	f.idle, f.writer = nil, nil
	return errors.Join(errs...)
}

// retryBusy repeats attempt while it is refused for a lock, until ctx ends.
func retryBusy(ctx context.Context, attempt func() error) error {
	for wait := firstWait; ; wait = min(wait*3/2, lastWait) {
		err := attempt()
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Kind != KindBusy || e.Outcome != Refused {
			return err
		}
		if !pause(ctx, wait) {
			return lockTimeout(ctx)
		}
	}
}

// pause waits for about d; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lockTimeout is the error of a wait for the lock that the end of ctx ended.
func lockTimeout(ctx context.Context) *Error {
	kind := KindBusy
	if errors.Is(ctx.Err(), context.Canceled) {
		kind = KindTimeout
	}
	return &Error{
		Outcome: Refused, Kind: kind, Code: (&sqlite.Error{Code: sqlite.Busy}).Name(), Statement: -1,
		Err: fmt.Errorf("waiting for the lock: %w", ctx.Err()),
	}
}

// A turn is a process's run of writes without a gap.
type turn struct {
	since, last time.Time // the run's first and latest moment
	shared      int       // runs to keep short
}

// begin makes a gap when the run is over.
func (t *turn) begin(ctx context.Context) {
	now := clock.Now()
	if now.Sub(t.last) > gap {
		t.since = now
		return
	}
	limit := aloneRun
	if t.shared > 0 {
		limit = sharedRun
	}
	if now.Sub(t.since) > limit {
		t.shared = max(t.shared-1, 0)
		pause(ctx, gap)
		t.since = clock.Now()
	}
}

// began notes that the lock was had, or not; waited that another process had
// it first.
func (t *turn) began(waited bool) {
	if waited {
		t.since, t.shared = clock.Now(), sharedRuns
	}
}

func (t *turn) end() { t.last = clock.Now() }
