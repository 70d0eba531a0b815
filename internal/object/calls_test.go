package object

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// callStub returns a stub of another object of the same class, as a handler gets it.
func callStub(o *funcObject, name string) durable.Stub {
	ns := o.env.Namespace("Counter")
	return ns.Get(ns.ID(name))
}

// request is a request to another object that carries the test's handlers, with
// the event's context or without.
func request(r *http.Request, path string, ctx context.Context) *http.Request {
	ctx = context.WithValue(ctx, handlersKey{}, r.Context().Value(handlersKey{}))
	return httptest.NewRequestWithContext(ctx, "POST", "http://test"+path, nil)
}

// TestRefusedCallsCommitNothing: a call that is refused in any case does not commit
// what its caller wrote.
func TestRefusedCallsCommitNothing(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	large := make([]byte, 2<<20)
	for name, call := range map[string]func(o *funcObject, r *http.Request) error{
		"cycle": func(o *funcObject, r *http.Request) error {
			_, err := callStub(o, "x").Do(request(r, "/get", r.Context()))
			return err
		},
		"zero id": func(o *funcObject, r *http.Request) error {
			_, err := o.env.Namespace("Counter").Get(durable.ID{}).Do(request(r, "/get", r.Context()))
			return err
		},
		"body too large": func(o *funcObject, r *http.Request) error {
			req := request(r, "/get", r.Context())
			req.Body, req.ContentLength = io.NopCloser(&zeros{len(large)}), -1
			_, err := callStub(o, "y").Do(req)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := a.do(t, "x", "/call", handlers{"/call": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
				exec(t, o, r, `UPDATE n SET v = 7`)
				if err := call(o, r); err == nil {
					t.Error("it was not refused")
				}
				panic("the event fails")
			}})
			if n := a.value(t, "x"); w.Code != 500 || n != 0 {
				t.Errorf("%d, value %d", w.Code, n)
			}
		})
	}
}

type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	n := min(len(p), z.n)
	if z.n -= n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestCallsEndWithTheirCaller: at its deadline, whatever context the call is made
// with.
func TestCallsEndWithTheirCaller(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.EventTimeout = time.Second })
	for name, with := range map[string]func(r *http.Request) context.Context{
		"its context":     func(r *http.Request) context.Context { return r.Context() },
		"another context": func(*http.Request) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var caller, callee time.Time
			h := handlers{}
			h["/call"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
				d, _ := r.Context().Deadline()
				mu.Lock()
				caller = d
				mu.Unlock()
				time.Sleep(50 * time.Millisecond) // so that the callee's own deadline is later
				if _, err := callStub(o, "y").Do(request(r, "/wait", with(r))); err == nil {
					t.Error("the call did not fail")
				}
				<-r.Context().Done() // the call's end may be a moment ahead
			}
			h["/wait"] = func(_ *funcObject, _ http.ResponseWriter, r *http.Request) {
				d, _ := r.Context().Deadline()
				mu.Lock()
				callee = d
				mu.Unlock()
				<-r.Context().Done()
			}
			// On a slow machine the deadline may be over before either runs.
			eventually(t, "both have run", func() bool {
				mu.Lock()
				caller, callee = time.Time{}, time.Time{}
				mu.Unlock()
				if w := a.do(t, "x", "/call", h); w.Code != 503 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				mu.Lock()
				defer mu.Unlock()
				return !caller.IsZero() && !callee.IsZero()
			})
			if callee.After(caller) {
				t.Errorf("the callee had until %v, its caller until %v", callee, caller)
			}
		})
	}
}

