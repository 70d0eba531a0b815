package migrate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set writes an entry of the coordination store.
func (r *rig) set(key tuple.Key, value any, ttl time.Duration) {
	r.t.Helper()
	if _, err := r.Store.Set(r.t.Context(), key, value, ttl); err != nil {
		r.t.Fatal(err)
	}
}

// TestSourceGuards: directories that are not worked on.
func TestSourceGuards(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	lock := filepath.Join(data, ".dwk-writer.lock")
	try := func() error {
		up, err := migrate.NewUp(r.config(data), &migrate.Progress{})
		if err == nil {
			up.Close()
		}
		return err
	}
	write(t, lock, strconv.Itoa(os.Getpid())+"\n")
	if err := try(); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a live owner: %v", err)
	}
	write(t, lock, "1")
	if err := try(); !errors.Is(err, migrate.ErrRefused) {
		t.Errorf("a live owner that may not be signalled: %v", err)
	}
	write(t, lock, "nobody")
	if err := try(); !errors.Is(err, migrate.ErrRefused) {
		t.Errorf("a lock that is none: %v", err)
	}
	write(t, lock, "4194000") // beyond the ids that are given
	if err := try(); err != nil {
		t.Errorf("a dead owner: %v", err)
	}
	if err := os.Mkdir(filepath.Join(data, ".dwk-migrate"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := try(); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "not completed") {
		t.Errorf("a half-migrated directory: %v", err)
	}
	if err := os.Remove(filepath.Join(data, ".dwk-migrate")); err != nil {
		t.Fatal(err)
	}
	up, _ := r.plan(data)
	if err := try(); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "another migration") {
		t.Errorf("two at once: %v", err)
	}
	up.Close()
	for _, dir := range []string{t.TempDir(), filepath.Join(data, "nothing"), lock} {
		if _, err := migrate.NewUp(r.config(dir), &migrate.Progress{}); err == nil {
			t.Errorf("%s was taken for a data directory", dir)
		}
	}
}

// TestStoreGuards: store sets that are not worked on, and are left as they are.
func TestStoreGuards(t *testing.T) {
	plan := kv.NewPlan()
	if _, err := (lease.Attempt{Class: "Note", ID: "0a", Holder: "h", TTL: time.Minute, DeadlineMs: 1 << 60}).Add(plan); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, why string
		kind      error
		prepare   func(r *rig)
	}{
		{"replica", "replica", fleet.ErrInUse, func(r *rig) { r.set(tuple.Key{"dwk_replica", "r1"}, map[string]string{"state": "ready"}, time.Minute) }},
		{"lease", "lease", fleet.ErrInUse, func(r *rig) {
			if _, err := r.Store.Commit(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
		}},
		{"older host", "older host", mode.ErrRefused, func(r *rig) { r.set(mode.ModeKey, mode.OlderHost, 0) }},
		{"another move", "under way", mode.ErrRefused, func(r *rig) { r.set(mode.ModeKey, mode.Moving("another"), 0) }},
		{"another release", "use the release", mode.ErrRefused, func(r *rig) { r.set(mode.StoreKey, mode.Store{ID: r.StoreID, Layout: 9}, 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, data := made(t, false, few)
			c.prepare(r)
			before := dump(t, r)
			up, _ := r.plan(data)
			res, err := up.Move(t.Context())
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("to it: %v", err)
			}
			counts(t, res, 0, 0, 0)
			up.Close()
			down, err := migrate.NewDown(t.Context(), r.config(r.newDir()), &migrate.Progress{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = down.Move(t.Context()); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("from it: %v", err)
			}
			down.Close()
			if after := dump(t, r); after != before {
				t.Errorf("it changed from\n%s to\n%s", before, after)
			}
		})
	}
}

// dump is the coordination store as text.
func dump(t *testing.T, r *rig) string {
	t.Helper()
	var b strings.Builder
	for e, err := range r.Store.Dump(t.Context(), tuple.Key{}) {
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(e.Key.String() + " " + string(e.Value) + "\n")
	}
	return b.String()
}

// TestTargetDirectory: directories that nothing is written to.
func TestTargetDirectory(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	r.up(data)
	try := func(dir string, change ...func(*migrate.Config)) error {
		down, err := migrate.NewDown(t.Context(), r.config(dir, change...), &migrate.Progress{})
		if err == nil {
			down.Close()
		}
		return err
	}
	if err := try(data); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory that has something: %v", err)
	}
	empty := t.TempDir()
	if err := try(empty); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	// A backlog elsewhere is not replaced.
	elsewhere := filepath.Join(t.TempDir(), "mine.sqlite")
	write(t, elsewhere, "precious")
	if err := try(empty, func(c *migrate.Config) { c.QueueFile = elsewhere }); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("a backlog that is there: %v", err)
	}
	if err := try(empty, func(c *migrate.Config) { c.QueueFile = filepath.Join(t.TempDir(), "new.sqlite") }); err != nil {
		t.Errorf("a new backlog elsewhere: %v", err)
	}
	// What a run that was interrupted left belongs to its store set.
	if err := os.MkdirAll(filepath.Join(empty, ".dwk-migrate"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(empty, ".dwk-migrate", "plan.json"), `{"store_id":"another","primary":"p"}`)
	if err := try(empty); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "another") {
		t.Errorf("half of another move: %v", err)
	}
}

