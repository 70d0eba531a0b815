package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/apps"
	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// log makes an object with one commit for each of the statements.
func (f *fixture) log(class, id, name string, stmts ...string) {
	f.t.Helper()
	m := mirror.New(filepath.Join(f.t.TempDir(), "object.db"), mirror.Config{})
	defer m.Close()
	var head objlog.Head
	for i, s := range stmts {
		if _, err := m.Exec(f.t.Context(), s); err != nil {
			f.t.Fatal(err)
		}
		e, err := m.Capture()
		if err != nil {
			f.t.Fatal(err)
		}
		c := objlog.Commit{
			Class: class, ID: id, Name: name, Base: head, CommitID: fmt.Sprint(id, i), Epoch: 1,
			Post: e.Post.Checksum, PageSize: e.PageSize, Pages: e.Pages, Data: e.Data, Snapshot: i == 0,
		}
		p := kv.NewPlan()
		c.Add(p)
		if v, err := f.stores.KV.Commit(f.t.Context(), p); err != nil || !v.OK {
			f.t.Fatal(v.OK, err)
		}
		if err := m.Confirm(e.Post); err != nil {
			f.t.Fatal(err)
		}
		head = c.Head()
	}
}

var counting = []string{`CREATE TABLE n(v); INSERT INTO n VALUES (1)`, `UPDATE n SET v = 2`, `UPDATE n SET v = 3`, `UPDATE n SET v = 4`}

// value is what a counting object has.
func (f *fixture) value(args ...string) string {
	f.t.Helper()
	var rows []map[string]int
	f.json(&rows, append([]string{"object", "sql", "C"}, append(args, `SELECT v FROM n`)...)...)
	return fmt.Sprint(rows[0]["v"])
}

func TestObjectList(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"0a", "0b", "0c"} {
			f.log("C", id, "name-"+id, counting...)
		}
		f.log("D", "0d", "", counting[0])
		f.ok("object", "delete", "C", "0c", "--yes")
		for args, want := range map[string]string{
			"C": "0a 0b", "C --limit 1": "0a", "C --after 0a": "0b", "C --all": "0a 0b", "C --deleted": "0c", "D": "0d", "E": "",
		} {
			var got []objectJSON
			f.json(&got, append([]string{"object", "list"}, strings.Fields(args)...)...)
			var ids []string
			for _, o := range got {
				ids = append(ids, o.ID)
				if o.Class != args[:1] || o.TXID == 0 || o.Bytes != int64(o.Pages)*int64(o.PageSize) || (o.DeletedAt != nil) != (o.ID == "0c") || o.AgeMs < 0 ||
					o.Class == "C" && o.Name != "name-"+o.ID {
					t.Errorf("%+v", o)
				}
			}
			if strings.Join(ids, " ") != want {
				t.Errorf("%s: %v", args, ids)
			}
		}
		r := f.run("object", "list", "C", "--limit", "1")
		if !strings.HasPrefix(r.out, "ID  NAME     COMMIT  BYTES  UPDATED") || !strings.Contains(r.err, "--after 0a") {
			t.Error(r)
		}
		f.fails(exitUsage, "--all", "object", "list", "C", "--all", "--limit", "5")
		f.fails(exitUsage, "--limit", "object", "list", "C", "--limit", "0")
		f.fails(exitUsage, "--after", "object", "list", "C", "--after", "X")
		f.fails(exitUsage, "CLASS", "object", "list")
		var classes []classJSON
		f.json(&classes, "object", "classes")
		if len(classes) != 2 || classes[0].Class != "C" || classes[0].Objects != 2 || classes[0].Deleted != 1 || classes[1].Bytes == 0 {
			t.Errorf("%+v", classes)
		}
	})
}

func TestObjectInfoAndHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		id := durable.IDFromName("front").String()
		f.log("C", id, "front", counting...)
		var got objectInfoJSON
		f.json(&got, "object", "info", "C", "--name", "front")
		if got.ID != id || got.Name != "front" || got.TXID != 4 || got.Lease != nil || len(got.Log) != 1 || got.Log[0].Rows != 4 || got.Positions != 4 ||
			got.Oldest.TXID != 1 || got.Newest.TXID != 4 || len(got.Checksum) != 16 || got.CommitID == "" {
			t.Errorf("%+v", got)
		}
		f.hold("C", id, "r1", lease.EventAlarm, time.Minute)
		out := f.ok("object", "info", "C", id)
		for _, want := range []string{"level 0, commits", "4, from 1 to 4", "replica r1 took it for an event (alarm)", "8192 bytes (2 pages of 4096)"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		f.fails(exitNotFound, "no object C/0a", "object", "info", "C", "0a")
		f.fails(exitUsage, "ID is missing", "object", "info", "C")
		var history []positionJSON
		f.json(&history, "object", "history", "C", id)
		if len(history) != 4 || history[0].TXID != 4 || history[3].TXID != 1 || history[0].Size == 0 || history[0].At == 0 {
			t.Errorf("%+v", history)
		}
		if r := f.run("object", "history", "C", id, "--limit", "2"); strings.Count(r.out, "\n") != 3 || !strings.Contains(r.err, "more commits than 2") {
			t.Error(r)
		}
		f.fails(exitNotFound, "no object", "object", "history", "C", "0a")
	})
}