// TestHandedOverAnswersAreTrue: an object that hands its answer over to another one
// fails as that one did, and commits nothing behind an answer that denies it.
func TestHandedOverAnswersAreTrue(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Waiters = 1 })
	h := handlers{}
	// One event of y runs and one waits: the next is refused.
	running, release := make(chan struct{}), make(chan struct{})
	h["/hold"] = func(*funcObject, http.ResponseWriter, *http.Request) { close(running); <-release }
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	wg.Go(func() { a.do(t, "y", "/hold", h) })
	<-running
	wg.Go(func() { a.do(t, "y", "/get", h) })
	a.waitQueued(t, 1)
	h["/over"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				exec(t, o, r, `UPDATE n SET v = 8`) // also in vain
				panic(v)
			}
		}()
		if r.URL.Query().Has("write") {
			exec(t, o, r, `UPDATE n SET v = 7`)
		}
		callStub(o, "y").ServeHTTP(w, request(r, "/get", r.Context()))
		t.Error("the failure was not passed on")
	}
	w := a.do(t, "x", "/over", h)
	if n := a.value(t, "x"); w.Code != 503 || w.Header().Get("Retry-After") == "" || n != 0 {
		t.Errorf("%d %s, value %d", w.Code, w.Body, n)
	}
	// What the call itself has committed cannot be denied.
	w = a.do(t, "x", "/over?write", h)
	if n := a.value(t, "x"); w.Code != 500 || n != 7 {
		t.Errorf("%d %s, value %d", w.Code, w.Body, n)
	}
	h["/self"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		callStub(o, "x").ServeHTTP(w, request(r, "/get", r.Context()))
	}
	if w := a.do(t, "x", "/self", h); w.Code != 508 {
		t.Errorf("a cycle was answered %d", w.Code)
	}
	// What a handler looks at itself, here on a goroutine of its own, is a status.
	h["/looks"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = 6`)
		seen := make(chan int)
		go func() {
			rec := httptest.NewRecorder()
			callStub(o, "y").ServeHTTP(rec, request(r, "/get", r.Context()))
			seen <- rec.Code
		}()
		w.WriteHeader(<-seen + 1)
	}
	if w := a.do(t, "x", "/looks", h); w.Code != 504 || a.value(t, "x") != 6 {
		t.Errorf("%d, value %d", w.Code, a.value(t, "x"))
	}
	// A status that the other object's handler wrote is just an answer.
	h["/fine"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `UPDATE n SET v = 9`)
		callStub(o, "z").ServeHTTP(w, request(r, "/nothing", r.Context()))
	}
	if w := a.do(t, "x", "/fine", h); w.Code != 404 || a.value(t, "x") != 9 {
		t.Errorf("%d, value %d", w.Code, a.value(t, "x"))
	}
}

// TestCallsOfALostCaller: a caller that loses its lease ends its call, and the
// callee is told.
func TestCallsOfALostCaller(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", shortTTL)
	h := handlers{}
	h["/call"] = func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		_, err := callStub(o, "y").Do(request(r, "/wait", context.Background()))
		if err == nil {
			t.Error("the call of a lost caller came back")
		}
	}
	h["/wait"] = func(_ *funcObject, _ http.ResponseWriter, r *http.Request) {
		id := durable.IDFromName("x").String()
		if _, err := f.db.Batch(context.Background(), libsql.Write, libsql.S(`DELETE FROM kv WHERE k >= x'0264776b5f6c65617365' AND k < x'0264776b5f6c65617366' AND instr(k, ?)`, []byte(id))); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		if err := context.Cause(r.Context()); !errors.Is(err, durable.ErrFenced) {
			t.Errorf("ended with %v", err)
		}
	}
	if w := a.do(t, "x", "/call", h); w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestRoundTripsOfACall counts what a call from one object to another costs.
func TestRoundTripsOfACall(t *testing.T) { eachFleet(t, countCall) }

func countCall(t *testing.T, f *fleet) {
	a := f.join("a")
	a.do(t, "x", "/add", nil)
	a.do(t, "y", "/add", nil)
	a.settled(t, f)
	h := func(before, after bool, path string) handlers {
		return handlers{"/call": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
			if before {
				exec(t, o, r, `UPDATE n SET v = v + 1`)
			}
			resp, err := callStub(o, "y").Do(request(r, path, r.Context()))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if after {
				exec(t, o, r, `UPDATE n SET v = v + 1`)
			}
		}}
	}
	for _, c := range []struct {
		name          string
		before, after bool
		path          string
		trips         int64
		// shared is how many of them may share another's.
		shared int64
	}{
		// acquire, commit before the call, [acquire, commit and release], commit and release
		{"write, call that writes, write", true, true, "/add", 5, 0},
		// acquire, [acquire, commit and release], release
		{"call that writes", false, false, "/add", 4, 0},
		// acquire, [acquire, release], release
		{"call that reads", false, false, "/get", 4, 1},
		{"write, call that reads, write", true, true, "/get", 5, 1},
	} {
		start := a.faults.trips.Load()
		if w := a.do(t, "x", "/call", h(c.before, c.after, c.path)); w.Code != 200 {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		a.settled(t, f)
		if got := a.faults.trips.Load() - start; got > c.trips || got < c.trips-c.shared {
			t.Errorf("%s: %d round trips, want %d, of which %d may be shared", c.name, got, c.trips, c.shared)
		}
	}
}
