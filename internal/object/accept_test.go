package object

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/durable"
)

// TestAcceptBesideTheAnswer: a writer that is not the event's cannot become a
// socket, and none is left behind.
func TestAcceptBesideTheAnswer(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{accept: func(o *room, w http.ResponseWriter, r *http.Request) {
		if _, err := o.state.AcceptSocket(httptest.NewRecorder(), r, nil); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("accepted: %v", err)
		}
		w.WriteHeader(http.StatusTeapot)
	}}
	if _, resp, err := websocket.DefaultDialer.DialContext(t.Context(), r.serve(t, a)+"x", nil); err == nil || resp == nil || resp.StatusCode != http.StatusTeapot {
		t.Errorf("%v %v", resp, err)
	}
	if n := a.Stats().Sockets; n != 0 {
		t.Errorf("%d sockets are left", n)
	}
}

// TestHandlerGoesOnBehindItsSocket: an event that flushes the acceptance goes on
// while the connection is upgraded.
func TestHandlerGoesOnBehindItsSocket(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{message: echo}
	r.accept = func(o *room, w http.ResponseWriter, r *http.Request) {
		s, err := o.state.AcceptSocket(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := say(context.Background(), o, "welcome"); err != nil {
			t.Error(err)
		}
		s.SetAttachment("x")
	}
	c := dial(t, r.serve(t, a)+"x")
	c.want("welcome")
	c.say("one")
	c.want("one")
}

// TestHandlerFailsBehindItsSocket: as when a message fails.
func TestHandlerFailsBehindItsSocket(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{accept: func(o *room, w http.ResponseWriter, r *http.Request) {
		if _, err := o.state.AcceptSocket(w, r, "c"); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := say(r.Context(), o, "unheard"); err != nil {
			t.Error(err)
		}
		panic("on purpose")
	}}
	c := dial(t, r.serve(t, a)+"x")
	if before := c.wantClose(1011); len(before) > 0 {
		t.Errorf("heard %q", before)
	}
	eventually(t, "the close was told", func() bool { return r.ends() == "c 1011" })
}