func TestObjectSQL(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.log("C", "0a", "", `CREATE TABLE t(a, b); INSERT INTO t VALUES (9007199254740993, x'00ff'), (1, 1.0), (NULL, '<é'), (9e999, CAST(x'ff' AS TEXT)), (-9e999, 1e300)`)
		out := f.ok("object", "sql", "C", "0a", "SELECT a, b, a FROM t", "-o", "json")
		for _, want := range []string{
			`{"a":{"$int":"9007199254740993"},"b":{"$bytes":"AP8="},"a_2":{"$int":"9007199254740993"}}`, `{"a":1,"b":1.0,"a_2":1}`,
			`{"a":null,"b":"<é","a_2":null}`, `{"a":{"$number":"Infinity"},"b":{"$text":"/w=="},`, `{"a":{"$number":"-Infinity"},"b":1e+300,`,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %s in %s", want, out)
			}
		}
		if !json.Valid([]byte(out)) {
			t.Error("not JSON: " + out)
		}
		out = f.ok("object", "sql", "C", "0a", "SELECT a, b FROM t")
		for _, want := range []string{"a                 b\n", "9007199254740993  x'00ff'\n", "1                 1.0\n", "NULL"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %s", want, out)
			}
		}
		if r := f.run("object", "sql", "C", "0a", "SELECT a FROM t", "--limit", "2", "-o", "json"); strings.Count(r.out, `{"a"`) != 2 || !strings.Contains(r.err, "more rows than 2") {
			t.Error(r)
		}
		if r := f.run("object", "sql", "C", "0a", "SELECT 1 WHERE 0"); r.code != 0 || r.out != "" || !strings.Contains(r.err, "no rows") {
			t.Error(r)
		}
		if out := f.ok("object", "sql", "C", "0a", "SELECT 1 WHERE 0", "-o", "json"); out != "[]\n" {
			t.Error(out)
		}
		f.fails(exitFailed, "only reading is allowed", "object", "sql", "C", "0a", "DELETE FROM t RETURNING a")
		f.fails(exitFailed, "no such table", "object", "sql", "C", "0a", "SELECT * FROM x")
		f.fails(exitFailed, "deadline", "object", "sql", "C", "0a", "WITH RECURSIVE b(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM b) SELECT max(i) FROM b", "--timeout", "1s")
		f.fails(exitNotFound, "no object C/0b", "object", "sql", "C", "0b", "SELECT 1")
		f.fails(exitUsage, "QUERY is missing", "object", "sql", "C", "0a")
		f.fails(exitUsage, "QUERY is missing", "object", "sql", "C", "--name", "x")
		f.log("C", "0c", "", counting...)
		if v := f.value("0c", "--at", "2"); v != "2" {
			t.Error(v)
		}
	})
}

