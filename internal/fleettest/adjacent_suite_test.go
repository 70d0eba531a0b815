package fleettest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// want fails the test unless a request is answered like this. A body that is ""
// is not looked at.
func want(t *testing.T, what string, a Answer, status int, body string) {
	t.Helper()
	if a.Status != status || body != "" && strings.TrimSpace(a.Body) != body {
		text := a.String()
		t.Errorf("%s: %s, want %d %s", what, text[:min(len(text), 300)], status, body[:min(len(body), 300)])
	}
}

// consumers are the replicas that have had messages.
func consumers(t *testing.T, r *Replica) map[string]bool {
	t.Helper()
	by := map[string]bool{}
	for after := 0; ; {
		var page struct {
			Seen []struct {
				Seq     int
				Replica string
			}
		}
		r.Get(fmt.Sprintf("queue/default/seen?after=%d", after)).Decode(t, &page)
		if len(page.Seen) == 0 {
			return by
		}
		for _, s := range page.Seen {
			by[s.Replica], after = true, s.Seq
		}
	}
}

// counters are added to by both in turn, each op once.
func (p *pair) counters(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	path := "counter/shared-" + run
	for i := range 60 {
		r := []*Replica{x, y}[i%2]
		want(t, r.Name+": add", r.Post(fmt.Sprintf("%s/add?n=2&op=%d", path, i), ""), http.StatusOK, fmt.Sprintf(`{"name":"shared-%s","value":%d}`, run, 2*i+2))
	}
	want(t, "an op again", y.Post(path+"/add?n=2&op=7", ""), http.StatusOK, "")
	if a, b := x.Get(path+"/ops"), y.Get(path+"/ops"); a.Body != b.Body || strings.Count(a.Body, `"op"`) != 60 {
		t.Errorf("ops: %v and %v", a, b)
	}
	want(t, "value", x.Get(path), http.StatusOK, fmt.Sprintf(`{"name":"shared-%s","value":120}`, run))
}

// notes are written by one, small and large ones, and read and changed by the
// other.
func (p *pair) notes(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	for _, size := range []int{10, 400 << 10, 3 << 20} { // the larger ones go to the object store
		path := fmt.Sprintf("note/%s-%d", run, size)
		for i := range 3 {
			body := string(content(uint64(i), size))
			a := x.Do(http.MethodPut, path, body, "Content-Type", "text/x-test")
			if a.Status/100 != 2 {
				t.Fatal(a)
			}
			got := y.Get(path)
			if got.Body != body || got.Header.Get("Content-Type") != "text/x-test" || got.Header.Get("ETag") != a.Header.Get("ETag") {
				t.Errorf("%s: %d, %d bytes, %v", path, got.Status, len(got.Body), got.Header)
			}
			if a = y.Do(http.MethodPut, path, body+"!", "If-Match", a.Header.Get("ETag")); a.Status != http.StatusNoContent {
				t.Errorf("changed by the other: %v", a)
			}
			if got := x.Get(path); got.Body != body+"!" {
				t.Errorf("%s: %d, %d bytes", path, got.Status, len(got.Body))
			}
		}
	}
	// Values of all types, exact.
	n := "sql-" + run
	want(t, "values", x.Post("note/"+n+"/sql", `[{"sql":"CREATE TABLE t(a,b,c,d,e,f)"},{"sql":"INSERT INTO t VALUES(?,?,?,?,?,?)","args":[9223372036854775807,0.1,"Zoë 日本",{"$bytes":"AAH/"},null,9e999]}]`), http.StatusOK, "")
	const sel = `[{"sql":"SELECT a,b,c,d,e,f,typeof(a),typeof(b),typeof(d) FROM t"}]`
	if a, b := x.Post("note/"+n+"/sql", sel), y.Post("note/"+n+"/sql", sel); a.Body != b.Body || !strings.Contains(b.Body, `[9223372036854775807,0.1,"Zoë 日本",{"$bytes":"AAH/"},null,9e999,"integer","real","blob"]`) {
		t.Errorf("values: %v and %v", a, b)
	}
	// A database that is changed by many commits of both.
	for i := range 80 {
		r := []*Replica{x, y}[i%2]
		want(t, "change", r.Post("note/"+n+"/sql", fmt.Sprintf(`[{"sql":"WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM s WHERE v < 20) INSERT INTO t(a, b) SELECT v, zeroblob(600) FROM s"},{"sql":"DELETE FROM t WHERE a = %d"}]`, i%20)), http.StatusOK, "")
	}
	const sum = `[{"sql":"SELECT count(*), max(a), sum(length(b)), sum(a % 1000) FROM t"}]`
	if a, b := x.Post("note/"+n+"/sql", sum), y.Post("note/"+n+"/sql", sum); a.Body != b.Body || a.Status != http.StatusOK {
		t.Errorf("sums: %v and %v", a, b)
	}
	want(t, "sleep", x.Post("note/"+n+"/sleep?ms=50", ""), http.StatusOK, "")
	if n := len(sleeps(t, y, n)); n != 2 {
		t.Errorf("%d rows of a sleep", n)
	}
}

