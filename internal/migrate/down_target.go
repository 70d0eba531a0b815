package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
)

// halfPlan is what the directory of an incomplete move says about itself.
type halfPlan struct {
	StoreID   string `json:"store_id"`
	Primary   string `json:"primary"`
	StartedAt string `json:"started_at"`
	// Queue is the backlog that is written: no other file is replaced.
	Queue string `json:"queue,omitempty"`
}

// checkTarget refuses a directory that holds anything else.
func (d *Down) checkTarget() error {
	list, err := os.ReadDir(d.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return d.checkQueueFile("")
	} else if err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	var p halfPlan
	text, err := os.ReadFile(filepath.Join(d.half, "plan.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("%w: %s is damaged: take another directory", ErrRefused, d.half)
		}
		if p.StoreID != d.cfg.StoreID {
			return fmt.Errorf("%w: %s is the target of a move from store set %s (%s), this is %s", ErrRefused, d.cfg.Dir, p.StoreID, p.Primary, d.cfg.StoreID)
		}
		return errors.Join(checkLock(d.cfg.Dir), d.checkQueueFile(p.Queue))
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("target directory: %w", err)
	}
	for _, e := range list {
		if e.Name() != halfName {
			return fmt.Errorf("%w: %s is not empty (it has %s): a move to a local directory wants an empty one", ErrRefused, d.cfg.Dir, e.Name())
		}
	}
	return d.checkQueueFile("")
}

// checkQueueFile refuses a backlog that is there and that this move, whose own is
// given, has not made.
func (d *Down) checkQueueFile(own string) error {
	path, err := filepath.Abs(d.cfg.QueueFile)
	if err != nil {
		return err
	}
	if own == "" {
		own = filepath.Join(d.path, queueName)
	}
	if !d.cfg.has(Queues) || path == own && filepath.Dir(path) == d.path {
		return nil // of the directory, which is checked as a whole
	}
	for _, suffix := range databaseSuffixes {
		if _, err := os.Lstat(path + suffix); err == nil && path != own {
			return fmt.Errorf("%w: %s exists: a move to a local directory writes a new backlog", ErrRefused, path+suffix)
		}
	}
	return nil
}

// forget removes what an earlier run has moved, unless the store set has been
// marked since: when replicas may have served it, what is there need not be what
// it holds now, and may be gone there.
func (d *Down) forget(ctx context.Context) error {
	marker, _, err := mode.Read(ctx, d.cfg.Store)
	if err != nil || marker == mode.Moving(moveID(d.planID)) {
		return err
	}
	plan := filepath.Join(d.half, "plan.json")
	if _, err := os.Stat(plan); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is moved before it is there
	} else if err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	if err := d.own(); err != nil {
		return err
	}
	for _, path := range []string{
		filepath.Join(d.cfg.Dir, string(SQL)), filepath.Join(d.cfg.Dir, string(Objects)), filepath.Join(d.cfg.Dir, string(Buckets)),
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an earlier run has moved: %w", err)
		}
	}
	if d.cfg.has(Queues) { // it is this move's own, which has just been checked
		if err := removeDatabase(d.cfg.QueueFile); err != nil {
			return fmt.Errorf("remove what an earlier run has moved: %w", err)
		}
	}
	// With the journal, but the mark of the directory stays.
	return removeDatabase(d.journalPath())
}

// own has no other move work on the directory.
func (d *Down) own() (err error) {
	if d.lock != nil {
		return nil
	}
	if d.lock, err = os.Open(d.cfg.Dir); err != nil {
		return err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%w: another migration works on %s", ErrRefused, d.cfg.Dir)
	}
	return d.checkTarget()
}

func (d *Down) journalPath() string { return filepath.Join(d.half, "journal.sqlite") }

// prepare makes the directory and its journal.
func (d *Down) prepare() error {
	if err := d.dirs.make(filepath.Join(d.half, "tmp")); err != nil {
		return fmt.Errorf("target directory: %w", err)
	}
	err := d.own()
	if err != nil {
		return err
	}
	plan := filepath.Join(d.half, "plan.json")
	if _, err := os.Stat(plan); errors.Is(err, fs.ErrNotExist) {
		queue, err := filepath.Abs(d.cfg.QueueFile)
		if err != nil {
			return err
		}
		text, err := json.Marshal(halfPlan{d.cfg.StoreID, d.cfg.Primary, now(), queue})
		if err == nil {
			err = d.dirs.write(d.temp("plan"), plan, text)
		}
		if err != nil {
			return err
		}
	}
	if d.db, err = libsql.Open(libsql.Config{URL: "file:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(d.journalPath())}); err != nil {
		return err
	}
	d.journal = journal{kv.New(d.db), d.planID}
	return nil
}

// temp is a name for a file that is being written.
func (d *Down) temp(item string) string {
	return filepath.Join(d.half, "tmp", sourceID("", item)[:32])
}
