package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

func exec(t *testing.T, o *funcObject, r *http.Request, query string) {
	t.Helper()
	if _, err := o.state.SQL().Exec(r.Context(), query); err != nil {
		t.Errorf("%s: %v", query, err)
	}
}

// TestFailedEventsCommitNothing: each handler writes first, and then fails in
// its own way.
func TestFailedEventsCommitNothing(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	hasty := f.join("hasty", shortTTL, func(c *Config) { c.EventTimeout = 200 * time.Millisecond })
	a.do(t, "x", "/add", nil)
	for name, c := range map[string]struct {
		status int
		fail   func(o *funcObject, w http.ResponseWriter, r *http.Request)
	}{
		"panic": {500, func(*funcObject, http.ResponseWriter, *http.Request) { panic("on purpose") }},
		"open transaction": {500, func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `BEGIN; UPDATE n SET v = 9`)
		}},
		"deadline":        {503, func(_ *funcObject, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"too much output": {413, func(_ *funcObject, w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 2<<20)) }},
		"too many changes": {413, func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `CREATE TABLE big AS SELECT randomblob(6000000)`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := a
			if name == "deadline" {
				m = hasty
			}
			w := m.do(t, "x", "/fail", handlers{"/fail": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
				o.state.SQL().Exec(r.Context(), `UPDATE n SET v = 7`)
				io.WriteString(w, "should not be seen")
				c.fail(o, w, r)
			}})
			if w.Code != c.status || strings.Contains(w.Body.String(), "seen") {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.status)
			}
			if n := a.value(t, "x"); n != 1 {
				t.Errorf("value %d, want 1", n)
			}
		})
	}
}

func TestAbortedHandlerAbortsTheConnection(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	w := a.do(t, "x", "/abort", handlers{"/abort": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = 7`)
		panic(http.ErrAbortHandler)
	}})
	if n := a.value(t, "x"); w.Code != 0 || n != 0 {
		t.Errorf("code %d, value %d", w.Code, n)
	}
}

// TestReadsDoNotCreateObjects: what the constructor wrote on an object without
// head is undone when the handler wrote nothing.
func TestReadsDoNotCreateObjects(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	for range 2 {
		if n := a.value(t, "x"); n != 0 {
			t.Fatalf("value %d", n)
		}
	}
	res, err := f.db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT count(*) FROM obj_head`))
	if err != nil || res[0].Rows[0][0] != int64(0) {
		t.Fatalf("heads: %v %v", res, err)
	}
	if w := a.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "1" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestInstancesAreKeptOnlyAtTheirHead(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	count := handlers{"/count": func(o *funcObject, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, itoa(o.seen)) }}
	a.do(t, "x", "/add", nil)
	if w := a.do(t, "x", "/count", count); w.Body.String() != "2" {
		t.Errorf("the instance was not kept: %s", w.Body)
	}
	b.do(t, "x", "/add", nil)
	if w := a.do(t, "x", "/count", count); w.Body.String() != "1" {
		t.Errorf("the instance outlived another replica's write: %s", w.Body)
	}
	a.do(t, "x", "/panic", handlers{"/panic": func(*funcObject, http.ResponseWriter, *http.Request) { panic("on purpose") }})
	if w := a.do(t, "x", "/count", count); w.Body.String() != "1" {
		t.Errorf("the instance outlived a failed event: %s", w.Body)
	}
}

