package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/durable"
)

const (
	maxSaid = 64 << 10 // bytes of a message
	// maxBehind is how many messages a socket is sent at a time. One that lacks
	// more is told to read them.
	maxBehind = 1000
)

const roomSchema = `
CREATE TABLE IF NOT EXISTS lab_message (seq INTEGER PRIMARY KEY, op TEXT UNIQUE, text TEXT NOT NULL, at INTEGER NOT NULL, replica TEXT NOT NULL) STRICT;`

// room has sockets. Every message is stored under the next seq and sent to the
// sockets on this replica; other replicas are woken and send it to theirs. A
// socket's attachment is the seq up to which it has heard.
type room struct {
	state durable.State
	env   durable.Env
}

func newRoom(state durable.State, env durable.Env) (durable.Object, error) {
	if _, err := state.SQL().Exec(context.Background(), roomSchema); err != nil {
		return nil, fmt.Errorf("create room: %w", err)
	}
	return &room{state, env}, nil
}

// A saidMessage is what sockets and lists show of a message.
type saidMessage struct {
	Seq     int64  `json:"seq"`
	Op      string `json:"op,omitempty"`
	Text    string `json:"text"`
	At      int64  `json:"at"` // epoch milliseconds
	Replica string `json:"replica"`
}

// A marker tells a socket that all messages up to seq are to be read, if the
// client lacks any.
type marker struct {
	Seq int64 `json:"seq"`
}

func (o *room) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parseTarget(r)
	if !ok || t.kind != "room" {
		writeError(w, http.StatusNotFound, "no such path")
		return
	}
	if !t.allowed(w, r) {
		return
	}
	switch {
	case t.action == "socket":
		o.serveSocket(w, r)
	case r.Method == http.MethodPost:
		o.serveSay(w, r)
	default:
		o.serveMessages(w, r, t.name)
	}
}

func (o *room) serveSocket(w http.ResponseWriter, r *http.Request) {
	head := o.head(r.Context())
	s, err := o.state.AcceptSocket(w, r, head)
	if err != nil {
		return // it is answered
	}
	if err := s.Send(encode(marker{head})); err != nil {
		panic(fmt.Errorf("greet: %w", err))
	}
}

// serveSay stores the body.
func (o *room) serveSay(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSaid+1))
	if err != nil || len(body) > maxSaid || !utf8.Valid(body) {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("a message is UTF-8 of at most %d bytes", maxSaid))
		return
	}
	seq, err := o.say(r.Context(), string(body))
	if err != nil {
		panic(fmt.Errorf("say: %w", err))
	}
	writeJSON(w, http.StatusOK, marker{seq})
}

func (o *room) serveMessages(w http.ResponseWriter, r *http.Request, name string) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil && !q.Has("after") {
		q.Set("after", "0")
	}
	after, perr := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil || perr != nil || after < 0 {
		writeError(w, http.StatusBadRequest, "after must be the seq of a message")
		return
	}
	list := newListWriter(w, name, "messages")
	if err := o.after(r.Context(), after, maxBehind, func(m saidMessage) error { list.add(m); return nil }); err != nil {
		panic(fmt.Errorf("list messages: %w", err))
	}
	list.end()
}

// SocketMessage stores a message: a text or, for who repeats what may have been
// stored, {"op": ID, "text": "..."}.
func (o *room) SocketMessage(ctx context.Context, s durable.Socket, m durable.SocketMessage) error {
	if m.Binary || len(m.Data) > maxSaid {
		return s.Close(1003, fmt.Sprintf("a message is text of at most %d bytes", maxSaid))
	}
	_, err := o.say(ctx, string(m.Data))
	return err
}

// SocketClose has nothing to do: a room knows its sockets from the host.
func (o *room) SocketClose(context.Context, durable.Socket, int, string) error { return nil }

// SocketWake sends what other replicas have stored.
func (o *room) SocketWake(ctx context.Context) error { return o.deliver(ctx) }

func (o *room) say(ctx context.Context, text string) (seq int64, err error) {
	var in struct {
		Op, Text string
	}
	if json.Unmarshal([]byte(text), &in) != nil || in.Op == "" {
		in.Op, in.Text = "", text
	}
	var op any
	if in.Op != "" {
		op = in.Op
	}
	res, err := o.state.SQL().Exec(ctx, `INSERT INTO lab_message (op, text, at, replica) VALUES (?, ?, ?, ?) ON CONFLICT(op) DO NOTHING`,
		op, in.Text, o.state.Now().UnixMilli(), o.env.Replica())
	if err != nil {
		return 0, err
	}
	if res.Changes == 0 { // it was stored before
		for row, err := range o.state.SQL().Query(ctx, `SELECT seq FROM lab_message WHERE op = ?`, op) {
			if err == nil {
				err = row.Scan(&seq)
			}
			if err != nil {
				return 0, err
			}
		}
		return seq, nil
	}
	if err := o.deliver(ctx); err != nil {
		return 0, err
	}
	return res.LastRowID, o.state.WakeSockets()
}

// deliver sends to each socket what it has not heard.
func (o *room) deliver(ctx context.Context) error {
	sockets := o.state.Sockets()
	if len(sockets) == 0 {
		return nil
	}
	head := o.head(ctx)
	least := head
	for _, s := range sockets {
		if heard(s) < head-maxBehind {
			if err := s.Send(encode(marker{head})); err != nil {
				return err
			}
			s.SetAttachment(head)
		}
		least = min(least, heard(s))
	}
	err := o.after(ctx, least, maxBehind, func(m saidMessage) error {
		out := encode(m)
		for _, s := range sockets {
			if heard(s) < m.Seq {
				if err := s.Send(out); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, s := range sockets {
		if heard(s) < head {
			s.SetAttachment(head)
		}
	}
	return err
}

// heard is the seq up to which a socket has heard.
func heard(s durable.Socket) int64 {
	n, _ := s.Attachment().(int64)
	return n
}

func encode(v any) durable.SocketMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode: %w", err))
	}
	return durable.SocketMessage{Data: b}
}

// head is the seq of the last message.
func (o *room) head(ctx context.Context) (seq int64) {
	for row, err := range o.state.SQL().Query(ctx, `SELECT coalesce(max(seq), 0) FROM lab_message`) {
		if err == nil {
			err = row.Scan(&seq)
		}
		if err != nil {
			panic(fmt.Errorf("read room: %w", err))
		}
	}
	return seq
}

// after hands over the messages after a seq, in order.
func (o *room) after(ctx context.Context, seq int64, limit int, each func(saidMessage) error) error {
	for row, err := range o.state.SQL().Query(ctx, `SELECT seq, coalesce(op, ''), text, at, replica FROM lab_message WHERE seq > ? ORDER BY seq LIMIT ?`, seq, limit) {
		var m saidMessage
		if err == nil {
			err = row.Scan(&m.Seq, &m.Op, &m.Text, &m.At, &m.Replica)
		}
		if err == nil {
			err = each(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
