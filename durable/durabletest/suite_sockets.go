package durabletest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func text(s string) durable.SocketMessage { return durable.SocketMessage{Data: []byte(s)} }

// tell sends a text to all sockets of an object here.
func (p *probe) tell(s string) {
	for _, k := range p.state.Sockets() {
		must(k.Send(text(s)))
	}
}

func testSockets(t *testing.T, s *suite) {
	s.on("/socket", func(p *probe, w http.ResponseWriter, r *http.Request) {
		k, err := p.state.AcceptSocket(w, r, r.URL.Query().Get("name"))
		if err == nil {
			must(k.Send(text(fmt.Sprint("hello ", k.Attachment()))))
		}
	})
	var mu sync.Mutex
	var ends []string
	s.set(func() {
		s.message = func(ctx context.Context, p *probe, k durable.Socket, m durable.SocketMessage) error {
			p.insert(ctx, string(m.Data))
			p.tell(fmt.Sprint(k.Attachment(), ": ", string(m.Data)))
			k.SetAttachment(fmt.Sprint(k.Attachment(), "'"))
			switch string(m.Data) {
			case "fail":
				return errors.New("canary9")
			case "panic":
				panic("canary10")
			case "leave":
				return k.Close(3001, "bye")
			}
			return p.state.WakeSockets()
		}
		s.closed = func(_ context.Context, p *probe, k durable.Socket, code int) error {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, fmt.Sprintf("%v%d%d", k.Attachment(), code, len(p.state.Sockets())))
			return nil
		}
		s.wake = func(ctx context.Context, p *probe) error { p.tell("stored: " + p.all(ctx)); return nil }
	})
	forget := func() { mu.Lock(); defer mu.Unlock(); ends = nil }
	ended := func(t *testing.T, want string) {
		t.Helper()
		s.eventually("the close event "+want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(ends, " ") == want
		})
		forget()
	}
	t.Run("messages are events in order, and what is sent leaves after the commit", func(t *testing.T) {
		a, b := s.Dial("/room/socket?name=a"), s.Dial("/room/socket?name=b")
		a.Want("hello a")
		b.Want("hello b")
		a.Send("1")
		a.Want("a: 1")
		a.Send("2")
		a.Want("a': 2")
		b.Want("a: 1", "a': 2")
		s.has(t, "room", "1 2")
		b.Close(1000, "")
		ended(t, "b10001")
		a.Break()
		ended(t, "a''10060")
	})
	t.Run("a handler that fails commits nothing, and its socket is closed with 1011", func(t *testing.T) {
		for _, how := range []string{"fail", "panic"} {
			other, a := s.Dial("/fails/socket?name=o"), s.Dial("/fails/socket?name=a")
			a.Want("hello a")
			a.Send(how)
			if before := a.WantClose(1011); len(before) != 0 {
				t.Errorf("%s: heard %q", how, before)
			}
			s.has(t, "fails", "")
			other.Want("hello o")
			other.Close(1000, "")
			other.WantClose(1000) // having heard nothing of it
		}
		s.eventually("the closes", func() bool { mu.Lock(); defer mu.Unlock(); return len(ends) == 4 })
		forget()
		s.logged(t, "app=suite", "class="+class, "canary10")
	})
	t.Run("the object closes one", func(t *testing.T) {
		a := s.Dial("/closing/socket?name=a")
		a.Want("hello a")
		a.Send("leave")
		if before := a.WantClose(3001); len(before) != 1 {
			t.Errorf("heard %q before the close", before)
		}
		s.has(t, "closing", "leave")
		mu.Lock()
		defer mu.Unlock()
		if len(ends) != 0 {
			t.Error(ends)
		}
	})
	t.Run("an event that fails accepts none", func(t *testing.T) {
		s.on("/refused", func(p *probe, w http.ResponseWriter, r *http.Request) {
			_, err := p.state.AcceptSocket(w, r, nil)
			must(err)
			panic("canary")
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/none/refused", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		if a := s.Send(r); a.Status != 500 {
			t.Errorf("%d %v", a.Status, a.Err)
		}
		if a := s.Do("GET", "/none/socket", ""); a.Status < 400 || a.Status >= 500 {
			t.Errorf("no handshake: %d", a.Status)
		}
		r.Header.Set("Origin", "https://elsewhere.example")
		r.URL.Path = "/suite/none/socket"
		if a := s.Send(r); a.Status != http.StatusForbidden {
			t.Errorf("a page of another site: %d", a.Status)
		}
	})
	t.Run("another replica's sockets are woken, and closed when it stops", func(t *testing.T) {
		other := s.Join()
		far, near := other.Dial("/far/socket?name=f"), s.Dial("/far/socket?name=n")
		far.Want("hello f")
		near.Want("hello n")
		near.Send("1")
		near.Want("n: 1")
		far.Want("stored: 1")
		other.Stop()
		far.WantClose(1001)
		near.Send("2")
		near.Want("n': 2")
	})
}