// database is the SQL binding.
func (p *pair) database(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	table := "adjacent_" + run
	want(t, "batch", x.Post("sql", `{"batch":true,"statements":[{"sql":"CREATE TABLE `+table+`(a INTEGER PRIMARY KEY, b)"},{"sql":"INSERT INTO `+table+` VALUES(1, ?)","args":[{"$bytes":"AAH/"}]}]}`), http.StatusOK, "")
	fails := y.Post("sql", `{"batch":true,"statements":[{"sql":"INSERT INTO `+table+` VALUES(2, 2)"},{"sql":"INSERT INTO `+table+` VALUES(1, 1)"}]}`)
	again := x.Post("sql", `{"batch":true,"statements":[{"sql":"INSERT INTO `+table+` VALUES(2, 2)"},{"sql":"INSERT INTO `+table+` VALUES(1, 1)"}]}`)
	if fails.Status != again.Status || fails.Status/100 != 4 {
		t.Errorf("a row that is there: %v and %v", fails, again)
	}
	const sel = `[{"sql":"SELECT a, b FROM %s ORDER BY a"}]`
	if a, b := x.Post("sql", fmt.Sprintf(sel, table)), y.Post("sql", fmt.Sprintf(sel, table)); a.Body != b.Body || !strings.Contains(a.Body, `[[1,{"$bytes":"AAH/"}]]`) {
		t.Errorf("rows: %v and %v", a, b)
	}
}

// files are those of the bucket.
func (p *pair) files(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	body := string(content(7, 300<<10))
	dir := "bucket/" + run + "/"
	for i, r := range []*Replica{x, y} {
		path := fmt.Sprintf("%sdir/Zo%%C3%%AB%d", dir, i)
		want(t, "put", r.Do(http.MethodPut, path, body, "Content-Type", "text/x-test", "X-Meta-Title", "%E6%97%A5"), http.StatusOK, "")
		other := []*Replica{y, x}[i]
		got := other.Get(path)
		if got.Body != body || got.Header.Get("Content-Type") != "text/x-test" || got.Header.Get("X-Meta-Title") != "%E6%97%A5" {
			t.Errorf("%s: %d, %d bytes, %v", path, got.Status, len(got.Body), got.Header)
		}
		want(t, "range", other.Do(http.MethodGet, path, "", "Range", "bytes=100-199"), http.StatusPartialContent, body[100:200])
		want(t, "only a new one", other.Do(http.MethodPut, path, "x", "If-None-Match", "*"), http.StatusPreconditionFailed, "")
		want(t, "another", other.Do(http.MethodPut, fmt.Sprintf("%sother%d", dir, i), "x", "If-None-Match", "*"), http.StatusOK, "")
	}
	for _, query := range []string{"", "&delimiter=/", "&limit=2"} {
		if a, b := x.Get("bucket/?prefix="+run+"/"+query), y.Get("bucket/?prefix="+run+"/"+query); a.Body != b.Body || a.Status != http.StatusOK {
			t.Errorf("list: %v and %v", a, b)
		}
	}
	want(t, "delete", y.Do(http.MethodDelete, dir+"other0", ""), http.StatusNoContent, "")
	want(t, "deleted", x.Get(dir+"other0"), http.StatusNotFound, "")
}

// alarms are set, replaced and removed by either, and run by either.
func (p *pair) alarms(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	post := func(r *Replica, name, query string) {
		t.Helper()
		want(t, "alarm", r.Post("alarm/"+name+query, ""), http.StatusOK, "")
	}
	for i := range 10 {
		post([]*Replica{x, y}[i%2], fmt.Sprintf("a%s-%d", run, i), "?in=300ms")
	}
	post(x, "far-"+run, "?in=1h")
	post(x, "sooner-"+run, "?in=1h")
	post(y, "sooner-"+run, "?in=200ms")
	post(x, "fails-"+run, "?in=200ms&fail=1")
	want(t, "no alarm", y.Do(http.MethodDelete, "alarm/far-"+run, ""), http.StatusNoContent, "")
	for i := range 10 {
		if a := []*Replica{y, x}[i%2].fired(fmt.Sprintf("a%s-%d", run, i)); len(a.Attempts) != 1 {
			t.Errorf("alarm %d was run %d times", i, len(a.Attempts))
		}
	}
	if a := x.fired("sooner-" + run); len(a.Attempts) != 1 {
		t.Errorf("the alarm that was replaced was run %d times", len(a.Attempts))
	}
	if a := y.fired("fails-" + run); len(a.Attempts) != 2 {
		t.Errorf("the alarm that fails once was run %d times", len(a.Attempts))
	}
	if a := x.Get("alarm/far-" + run); !strings.Contains(a.Body, `"firings":[]`) || strings.Contains(a.Body, `"pending"`) {
		t.Errorf("the alarm that was removed: %v", a)
	}
}

