package fleettest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// moveConfig adds the bindings of the test data to a fleet's configuration.
func (f *Fleet) moveConfig() {
	f.t.Helper()
	text, err := os.ReadFile(f.config())
	if err == nil {
		text = append(text, "databases: [{name: MAIN_DB}, {name: SEARCH_DB}, {name: EMPTY_DB}]\nbuckets: [{name: FILES}, {name: OTHER}]\nmounts: []\ncrons: []\n"...)
		err = os.WriteFile(f.config(), text, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// move runs a migration, which dies at a failpoint unless that is empty.
func (f *Fleet) move(point string, args ...string) Result {
	f.t.Helper()
	log := filepath.Join(f.t.TempDir(), "hits")
	var env []string
	if point != "" {
		env = []string{"DWK_FAILPOINTS=" + point, "DWK_FAILPOINT_LOG=" + log}
	}
	r := f.CommandEnv(env, append([]string{"migrate"}, args...)...)
	if point == "" {
		return r
	}
	if hits, err := os.ReadFile(log); err != nil || r.Code != -1 {
		f.t.Errorf("%s: exit %d, %q, %v: %s", point, r.Code, hits, err, r.Stderr)
	}
	return r
}

func (f *Fleet) mustMove(args ...string) {
	f.t.Helper()
	if r := f.move("", args...); r.Code != 0 {
		f.t.Fatalf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// moveData is what the moves of tests move.
var moveData = migratetest.Options{Objects: 8, Bodies: 5, Large: 300 << 10, Rows: 400, Messages: 20}

// TestMoveKilledAtEveryPoint kills a move at each of its steps, one after the
// other, there and back: what comes back is what there was.
func TestMoveKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	f := New(t, File)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	migratetest.Make(t, old, moveData)
	want := migratetest.Local(t, old)
	up := []string{"to-central", "--data-dir", old, "--yes", "--jobs", "1"}
	for _, point := range []string{
		"migrate.marked=kill", "migrate.sql.begun=kill", "migrate.sql.copied=kill", "migrate.sql.finished=kill",
		"objectops.commit.before=kill", "objectops.commit.after=2*kill", "migrate.object.moved=2*kill", "migrate.object.verify=2*kill", "objectops.put.after=kill",
		"bucket.put.before=2*kill", "bucket.put.between=2*kill", "migrate.body.moved=2*kill",
		"migrate.queue.sent=kill", "migrate.ended=kill",
	} {
		f.move(point, up...)
	}
	f.mustMove(up...)
	f.mustMove(up...)
	down := []string{"to-local", "--data-dir", back, "--yes", "--jobs", "1"}
	for _, point := range []string{
		"migrate.marked=kill", "migrate.sql.copied=kill", "migrate.sql.finished=2*kill", "migrate.object.verify=2*kill", "migrate.object.moved=3*kill",
		"migrate.body.between=2*kill", "migrate.body.moved=2*kill", "migrate.queue.sent=kill", "migrate.queue.marked=kill", "migrate.ended=kill", "migrate.unmarked=kill",
	} {
		f.move(point, down...)
	}
	f.mustMove(down...)
	migratetest.Compare(t, "back", migratetest.Local(t, back), want)
	if _, err := os.Stat(filepath.Join(back, ".dwk-migrate")); !os.IsNotExist(err) {
		t.Errorf("what is left of the work: %v", err)
	}
}

// TestMoveKilledAtTheJournal: what was done and not noted is found done.
func TestMoveKilledAtTheJournal(t *testing.T) {
	if testing.Short() {
		t.Skip("a short run has the other points")
	}
	t.Parallel()
	f := New(t, File)
	f.moveConfig()
	old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
	migratetest.Make(t, old, moveData)
	want := migratetest.Local(t, old)
	for _, args := range [][]string{{"to-central", "--data-dir", old, "--yes"}, {"to-local", "--data-dir", back, "--yes"}} {
		f.move("migrate.journal.before=kill", args...)
		f.move("migrate.journal.after=kill", args...)
		f.mustMove(args...)
	}
	migratetest.Compare(t, "back", migratetest.Local(t, back), want)
}

// TestMoveKilledAnywhere kills moves at random moments.
func TestMoveKilledAnywhere(t *testing.T) {
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		f.moveConfig()
		if kind == Wire {
			f.Env = append(f.Env, startObjectStore(t).Env()...)
		}
		old, back := filepath.Join(f.Dir, "old"), filepath.Join(f.Dir, "back")
		o := moveData
		o.Objects = 12
		migratetest.Make(t, old, o)
		want := migratetest.Local(t, old)
		began := time.Now()
		twin := New(t, File) // how long it takes
		twin.moveConfig()
		other := filepath.Join(twin.Dir, "old")
		migratetest.Make(t, other, o)
		twin.mustMove("to-central", "--data-dir", other, "--yes")
		took := time.Since(began)
		n := Long(50, 5)
		kills := 0
		for _, args := range [][]string{{"to-central", "--data-dir", old, "--yes"}, {"to-local", "--data-dir", back, "--yes"}} {
			for range n {
				if f.killed(time.Duration(rand.Int64N(int64(took))), append([]string{"migrate"}, args...)...) {
					kills++
				} else if args[0] == "to-local" {
					break
				}
			}
			if r := f.move("", args...); r.Code != 0 && !strings.Contains(r.Stderr, "is not empty") {
				t.Fatalf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
		}
		migratetest.Compare(t, "back", migratetest.Local(t, back), want)
		t.Logf("%d kills, a move takes %v", kills, took)
	})
}

// killed runs a command and kills it after a while; false is that it had ended.
func (f *Fleet) killed(after time.Duration, args ...string) bool {
	f.t.Helper()
	cmd := f.program(nil, args...)
	if err := start(cmd); err != nil {
		f.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	cmd.Wait()                                                    //nolint:errcheck // it is in ProcessState
	timer.Stop()
	return cmd.ProcessState.ExitCode() == -1
}

// TestMovedDataIsServed: a fleet goes on with what a local host has left: it
// answers from it, its alarms fire, and its messages arrive; but not before the
// old stores are out of the way.
func TestMovedDataIsServed(t *testing.T) {
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		dir := f.DataDir // where the host has been, and the fleet will be
		for _, d := range []string{"d1", "do/Counter", "do/Timer"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		object := func(class, name string) string {
			return filepath.Join(dir, "do", class, migratetest.ID(name)+".sqlite")
		}
		migratetest.DB(t, object("Counter", "visits"), true,
			`CREATE TABLE lab_counter (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL) STRICT`, `INSERT INTO lab_counter VALUES(0, 4711)`)
		now := time.Now()
		timers := map[string]int64{"late": now.Add(-time.Hour).UnixMilli(), "soon": now.Add(4 * time.Second).UnixMilli(), "some-day": now.Add(100 * time.Hour).UnixMilli()}
		for name, at := range timers {
			migratetest.DB(t, object("Timer", name), false,
				`CREATE TABLE lab_timer (id INTEGER PRIMARY KEY CHECK (id = 0), name TEXT NOT NULL, fail INTEGER NOT NULL) STRICT`,
				fmt.Sprintf(`INSERT INTO lab_timer VALUES(0, '%s', 0)`, name), migratetest.AlarmTable, fmt.Sprintf(`INSERT INTO _host_alarm VALUES(1, %d)`, at))
		}
		migratetest.DB(t, filepath.Join(dir, "d1", "LAB_DB.sqlite"), true, `CREATE TABLE mine(a)`, `INSERT INTO mine VALUES(9007199254740993)`)
		migratetest.WriteBody(t, dir, "LAB_FILES", "deep/file.txt", []byte("a body"), "text/x-mine", nil)
		const messages = 25
		jobs := []string{`CREATE TABLE queue_jobs(id integer primary key autoincrement, queue text not null, body text not null, attempts integer not null default 0, visible_at integer not null, dead integer not null default 0)`}
		for i := range messages {
			jobs = append(jobs, fmt.Sprintf(`INSERT INTO queue_jobs(queue, body, attempts, visible_at) VALUES('default', '{"n":%d}', %d, %d)`, i, i%4, now.UnixMilli()+int64(i)))
		}
		migratetest.DB(t, filepath.Join(dir, "queue.sqlite"), true, jobs...)

		r := f.move("", "to-central", "--yes")
		if r.Code != 0 {
			t.Fatalf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
		if early := f.Command("serve"); early.Code == 0 || !strings.Contains(early.Stderr, "local mode") {
			t.Errorf("serve beside the old stores: exit %d: %s", early.Code, early.Stderr)
		}
		// As the command says.
		_, aside, _ := strings.Cut(r.Stderr, "aside:\n")
		cmd := exec.Command("sh", "-ec", aside)
		cmd.Dir = f.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", aside, err, out)
		}
		a := f.Start()
		var counter struct{ Value int64 }
		a.Get("counter/visits").Decode(t, &counter)
		if counter.Value != 4711 {
			t.Errorf("counter %d", counter.Value)
		}
		if ans := a.Get("bucket/deep/file.txt"); ans.Status != http.StatusOK || ans.Body != "a body" {
			t.Errorf("body: %v", ans)
		}
		var rows []json.RawMessage
		f.JSON(&rows, "sql", "query", "LAB_DB", "SELECT a FROM mine")
		if len(rows) != 1 || !strings.Contains(string(rows[0]), "9007199254740993") {
			t.Errorf("SQL database: %s", rows)
		}
		for _, name := range []string{"late", "soon"} {
			if got := a.fired(name); got.Firings[0].Due != timers[name] {
				t.Errorf("%s fired for %d, was set to %d", name, got.Firings[0].Due, timers[name])
			}
		}
		if got := a.alarm("some-day"); got.Pending == nil || *got.Pending != timers["some-day"] || len(got.Firings) > 0 {
			t.Errorf("some-day: %+v", got)
		}
		seen := map[string]int{}
		Eventually(t, "all messages arrive", func() bool {
			var page struct {
				Seen []struct {
					ID       string
					Attempts int
					Body     json.RawMessage
				}
			}
			a.Get("queue/default/seen").Decode(t, &page)
			clear(seen)
			for _, m := range page.Seen {
				seen[string(m.Body)]++
			}
			return len(seen) >= messages
		})
		for body, n := range seen {
			if n != 1 {
				t.Errorf("message %s arrived %d times", body, n)
			}
		}
		a.Terminate()
		a.Wait()
		// Nothing is moved a second time, though the fleet has changed it.
		if again := f.move("", "to-central", "--data-dir", dir+".old", "--yes"); again.Code != 1 && again.Code != 4 {
			t.Errorf("again, from another place: exit %d: %s", again.Code, again.Stderr)
		}
	})
}
