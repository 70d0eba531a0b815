package durabletest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }

func testGate(t *testing.T, s *suite) {
	t.Run("a flush commits and lets out what precedes it", func(t *testing.T) {
		goOn := make(chan struct{})
		s.on("/steps", func(p *probe, w http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "a")
			io.WriteString(w, "first\n") //nolint:errcheck // the flush tells
			must(flush(w))
			p.insert(r.Context(), "b")
			<-goOn
			panic("canary")
		})
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/flushed/steps", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // only read from
		body := bufio.NewReader(resp.Body)
		line, err := body.ReadString('\n')
		if line != "first\n" || err != nil {
			t.Fatalf("%q %v", line, err)
		}
		close(goOn)
		if _, err := io.ReadAll(body); err == nil {
			t.Error("a part looks like the whole")
		}
		s.has(t, "flushed", "a")
	})
	t.Run("an event that fails after a flush is answered as failed by Do", func(t *testing.T) {
		s.on("/partly", func(p *probe, w http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "a")
			must(flush(w))
			panic("canary")
		})
		a := s.Object(class, "partly", "POST", "/partly", "")
		if a.Err == nil {
			t.Errorf("%d %q", a.Status, a.Body)
		}
		s.has(t, "partly", "a")
	})
	t.Run("a flush within a transaction is refused", func(t *testing.T) {
		var err error
		s.run("nested", func(p *probe, w http.ResponseWriter, r *http.Request) {
			must(p.state.SQL().Tx(r.Context(), func(durable.SQL) error { err = flush(w); return nil }))
		})
		is(t, "flush", err, durable.ErrNested)
	})
	t.Run("headers and status come with the answer", func(t *testing.T) {
		a := s.run("headers", func(_ *probe, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Test", "v")
			w.WriteHeader(http.StatusCreated)
		})
		if a.Status != http.StatusCreated || a.Header.Get("X-Test") != "v" || a.Header.Get("X-Request-Id") == "" || a.Header.Get("Dwk-Replica") == "" {
			t.Errorf("%d %v", a.Status, a.Header)
		}
	})
}

func testCalls(t *testing.T, s *suite) {
	t.Run("a call commits first what its caller wrote", func(t *testing.T) {
		a := s.run("caller", func(p *probe, w http.ResponseWriter, r *http.Request) {
			p.insert(r.Context(), "asked")
			got, err := p.call(r.Context(), "callee", "/add?v=1")
			must(err)
			io.WriteString(w, got) //nolint:errcheck // it is held
			p.insert(r.Context(), "lost")
			panic("canary")
		})
		if a.Status != 500 {
			t.Error(a.Status)
		}
		s.has(t, "caller", "asked")
		s.has(t, "callee", "1")
	})
	t.Run("a callee that fails does not commit its caller", func(t *testing.T) {
		s.on("/fail", func(p *probe, _ http.ResponseWriter, r *http.Request) { p.insert(r.Context(), "lost"); panic("canary") })
		a := s.run("handing", func(p *probe, w http.ResponseWriter, r *http.Request) {
			_, err := p.call(r.Context(), "failing", "/fail")
			is(t, "Do", err, durable.ErrHandlerFailed)
			p.insert(r.Context(), "lost")
			r.URL.Path = "/fail"
			ns := p.env.Namespace(class)
			ns.Get(ns.ID("failing")).ServeHTTP(w, r)
		})
		if a.Status != 500 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		s.has(t, "failing", "")
	})
	t.Run("cycles are refused", func(t *testing.T) {
		var own, back error
		s.on("/back", func(p *probe, _ http.ResponseWriter, r *http.Request) { _, back = p.call(r.Context(), "a", "/all") })
		s.run("a", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			_, own = p.call(r.Context(), "a", "/all")
			_, err := p.call(r.Context(), "b", "/back")
			must(err)
		})
		is(t, "a call to itself", own, durable.ErrCycle)
		is(t, "a call that comes back", back, durable.ErrCycle)
	})
	t.Run("a call within a transaction is refused", func(t *testing.T) {
		s.run("nested", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			must(p.state.SQL().Tx(r.Context(), func(durable.SQL) error {
				_, err := p.call(r.Context(), "c", "/all")
				is(t, "call", err, durable.ErrNested)
				return nil
			}))
		})
	})
}

func testStreams(t *testing.T, s *suite) {
	t.Run("server-sent events come as they are flushed", func(t *testing.T) {
		next := make(chan struct{})
		s.on("/events", func(p *probe, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				p.insert(r.Context(), i)
				fmt.Fprintf(w, "data: %d\n\n", i)
				must(flush(w))
				<-next
			}
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/stream/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // only read from
		lines := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%q %v", line, err)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("%q %v", rest, err)
		}
		s.has(t, "stream", "0 1 2")
	})
	t.Run("a stream whose client goes away ends", func(t *testing.T) {
		ended := make(chan struct{})
		s.on("/endless", func(p *probe, w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			for r.Context().Err() == nil {
				io.WriteString(w, "data: x\n\n") //nolint:errcheck // the flush tells
				if flush(w) != nil {
					return
				}
			}
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/stream/endless", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 9)); err != nil {
			t.Error(err)
		}
		resp.Body.Close() //nolint:errcheck // that is the test
		wait(t, "the stream's end", ended)
	})
	t.Run("an answer is sent when the object is free already", func(t *testing.T) {
		const size = 8 << 20 // more than sockets buffer
		s.on("/large", func(_ *probe, w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, io.LimitReader(zeros{}, size)) //nolint:errcheck // it is held
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/download/large", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()  //nolint:errcheck // only read from
		s.has(t, "download", "") // while nobody reads the answer
		if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
			t.Errorf("%d %v", n, err)
		}
	})
	t.Run("a body over its limit is refused, and nothing applied", func(t *testing.T) {
		s.on("/read", func(p *probe, _ http.ResponseWriter, r *http.Request) { p.insert(r.Context(), "lost") })
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/limit/read", io.LimitReader(zeros{}, 65<<20))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 65 << 20
		if a := s.Send(r); a.Status != http.StatusRequestEntityTooLarge && a.Err == nil {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		s.has(t, "limit", "")
	})
	t.Run("bodies of a bucket stream", func(t *testing.T) {
		const size = 12 << 20
		ctx, b := t.Context(), s.Env().Bucket("FILES")
		if _, err := b.Put(ctx, "large", io.LimitReader(zeros{}, size), durable.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		body, info, err := b.Get(ctx, "large", durable.GetOptions{Offset: -5})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close() //nolint:errcheck // only read from
		tail, err := io.ReadAll(body)
		if len(tail) != 5 || info.Size != size || err != nil {
			t.Errorf("%d of %d, %v", len(tail), info.Size, err)
		}
		broken := errors.New("canary")
		if _, err := b.Put(ctx, "broken", io.MultiReader(strings.NewReader("x"), failing{broken}), durable.PutOptions{}); !errors.Is(err, broken) {
			t.Errorf("a body that breaks off: %v", err)
		}
		_, err = b.Head(ctx, "broken")
		is(t, "a body that broke off", err, durable.ErrNotFound)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