// TestConflicts: something else at the target, of each kind, under each rule; and
// the same there counts as moved.
func TestConflicts(t *testing.T) {
	object := migratetest.ID(migratetest.Name(0))
	for _, c := range []struct {
		item   string
		change func(t *testing.T, data string)
	}{
		{"do/Note/" + object, func(t *testing.T, data string) {
			change(t, filepath.Join(data, "do/Note", object+".sqlite"), `UPDATE note SET body = 'other' WHERE id = 1`)
		}},
		{"do/Note/" + object, func(t *testing.T, data string) {
			change(t, filepath.Join(data, "do/Note", object+".sqlite"), `UPDATE _host_alarm SET scheduled_time = scheduled_time + 1`)
		}},
		{"r2/FILES/empty", func(t *testing.T, data string) {
			migratetest.WriteBody(t, data, "FILES", "empty", []byte("no more"), "", nil)
		}},
		{"r2/OTHER/large", func(t *testing.T, data string) {
			text, err := os.ReadFile(filepath.Join(data, "r2/OTHER/large"))
			if err != nil {
				t.Fatal(err)
			}
			migratetest.WriteBody(t, data, "OTHER", "large", text, "audio/x", nil)
		}},
		{"d1/EMPTY_DB", func(t *testing.T, data string) {
			change(t, filepath.Join(data, "d1/EMPTY_DB.sqlite"), `INSERT INTO t VALUES('three')`)
		}},
	} {
		t.Run(c.item, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.item != "r2/FILES/empty" {
				t.Skip("a short run has one of them")
			}
			r, data := made(t, false, few)
			r.up(data)
			first := migratetest.Central(t, r.Target)
			// A copy elsewhere is another source: nothing is known of it.
			other := r.newDir()
			if err := os.CopyFS(other, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			counts(t, r.up(other), 0, fewItems, 0)
			third := r.newDir()
			if err := os.CopyFS(third, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			c.change(t, third)
			up, plan := r.plan(third)
			if err := up.Conflicts(plan); !errors.Is(err, migrate.ErrConflict) || !strings.Contains(err.Error(), c.item) {
				t.Errorf("fail: %v", err)
			}
			// Found only when it moves, it ends the run.
			if _, err := up.Move(t.Context()); !errors.Is(err, migrate.ErrConflict) {
				t.Errorf("fail, late: %v", err)
			}
			up.Close()
			migratetest.Compare(t, "after fail", migratetest.Central(t, r.Target), first)
			res := r.up(third, func(c *migrate.Config) { c.OnConflict = migrate.ConflictSkip })
			counts(t, res, 0, fewItems-1, 1)
			if res.Problems[0].Outcome != migrate.Conflict || res.Problems[0].Item != c.item {
				t.Errorf("%+v", res.Problems)
			}
			migratetest.Compare(t, "after skip", migratetest.Central(t, r.Target), first)
			want := migratetest.Local(t, third).AtCentral()
			want.Queue = first.Queue // they are there already
			counts(t, r.up(third, func(c *migrate.Config) { c.OnConflict = migrate.ConflictReplace }), 1, fewItems-1, 0)
			migratetest.Compare(t, "after replace", migratetest.Central(t, r.Target), want)
		})
	}
}

// change runs statements on a database file.
func change(t *testing.T, path string, sql ...string) {
	t.Helper()
	c, err := sqlite.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sql {
		if err := c.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOptions: kinds, other names, dry runs, cheaper verification.
func TestOptions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves much")
	}
	r, data := made(t, false, few)
	up, res := r.plan(data, func(c *migrate.Config) { c.DryRun = true; c.Target.Store = nil })
	counts(t, res, fewItems, 0, 0)
	up.Close()
	if res.Counts[migrate.Queues].Rows != 11 {
		t.Errorf("%d messages", res.Counts[migrate.Queues].Rows)
	}
	counts(t, r.up(data, func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.SQL}; c.Verify = migrate.VerifyNone }), 3, 0, 0)
	// More is verified than was: they are looked at again.
	counts(t, r.up(data, func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.SQL}; c.Verify = migrate.VerifyCounts }), 3, 0, 0)
	counts(t, r.up(data, func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.SQL}; c.Verify = migrate.VerifyNone }), 0, 3, 0)
	for _, v := range []migrate.Verify{migrate.VerifyNone, migrate.VerifyCounts, migrate.VerifyFull} {
		r.up(data, func(c *migrate.Config) { c.Verify = v })
	}
	migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), func() migratetest.Facts {
		want := migratetest.Local(t, data).AtCentral()
		want.Queue = migratetest.Central(t, r.Target).Queue
		return want
	}())
	// A binding under another name, there and back.
	other := newRig(t, false, []string{"MAIN_DB", "SEARCH_DB", "EMPTY_DB"}, []string{"PHOTOS", "OTHER"})
	rename := func(c *migrate.Config) { c.Map = map[string]string{"FILES": "PHOTOS"} }
	counts(t, other.up(data, rename), fewItems-1, 1, 0) // the messages are moved
	if l, err := other.Buckets["PHOTOS"].List(t.Context(), durable.ListOptions{}); err != nil || len(l.Objects) != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	back := other.newDir()
	other.down(back, rename)
	want := migratetest.Local(t, data)
	want.Queue = migratetest.Queue{Pending: map[string]int{}}
	migratetest.Compare(t, "back", migratetest.Local(t, back), want)
}