func TestObjectExport(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.log("C", "0a", "", counting...)
		path := filepath.Join(t.TempDir(), "x.db")
		var got exportedJSON
		f.json(&got, "object", "export", "C", "0a", path, "--at", "2")
		if got.TXID != 2 || got.File != path || got.Bytes != 8192 || len(got.Checksum) != 16 {
			t.Errorf("%+v", got)
		}
		db, err := libsql.Open(libsql.Config{URL: "file:" + path})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if res, err := db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT v FROM n`)); err != nil || res[0].Rows[0][0] != int64(2) {
			t.Error(res, err)
		}
		f.fails(exitFailed, "is there already", "object", "export", "C", "0a", path)
		f.fails(exitNotFound, "commit 9|object history", "object", "export", "C", "0a", path+"2", "--at", "9")
		f.fails(exitUsage, "--at", "object", "export", "C", "0a", path+"2", "--at", "noon")
		f.fails(exitUsage, "FILE is missing", "object", "export", "C", "0a")
	})
}

func TestObjectRestore(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.log("C", "0a", "", counting...)
		path := filepath.Join(t.TempDir(), "x.db")
		f.ok("object", "export", "C", "0a", path, "--at", "3")

		var got restoredJSON
		f.json(&got, "object", "restore", "C", "0a", "--to", "2", "--dry-run")
		if got.Restored || !got.DryRun || got.To.TXID != 2 || got.Before != 4 || got.LogRows != 4 || got.EntryBytes == 0 || got.TXID != 0 {
			t.Errorf("%+v", got)
		}
		f.fails(exitUsage, "--yes", "object", "restore", "C", "0a", "--to", "2")
		if r := f.ask(strings.NewReader("n\n"), "object", "restore", "C", "0a", "--to", "2"); r.code != exitFailed || !strings.Contains(r.err, "what commit 2 of ") || !strings.Contains(r.err, "It is at commit 4") {
			t.Error(r)
		}
		if v := f.value("0a"); v != "4" {
			t.Errorf("changed to %s", v)
		}
		got = restoredJSON{}
		f.json(&got, "object", "restore", "C", "0a", "--to", "2", "--yes")
		if v := f.value("0a"); v != "2" || !got.Restored || got.Before != 4 || got.TXID != 5 || got.Offloaded {
			t.Errorf("%s %+v", v, got)
		}
		out := f.ok("object", "restore", "C", "0a", "--file", path, "--yes")
		if v := f.value("0a"); v != "3" || !strings.Contains(out, "--to 5\n") {
			t.Errorf("%s %s", v, out)
		}
		// What was asked about is what is changed.
		meddle := &meanwhile{func() { f.ok("object", "restore", "C", "0a", "--to", "1", "--yes") }, strings.NewReader("y\n")}
		if r := f.ask(meddle, "object", "restore", "C", "0a", "--to", "4"); r.code != exitFailed || !strings.Contains(r.err, "is at commit 7, it was at 6") {
			t.Error(r)
		}
		if r := f.ask(strings.NewReader("y\n"), "object", "restore", "C", "0a", "--to", "4"); r.code != 0 || f.value("0a") != "4" {
			t.Error(r)
		}
		// A file makes an object that was not there, with its name.
		f.ok("object", "restore", "C", "--name", "new", "--file", path, "--yes")
		var info objectInfoJSON
		f.json(&info, "object", "info", "C", "--name", "new")
		if info.Name != "new" || info.TXID != 1 {
			t.Errorf("%+v", info)
		}

		f.hold("C", "0a", "r1", lease.EventRequest, time.Minute)
		f.fails(exitFailed, "held by holder-of-r1 of replica r1|lease inspect", "object", "restore", "C", "0a", "--to", "1", "--yes", "--wait", "10ms")
		f.fails(exitFailed, "held by holder-of-r1 of replica r1|lease inspect", "object", "delete", "C", "0a", "--yes", "--wait", "10ms")
		f.ok("object", "restore", "C", "0a", "--to", "1", "--dry-run") // takes no lease

		f.fails(exitNotFound, "commit 99|object history", "object", "restore", "C", "0a", "--to", "99", "--yes")
		f.fails(exitNotFound, "at or before", "object", "restore", "C", "0a", "--to", "1h", "--yes")
		f.fails(exitNotFound, "no object C/0b", "object", "restore", "C", "0b", "--to", "1", "--yes")
		f.fails(exitUsage, "--to and --file", "object", "restore", "C", "0a", "--to", "1", "--file", path)
		f.fails(exitUsage, "--to or --file", "object", "restore", "C", "0a")
	})
}

// A drill fails when a restore would, or when anything in the log is damaged.
func TestObjectRestoreDrill(t *testing.T) {
	f := newFixture(t)
	f.log("C", "0a", "", counting...)
	if _, err := f.stores.DB.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE obj_log SET data = zeroblob(size) WHERE max_txid = 3`)); err != nil {
		t.Fatal(err)
	}
	f.fails(exitFailed, "damaged|entry 3 to 3", "object", "restore", "C", "0a", "--to", "2", "--dry-run")
	f.fails(exitFailed, "damaged", "object", "restore", "C", "0a", "--to", "3", "--dry-run")
	f.fails(exitFailed, "damaged", "object", "sql", "C", "0a", "SELECT 1")
	f.ok("object", "restore", "C", "0a", "--to", "2", "--yes") // and so it is healed
	if v := f.value("0a"); v != "2" {
		t.Error(v)
	}
	bad := filepath.Join(t.TempDir(), "bad.db")
	if err := os.WriteFile(bad, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.fails(exitFailed, "bad.db", "object", "restore", "C", "0a", "--file", bad, "--dry-run")
}

