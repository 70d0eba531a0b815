package fleettest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A failure is a fault of a store and what comes of it. The tables of failures
// are run against a real replica, and docs/failures.md is made of them.
type failure struct {
	// name is for the test's output. The other texts are the document's, for
	// operators: what has happened, which alert tells of it, and what to do.
	name, title, happens, alert, todo string
	// hasty: the replica is one that waits for a second only, since the fault is
	// that nothing is answered.
	hasty bool
	// arm begins the fault; the function that it returns ends it.
	arm  func(x *failing) (heal func())
	asks []ask
	// unready: the replica says that it is not ready.
	unready bool
}

// An ask is what a client asks for under a failure, and what comes of it.
type ask struct {
	do action
	// answers are those that may be given.
	answers []answer
	// counted are the series of metrics that have grown then.
	counted []string
	// stored says what is there when the fault is over.
	stored stored
}

// An answer is what a client sees.
type answer string

const (
	okay    answer = "200"
	refused answer = "503"
	unknown answer = "504"
	broken  answer = "cut off"
)

func (a Answer) kind() answer {
	switch {
	case a.Status/100 == 2:
		return okay
	case a.Refused():
		return refused
	case a.Unknown():
		return unknown
	case errors.Is(a.Err, io.EOF), errors.Is(a.Err, io.ErrUnexpectedEOF), errors.Is(a.Err, syscall.ECONNRESET), errors.Is(a.Err, syscall.EPIPE):
		return broken
	}
	return answer(a.String())
}

// stored is what became of a change.
type stored string

const (
	nothing stored = "nothing"
	all     stored = "all of it"
	either  stored = "all or nothing"
	reads   stored = "-"
)

// A failing is what the failures befall: a replica, another one that is hasty,
// and their stores.
type failing struct {
	t       *testing.T
	f       *Fleet
	patient *Replica
	hasty   *Replica
	objects *ObjectStore // nil: a directory
	disk    string       // a small one that the server is on, or ""
	other   *Replica     // for what is to be done elsewhere, or nil
	n       int
}

func (x *failing) replica(f failure) *Replica {
	if f.hasty {
		return x.hasty
	}
	return x.patient
}

// preparer is the replica on which an action is prepared.
func (x *failing) preparer(do action, r *Replica) *Replica {
	if do == syncEvent {
		return x.other
	}
	return r
}

const (
	storeTrips = `dwk_store_round_trips_total{outcome="%s",store="%s"}`
	eventCount = `dwk_events_total{event="%s"}`
)

// trips and events are series of metrics.
func trips(store, outcome string) string { return fmt.Sprintf(storeTrips, outcome, store) }
func events(name string) string          { return fmt.Sprintf(eventCount, name) }