// TestStateIsRevokedAfterItsEvent, and a handler that outlives its cancellation
// cannot write into the next event.
func TestStateIsRevokedAfterItsEvent(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.EventTimeout, c.AcquireTimeout = 5*time.Second, 4*time.Second })
	a.do(t, "x", "/add", nil)
	var state durable.State
	a.do(t, "x", "/keep", handlers{"/keep": func(o *funcObject, _ http.ResponseWriter, _ *http.Request) { state = o.state }})
	if _, err := state.SQL().Exec(t.Context(), `UPDATE n SET v = 50`); !errors.Is(err, durable.ErrRevoked) {
		t.Errorf("exec after the event: %v", err)
	}
	for _, err := range state.SQL().Query(t.Context(), `SELECT 1`) {
		if !errors.Is(err, durable.ErrRevoked) {
			t.Errorf("query after the event: %v", err)
		}
	}

	stuck, freed := make(chan struct{}), make(chan struct{})
	w := a.do(t, "x", "/stuck", handlers{"/stuck": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		defer close(freed)
		sql := o.state.SQL()
		sql.Tx(context.Background(), func(tx durable.SQL) error {
			tx.Exec(context.Background(), `UPDATE n SET v = 60`)
			<-stuck // ignores its context
			if _, err := tx.Exec(context.Background(), `UPDATE n SET v = 61`); err == nil {
				t.Error("a dead State wrote")
			}
			return nil
		})
		if _, err := sql.Exec(context.Background(), `UPDATE n SET v = 62`); err == nil {
			t.Error("a dead State wrote")
		}
		io.WriteString(w, "late")
	}})
	if w.Code != 503 {
		t.Errorf("stuck handler: %d %s", w.Code, w.Body)
	}
	// The next event runs while the stuck handler still does, and in the middle
	// of its transaction the stuck one ends its own.
	w = a.do(t, "x", "/next", handlers{"/next": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		err := o.state.SQL().Tx(r.Context(), func(tx durable.SQL) error {
			if _, err := tx.Exec(r.Context(), `UPDATE n SET v = v + 1`); err != nil {
				return err
			}
			close(stuck)
			<-freed
			_, err := tx.Exec(r.Context(), `UPDATE n SET v = v + 1`)
			return err
		})
		if err != nil {
			t.Errorf("next event: %v", err)
		}
	}})
	if w.Code != 200 {
		t.Errorf("next event: %d %s", w.Code, w.Body)
	}
	if n := a.value(t, "x"); n != 3 {
		t.Errorf("value %d, want 3", n)
	}
}

func TestAdmissionLimit(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Waiters = 4 })
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-goOn }}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/wait", h) })
	<-running
	codes := make(chan *httptest.ResponseRecorder, 10)
	for range cap(codes) {
		wg.Go(func() { codes <- a.do(t, "x", "/add", nil) })
	}
	refused := 0
	for range 6 {
		w := <-codes // only refusals are answered yet
		if w.Code != 503 || w.Header().Get("Dwk-Overload") != "object" || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		refused++
	}
	// Another object is not concerned.
	if w := a.do(t, "y", "/add", nil); w.Code != 200 {
		t.Errorf("another object: %d", w.Code)
	}
	close(goOn)
	wg.Wait()
	if n := a.value(t, "x"); n != 10-refused {
		t.Errorf("value %d", n)
	}
}

// TestTurnComesOrEnds: an event that waits in the local queue ends at the
// acquire timeout, and is not run later.
func TestTurnComesOrEnds(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a", func(c *Config) { c.AcquireTimeout = 200 * time.Millisecond }), f.join("b")
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-goOn }}
	var wg sync.WaitGroup
	wg.Go(func() {
		for a.do(t, "x", "/wait", h).Code == 503 { // its own turn may be over before it comes
		}
	})
	<-running
	if w := a.do(t, "x", "/add", nil); w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if w := a.doContext(ctx, "x", "/add", nil); w.Code != 503 {
			t.Errorf("cancelled: %d", w.Code)
		}
	})
	cancel()
	close(goOn)
	wg.Wait()
	if n := b.value(t, "x"); n != 0 {
		t.Errorf("value %d: an event ran that had been answered 503", n)
	}
}