// TestWaitingAlarm: an alarm that is at the target before its object, as an older
// host leaves them, stays with it.
func TestWaitingAlarm(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves much")
	}
	r, data := made(t, false, few)
	id := migratetest.ID(migratetest.Name(2)) // has none
	r.set(tuple.Key{"dwk_alarm_by_id", "Note", id}, map[string]int64{"epochMs": migratetest.Future, "retryCount": 0}, 0)
	want := migratetest.Local(t, data).AtCentral()
	o, at := want.DO["Note"][id], int64(migratetest.Future)
	if o.Alarm != nil {
		t.Fatal("it has one")
	}
	o.Alarm = &at
	want.DO["Note"][id] = o
	counts(t, r.up(data, func(c *migrate.Config) { c.Verify = migrate.VerifyNone }), fewItems, 0, 0)
	counts(t, r.up(data), fewItems-1, 1, 0) // now compared, also by what the journal knows
	migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), want)
}

// TestOrphans: an alarm without an object stays behind on the way back, and is
// named.
func TestOrphans(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves much")
	}
	r, data := made(t, false, few)
	r.up(data)
	r.set(tuple.Key{"dwk_alarm_by_id", "Gone", "0a"}, map[string]int64{"epochMs": migratetest.Future, "retryCount": 0}, 0)
	b := r.Buckets["FILES"]
	if _, err := b.Put(t.Context(), "dir.r2meta2/x", strings.NewReader("x"), durable.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	back := r.newDir()
	res := r.down(back)
	counts(t, res, fewItems+1, 0, 1)
	if res.Problems[0].Item != "alarm/Gone/0a" {
		t.Errorf("%+v", res.Problems)
	}
	// It is not complete, and not taken for a source.
	if _, err := migrate.NewUp(r.config(back), &migrate.Progress{}); !errors.Is(err, migrate.ErrRefused) {
		t.Error(err)
	}
	// Without the alarm another run completes it.
	if err := r.Store.Delete(t.Context(), tuple.Key{"dwk_alarm_by_id", "Gone", "0a"}); err != nil {
		t.Fatal(err)
	}
	counts(t, r.down(back), fewItems+1, 0, 0)
	want := migratetest.Local(t, data)
	got := migratetest.Local(t, back)
	want.Queue = got.Queue
	delete(got.R2["FILES"], "dir.r2meta2/x")
	migratetest.Compare(t, "back", got, want)
}

// TestMessagesOnce: a message that was imported and delivered, and not yet marked
// in the source when the run was killed, does not come again.
func TestMessagesOnce(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, migratetest.Options{Messages: 10})
	only := func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.Queues} }
	r.up(data, only)
	var keys []tuple.Key
	for e, err := range r.Store.List(t.Context(), kv.ListOptions{Prefix: tuple.Key{"dwk_queue_due"}}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	if len(keys) != 9 {
		t.Fatalf("%d messages", len(keys))
	}
	for _, k := range keys {
		if err := r.Store.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	change(t, filepath.Join(data, "queue.sqlite"), `UPDATE queue_jobs SET dead = 0 WHERE id % 10 <> 0`)
	r.up(data, only)
	if got := migratetest.Central(t, r.Target).Queue.Pending; len(got) > 0 {
		t.Errorf("they came again: %v", got)
	}
	if got := migratetest.Local(t, data).Queue.Pending; len(got) > 0 {
		t.Errorf("not marked: %v", got)
	}
}