// messages are sent by either, and consumed by either, each once.
func (p *pair) messages(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	bodies := []string{fmt.Sprintf(`{"run":%q,"fail":1}`, run), fmt.Sprintf(`{"run":%q,"unacked":1}`, run), fmt.Sprintf(`{"run":%q,"sleep":3500}`, run)}
	for i := range 30 {
		bodies = append(bodies, fmt.Sprintf(`{"run":%q,"n":%d}`, run, i))
	}
	for i, body := range bodies {
		want(t, "send", []*Replica{x, y}[i%2].Post("queue/default/send", body), http.StatusOK, "")
	}
	p.waitQuiet()
	seen := delivered(t, x)
	for i, body := range bodies {
		n := 1
		if i < 2 {
			n = 2
		}
		if seen[body] != n {
			t.Errorf("%s was delivered %d times, want %d", body, seen[body], n)
		}
	}
	// A pause by one program is kept by both.
	p.by(x, "queue", "pause", "default", "--yes")
	held := fmt.Sprintf(`{"held":%q}`, run)
	want(t, "send", y.Post("queue/default/send", held), http.StatusOK, "")
	p.by(y, "queue", "resume", "default", "--yes")
	Eventually(t, "the message that was held", func() bool { return delivered(t, y)[held] == 1 })
}

// schedule is run by either; a run on request, a pause and its end are asked for by
// each program.
func (p *pair) schedule(x, y *Replica) {
	t := p.t
	t.Helper()
	n := len(labRuns(t, y).Runs)
	Eventually(t, "occurrences", func() bool { return len(labRuns(t, y).Runs) >= n+2 })
	p.by(x, "cron", "run", "every-five", "--yes")
	for _, r := range []*Replica{x, y} {
		var list []struct{ Name string }
		if err := json.Unmarshal([]byte(p.by(r, "cron", "list", "-o", "json").Stdout), &list); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	}
}

// leases of the one are respected by the other, and ended by the other's command.
func (p *pair) leases(run string, x, y *Replica) {
	t := p.t
	t.Helper()
	name := "lease-" + run
	asleep := x.Go(http.MethodPost, "note/"+name+"/sleep?ms=1500", "")
	Eventually(t, "the lease", func() bool {
		var list []Lease
		if err := json.Unmarshal([]byte(p.by(y, "lease", "list", "-o", "json").Stdout), &list); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(l Lease) bool { return l.Class == "Note" && l.Replica == x.ID })
	})
	want(t, "behind the other's event", y.Post("note/"+name+"/sleep?ms=1", ""), http.StatusOK, "")
	want(t, "the event that was waited for", <-asleep, http.StatusOK, "")
	if n := len(sleeps(t, x, name)); n != 4 {
		t.Errorf("%d rows", n)
	}
	asleep = x.Go(http.MethodPost, "note/"+name+"/sleep?ms=20000", "")
	Eventually(t, "the lease is ended", func() bool {
		var res Result
		p.as(p.old[y], func() { res = p.Command("lease", "release", "Note", "--name", name, "--yes") })
		return res.Code == 0
	})
	if a := <-asleep; !a.Refused() {
		t.Errorf("the event whose lease was ended: %v", a)
	}
	want(t, "the next event", y.Post("note/"+name+"/sleep?ms=1", ""), http.StatusOK, "")
	if n := len(sleeps(t, x, name)); n != 6 {
		t.Errorf("%d rows", n)
	}
}

// commands of each program read what the other wrote.
func (p *pair) commands(x, y *Replica) {
	t := p.t
	t.Helper()
	for _, r := range []*Replica{x, y} {
		var s struct {
			Replicas []struct{ ID, State string }
		}
		if err := json.Unmarshal([]byte(p.by(r, "fleet", "status", "-o", "json").Stdout), &s); err != nil || len(s.Replicas) != 2 {
			t.Errorf("status: %+v, %v", s, err)
		}
		for _, args := range []string{
			"probe", "object list Counter", "object list Note", "object sql Counter --name shared-1 SELECT+1", "object history Counter --name shared-1",
			"alarm list", "queue list", "queue peek default", "cron history every-five", "kv list --limit 0", "kv stats", "sql query LAB_DB SELECT+1", "bucket list LAB_FILES",
		} {
			list := strings.Fields(args)
			for i := range list {
				list[i] = strings.ReplaceAll(list[i], "+", " ")
			}
			p.by(r, list...)
		}
	}
	deadline := time.Now().Add(patience)
	for _, r := range []*Replica{x, y} {
		// What runs at the moment may look odd to an audit, for the moment.
		for {
			var res Result
			p.as(p.old[r], func() { res = p.Command("audit") })
			if res.Code == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("audit: %+v", res)
			}
		}
	}
}