// A large entry goes to the object store, which a replica must have claimed.
func TestObjectRestoreOffloads(t *testing.T) {
	f := newFixture(t)
	f.environ = append(f.environ, "DWK_OBJECTS_INLINE_LIMIT=1KiB")
	f.log("C", "0a", "", `CREATE TABLE n(v); INSERT INTO n VALUES (1); CREATE TABLE big AS SELECT randomblob(5000) AS b`, `UPDATE n SET v = 2`)
	f.fails(exitFailed, "no replica has ever used it", "object", "restore", "C", "0a", "--to", "1", "--yes")
	if v := f.value("0a"); v != "2" {
		t.Errorf("changed to %s", v)
	}
	_, stop := f.serve()
	stop()
	var got restoredJSON
	f.json(&got, "object", "restore", "C", "0a", "--to", "1", "--yes")
	if v := f.value("0a"); v != "1" || !got.Offloaded {
		t.Errorf("%s %+v", v, got)
	}
	f.ok("object", "restore", "C", "0a", "--to", "3", "--dry-run")
}

func TestObjectDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.log("C", "0a", "a", counting...)
		f.fails(exitUsage, "--yes", "object", "delete", "C", "0a")
		if r := f.ask(strings.NewReader("n\n"), "object", "delete", "C", "0a"); r.code != exitFailed || !strings.Contains(r.err, "8192 bytes at commit 4") {
			t.Error(r)
		}
		var got deletedJSON
		f.json(&got, "object", "delete", "C", "0a", "--yes")
		if !got.Deleted || got.TXID != 4 || got.Name != "a" || got.Bytes != 8192 {
			t.Errorf("%+v", got)
		}
		f.fails(exitNotFound, "was deleted at", "object", "delete", "C", "0a", "--yes")
		f.fails(exitNotFound, "was deleted at", "object", "sql", "C", "0a", "SELECT 1")
		if out := f.ok("object", "info", "C", "0a"); !strings.Contains(out, "deleted") {
			t.Error(out)
		}
	})
}

// Nothing changes objects in a store set that a replica would refuse.
func TestObjectsOfARefusedStoreSet(t *testing.T) {
	f := newFixture(t)
	f.log("C", "0a", "", counting...)
	if _, err := f.stores.KV.Set(t.Context(), []any{"dwk_meta", "mode"}, "migrating:x", 0); err != nil {
		t.Fatal(err)
	}
	f.fails(exitFailed, "migration", "object", "restore", "C", "0a", "--to", "1", "--yes")
	f.fails(exitFailed, "migration", "object", "delete", "C", "0a", "--yes")
	if v := f.value("0a"); v != "4" {
		t.Error(v)
	}
}

// serve runs a replica on the store set; stop ends it.
func (f *fixture) serve() (public string, stop func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.t.Context())
	sink := newLineSink()
	code := make(chan int, 1)
	o := Options{Args: []string{"serve", "--log-format", "json"}, Out: io.Discard, Err: sink, Apps: apps.All()}
	o.Environ = append(o.Environ, f.environ...)
	o.Environ = append(o.Environ, "DWK_DRAIN_GRACE=0s", "DWK_LISTEN=127.0.0.1:0", "DWK_ADMIN_LISTEN=127.0.0.1:0")
	go func() { code <- Run(ctx, o) }()
	var started struct{ Public string }
	if err := json.Unmarshal([]byte(sink.next(f.t, `"serve.started"`)), &started); err != nil {
		f.t.Fatal(err)
	}
	return "http://" + started.Public, func() {
		http.DefaultClient.CloseIdleConnections()
		cancel(interrupted{syscall.SIGTERM})
		if c := <-code; c != 0 {
			f.t.Errorf("serve: exit %d", c)
		}
	}
}

// A replica that has the object in memory goes on with what an operator made
// of it.
func TestObjectsBesideAReplica(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		public, stop := f.serve()
		defer stop()
		call := func(method, path string) string {
			t.Helper()
			req, _ := http.NewRequestWithContext(t.Context(), method, public+path, nil)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatal(res.Status, string(b), err)
			}
			return strings.TrimSpace(string(b))
		}
		values := map[uint64]string{}
		add := func() {
			t.Helper()
			call("POST", "/lab/counter/a/add")
			var info objectInfoJSON
			f.json(&info, "object", "info", "Counter", "--name", "a")
			values[info.TXID] = call("GET", "/lab/counter/a")
		}
		for range 4 {
			add()
		}
		for _, to := range []uint64{2, 4, 1} {
			f.ok("object", "restore", "Counter", "--name", "a", "--to", fmt.Sprint(to), "--yes")
			if got := call("GET", "/lab/counter/a"); got != values[to] {
				t.Errorf("restored to %d it has %s, had %s", to, got, values[to])
			}
			add()
		}
		f.ok("object", "delete", "Counter", "--name", "a", "--yes")
		if got := call("GET", "/lab/counter/a"); !strings.Contains(got, `"value":0}`) {
			t.Errorf("deleted it has %s", got)
		}
		add()
		var info objectInfoJSON
		f.json(&info, "object", "info", "Counter", "--name", "a")
		f.ok("object", "restore", "Counter", "--name", "a", "--to", fmt.Sprint(info.TXID), "--dry-run")
	})
}
