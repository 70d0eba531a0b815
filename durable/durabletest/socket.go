package durabletest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/durable"
)

// A Socket is a client's end of a WebSocket. It ends with the test. A close code
// that the host sends is a [*CloseError] of Receive.
type Socket struct {
	h    *Host
	conn *websocket.Conn
	// Header is that of the answer that accepted it.
	Header http.Header
}

// A CloseError says how a socket was closed.
type CloseError struct {
	// Code is 1006 when the connection broke.
	Code   int
	Reason string
}

func (e *CloseError) Error() string { return fmt.Sprintf("socket closed: %d %s", e.Code, e.Reason) }

// Dial opens a WebSocket at a path below the first application's mount. It fails
// the test when that is refused; [Host.Do] shows why.
func (h *Host) Dial(path string) *Socket {
	h.t.Helper()
	conn, resp, err := websocket.DefaultDialer.DialContext(h.t.Context(), "ws"+strings.TrimPrefix(h.URL(), "http")+path, nil)
	if err != nil {
		status := "no answer"
		if resp != nil {
			status = resp.Status
		}
		h.t.Fatalf("durabletest: socket %s: %v (%s)", path, err, status)
	}
	h.t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may have ended
	return &Socket{h: h, conn: conn, Header: resp.Header}
}

// Send sends a text message.
func (s *Socket) Send(text string) {
	s.h.t.Helper()
	s.SendMessage(durable.SocketMessage{Data: []byte(text)})
}

// SendMessage sends a message.
func (s *Socket) SendMessage(m durable.SocketMessage) {
	s.h.t.Helper()
	kind := websocket.TextMessage
	if m.Binary {
		kind = websocket.BinaryMessage
	}
	if err := s.conn.WriteMessage(kind, m.Data); err != nil {
		s.h.t.Errorf("durabletest: send: %v", err)
	}
}

// Receive waits for the next message.
func (s *Socket) Receive() (durable.SocketMessage, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return durable.SocketMessage{}, err
	}
	kind, data, err := s.conn.ReadMessage()
	if e, ok := errors.AsType[*websocket.CloseError](err); ok {
		err = &CloseError{e.Code, e.Text}
	}
	return durable.SocketMessage{Binary: kind == websocket.BinaryMessage, Data: data}, err
}

// Want waits for the next messages and fails the test when they are others.
func (s *Socket) Want(texts ...string) {
	s.h.t.Helper()
	for _, text := range texts {
		if m, err := s.Receive(); err != nil || string(m.Data) != text {
			s.h.t.Fatalf("durabletest: received %q %v, want %q", m.Data, err, text)
		}
	}
}

// WantClose reads until the socket is closed, fails the test when the code is
// another one, and returns the messages that came before.
func (s *Socket) WantClose(code int) (before []string) {
	s.h.t.Helper()
	for {
		m, err := s.Receive()
		if err == nil {
			before = append(before, string(m.Data))
			continue
		}
		if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != code {
			s.h.t.Fatalf("durabletest: the socket ended with %v, want %d", err, code)
		}
		return before
	}
}

// Close closes the socket with a code and a reason.
func (s *Socket) Close(code int, reason string) {
	s.h.t.Helper()
	text := websocket.FormatCloseMessage(code, reason)
	if err := s.conn.WriteControl(websocket.CloseMessage, text, time.Now().Add(patience)); err != nil {
		s.h.t.Errorf("durabletest: close: %v", err)
	}
}

// Break ends the connection without a word.
func (s *Socket) Break() { s.conn.NetConn().Close() } //nolint:errcheck // it may have ended
