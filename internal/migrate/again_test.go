package migrate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
	"github.com/davidwkeith/dwk/internal/objectops"
)

// TestAnotherBacklog: a backlog that was made anew in the place of one that was
// moved has rows of the same numbers, which are other messages.
func TestAnotherBacklog(t *testing.T) {
	r, data := made(t, false, few)
	r.up(data)
	before := migratetest.Central(t, r.Target).Queue.Pending["mail"]
	path := filepath.Join(data, "queue.sqlite")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	const news = 3
	sql := []string{`CREATE TABLE queue_jobs(id integer primary key autoincrement, queue text not null, body text not null, attempts integer not null default 0, visible_at integer not null, dead integer not null default 0)`}
	for i := range news {
		sql = append(sql, fmt.Sprintf(`INSERT INTO queue_jobs(queue, body, visible_at) VALUES('mail', '{"new": %d}', %d)`, i, migratetest.Future))
	}
	migratetest.DB(t, path, false, sql...)
	only := func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.Queues} }
	res := r.up(data, only)
	if res.Counts[migrate.Queues].Rows != news {
		t.Errorf("%d rows, want %d", res.Counts[migrate.Queues].Rows, news)
	}
	if got := migratetest.Central(t, r.Target).Queue.Pending["mail"]; got != before+news {
		t.Errorf("%d messages, want %d", got, before+news)
	}
	// They are moved once: not again when the marks at the source are lost.
	change(t, path, `UPDATE queue_jobs SET dead = 0`)
	r.up(data, only)
	if got := migratetest.Central(t, r.Target).Queue.Pending["mail"]; got != before+news {
		t.Errorf("%d messages after another run, want %d", got, before+news)
	}
	// What was imported before and has been worked off since is not said to be there.
	r.workOff()
	change(t, path, `UPDATE queue_jobs SET dead = 0`)
	var proof bytes.Buffer
	r.up(data, only, func(c *migrate.Config) { c.Proof = &proof })
	var l migrate.Line
	for line := range strings.Lines(proof.String()) {
		if strings.Contains(line, `"item":"queue"`) {
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
		}
	}
	if l.Source == nil || l.Target == nil || l.Source.Messages["mail"] != news || l.Target.Messages["mail"] != 0 {
		t.Errorf("%+v, %+v", l.Source, l.Target)
	}
}

