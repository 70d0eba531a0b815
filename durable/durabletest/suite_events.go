package durabletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func testEvents(t *testing.T, s *suite) {
	t.Run("events of one object run one at a time", func(t *testing.T) {
		var running, most atomic.Int32
		s.on("/one", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			p.insert(r.Context(), len(p.all(r.Context())))
			running.Add(-1)
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if a := s.do("serial", "/one"); a.Status != http.StatusOK {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
		all.Wait()
		if most.Load() != 1 {
			t.Errorf("%d ran at once", most.Load())
		}
		s.has(t, "serial", "0 1 3 5 7 9 11 14")
	})
	t.Run("an event sees what earlier ones committed, on another replica too", func(t *testing.T) {
		other := s.Join()
		s.do("seen", "/add?v=a")
		if a := other.Do("POST", "/seen/add?v=b", ""); a.Status != 200 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		s.has(t, "seen", "a b")
		other.Stop()
	})
	t.Run("what was answered is there after a restart", func(t *testing.T) {
		s.do("kept", "/add?v=a")
		s.Restart()
		s.has(t, "kept", "a")
	})
	t.Run("a failed event's instance is built again", func(t *testing.T) {
		s.run("rebuilt", func(p *probe, _ http.ResponseWriter, _ *http.Request) { p.fields = 1; panic("canary") })
		a := s.run("rebuilt", func(p *probe, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.fields) })
		if a.Body != "0" {
			t.Errorf("fields %s", a.Body)
		}
	})
	t.Run("reading an object that nobody wrote leaves no trace", func(t *testing.T) {
		a := s.run("unwritten", func(p *probe, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.state.ID().Name()) })
		if a.Body != "unwritten" || a.Header.Get("Dwk-Txid") != "" && a.Header.Get("Dwk-Txid") != "0" {
			t.Errorf("%q, position %q", a.Body, a.Header.Get("Dwk-Txid"))
		}
	})
	t.Run("state is revoked when its event is over", func(t *testing.T) {
		var left *probe
		var after durable.SQL
		s.run("revoked", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "event")
			left, after = p, p.state.SQL()
		})
		ctx := context.Background()
		_, err := after.Exec(ctx, `INSERT INTO t(v) VALUES ('late')`)
		is(t, "Exec", err, durable.ErrRevoked)
		for _, qerr := range left.state.SQL().Query(ctx, `SELECT 1`) {
			is(t, "Query", qerr, durable.ErrRevoked)
		}
		is(t, "Tx", left.state.SQL().Tx(ctx, func(durable.SQL) error { return nil }), durable.ErrRevoked)
		is(t, "SetAlarm", left.state.SetAlarm(left.state.Now()), durable.ErrRevoked)
		is(t, "DeleteAlarm", left.state.DeleteAlarm(), durable.ErrRevoked)
		is(t, "WakeSockets", left.state.WakeSockets(), durable.ErrRevoked)
		if _, ok := left.state.Alarm(); ok {
			t.Error("it shows an alarm")
		}
		s.has(t, "revoked", "event")
	})
	t.Run("a goroutine that outlives its event writes nothing", func(t *testing.T) {
		over, tried := make(chan struct{}), make(chan struct{})
		var err error
		s.run("goroutine", func(p *probe, _ http.ResponseWriter, _ *http.Request) {
			go func() {
				defer close(tried)
				<-over
				_, err = p.state.SQL().Exec(context.Background(), `INSERT INTO t(v) VALUES ('late')`)
			}()
		})
		close(over)
		wait(t, "the goroutine", tried)
		is(t, "the goroutine", err, durable.ErrRevoked)
		s.has(t, "goroutine", "")
	})
	t.Run("background work begins after the commit, and not when there is none", func(t *testing.T) {
		began := make(chan string, 2)
		for _, name := range []string{"fails", "works"} {
			s.run("background", func(p *probe, _ http.ResponseWriter, r *http.Request) {
				p.insert(r.Context(), name)
				p.env.Background(func(ctx context.Context) {
					got, err := p.call(ctx, "background", "/all")
					began <- fmt.Sprint(name, got, err)
				})
				if name == "fails" {
					panic("canary")
				}
			})
		}
		if got := <-began; got != "works200 works<nil>" {
			t.Error(got)
		}
	})
	t.Run("the body is read before the event", func(t *testing.T) {
		s.on("/body", func(_ *probe, w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			must(err)
			fmt.Fprint(w, len(b))
		})
		body, feed := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/body/body", body)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan Answer, 1)
		go func() { done <- s.Send(r) }()
		if _, err := feed.Write([]byte("half")); err != nil {
			t.Error(err)
		}
		s.has(t, "body", "") // nobody waits for the other half
		if err := errors.Join(second(feed.Write([]byte("half"))), feed.Close()); err != nil {
			t.Error(err)
		}
		if a := <-done; a.Body != "8" {
			t.Errorf("%d %q", a.Status, a.Body)
		}
	})
}

func second(_ int, err error) error { return err }

