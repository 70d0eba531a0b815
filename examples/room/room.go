package room

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const (
	maxText = 16 << 10 // bytes of a message
	maxName = 64       // bytes of a member's name
	atOnce  = 200      // messages that are sent or listed at once
)

// The schema. A constructor runs for every new instance, so it is harmless to
// repeat. An operation id makes a message that is repeated the same one.
const schema = `
CREATE TABLE IF NOT EXISTS message(seq INTEGER PRIMARY KEY, op TEXT NOT NULL UNIQUE, name TEXT NOT NULL, text TEXT NOT NULL, file TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(text, content=message, content_rowid=seq);
CREATE TRIGGER IF NOT EXISTS message_found AFTER INSERT ON message BEGIN INSERT INTO found(rowid, text) VALUES (new.seq, new.text); END;
CREATE TABLE IF NOT EXISTS member(name TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT;`

// A chatRoom is one room.
type chatRoom struct {
	state    durable.State
	db       durable.SQL
	presence time.Duration
}

func newRoom(state durable.State, env durable.Env) (durable.Object, error) {
	_, err := state.SQL().Exec(context.Background(), schema)
	return &chatRoom{state, state.SQL(), time.Duration(env.Settings().(*Settings).PresenceSeconds) * time.Second}, err
}

// A message is one that was said. Op is the operation id of who said it, and File
// the path of a file below the room's, or "".
type message struct {
	Seq  int64  `json:"seq"`
	Op   string `json:"op"`
	Name string `json:"name"`
	Text string `json:"text"`
	File string `json:"file,omitempty"`
	At   int64  `json:"at"` // epoch milliseconds
}

// A frame is what clients get on their sockets.
type frame struct {
	Messages []message `json:"messages,omitempty"`
	Members  []string  `json:"members,omitempty"`
}

// An ear is the attachment of a socket: whose it is, and what it has heard.
type ear struct {
	name, members string
	seq           int64
}

func (c *chatRoom) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	switch {
	case r.URL.Path == "/socket":
		c.join(w, r, after)
	case r.URL.Path == "/search":
		answer(w, c.search(r.Context(), r.URL.Query().Get("q")))
	case r.Method == http.MethodPost:
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || !sound(m) {
			http.Error(w, "a message has an op, a name and a text", http.StatusBadRequest)
			return
		}
		must(c.say(r.Context(), m))
	default:
		answer(w, c.after(r.Context(), after))
	}
}

// sound reports whether a message can be said.
func sound(m message) bool {
	return m.Op != "" && len(m.Op) <= maxName && m.Name != "" && len(m.Name) <= maxName && len(m.Text) <= maxText && len(m.File) <= 1<<10
}

// join accepts a socket that has heard what came before after.
func (c *chatRoom) join(w http.ResponseWriter, r *http.Request, after int64) {
	name := r.URL.Query().Get("name")
	if name == "" || len(name) > maxName {
		http.Error(w, fmt.Sprintf("a name has 1 to %d bytes", maxName), http.StatusBadRequest)
		return
	}
	if _, err := c.state.AcceptSocket(w, r, ear{name: name, seq: after}); err != nil {
		return // it is answered
	}
	must(c.here(r.Context(), name))
	must(c.tell(r.Context()))
}

// SocketMessage is a message, or a sign of life when it is empty.
func (c *chatRoom) SocketMessage(ctx context.Context, s durable.Socket, m durable.SocketMessage) error {
	name := s.Attachment().(ear).name
	if err := c.here(ctx, name); err != nil {
		return err
	}
	if len(m.Data) == 0 {
		return c.tell(ctx)
	}
	var said message
	if json.Unmarshal(m.Data, &said) != nil {
		return s.Close(1003, "a message is JSON")
	}
	if said.Name = name; !sound(said) {
		return s.Close(1003, "a message has an op and a text")
	}
	return c.say(ctx, said)
}

// SocketClose has nothing to do. A member who is gone is shown until the alarm, as
// one whose replica died: that brings no close.
func (c *chatRoom) SocketClose(context.Context, durable.Socket, int, string) error { return nil }

// SocketWake runs when another replica has stored something.
func (c *chatRoom) SocketWake(ctx context.Context) error { return c.deliver(ctx) }