func TestFlushCommitsEarly(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns := a.Namespace("Counter")
		ns.Get(ns.ID("x")).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), handlersKey{}, streaming(t, f))))
	}))
	defer srv.Close()
	client := srv.Client()
	defer client.CloseIdleConnections()

	resp, err := client.Get(srv.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "onetwo" {
		t.Errorf("stream: %q %v", body, err)
	}
	if n := b.value(t, "x"); n != 2 {
		t.Errorf("value %d, want 2", n)
	}

	// A refusal behind a flush aborts the connection: a cut body is no success.
	resp, err = client.Get(srv.URL + "/cut")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("the body of a refused event looked whole")
	}
	if n := b.value(t, "x"); n != 3 {
		t.Errorf("value %d, want 3: what was flushed stays, what followed was refused", n)
	}
}

func streaming(t *testing.T, f *fleet) handlers {
	flush := func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }
	return handlers{
		"/stream": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 1`)
			io.WriteString(w, "one")
			if err := flush(w); err != nil {
				t.Error(err)
			}
			res, err := f.db.Batch(r.Context(), libsql.Read, libsql.S(`SELECT txid FROM obj_head`))
			if err != nil || len(res[0].Rows) != 1 || res[0].Rows[0][0] != int64(1) {
				t.Errorf("not durable when the flush returned: %v %v", res, err)
			}
			exec(t, o, r, `UPDATE n SET v = 2`)
			io.WriteString(w, "two")
		},
		"/cut": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 3`)
			io.WriteString(w, "one")
			if err := flush(w); err != nil {
				t.Error(err)
			}
			f.endLease("x")
			exec(t, o, r, `UPDATE n SET v = 4`)
			io.WriteString(w, "two")
		},
	}
}

