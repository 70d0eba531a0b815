package migrate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// moveObject writes one object as a file with its alarm in it.
func (d *Down) moveObject(ctx context.Context, t task) (l Line, e entry, err error) {
	f := t.f
	l = Line{Kind: f.kind, Item: f.item, Outcome: Moved, Bytes: f.size, Verified: d.cfg.Verify, Source: &Side{}, Target: &Side{}}
	e = entry{State: stateFor(d.cfg.Verify), Print: f.print}
	if t.slot.Set {
		at := t.slot.Asked()
		l.Source.Alarm = &at
	}
	temp := d.temp(f.item)
	defer func() { err = errors.Join(err, removeDatabase(temp)) }()
	if err := removeDatabase(temp); err != nil {
		return l, e, err
	}
	if l.Source.SHA256, l.Source.Bytes, err = d.writeObject(ctx, t, temp); err != nil {
		return l, e, err
	}
	e.SHA256, e.Bytes = l.Source.SHA256, l.Source.Bytes
	if t.slot.Set || t.facts.AlarmTable {
		if l.Source.Content, err = lowerAlarm(ctx, temp, l.Source.Alarm); err != nil {
			return l, e, fmt.Errorf("put its alarm into the file: %w", err)
		}
	}
	if err := settle(temp, t.facts.WAL); err != nil {
		return l, e, err
	}
	if d.cfg.Verify != VerifyNone {
		if err := verifyFile(ctx, temp, l.Source, l.Target, d.cfg.Verify == VerifyFull); err != nil {
			return l, e, fmt.Errorf("verify it: %w", err)
		}
	}
	failpoint.Hit("migrate.object.verify")
	err = d.dirs.place(temp, filepath.Join(d.cfg.Dir, string(Objects), f.name, f.key+databaseSuffix))
	failpoint.Hit("migrate.object.moved")
	return l, e, err
}

// writeObject writes an object's database as it is in its log, whose checksums
// are checked on the way.
func (d *Down) writeObject(ctx context.Context, t task, path string) (sum string, size int64, err error) {
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	h := newSum()
	w := bufio.NewWriterSize(io.MultiWriter(out, h), 64<<10)
	_, small, err := d.cfg.Objects.Expand(ctx, t.f.name, t.f.key, t.head, w)
	if err == nil && !small {
		err = d.copyObject(ctx, t.f, w)
	}
	if err == nil {
		err = w.Flush()
	}
	err = errors.Join(err, out.Close())
	if err == nil && small && d.cfg.Verify == VerifyFull {
		err = checkFile(ctx, path)
	}
	return h.text(), h.n, err
}

// copyObject writes an object's database that has to be put together.
func (d *Down) copyObject(ctx context.Context, f found, w io.Writer) (err error) {
	db, err := d.cfg.Objects.Open(ctx, f.name, f.key, objectops.Target{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if d.cfg.Verify == VerifyFull {
		if err := db.Verify(ctx); err != nil {
			return err
		}
	}
	return db.Copy(w)
}

// checkFile has SQLite look for faults in a database file.
func checkFile(ctx context.Context, path string) error {
	c, err := sqlite.OpenExisting(path)
	if err != nil {
		return err
	}
	stop := c.Watch(ctx)
	err = integrity(c)
	stop()
	return errors.Join(err, c.Close())
}

// lowerAlarm adds the table of alarms to a database, and returns the hash of
// the other content.
func lowerAlarm(ctx context.Context, path string, alarm *int64) (sum string, err error) {
	c, err := sqlite.OpenExisting(path)
	if err != nil {
		return "", err
	}
	stop := c.Watch(ctx)
	defer func() {
		stop()
		err = errors.Join(err, c.Close())
	}()
	if sum, err = contentHash(c); err != nil {
		return "", err
	}
	text := `PRAGMA synchronous = off; BEGIN; ` + alarmTableSQL
	if alarm != nil {
		text += fmt.Sprintf(`; INSERT INTO %s(id, scheduled_time) VALUES (1, %d)`, alarmTable, *alarm)
	}
	return sum, c.Exec(text + `; COMMIT`)
}

// verifyFile reads a file again and compares it with what was to be written.
func verifyFile(ctx context.Context, path string, want, got *Side, full bool) error {
	var err error
	if got.SHA256, got.Bytes, _, err = pagesHash(path); err != nil {
		return err
	}
	if want.Content == "" {
		if full && got.SHA256 != want.SHA256 || got.Bytes != want.Bytes {
			return errors.New("the file has other pages")
		}
		return nil
	}
	got.SHA256 = "" // its pages had to change
	c, err := sqlite.OpenExisting(path)
	if err != nil {
		return err
	}
	stop := c.Watch(ctx)
	if full {
		got.Content, err = contentHash(c)
	}
	if err == nil {
		got.Alarm, err = readAlarm(c)
	}
	stop()
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	switch {
	case full && got.Content != want.Content:
		return errors.New("the file has another content")
	case timeOf(got.Alarm) != timeOf(want.Alarm):
		return fmt.Errorf("the file has the alarm %s, want %s", timeOf(got.Alarm), timeOf(want.Alarm))
	}
	return nil
}

// settle brings a database file to disk, marked as one in WAL mode if it was.
func settle(path string, wal bool) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if wal {
		_, err = f.WriteAt([]byte{2, 2}, 18)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeDatabase removes a database file and what is beside it, if it is there.
func removeDatabase(path string) error {
	var errs []error
	for _, s := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + s); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