func testFailures(t *testing.T, s *suite) {
	s.do("x", "/add?v=before")
	for _, c := range []struct {
		name string
		fail func(*probe, http.ResponseWriter, *http.Request)
		log  string
	}{
		{"panic", func(*probe, http.ResponseWriter, *http.Request) { panic("canary1") }, "canary1"},
		{"runtime error", func(_ *probe, _ http.ResponseWriter, r *http.Request) { var m map[string]int; m[r.URL.Path] = 1 }, "nil map"},
		{"open transaction", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			_, err := p.state.SQL().Exec(r.Context(), `BEGIN; INSERT INTO t(v) VALUES ('inside')`)
			must(err)
		}, "open transaction"},
		{"panic within a transaction", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			must(p.state.SQL().Tx(r.Context(), func(tx durable.SQL) error { panic("canary2") }))
		}, "canary2"},
		{"its goroutine ends", func(*probe, http.ResponseWriter, *http.Request) { runtime.Goexit() }, "goroutine ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.run("x", func(p *probe, w http.ResponseWriter, r *http.Request) {
				p.insert(r.Context(), "lost")
				must(p.state.SetAlarmIn(0))
				must(p.env.Queue("work").Send(r.Context(), "lost", durable.SendOptions{}))
				io.WriteString(w, "not to be seen") //nolint:errcheck // it is held
				c.fail(p, w, r)
			})
			if a.Status != http.StatusInternalServerError || strings.Contains(a.Body, "not to be seen") || strings.Contains(a.Body, "canary") {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			s.has(t, "x", "before")
			if _, ok := s.Alarm(class, "x"); ok || s.Waiting("work") != 0 {
				t.Error("an alarm or a message is there")
			}
			s.logged(t, "object.handler.failed", "app=suite", "class="+class, durable.IDFromName("x").String(), c.log)
		})
	}
	t.Run("abort", func(t *testing.T) {
		a := s.run("x", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "lost")
			panic(http.ErrAbortHandler)
		})
		if a.Err == nil {
			t.Errorf("answered %d", a.Status)
		}
		s.has(t, "x", "before")
	})
	t.Run("whatever the status, what was written is written", func(t *testing.T) {
		a := s.run("teapot", func(p *probe, w http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "v")
			w.WriteHeader(http.StatusTeapot)
		})
		if a.Status != http.StatusTeapot {
			t.Error(a.Status)
		}
		s.has(t, "teapot", "v")
	})
	t.Run("errors of Do say what was applied", func(t *testing.T) {
		s.on("/fail", func(p *probe, _ http.ResponseWriter, r *http.Request) { p.insert(r.Context(), "lost"); panic("canary") })
		is(t, "a failed handler", s.Object(class, "y", "POST", "/fail", "").Err, durable.ErrHandlerFailed)
		s.has(t, "y", "")
	})
	t.Run("a constructor that fails", func(t *testing.T) {
		// The object exists with a table that is in the constructor's way.
		s.run("ctor", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			_, err := p.state.SQL().Exec(r.Context(), `DROP TABLE t; CREATE VIEW t AS SELECT 1 AS v`)
			must(err)
		})
		s.Restart()
		if a := s.do("ctor", "/all"); a.Status != http.StatusInternalServerError && a.Status != http.StatusOK {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		s.has(t, "x", "before")
	})
}

func testCancellation(t *testing.T, s *suite) {
	t.Run("a client that goes away", func(t *testing.T) {
		began, ended := make(chan struct{}), make(chan struct{})
		s.on("/hang", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "lost")
			close(began)
			<-r.Context().Done()
			close(ended)
		})
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/gone/hang", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan Answer, 1)
		go func() { done <- s.Send(r) }()
		wait(t, "the event", began)
		cancel()
		wait(t, "its end", ended)
		<-done
		s.has(t, "gone", "")
	})
	t.Run("a handler that ignores cancellation", func(t *testing.T) {
		began, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var late error
		s.on("/stuck", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			defer close(ended)
			p.insert(r.Context(), "lost")
			close(began)
			<-release
			_, late = p.state.SQL().Exec(context.Background(), `INSERT INTO t(v) VALUES ('late')`)
		})
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/stuck/stuck", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan Answer, 1)
		go func() { done <- s.Send(r) }()
		wait(t, "the event", began)
		cancel()
		<-done
		s.eventually("the object goes on", func() bool { return s.do("stuck", "/add?v=next").Status == 200 })
		close(release)
		wait(t, "the handler", ended)
		is(t, "a write after its event", late, durable.ErrRevoked)
		s.logged(t, "object.handler.stuck", "app=suite", durable.IDFromName("stuck").String())
		if a := s.do("stuck", "/all"); strings.Contains(a.Body, "l") {
			t.Error(a.Body)
		}
	})
	t.Run("the event's deadline", func(t *testing.T) {
		a := s.run("deadline", func(p *probe, w http.ResponseWriter, r *http.Request) {
			_, ok := r.Context().Deadline()
			fmt.Fprint(w, ok)
		})
		if a.Body != "true" {
			t.Error("the context has none")
		}
	})
}