func TestFlushWithinTxIsRefused(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/tx", handlers{"/tx": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		err := o.state.SQL().Tx(r.Context(), func(tx durable.SQL) error {
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, durable.ErrNested) {
				t.Errorf("flush within a Tx: %v", err)
			}
			if err := tx.Tx(r.Context(), func(durable.SQL) error { return nil }); !errors.Is(err, durable.ErrNested) {
				t.Errorf("Tx within a Tx: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}})
}

func TestTxIsAllOrNothing(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	broken := errors.New("on purpose")
	w := a.do(t, "x", "/tx", handlers{"/tx": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		sql := o.state.SQL()
		err := sql.Tx(r.Context(), func(tx durable.SQL) error { exec(t, o, r, `UPDATE n SET v = 5`); return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if err := sql.Tx(r.Context(), func(tx durable.SQL) error { exec(t, o, r, `UPDATE n SET v = v + 1`); return nil }); err != nil {
			t.Error(err)
		}
	}})
	if w.Code != 200 || a.value(t, "x") != 1 {
		t.Errorf("%d, value %d, want 1", w.Code, a.value(t, "x"))
	}
}

// TestCallsBetweenObjects: a call first commits what the caller wrote, and
// chains that come back are refused.
func TestCallsBetweenObjects(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	call := func(o *funcObject, r *http.Request, name, path string) (*http.Response, error) {
		ns := o.env.Namespace("Counter")
		// Not with the event's context: the host knows the caller all the same.
		ctx := context.WithValue(context.Background(), handlersKey{}, r.Context().Value(handlersKey{}))
		req := httptest.NewRequestWithContext(ctx, "POST", "http://test"+path, nil)
		return ns.Get(ns.ID(name)).Do(req)
	}
	h := handlers{}
	h["/caller"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = 5`)
		resp, err := call(o, r, "callee", "/look")
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(w, resp.Body)
		resp.Body.Close()
		if _, err := call(o, r, "caller", "/get"); !errors.Is(err, durable.ErrCycle) {
			t.Errorf("an object called itself: %v", err)
		}
		resp, err = call(o, r, "callee", "/back")
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		panic("after the call")
	}
	h["/look"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		res, err := f.db.Batch(r.Context(), libsql.Read, libsql.S(`SELECT txid FROM obj_head WHERE id = ?`, durable.IDFromName("caller").String()))
		if err != nil || len(res[0].Rows) != 1 {
			t.Errorf("the caller's write is not durable: %v %v", res, err)
		}
		io.WriteString(w, "looked")
	}
	h["/back"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		if _, err := call(o, r, "caller", "/get"); !errors.Is(err, durable.ErrCycle) {
			t.Errorf("a chain came back: %v", err)
		}
	}
	if w := a.do(t, "caller", "/caller", h); w.Code != 500 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := a.value(t, "caller"); n != 5 {
		t.Errorf("value %d, want 5: the call had committed it", n)
	}
}

func TestBackgroundBeginsAfterTheCommit(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	ran := make(chan int, 2)
	h := handlers{
		"/ok": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 1`)
			o.env.Background(func(context.Context) {
				res, _ := f.db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT txid FROM obj_head`))
				ran <- len(res[0].Rows)
			})
		},
		"/refused": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			o.env.Background(func(context.Context) { ran <- 100 })
			exec(t, o, r, `UPDATE n SET v = 2`)
			f.endLease("x")
		},
	}
	if w := a.do(t, "x", "/ok", h); w.Code != 200 {
		t.Fatal(w.Code)
	}
	if heads := <-ran; heads != 1 {
		t.Errorf("background work began before the commit (%d)", heads)
	}
	if w := a.do(t, "x", "/refused", h); w.Code != 503 {
		t.Fatal(w.Code)
	}
	a.stop(t)
	if len(ran) > 0 {
		t.Error("background work of a refused event ran")
	}
}

// TestMirrorsMayBeDeleted at any time between events.
func TestMirrorsMayBeDeleted(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	for i := range 3 {
		if w := a.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != itoa(i+1) {
			t.Fatalf("add %d: %d %s", i, w.Code, w.Body)
		}
		a.settled(t, f)
		if err := os.RemoveAll(filepath.Join(a.dir, "objects")); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.value(t, "x"); n != 3 {
		t.Fatalf("value %d", n)
	}
}

func TestIdleObjectsAreEvicted(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Resident = 5 })
	for i := range 20 {
		if w := a.do(t, itoa(i), "/add", nil); w.Code != 200 {
			t.Fatal(w.Code)
		}
	}
	eventually(t, "at most 5 objects are resident", func() bool { return a.Stats().Objects <= 5 })
	for i := range 20 {
		if n := a.value(t, itoa(i)); n != 1 {
			t.Fatalf("object %d: %d", i, n)
		}
	}
	b := f.join("b", func(c *Config) { c.Idle = 100 * time.Millisecond })
	b.value(t, "0")
	eventually(t, "idle eviction", func() bool { return b.Stats().Objects == 0 })
	if files, _ := filepath.Glob(filepath.Join(b.dir, "objects", "*", "*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// TestBusyReplicaYields: a replica whose object is never without a waiting event
// lets another replica have it.
func TestBusyReplicaYields(t *testing.T) {
	f := newFleet(t)
	busy, other := f.join("a"), f.join("b")
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	h := handlers{"/busy": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = v + 1`)
		for busy.queued() == 0 && !stopped() && r.Context().Err() == nil {
			time.Sleep(100 * time.Microsecond)
		}
	}}
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 4 {
		wg.Go(func() {
			for !stopped() {
				if w := busy.do(t, "x", "/busy", h); w.Code == 200 {
					done.Add(1)
				} else {
					t.Errorf("busy replica: %d %s", w.Code, w.Body)
				}
			}
		})
	}
	eventually(t, "the replica is busy", func() bool { return done.Load() > 20 })
	for range 10 {
		before := done.Load()
		if w := other.do(t, "x", "/add", nil); w.Code == 200 {
			done.Add(1)
		} else {
			t.Errorf("the other replica: %d %s", w.Code, w.Body)
		}
		eventually(t, "the busy replica has its turn again", func() bool { return done.Load() > before+1 })
	}
	close(stop)
	wg.Wait()
	if n := other.value(t, "x"); n != int(done.Load()) {
		t.Errorf("value %d, acknowledged %d", n, done.Load())
	}
}

func TestBadRequests(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	ns := a.Namespace("Counter")
	if _, err := ns.Get(durable.ID{}).Do(httptest.NewRequest("GET", "http://test/get", nil)); err == nil {
		t.Error("the zero ID was served")
	}
	send := func(body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		ns.Get(ns.ID("x")).ServeHTTP(w, httptest.NewRequest("POST", "http://test/add", body))
		return w
	}
	if w := send(strings.NewReader(strings.Repeat("x", 2<<20))); w.Code != 413 {
		t.Errorf("large body: %d", w.Code)
	}
	if w := send(io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)))); w.Code != 413 {
		t.Errorf("large body of unknown length: %d", w.Code)
	}
	if w := send(io.MultiReader(strings.NewReader("x"), brokenReader{})); w.Code != 400 {
		t.Errorf("broken body: %d", w.Code)
	}
	if w := send(io.MultiReader(strings.NewReader("x"), slowReader{})); w.Code != 408 {
		t.Errorf("slow body: %d", w.Code)
	}
	if n := a.value(t, "x"); n != 0 {
		t.Errorf("value %d: a bad request was applied", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a class that nobody brings has a namespace")
		}
	}()
	a.Namespace("Nope")
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// slowReader is a body whose client is too slow for the server.
type slowReader struct{}