// metrics returns the figures of a replica by their series.
func (r *Replica) metrics() map[string]float64 {
	r.t.Helper()
	a := send(r.t.Context(), http.MethodGet, r.Admin+"/metrics", "")
	if a.Status != http.StatusOK {
		r.t.Fatalf("/metrics: %v", a)
	}
	all := map[string]float64{}
	for s := bufio.NewScanner(strings.NewReader(a.Body)); s.Scan(); {
		if series, value, ok := cutLast(s.Text(), " "); ok && !strings.HasPrefix(series, "#") {
			all[series], _ = strconv.ParseFloat(value, 64)
		}
	}
	return all
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// attempts is how often a failure may come out otherwise: what a client is
// answered depends on times too, and machines stall. What is stored does not.
const attempts = 3

// befall runs one failure.
func (x *failing) befall(t *testing.T, f failure) {
	t.Helper()
	for n := 1; ; n++ {
		odd := x.attempt(t, f)
		if len(odd) == 0 || t.Failed() {
			return
		}
		if n == attempts {
			t.Errorf("%s", strings.Join(odd, "\n"))
			return
		}
		t.Logf("once more, for:\n%s", strings.Join(odd, "\n"))
	}
}

// attempt returns what came out otherwise than the failure says.
func (x *failing) attempt(t *testing.T, f failure) (odd []string) {
	t.Helper()
	x.n++
	r := x.replica(f)
	name := func(i int) string { return fmt.Sprintf("f%d-%d", x.n, i) }
	for i, a := range f.asks {
		actions[a.do].prepare(t, x.preparer(a.do, r), name(i))
	}
	if f.unready {
		r.WaitStatus(http.StatusOK)
	}
	before := r.metrics()
	heal := f.arm(x)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	answers := make([]Answer, len(f.asks))
	var wg sync.WaitGroup
	for i, a := range f.asks {
		wg.Go(func() { answers[i] = actions[a.do].do(r, name(i)) })
	}
	wg.Wait()
	if f.unready {
		r.WaitStatus(http.StatusServiceUnavailable)
		if a := send(t.Context(), http.MethodGet, r.Admin+"/healthz", ""); a.Status != http.StatusOK {
			t.Errorf("/healthz: %v", a)
		}
	}
	after := r.metrics()
	healed = true
	heal()
	grown := func(series string) bool { return after[series] > before[series] }
	for i, a := range f.asks {
		newCage().check(t, "the answer to "+string(a.do), answers[i].String())
		got := answers[i].kind()
		if !slices.Contains(a.answers, got) {
			odd = append(odd, fmt.Sprintf("%s: answered %v, want %v", a.do, answers[i], a.answers))
		}
		for _, c := range a.counted {
			if !grown(c) {
				odd = append(odd, fmt.Sprintf("%s: %s is %v as before", a.do, c, after[c]))
			}
		}
		if status := fmt.Sprintf(`dwk_http_requests_total{mount="/lab",status="%d"}`, answers[i].Status); answers[i].Status > 0 && !grown(status) && answers[i].Status != http.StatusNoContent {
			t.Errorf("%s: %s is as before", a.do, status)
		}
		x.checkStored(t, r, a, name(i), got)
	}
	if x.objects != nil {
		Eventually(t, "uploads that failed are ended", func() bool { return x.objects.Uploads(t) == 0 })
	}
	return odd
}

// checkStored compares what is stored with the answer, which nothing excuses,
// and with what the failure says.
func (x *failing) checkStored(t *testing.T, r *Replica, a ask, name string, got answer) {
	t.Helper()
	if a.stored == reads {
		return
	}
	is := actions[a.do].stored(t, r, name)
	switch {
	case is != nothing && is != all:
		t.Errorf("%s, answered %s: %s", a.do, got, is)
	case got == okay && is != all, got == refused && is != nothing:
		t.Errorf("%s was answered %s, and there is %s", a.do, got, is)
	case (got == unknown || got == broken) && slices.Contains(a.answers, got) && a.stored != either && is != a.stored:
		t.Errorf("%s was answered %s, and there is %s, want %s", a.do, got, is, a.stored)
	}
}

// run runs a table.
func (x *failing) run(t *testing.T, table []failure) {
	for _, f := range table {
		t.Run(f.name, func(t *testing.T) {
			if f.arm == nil {
				t.Skip("this machine cannot have it")
			}
			x.befall(t, f)
		})
	}
	if res := x.f.Command("audit"); res.Code != 0 {
		t.Errorf("audit: %+v", res)
	}
	c := newCage()
	for _, r := range []*Replica{x.patient, x.hasty, x.other} {
		if r != nil {
			c.checkReplica(t, r)
		}
	}
	c.checkCommands(t, x.f, tellers)
}

// An action is what a client may ask the lab for, in the document's words.
type action string

const (
	writeEvent action = "an object's event that writes"
	readEvent  action = "an object's event that reads"
	largeEvent action = "an object's event with a large log entry"
	syncEvent  action = "an object that has a large log entry, on a replica that lacks it"
	sqlWrite   action = "a batch on a SQL database"
	sqlRead    action = "a query on a SQL database"
	putSmall   action = "a put"
	putNew     action = "a put that must be new"
	putLarge   action = "a put of many parts"
	getBody    action = "a get"
	getPart    action = "a get of a part"
	listKeys   action = "a list"
	deleteKey  action = "a delete"
)

// A doing is how an action is done: prepared without a fault, done under it,
// and looked at behind it.
type doing struct {
	prepare func(t *testing.T, r *Replica, name string)
	do      func(r *Replica, name string) Answer
	stored  func(t *testing.T, r *Replica, name string) stored
}

const (
	oldBody, newBody = "the old body", "the new one"
	largeParts       = 20 << 20
)

var largeBody = strings.Repeat("0123456789abcdef", largeParts/16)

func must(t *testing.T, a Answer) {
	t.Helper()
	if a.kind() != okay {
		t.Fatalf("without a fault: %v", a)
	}
}

func prepared(do func(r *Replica, name string) Answer) func(*testing.T, *Replica, string) {
	return func(t *testing.T, r *Replica, name string) { t.Helper(); must(t, do(r, name)) }
}

func unprepared(*testing.T, *Replica, string) {}

func putOld(r *Replica, name string) Answer {
	return r.Do(http.MethodPut, "bucket/"+name, oldBody)
}

// expecting has a read that is answered with something else fail.
func expecting(want string, do func(r *Replica, name string) Answer) func(*Replica, string) Answer {
	return func(r *Replica, name string) Answer {
		a := do(r, name)
		if a.kind() == okay && !strings.Contains(a.Body, want) {
			a.Status = -1
		}
		return a
	}
}

// bodyIs tells what is stored from the body of a key.
func bodyIs(before, after string) func(*testing.T, *Replica, string) stored {
	return func(t *testing.T, r *Replica, name string) stored {
		a := r.Get("bucket/" + name)
		switch {
		case a.Status == http.StatusNotFound && before == "", a.Status == http.StatusOK && before != "" && a.Body == before:
			return nothing
		case a.Status == http.StatusNotFound && after == "", a.Status == http.StatusOK && after != "" && a.Body == after:
			return all
		}
		return stored(fmt.Sprintf("a body of %d bytes, status %d, %v", len(a.Body), a.Status, a.Err))
	}
}

func sqlText(list ...string) string {
	for i, s := range list {
		list[i] = fmt.Sprintf(`{"sql":%q}`, s)
	}
	return `{"batch":true,"statements":[` + strings.Join(list, ",") + `]}`
}

var actions = map[action]doing{
	writeEvent: {unprepared, func(r *Replica, name string) Answer { return r.Post("counter/"+name+"/add?op=x", "") },
		func(t *testing.T, r *Replica, name string) stored {
			var list struct{ Ops []struct{ Op string } }
			r.Get("counter/"+name+"/ops").Decode(t, &list)
			var c counted
			r.Get("counter/"+name).Decode(t, &c)
			switch {
			case len(list.Ops) == 0 && c.Value == 0:
				return nothing
			case len(list.Ops) == 1 && c.Value == 1:
				return all
			}
			return stored(fmt.Sprintf("value %d with ops %v", c.Value, list.Ops))
		}},
	readEvent: {prepared(func(r *Replica, name string) Answer { return r.Post("counter/"+name+"/add", "") }),
		expecting(`"value":1`, func(r *Replica, name string) Answer { return r.Get("counter/" + name) }), nil},
	largeEvent: {prepared(addLarge), addLarge, func(t *testing.T, r *Replica, name string) stored {
		a := runSQL(r, name, statement{SQL: `SELECT count(*) FROM rows`})
		switch {
		case strings.Contains(a.Body, `[[1]]`):
			return nothing
		case strings.Contains(a.Body, `[[2]]`):
			return all
		}
		return stored(a.String())
	}},
	syncEvent: {prepared(addLarge), expecting(`[[1]]`, func(r *Replica, name string) Answer {
		return runSQL(r, name, statement{SQL: `SELECT count(*) FROM rows`})
	}), nil},
	sqlWrite: {prepared(func(r *Replica, _ string) Answer {
		return r.Post("sql", sqlText(`CREATE TABLE IF NOT EXISTS one(op)`, `CREATE TABLE IF NOT EXISTS two(op)`))
	}), func(r *Replica, name string) Answer {
		return r.Post("sql", sqlText(`INSERT INTO one VALUES ('`+name+`')`, `INSERT INTO two VALUES ('`+name+`')`))
	}, func(t *testing.T, r *Replica, name string) stored {
		a := r.Post("sql", sqlText(`SELECT (SELECT count(*) FROM one WHERE op = '`+name+`'), (SELECT count(*) FROM two WHERE op = '`+name+`')`))
		switch {
		case strings.Contains(a.Body, `[[0,0]]`):
			return nothing
		case strings.Contains(a.Body, `[[1,1]]`):
			return all
		}
		return stored(a.String())
	}},
	sqlRead: {unprepared, expecting("[[7]]", func(r *Replica, _ string) Answer { return r.Post("sql", sqlText(`SELECT 7`)) }), nil},
	putSmall: {prepared(putOld), func(r *Replica, name string) Answer {
		return r.Do(http.MethodPut, "bucket/"+name, newBody)
	}, bodyIs(oldBody, newBody)},
	putNew: {unprepared, func(r *Replica, name string) Answer {
		return r.Do(http.MethodPut, "bucket/"+name, newBody, "If-None-Match", "*")
	}, bodyIs("", newBody)},
	putLarge: {prepared(putOld), func(r *Replica, name string) Answer {
		return r.Do(http.MethodPut, "bucket/"+name, largeBody)
	}, bodyIs(oldBody, largeBody)},
	getBody: {prepared(putOld), expecting(oldBody, func(r *Replica, name string) Answer { return r.Get("bucket/" + name) }), nil},
	getPart: {prepared(putOld), expecting(oldBody[4:9], func(r *Replica, name string) Answer {
		return r.Do(http.MethodGet, "bucket/"+name, "", "Range", "bytes=4-8")
	}), nil},
	listKeys: {prepared(putOld), expecting(`"key":`, func(r *Replica, name string) Answer { return r.Get("bucket/?prefix=" + name) }), nil},
	deleteKey: {prepared(putOld), func(r *Replica, name string) Answer {
		return r.Do(http.MethodDelete, "bucket/"+name, "")
	}, bodyIs(oldBody, "")},
}

// hastyEnv is the environment of a replica that waits for a second only.
var hastyEnv = []string{"DWK_LIBSQL_TIMEOUT=1s", "DWK_OBJECT_STORE_TIMEOUT=1s", "DWK_LEASE_ACQUIRE_TIMEOUT=1s", "DWK_EVENT_TIMEOUT=2s"}

// patientEnv is that of one that waits for a moment.
var patientEnv = []string{"DWK_LEASE_ACQUIRE_TIMEOUT=1s", "DWK_EVENT_TIMEOUT=5s"}

// once is a hook's memory: true for the first call.
func once() func() bool {
	var mu sync.Mutex
	done := false
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		first := !done
		done = true
		return first
	}
}