// say stores a message, unless it is there.
func (c *chatRoom) say(ctx context.Context, m message) error {
	if _, err := c.db.Exec(ctx, `INSERT INTO message(op, name, text, file, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT(op) DO NOTHING`,
		m.Op, m.Name, m.Text, m.File, c.state.Now().UnixMilli()); err != nil {
		return err
	}
	return c.tell(ctx)
}

// tell has all members hear what is new, on other replicas too.
func (c *chatRoom) tell(ctx context.Context) error {
	if err := c.deliver(ctx); err != nil {
		return err
	}
	return c.state.WakeSockets()
}

// deliver sends each socket of this replica what it has not heard. What it sends
// follows from what is stored, so it may run any number of times.
func (c *chatRoom) deliver(ctx context.Context) error {
	members := c.members(ctx)
	for _, s := range c.state.Sockets() {
		e := s.Attachment().(ear)
		var f frame
		if all := strings.Join(members, "\n"); e.members != all {
			f.Members, e.members = members, all
		}
		f.Messages = c.after(ctx, e.seq)
		if len(f.Messages)+len(f.Members) == 0 {
			continue
		}
		for len(f.Messages) > 0 {
			e.seq = f.Messages[len(f.Messages)-1].Seq
			if err := send(s, f); err != nil {
				return err
			}
			f = frame{Messages: c.after(ctx, e.seq)}
		}
		if f.Members != nil {
			if err := send(s, f); err != nil {
				return err
			}
		}
		s.SetAttachment(e)
	}
	return nil
}

func send(s durable.Socket, f frame) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return s.Send(durable.SocketMessage{Data: text})
}

// here shows a member, for a while.
func (c *chatRoom) here(ctx context.Context, name string) error {
	until := c.state.Now().Add(c.presence)
	if _, err := c.db.Exec(ctx, `INSERT INTO member VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET until = excluded.until`, name, until.UnixMilli()); err != nil {
		return err
	}
	if _, set := c.state.Alarm(); set {
		return nil // it looks after this member too
	}
	return c.state.SetAlarm(until)
}

// Alarm lets go of the members of whom nothing was heard, and comes again when
// the next may be gone.
func (c *chatRoom) Alarm(ctx context.Context, _ durable.AlarmInfo) error {
	if _, err := c.db.Exec(ctx, `DELETE FROM member WHERE until <= ?`, c.state.Now().UnixMilli()); err != nil {
		return err
	}
	for row, err := range c.db.Query(ctx, `SELECT until FROM member ORDER BY until LIMIT 1`) {
		var next int64
		if err == nil {
			err = row.Scan(&next)
		}
		if err == nil {
			err = c.state.SetAlarm(time.UnixMilli(next))
		}
		if err != nil {
			return err
		}
	}
	return c.tell(ctx)
}

func (c *chatRoom) members(ctx context.Context) (names []string) {
	for row, err := range c.db.Query(ctx, `SELECT name FROM member ORDER BY name`) {
		must(err)
		names = append(names, row.Values[0].(string))
	}
	return names
}

const columns = `SELECT m.seq, m.op, m.name, m.text, m.file, m.at FROM message m `

// after lists the messages behind one, in their order.
func (c *chatRoom) after(ctx context.Context, seq int64) []message {
	return c.list(ctx, columns+`WHERE m.seq > ? ORDER BY m.seq LIMIT ?`, seq, atOnce)
}

// search lists the newest messages that have all the words.
func (c *chatRoom) search(ctx context.Context, words string) []message {
	var terms []string
	for word := range strings.FieldsSeq(words) {
		terms = append(terms, `"`+strings.ReplaceAll(word, `"`, `""`)+`"`) // no operators of FTS5
	}
	if len(terms) == 0 {
		return []message{}
	}
	return c.list(ctx, columns+`JOIN found f ON f.rowid = m.seq WHERE found MATCH ? ORDER BY m.seq DESC LIMIT ?`, strings.Join(terms, " "), atOnce)
}

func (c *chatRoom) list(ctx context.Context, query string, args ...any) []message {
	list := []message{}
	for row, err := range c.db.Query(ctx, query, args...) {
		var m message
		must(err)
		must(row.Scan(&m.Seq, &m.Op, &m.Name, &m.Text, &m.File, &m.At))
		list = append(list, m)
	}
	return list
}

func answer(w http.ResponseWriter, list []message) {
	w.Header().Set("Content-Type", "application/json")
	must(json.NewEncoder(w).Encode(list))
}

// must fails the event: the host undoes it and answers for it.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