func (slowReader) Read([]byte) (int, error) {
	return 0, fmt.Errorf("too slow: %w", os.ErrDeadlineExceeded)
}

func TestStoppedRuntimeRefuses(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.stop(t)
	if n := f.leases(); n != 0 {
		t.Errorf("%d leases after the stop", n)
	}
	if w := a.do(t, "x", "/add", nil); w.Code != 503 {
		t.Errorf("%d", w.Code)
	}
}

// TestEventsThatWaitShareACommit: outputs are held together, and one that fails
// is undone alone.
func TestEventsThatWaitShareACommit(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{
		"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-goOn },
		"/panic": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 100`)
			panic("on purpose")
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/wait", h) })
	<-running
	queued := 0
	for range 20 {
		path := "/add"
		if queued == 10 {
			path = "/panic"
		}
		wg.Go(func() {
			if w := a.do(t, "x", path, h); (w.Code == 200) != (path == "/add") {
				t.Errorf("%s: %d", path, w.Code)
			}
		})
		queued++
		a.waitQueued(t, queued)
	}
	close(goOn)
	wg.Wait()
	if n := a.value(t, "x"); n != 20 {
		t.Errorf("value %d, want 20", n)
	}
	res, err := f.db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT txid FROM obj_head`))
	if err != nil {
		t.Fatal(err)
	}
	if commits := res[0].Rows[0][0].(int64) - 1; commits > 18 { // a slow machine closes batches early
		t.Errorf("19 events that waited together took %d commits", commits)
	}
}

// TestRefusedBatch: a refused commit fails all events of the batch.
func TestRefusedBatch(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn := make(chan struct{}), make(chan struct{})
	h := handlers{"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-goOn }}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/wait", h) })
	<-running
	var mu sync.Mutex
	applied := 0
	for range 5 {
		wg.Go(func() {
			w := a.do(t, "x", "/add", nil)
			mu.Lock()
			defer mu.Unlock()
			if w.Code == 200 {
				applied++
			} else if w.Code != 503 {
				t.Errorf("%d", w.Code)
			}
		})
	}
	a.waitQueued(t, 5)
	f.endLease("x")
	close(goOn)
	wg.Wait()
	if n := b.value(t, "x"); n != 1+applied {
		t.Errorf("value %d, %d adds were acknowledged", n, applied)
	}
}

