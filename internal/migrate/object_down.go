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
	if l.Source.SHA256, l.Source.Bytes, err = d.writeObject(ctx, f, temp); err != nil {
		return l, e, err
	}
	e.SHA256, e.Bytes = l.Source.SHA256, l.Source.Bytes
	if t.slot.Set || t.facts.AlarmTable {
		if l.Source.Content, err = lowerAlarm(ctx, temp, l.Source.Alarm); err != nil {
			return l, e, fmt.Errorf("put its alarm into the file: %w", err)
		}
	}
	if t.facts.WAL {
		if err := setWAL(temp); err != nil {
			return l, e, err
		}
	}
	if d.cfg.Verify != VerifyNone {
		if err := verifyFile(ctx, temp, l.Source, l.Target, d.cfg.Verify == VerifyFull); err != nil {
			return l, e, fmt.Errorf("verify it: %w", err)
		}
	}
	failpoint.Hit("migrate.object.verify")
	err = place(temp, filepath.Join(d.cfg.Dir, string(Objects), f.name, f.key+databaseSuffix))
	failpoint.Hit("migrate.object.moved")
	return l, e, err
}

// writeObject writes an object's database as it is in its log, whose checksums
// are checked on the way.
func (d *Down) writeObject(ctx context.Context, f found, path string) (sum string, size int64, err error) {
	db, err := d.cfg.Objects.Open(ctx, f.name, f.key, objectops.Target{})
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if d.cfg.Verify == VerifyFull {
		if err := db.Verify(ctx); err != nil {
			return "", 0, err
		}
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	h := newSum()
	w := bufio.NewWriterSize(io.MultiWriter(out, h), 64<<10)
	if err = db.Copy(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = out.Sync()
	}
	return h.text(), h.n, errors.Join(err, out.Close())
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
	if err := c.Exec(alarmTableSQL); err != nil || alarm == nil {
		return sum, err
	}
	return sum, c.Exec(fmt.Sprintf(`INSERT INTO %s(id, scheduled_time) VALUES (1, %d)`, alarmTable, *alarm))
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

// setWAL marks a database file as one in WAL mode.
func setWAL(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{2, 2}, 18)
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
