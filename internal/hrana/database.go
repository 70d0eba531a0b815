package hrana

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

const (
	// idleConns is how many connections without a stream are kept.
	idleConns = 16
	// foreignWait is the time between two looks at a lock that another process
	// holds.
	foreignWait = time.Millisecond
)

// A database is one file, its connections, and the turn to write it.
type database struct {
	path        string
	busyTimeout time.Duration
	writeLimit  time.Duration
	streams     *streams
	// writing holds one token: the right to hold SQLite's write lock. Streams
	// wait for it in order, where SQLite would make them look again and again.
	writing chan struct{}

	mu     sync.Mutex
	idle   []*sqlite.Conn
	holder *stream   // of the token
	since  time.Time // when it got it
}

func newDatabase(path string, cfg Config, s *streams) *database {
	return &database{path: path, busyTimeout: cfg.BusyTimeout, writeLimit: cfg.WriteLimit, streams: s, writing: make(chan struct{}, 1)}
}

// check opens the file for the first time.
func (d *database) check() error {
	c, err := d.connect(context.Background())
	if err == nil {
		d.giveBack(c)
	}
	return err
}

func (d *database) connect(ctx context.Context) (*sqlite.Conn, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.busyTimeout)
	defer cancel()
	var c *sqlite.Conn
	return c, retryBusy(ctx, func() (err error) {
		c, err = open(d.path)
		return err
	})
}

func open(path string) (*sqlite.Conn, error) {
	c, err := sqlite.Open(path)
	if err != nil {
		return nil, err
	}
	mode, err := c.QueryText("PRAGMA journal_mode=WAL")
	if err == nil && mode != "wal" {
		err = fmt.Errorf("not usable as a WAL database (journal mode %s)", mode)
	}
	if err == nil {
		// Foreign keys are enforced, as sqld does by default.
		err = c.Exec("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=16777216; PRAGMA foreign_keys=1;")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// giveBack takes a connection on which no transaction is open and no setting
// was changed.
func (d *database) giveBack(c *sqlite.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) < idleConns {
		d.idle = append(d.idle, c)
	} else {
		c.Close()
	}
}

func (d *database) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, c := range d.idle {
		errs = append(errs, c.Close())
	}
	d.idle = nil
	return errors.Join(errs...)
}

// retryBusy repeats attempt while another process holds the lock. A snapshot
// that is too old to write on stays so, and is not waited for.
func retryBusy(ctx context.Context, attempt func() error) error {
	t := time.NewTimer(0)
	defer t.Stop()
	<-t.C
	for {
		err := attempt()
		e, ok := errors.AsType[*sqlite.Error](err)
		if !ok || e.Primary() != sqlite.Busy || e.Code == sqlite.BusySnapshot {
			return err
		}
		t.Reset(foreignWait)
		select {
		case <-t.C:
		case <-ctx.Done():
			return err
		}
	}
}