// TestSlowEventHoldsNobodyBack: what ran before it is committed and answered
// while it runs.
func TestSlowEventHoldsNobodyBack(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.settled(t, f)
	running, goOn, slow, answered := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := handlers{
		"/wait": func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-goOn },
		"/slow": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = v + 10`)
			close(slow)
			select {
			case <-answered:
			case <-r.Context().Done():
				t.Error("an event before the slow one was not answered while it ran")
			}
			exec(t, o, r, `UPDATE n SET v = v + 10`)
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.do(t, "x", "/wait", h) })
	<-running
	wg.Go(func() {
		defer close(answered)
		if w := a.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "2" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	a.waitQueued(t, 1)
	wg.Go(func() {
		if w := a.do(t, "x", "/slow", h); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	a.waitQueued(t, 2)
	close(goOn)
	wg.Wait()
	if n := a.value(t, "x"); n != 22 {
		t.Errorf("value %d, want 22", n)
	}
}

// TestBackgroundIsItsOwnCaller: a call that it makes while a later event of the
// same object runs has nothing to do with that event.
func TestBackgroundIsItsOwnCaller(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	writing, called := make(chan struct{}), make(chan struct{})
	call := func(ctx context.Context, o *funcObject, name string) error {
		ns := o.env.Namespace("Counter")
		resp, err := ns.Get(ns.ID(name)).Do(httptest.NewRequestWithContext(ctx, "POST", "http://test/get", nil))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	var stale context.Context
	h := handlers{
		"/start": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 1`)
			stale = r.Context()
			o.env.Background(func(ctx context.Context) {
				defer close(called)
				<-writing
				if err := call(ctx, o, "other"); err != nil {
					t.Errorf("call of background work: %v", err)
				}
				if err := call(stale, o, "other"); err == nil {
					t.Error("a call was made in the name of an event that is over")
				}
			})
		},
		"/fail": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `UPDATE n SET v = 2`)
			close(writing)
			<-called
			panic("on purpose")
		},
	}
	if w := a.do(t, "x", "/start", h); w.Code != 200 {
		t.Fatal(w.Code)
	}
	if w := a.do(t, "x", "/fail", h); w.Code != 500 {
		t.Fatal(w.Code)
	}
	if n := a.value(t, "x"); n != 1 {
		t.Errorf("value %d: a failed event's write was committed by somebody else's call", n)
	}
}

// TestLargeEntriesAreOffloaded: they go to the object store first, and another
// replica fetches them from there.
func TestLargeEntriesAreOffloaded(t *testing.T) {
	// One file that the mirror holds in memory, and one that it does not.
	for _, size := range []int{300_000, 3_000_000} {
		t.Run(itoa(size), func(t *testing.T) { offload(t, size) })
	}
}

func offload(t *testing.T, size int) {
	f := newFleet(t)
	patient := func(c *Config) { c.EventTimeout = time.Minute } // megabytes on a busy machine
	a, b := f.join("a", patient), f.join("b", patient)
	large := handlers{
		"/large": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
			exec(t, o, r, `CREATE TABLE IF NOT EXISTS large(b); INSERT INTO large SELECT randomblob(`+itoa(size)+`); UPDATE n SET v = v + 1`)
		},
		"/size": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			for row, err := range o.state.SQL().Query(r.Context(), `SELECT sum(length(b)) FROM large`) {
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(w, itoa(int(row.Values[0].(int64))))
			}
		},
	}
	for range 2 {
		if w := a.do(t, "x", "/large", large); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	a.do(t, "x", "/add", nil)
	res, err := f.db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT count(ref), count(data) FROM obj_log`))
	if err != nil || res[0].Rows[0][0] != int64(2) || res[0].Rows[0][1] != int64(1) {
		t.Fatalf("%v %v", res, err)
	}
	if w := b.do(t, "x", "/size", large); w.Body.String() != itoa(2*size) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := b.value(t, "x"); n != 3 {
		t.Errorf("value %d", n)
	}
	// Without the object store such a commit is refused, and nothing else is.
	if err := f.files.Close(); err != nil {
		t.Fatal(err)
	}
	if w := b.do(t, "x", "/large", large); w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := b.do(t, "x", "/add", nil); w.Code != 200 || w.Body.String() != "4" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
