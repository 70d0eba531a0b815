package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A Disk is how many transactions a file system takes one after the other.
type Disk struct {
	Transactions int64
	Elapsed      time.Duration
}

// Rate returns the transactions a second.
func (d Disk) Rate() float64 {
	if d.Elapsed <= 0 {
		return 0
	}
	return float64(d.Transactions) / d.Elapsed.Seconds()
}

// Add returns two measurements as one.
func (d Disk) Add(o Disk) Disk { return Disk{d.Transactions + o.Transactions, d.Elapsed + o.Elapsed} }

// MeasureDisk commits small transactions to a SQLite file in dir, one after
// the other, for the time given: a WAL with synchronous=FULL, as the stores
// have it. The file is removed.
func MeasureDisk(ctx context.Context, dir string, d time.Duration) (result Disk, err error) {
	dir, err = os.MkdirTemp(dir, "disk-")
	if err != nil {
		return Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing depends on it
	c, err := sqlite.Open(filepath.Join(dir, "disk.sqlite"))
	if err != nil {
		return Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	defer c.Close()
	if err := c.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (0, 0)"); err != nil {
		return Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	begin := clock.Now()
	for result.Elapsed < d && ctx.Err() == nil {
		if err := update(c); err != nil {
			return Disk{}, fmt.Errorf("measure the disk: %w", err)
		}
		result.Transactions++
		result.Elapsed = clock.Since(begin)
	}
	return result, ctx.Err()
}

func update(c *sqlite.Conn) error {
	s, err := c.Statement("UPDATE t SET n = n + 1 WHERE id = 0")
	if err != nil {
		return err
	}
	defer s.Done() //nolint:errcheck // reported by Run
	return s.Run()
}
