package durabletest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

// testCloses checks the codes with which the host closes sockets.
func testCloses(t *testing.T, s *suite) {
	s = s.with(t, map[string]string{"sockets.message_limit": "64KiB", "sockets.queue_limit": "64KiB", "event.timeout": "10s", "drain.socket_code": "1012"})
	ends := make(chan int, 8)
	s.on("/socket", func(p *probe, w http.ResponseWriter, r *http.Request) {
		if k, err := p.state.AcceptSocket(w, r, nil); err == nil {
			must(k.Send(text("hello")))
		}
	})
	s.set(func() {
		s.message = func(ctx context.Context, p *probe, k durable.Socket, m durable.SocketMessage) error {
			p.insert(ctx, len(m.Data))
			if string(m.Data) == "hang" {
				<-ctx.Done()
				return ctx.Err()
			}
			return k.Send(text(fmt.Sprint(len(m.Data))))
		}
		s.closed = func(_ context.Context, _ *probe, _ durable.Socket, code int) error { ends <- code; return nil }
	})
	dial := func(name string) *Socket {
		k := s.Dial("/" + name + "/socket")
		k.Want("hello")
		return k
	}
	ended := func(t *testing.T, want int) {
		t.Helper()
		if code := <-ends; code != want {
			t.Errorf("the object was told %d, want %d", code, want)
		}
	}
	t.Run("1007, text that is not UTF-8", func(t *testing.T) {
		k := dial("utf8")
		k.SendMessage(durable.SocketMessage{Data: []byte{0xff}, Binary: true})
		k.Want("1")
		k.Send("a\xffb")
		k.WantClose(1007)
		ended(t, 1007)
		s.has(t, "utf8", "1")
	})
	t.Run("1009, a message over the limit", func(t *testing.T) {
		k := dial("large")
		k.Send(strings.Repeat("x", 64<<10))
		k.Want("65536")
		k.Send(strings.Repeat("x", 64<<10+1))
		k.WantClose(1009)
		ended(t, 1009)
		s.has(t, "large", "65536")
	})
	t.Run("1008, a client that does not read", func(t *testing.T) {
		dial("slow") // and reads no more
		s.on("/flood", func(p *probe, _ http.ResponseWriter, _ *http.Request) {
			for _, k := range p.state.Sockets() {
				for range 8 {
					must(k.Send(durable.SocketMessage{Binary: true, Data: bytes.Repeat([]byte("x"), 32<<10)}))
				}
			}
		})
		s.eventually("the end of the socket", func() bool {
			if a := s.do("slow", "/flood"); a.Status != http.StatusOK {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			return len(ends) > 0
		})
		ended(t, 1008)
	})
	t.Run("1012, a message that could not be run in time", func(t *testing.T) {
		k := dial("hang")
		k.Send("hang")
		k.WantClose(1012)
		ended(t, 1012)
		s.has(t, "hang", "")
	})
	t.Run("1012, a replica that stops, when it is configured so", func(t *testing.T) {
		k := dial("stop")
		s.Stop()
		k.WantClose(1012)
		ended(t, 1012)
	})
}

// testLimits checks what an object may not exceed.
func testLimits(t *testing.T, s *suite) {
	s = s.with(t, map[string]string{"objects.max_size": "512KiB"})
	const row = 32 << 10
	fill := func(p *probe, ctx context.Context) (rows int, err error) {
		for err == nil {
			if _, err = p.state.SQL().Exec(ctx, `INSERT INTO t(v) VALUES (zeroblob(?))`, row); err == nil {
				rows++
			}
		}
		return rows, err
	}
	rows := 0
	count := func(name string) string {
		return s.run(name, func(p *probe, w http.ResponseWriter, r *http.Request) {
			got, err := values(r.Context(), p.state.SQL(), `SELECT count(*) FROM t`)
			must(err)
			fmt.Fprint(w, got[0])
		}).Body
	}
	t.Run("a statement over the size of a database fails, and only it", func(t *testing.T) {
		a := s.run("full", func(p *probe, w http.ResponseWriter, r *http.Request) {
			var err error
			rows, err = fill(p, r.Context())
			is(t, "the insert", err, durable.ErrTooLarge)
			fmt.Fprint(w, err)
		})
		if a.Status != http.StatusOK || rows == 0 || rows*row > 512<<10 || !strings.Contains(a.Body, "database size limit") {
			t.Errorf("%d %q, %d rows", a.Status, a.Body, rows)
		}
		if got := count("full"); got != fmt.Sprint(rows) {
			t.Errorf("%s rows of %d", got, rows)
		}
	})
	t.Run("a full database has room to delete, and then to write", func(t *testing.T) {
		s.Restart() // for a replica that has it from the store, too
		a := s.run("full", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			_, err := p.state.SQL().Exec(r.Context(), `DELETE FROM t WHERE id <= 2`)
			must(err)
			_, err = p.state.SQL().Exec(r.Context(), `INSERT INTO t(v) VALUES (zeroblob(?))`, row)
			must(err)
		})
		if got := count("full"); a.Status != http.StatusOK || got != fmt.Sprint(rows-1) {
			t.Errorf("%d %s, %s rows, want %d", a.Status, a.Body, got, rows-1)
		}
	})
	t.Run("an event that fails for it is undone", func(t *testing.T) {
		a := s.run("undone", func(p *probe, _ http.ResponseWriter, r *http.Request) {
			_, err := fill(p, r.Context())
			panic(err)
		})
		if got := count("undone"); a.Status != http.StatusInternalServerError || got != "0" {
			t.Errorf("%d, %s rows", a.Status, got)
		}
	})
}