// workOff takes all messages that wait away.
func (r *rig) workOff() {
	r.t.Helper()
	for e, err := range r.Store.List(r.t.Context(), kv.ListOptions{Prefix: tuple.Key{"dwk_queue_due"}}) {
		if err == nil {
			err = r.Store.Delete(r.t.Context(), e.Key)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestChangedByTheFleet: what the fleet has changed after a move is not undone by
// a run that is to verify more.
func TestChangedByTheFleet(t *testing.T) {
	for _, wire := range []bool{false, true} {
		r, data := made(t, wire, few)
		r.up(data, func(c *migrate.Config) { c.Verify = migrate.VerifyCounts })
		b := r.Buckets["FILES"]
		if _, err := b.Put(t.Context(), "empty", strings.NewReader("new"), durable.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		up, plan := r.plan(data)
		if err := up.Conflicts(plan); !errors.Is(err, migrate.ErrConflict) {
			t.Errorf("planned: %v", err)
		}
		if _, err := up.Move(t.Context()); !errors.Is(err, migrate.ErrConflict) {
			t.Errorf("moved: %v", err)
		}
		up.Close()
		if text := bodyText(t, b, "empty"); text != "new" {
			t.Errorf("the body is %q", text)
		}
	}
}

// TestServedInBetween: what the fleet did after a run that could not move
// everything is in the directory after the next.
func TestServedInBetween(t *testing.T) {
	r, data := made(t, false, few)
	r.up(data)
	orphan := tuple.Key{"dwk_alarm_by_id", "Gone", "0a"}
	r.set(orphan, map[string]int64{"epochMs": migratetest.Future, "retryCount": 0}, 0)
	back := r.newDir()
	counts(t, r.down(back), fewItems, 0, 1)
	if _, err := r.Databases["EMPTY_DB"].Batch(t.Context(), libsql.Write, libsql.S(`INSERT INTO t VALUES('later')`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Buckets["FILES"].Delete(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	if err := r.Store.Delete(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	r.workOff()
	r.down(back)
	want := migratetest.Central(t, r.Target)
	got := migratetest.Local(t, back).AtCentral()
	migratetest.Compare(t, "directory", got, want)
}

// TestNotBare: a plan without a store set cannot look into the buckets of the
// configuration, which may hold something all the same.
func TestNotBare(t *testing.T) {
	r, data := made(t, false, few)
	b := r.Buckets["FILES"]
	if _, err := b.Put(t.Context(), "empty", strings.NewReader("older"), durable.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	up, _ := r.plan(data, func(c *migrate.Config) {
		c.Target = migrate.Target{Databases: map[string]migrate.Database{}, Buckets: map[string]durable.Bucket{}}
		for name := range r.Databases {
			c.Databases[name] = nil
		}
		for name := range r.Buckets {
			c.Buckets[name] = nil
		}
	})
	up.Use(r.Target)
	if _, err := up.Move(t.Context()); !errors.Is(err, migrate.ErrConflict) {
		t.Errorf("moved: %v", err)
	}
	if text := bodyText(t, b, "empty"); text != "older" {
		t.Errorf("the body is %q", text)
	}
}

func bodyText(t *testing.T, b durable.Bucket, key string) string {
	t.Helper()
	body, _, err := b.Get(t.Context(), key, durable.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNameOutside: a name for a bucket on the way back stays in the directory.
func TestNameOutside(t *testing.T) {
	r, data := made(t, false, few)
	r.up(data)
	back := r.newDir()
	res := r.down(back, func(c *migrate.Config) { c.Map = map[string]string{"../../outside": "OTHER"} })
	if res.ProblemCount != 1 || res.Problems[0].Outcome != migrate.Skipped {
		t.Errorf("%+v", res.Problems)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(back), "outside")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something outside: %v", err)
	}
}

// TestDeletedByTheFleet: what the fleet has deleted after a move is not brought
// back by a run that is to verify more, which says so; replace brings it back.
func TestDeletedByTheFleet(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	r.up(data, func(c *migrate.Config) { c.Verify = migrate.VerifyCounts })
	id := migratetest.ID(migratetest.Name(2))
	if _, err := r.Objects.Delete(t.Context(), objectops.Change{Class: "Note", ID: id}); err != nil {
		t.Fatal(err)
	}
	if err := r.Buckets["FILES"].Delete(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Databases["EMPTY_DB"].Batch(t.Context(), libsql.Write, libsql.S(`DROP TABLE t`)); err != nil {
		t.Fatal(err)
	}
	first := migratetest.Central(t, r.Target)
	gone := map[string]bool{"do/Note/" + id: true, "r2/FILES/empty": true, "d1/EMPTY_DB": true}
	up, plan := r.plan(data)
	for _, res := range []*migrate.Result{plan, func() *migrate.Result {
		res, err := up.Move(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return res
	}()} {
		if res.ProblemCount != int64(len(gone)) {
			t.Errorf("%+v", res.Problems)
		}
		for _, p := range res.Problems {
			if !gone[p.Item] || p.Outcome != migrate.Skipped || !strings.Contains(p.Reason, "deleted it since") {
				t.Errorf("%+v", p)
			}
		}
	}
	up.Close()
	migratetest.Compare(t, "not brought back", migratetest.Central(t, r.Target), first)
	r.up(data, func(c *migrate.Config) { c.OnConflict = migrate.ConflictReplace })
	want := migratetest.Local(t, data).AtCentral()
	want.Queue = first.Queue
	migratetest.Compare(t, "brought back", migratetest.Central(t, r.Target), want)
}
